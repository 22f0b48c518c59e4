import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join, relative } from 'node:path';
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
  try {
    for (;;) {
      asked.push('more');
      yield 'x'.repeat(100_000);
    }
  } finally {
    asked.push('no more');
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

async function inPlace<T>(place: string, body: () => Promise<T>): Promise<T> {
  const before = process.env.TMPDIR;
  process.env.TMPDIR = place;
  try {
    return await body();
  } finally {
    if (before === undefined) delete process.env.TMPDIR;
    else process.env.TMPDIR = before;
  }
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
        assert.equal(asked.at(-1), 'no more', 'who makes them hears of the end');
      }));

    test('one that does not come holds up nobody who has read enough', () =>
      withSys(async (run) => {
        assert.equal(await run('read line; echo "$line"', late()), 'begun\n');
      }));

    test('wherever temporary files go', () =>
      withSys(async (run) => {
        const folder = mkdtempSync(join(tmpdir(), 'sys-input-test-'));
        const isLeft = (): boolean => readdirSync(folder, { recursive: true }).some((file) => String(file).includes('sys-input-'));
        try {
          // Paths of sockets about as long as the kernel and both sides take them.
          const deep = Array.from({ length: 10 }, (_, index) => join(folder, 'x'.repeat(Math.max(1, 79 + index - folder.length))));
          for (const place of [folder, relative(process.cwd(), folder), ...deep, join(folder, 'x'.repeat(200))]) {
            mkdirSync(place, { recursive: true });
            assert.equal(await inPlace(place, () => run('cat', several([]))), 'one\ntwo\nthree\n', `${place.length} bytes`);
            assert.equal(isLeft(), false);
          }
          assert.equal(await inPlace(join(folder, 'missing'), () => run('cat', several([]))), 'one\ntwo\nthree\n');
          // Whoever is killed from then on leaves nothing.
          const whileReading = (async function* () {
            for (const deadline = Date.now() + WAIT_MS; isLeft() && Date.now() < deadline;) await new Promise((resolve) => setTimeout(resolve, 5));
            yield isLeft() ? 'left' : 'gone';
          })();
          assert.equal(await inPlace(folder, () => run('cat', whileReading)), 'gone');
        } finally {
          rmSync(folder, { recursive: true });
        }
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
