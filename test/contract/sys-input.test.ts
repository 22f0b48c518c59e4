import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { hasCode } from '../../base/errors.ts';
import { silentLog } from '../../base/log.ts';
import { createSysClient } from '../../base/sys/client.ts';
import { createFallbackSys } from '../../base/sys/fallback.ts';
import type { RunRequest, Sys } from '../../base/sys/types.ts';
import { buildProgram, sysProblem } from '../sys/program.ts';

/* What a program reads comes in parts: the part of the contract of `Sys.run` that both of its ways to run have in common. */
const skip = sysProblem();
if (skip !== false) console.log(`input in parts: skipped, ${skip}`);

const WAIT_MS = 5000;

async function* several(asked: string[]): AsyncGenerator<string> {
  for (const part of ['one\n', 'two\n', 'three\n']) {
    asked.push(part);
    yield part;
  }
}

async function* endless(asked: string[]): AsyncGenerator<string> {
  for (;;) {
    asked.push('more');
    yield 'x'.repeat(100_000);
  }
}

async function* late(): AsyncGenerator<string> {
  yield 'begun\n';
  await new Promise(() => {});
}

async function* failing(): AsyncGenerator<string> {
  yield 'begun\n';
  throw new TypeError('no more');
}

for (const name of ['real', 'fallback'] as const) {
  describe(`input in parts: ${name}`, { skip }, () => {
    const withSys = async (body: (run: (script: string, stdin: RunRequest['stdin']) => Promise<string>, sys: Sys) => Promise<void>): Promise<void> => {
      using program = buildProgram();
      await using sys = name === 'real' ? createSysClient({ path: program.path, log: silentLog }) : createFallbackSys({ log: silentLog });
      await body(async (script, stdin) => Buffer.from((await sys.run({ argv: ['sh', '-c', script], stdin, timeoutMs: WAIT_MS })).stdout).toString(), sys);
    };

    test('a program gets all of them in their order', () =>
      withSys(async (run) => {
        const asked: string[] = [];
        assert.equal(await run('cat', several(asked)), 'one\ntwo\nthree\n');
        assert.equal(asked.length, 3);
      }));

    test('no more are asked for than it reads', () =>
      withSys(async (run) => {
        const asked: string[] = [];
        assert.equal(await run('head -c 3; sleep 0.2', endless(asked)), 'xxx');
        assert.ok(asked.length < 200, `${asked.length} parts of what nobody reads`);
      }));

    test('one that does not come holds up nobody who has read enough', () =>
      withSys(async (run) => {
        assert.equal(await run('read line; echo "$line"', late()), 'begun\n');
      }));

    test('what they fail with is what the run fails with', () =>
      withSys(async (run) => {
        await assert.rejects(run('cat', failing()), TypeError);
      }));

    test('where the program is missing, that is said', () =>
      withSys(async (_run, sys) => {
        await assert.rejects(sys.run({ argv: ['/nonexistent'], stdin: several([]), timeoutMs: WAIT_MS }), (error) => hasCode(error, 'not-found'));
      }));
  });
}
