import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { networkInterfaces } from 'node:os';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { nodeAddresses } from '../../agent/io/machine.ts';

const problem = process.getuid?.() === 0 ? null : 'needs root';
if (problem !== null) console.log(`skipped: ${problem}`);

test('an address is the machine’s also while its link has no carrier; a loopback address never is', { skip: problem ?? false }, async () => {
  const link = `nlt${process.pid % 100_000}`;
  const ip = (...words: string[]): void => void execFileSync('ip', words, { stdio: 'ignore' });
  ip('link', 'add', link, 'type', 'veth', 'peer', 'name', `${link}p`);
  try {
    ip('address', 'add', '192.0.2.77/32', 'dev', link);
    ip('link', 'set', link, 'up');
    // The kernel looks for a carrier some time later.
    for (let tries = 0; tries < 100 && networkInterfaces()[link] !== undefined; tries += 1) await delay(50);
    assert.equal(networkInterfaces()[link], undefined, 'it has no carrier');
    assert.deepEqual(await nodeAddresses('n', ['192.0.2.77']), [
      { type: 'InternalIP', address: '192.0.2.77' },
      { type: 'Hostname', address: 'n' },
    ]);
  } finally {
    ip('link', 'delete', link);
  }
  await assert.rejects(nodeAddresses('n', ['192.0.2.77']), /not an address of this machine/);
  await assert.rejects(nodeAddresses('n', ['127.0.0.2']), /not an address of this machine/);
});
