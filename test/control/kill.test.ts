import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { realClock } from '../../base/clock.ts';
import { realRng } from '../../base/rng.ts';
import { openStore } from '../../control/io/store.ts';

const ROUNDS = 12;

/** Writes without end and says each number once it is acknowledged; the test kills it from outside. */
async function write(path: string, from: number): Promise<never> {
  const store = openStore({
    path,
    clock: realClock,
    fatal(error) {
      throw error;
    },
  });
  for (let count = from; ;) {
    for (let at = 0; at < 7; at++) {
      count++;
      store.put('/x', 'a', `o${count % 50}`, { kind: 'X', metadata: { name: `o${count % 50}` }, count });
    }
    await store.committed();
    writeSync(1, `${count} ${store.revision}\n`);
  }
}

// This file is its own child.
if (process.argv[2] === 'write') await write(process.argv[3]!, Number(process.argv[4]));

test(`nothing acknowledged is lost in ${ROUNDS} kills`, async () => {
  const directory = mkdtempSync(join(tmpdir(), 'kill-'));
  const path = join(directory, 'state.db');
  try {
    let acknowledged = 0;
    let revision = 0;
    for (let round = 0; round < ROUNDS; round++) {
      const child = spawn(process.execPath, [import.meta.filename, 'write', path, String(acknowledged)], {
        stdio: ['ignore', 'pipe', 'inherit'],
      });
      let text = '';
      const first = Promise.withResolvers<void>();
      child.stdout.on('data', (chunk: Buffer) => {
        text += chunk.toString();
        first.resolve();
      });
      const ended = Promise.withResolvers<void>();
      child.on('close', () => ended.resolve());
      await first.promise;
      await new Promise((resolve) => setTimeout(resolve, realRng.int(60)));
      child.kill('SIGKILL');
      await ended.promise;
      const last = text.trimEnd().split('\n').at(-1)!.split(' ').map(Number);
      acknowledged = last[0]!;
      revision = last[1]!;
      using store = openStore({
        path,
        clock: realClock,
        fatal(error) {
          throw error;
        },
      });
      assert.ok(store.revision >= revision, `version ${store.revision} is older than the acknowledged ${revision}`);
      const newest = Math.max(...store.list('/x', 'a').map((entry) => entry.object['count'] as number));
      assert.ok(newest >= acknowledged, `${newest} is older than the acknowledged ${acknowledged}`);
      // The next round goes on from what is there, acknowledged or not.
      acknowledged = newest;
    }
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});
