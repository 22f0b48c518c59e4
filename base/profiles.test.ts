import assert from 'node:assert/strict';
import { spawnSync } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { gunzipSync } from 'node:zlib';
import { realClock } from './clock.ts';
import { Profiles } from './profiles.ts';

const never = new AbortController().signal;
const profiles = new Profiles(realClock, ['node', 'main.ts', 'agent']);
const ask = (name: string, query = '') => profiles.answer(name, new URLSearchParams(query), never);

function busyForTheProfile(ms: number): number {
  const untilMs = performance.now() + ms;
  let sum = 0;
  while (performance.now() < untilMs) sum += Math.sqrt(sum + 1);
  return sum;
}

test('a CPU profile names what was busy', async () => {
  const asked = ask('profile', 'seconds=0.4');
  const spinning = setInterval(() => busyForTheProfile(60), 5);
  const { status, headers, body } = await asked;
  clearInterval(spinning);
  assert.equal(status, 200);
  assert.equal(headers?.['content-disposition'], 'attachment; filename="profile"');
  const text = gunzipSync(body).toString('latin1');
  for (const word of ['samples', 'nanoseconds', 'busyForTheProfile', 'profiles.test.ts']) assert.ok(text.includes(word), word);
});

test('what was made while the heap was sampled', async () => {
  const kept: string[][] = [];
  const asked = ask('heap', 'seconds=0.3');
  const making = setInterval(() => kept.push(Array.from({ length: 20_000 }, (_, at) => `${at}`)), 20);
  const { body } = await asked;
  clearInterval(making);
  assert.ok(kept.length > 0);
  const text = gunzipSync(body).toString('latin1');
  for (const word of ['inuse_space', 'bytes', 'profiles.test.ts']) assert.ok(text.includes(word), word);
});

test('counts, and names that nobody knows', async () => {
  assert.match(String((await ask('goroutine', 'debug=1')).body), /^goroutine profile: total [1-9]\d*\n[1-9]\d* @\n#\t\w+\n/);
  assert.match(String((await ask('threadcreate', 'debug=1')).body), /^threadcreate profile: total [1-9]/);
  assert.equal((await ask('mutex', 'debug=1')).body, 'mutex profile: total 0\n');
  assert.equal((await ask('cmdline')).body, 'node\0main.ts\0agent');
  assert.deepEqual([(await ask('trace')).status, (await ask('nothing')).status, (await ask('profile', 'seconds=x')).status], [404, 404, 400]);
});

const go = spawnSync('go', ['version']).status === 0;

test('go tool pprof reads them', { skip: go ? false : 'there is no Go to read a profile with' }, async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'pprof-'));
  t.after(() => rm(dir, { recursive: true, force: true }));
  const file = join(dir, 'goroutine');
  await writeFile(file, (await ask('goroutine')).body);
  const read = spawnSync('go', ['tool', 'pprof', '-raw', file], { encoding: 'utf8', env: { ...process.env, PPROF_TMPDIR: dir } });
  assert.equal(read.status, 0, read.stderr);
  assert.match(read.stdout, /goroutine\/count/);
});
