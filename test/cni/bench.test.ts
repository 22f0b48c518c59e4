import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, mkdtempSync, readdirSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { atMost } from '../../base/abort.ts';
import { realClock } from '../../base/clock.ts';
import { missing } from './lab.ts';

const ROOT = join(import.meta.dirname, '../..');
const skip = missing() ?? (existsSync(join(ROOT, 'dist/nodelet.mjs')) ? false : 'needs dist/nodelet.mjs (./nodelet)');
const WITHIN_MS = 60_000;

test('a bench of the plugin that is interrupted takes back what it made', { skip }, async (t) => {
  // Plugins that wait for ever: the bench is in the middle of a call.
  const plugins = mkdtempSync(join(tmpdir(), 'bench-plugins-'));
  t.after(() => rmSync(plugins, { recursive: true }));
  for (const name of ['ptp', 'host-local', 'portmap'])
    writeFileSync(join(plugins, name), `#!/bin/sh\ntouch ${plugins}/called\nexec sleep 1000\n`, { mode: 0o755 });
  const bench = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', join(ROOT, 'scripts/bench-cni.ts'), '--plugins', plugins], {
    stdio: 'ignore',
    detached: true,
  });
  const exit = once(bench, 'exit');
  const mine = (): string[] =>
    [...readdirSync('/run/netns'), ...readdirSync(tmpdir())].filter((name) => /^(nbc|nodelet-bench-cni)-/.test(name) && name.includes(`-${bench.pid}-`));
  for (const endMs = performance.now() + WITHIN_MS; !existsSync(join(plugins, 'called')); await realClock.sleep(50)) {
    assert.equal(bench.exitCode, null);
    assert.ok(performance.now() < endMs, 'it calls no plugin');
  }
  assert.equal(mine().length, 3);
  process.kill(-bench.pid!, 'SIGINT');
  assert.ok(await atMost(realClock, exit, WITHIN_MS));
  assert.equal(bench.exitCode, 143);
  assert.deepEqual(mine(), []);
});
