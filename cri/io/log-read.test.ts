import assert from 'node:assert/strict';
import { appendFile, mkdir, mkdtemp, rename, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { realClock } from '../../base/clock.ts';
import { readLog, type ReadLogOptions } from './log-read.ts';

async function setUp(t: TestContext): Promise<{ root: string; path: string }> {
  const root = await mkdtemp(join(tmpdir(), 'logs-'));
  t.after(() => rm(root, { recursive: true }));
  await mkdir(join(root, 'default_p_uid', 'c'), { recursive: true });
  return { root, path: join(root, 'default_p_uid', 'c', '0.log') };
}

const line = (text: string, second = 0): string => `2026-01-01T00:00:${String(second).padStart(2, '0')}Z stdout F ${text}\n`;
const never = new AbortController().signal;

async function read(place: { root: string; path: string }, options: Partial<ReadLogOptions> = {}, signal = never): Promise<string> {
  const pieces: Uint8Array[] = [];
  const defaults = {
    clock: realClock,
    follow: false,
    tailLines: null,
    limitBytes: null,
    sinceMicros: null,
    timestamps: false,
    stream: 'All',
    isRunning: () => false,
  } as const;
  await readLog({ ...defaults, ...place, ...options }, async (piece) => void pieces.push(piece), signal);
  return Buffer.concat(pieces).toString();
}

test('the whole file, its tail, and its first bytes', async (t) => {
  const place = await setUp(t);
  await writeFile(place.path, [1, 2, 3, 4].map((n) => line(`l${n}`, n)).join(''));
  assert.equal(await read(place), 'l1\nl2\nl3\nl4\n');
  assert.equal(await read(place, { tailLines: 2 }), 'l3\nl4\n');
  assert.equal(await read(place, { tailLines: 0 }), '');
  assert.equal(await read(place, { tailLines: 9 }), 'l1\nl2\nl3\nl4\n');
  assert.equal(await read(place, { limitBytes: 4 }), 'l1\nl');
  assert.equal(await read(place, { sinceMicros: Date.UTC(2026, 0, 1, 0, 0, 3) * 1000 }), 'l3\nl4\n');
});

test('tails over many blocks, and a last line without its newline', async (t) => {
  const place = await setUp(t);
  const many = Array.from({ length: 5000 }, (_, n) => line(`number ${n}`)).join('');
  await writeFile(place.path, many + line('last').trimEnd());
  assert.equal(await read(place, { tailLines: 3 }), 'number 4998\nnumber 4999\nlast\n');
  assert.equal((await read(place, { tailLines: 4500 })).split('\n').length, 4501);
});

test('an absent file and symbolic links are refused', async (t) => {
  const place = await setUp(t);
  await assert.rejects(read(place), { code: 'not-found' });
  await writeFile(join(place.root, 'secret'), line('secret'));
  await symlink(join(place.root, 'secret'), place.path);
  await assert.rejects(read(place), { code: 'denied' });
  await symlink(join(place.root, 'default_p_uid'), join(place.root, 'other'));
  await writeFile(join(place.root, 'default_p_uid', 'c', '1.log'), line('x'));
  await assert.rejects(read({ root: place.root, path: join(place.root, 'other', 'c', '1.log') }), { code: 'denied' });
  await assert.rejects(read({ root: place.root, path: '/etc/passwd' }), { code: 'denied' });
});

test('following over rotations gives each line once and in order, and ends with the container', async (t) => {
  const place = await setUp(t);
  await writeFile(place.path, '');
  let running = true;
  const following = read(place, { follow: true, isRunning: () => running });
  for (let n = 0; n < 600; n++) {
    await appendFile(place.path, line(String(n)));
    if (n % 100 === 99) {
      // As the agent and the runtime do it: rename, write on to the old file, then reopen.
      const old = `${place.path}.2026010100000${n / 100}`;
      await rename(place.path, old);
      await appendFile(old, line(`${n}+`));
      await delay(n === 299 ? 120 : 5);
      await writeFile(place.path, '');
    }
    if (n % 40 === 0) await delay(10);
  }
  running = false;
  const numbers = (await following).trimEnd().split('\n');
  const expected = Array.from({ length: 600 }, (_, n) => (n % 100 === 99 ? [String(n), `${n}+`] : [String(n)])).flat();
  assert.deepEqual(numbers, expected);
});

test('following stops when the reader goes, and waits for a slow one', async (t) => {
  const place = await setUp(t);
  await writeFile(place.path, line('a').repeat(20_000));
  const stop = new AbortController();
  let taken = 0;
  let inside = 0;
  const defaults = {
    clock: realClock,
    follow: true,
    tailLines: null,
    limitBytes: null,
    sinceMicros: null,
    timestamps: false,
    stream: 'All',
    isRunning: () => true,
  } as const;
  await readLog(
    { ...defaults, ...place },
    async () => {
      inside++;
      assert.equal(inside, 1);
      await delay(2);
      inside--;
      taken++;
      if (taken === 3) stop.abort();
    },
    stop.signal,
  );
  assert.equal(taken, 3);
});
