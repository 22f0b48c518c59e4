import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { realClock } from '../../base/clock.ts';
import { realRng } from '../../base/rng.ts';
import { openStore } from '../../control/io/store.ts';

const ROUNDS = 12;

test(`nothing acknowledged is lost in ${ROUNDS} kills`, async () => {
  const directory = mkdtempSync(join(tmpdir(), 'kill-'));
  const path = join(directory, 'state.db');
  try {
    let acknowledged = 0;
    let revision = 0;
    for (let round = 0; round < ROUNDS; round++) {
      const child = spawn(process.execPath, [join(import.meta.dirname, 'store-writer.ts'), path, String(acknowledged)], {
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
