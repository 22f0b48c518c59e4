import assert from 'node:assert/strict';
import { rmSync, writeFileSync } from 'node:fs';
import { mkdir, mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { realClock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { silentLog } from '../../base/log.ts';
import { createStaticPods } from './pods-static.ts';

const manifest = (name: string, image = 'a:1'): string =>
  `apiVersion: v1\nkind: Pod\nmetadata: {name: ${name}}\nspec: {containers: [{name: main, image: '${image}'}]}\n`;

async function setUp(t: TestContext, rescanMs = 60_000) {
  const dir = await mkdtemp(join(tmpdir(), 'static-'));
  t.after(() => rm(dir, { recursive: true, force: true }));
  const path = join(dir, 'manifests');
  const errors: string[] = [];
  const log: Log = { ...silentLog, error: (_message, fields) => void errors.push(String(fields?.['err'])) };
  const source = createStaticPods({ clock: realClock, log, nodeName: 'n1', path, rescanMs });
  const told: string[] = [];
  source.onUpdate((key) => void told.push(key.name));
  const stop = new AbortController();
  const running: Promise<void>[] = [];
  t.after(async () => {
    stop.abort();
    await Promise.all(running);
  });
  const names = (): string[] => source.list().map(({ key }) => key.name);
  return { dir, path, source, told, errors, names, start: () => void running.push(source.run(stop.signal)) };
}

async function until(condition: () => boolean, what: string): Promise<void> {
  for (let waited = 0; !condition(); waited += 10) {
    assert.ok(waited < 10_000, `not in time: ${what}`);
    await delay(10);
  }
}

test('files come, change and go; hidden files, folders and nonsense are no pods', async (t) => {
  const { errors, names, path, source, start, told } = await setUp(t);
  await mkdir(path);
  await writeFile(join(path, 'web.yaml'), manifest('web'));
  await writeFile(join(path, '.web.yaml.swp'), manifest('hidden'));
  await mkdir(join(path, 'folder'));
  await writeFile(join(path, 'broken.yaml'), '{ not yaml');
  assert.equal(source.synced(), false);
  start();
  await until(() => source.synced(), 'the first scan');
  assert.deepEqual(names(), ['web-n1']);
  assert.equal(errors.length, 2);
  const first = source.list()[0];
  await writeFile(
    join(path, 'db.json'),
    JSON.stringify({ apiVersion: 'v1', kind: 'Pod', metadata: { name: 'db' }, spec: { containers: [{ name: 'm', image: 'b:1' }] } }),
  );
  await until(() => names().length === 2, 'another file');
  assert.equal(source.get(first?.key.uid ?? ''), first, 'what has not changed is the same object');
  await writeFile(join(path, '.new'), manifest('web', 'a:2'));
  await rename(join(path, '.new'), join(path, 'web.yaml'));
  await until(() => source.list().some(({ pod }) => pod.spec.containers[0]?.image === 'a:2'), 'a changed file');
  assert.equal(source.get(first?.key.uid ?? ''), undefined, 'another content is another UID');
  await rm(join(path, 'web.yaml'));
  await until(() => names().join() === 'db-n1', 'a removed file');
  assert.deepEqual([...new Set(told)].toSorted(), ['db-n1', 'web-n1']);
});

test('a folder that comes later is found; two files of one pod give one, and which is said', async (t) => {
  const { errors, names, path, source, start } = await setUp(t, 50);
  start();
  await until(() => source.synced(), 'the first scan of nothing');
  assert.deepEqual(names(), []);
  await mkdir(path);
  await writeFile(join(path, 'a.yaml'), manifest('web'));
  await writeFile(join(path, 'b.yaml'), manifest('web', 'a:2'));
  await until(() => names().length === 1 && errors.length === 2, 'the pod and the complaint');
  assert.match(errors.at(-1) ?? '', /another manifest before it gives pod default\/web-n1/);
});

test('a file that is broken by a change keeps its pod until the next full scan', async (t) => {
  const { errors, names, path, start } = await setUp(t, 1_500);
  await mkdir(path);
  await writeFile(join(path, 'web.yaml'), manifest('web'));
  start();
  await until(() => names().length === 1, 'the pod');
  await writeFile(join(path, 'web.yaml'), '{ half');
  await until(() => errors.length === 1, 'the complaint');
  assert.deepEqual(names(), ['web-n1']);
  await until(() => names().length === 0, 'the full scan');
});

test('a file that is removed and at once written again drops its pod and has it again; one that is replaced does not', async (t) => {
  const { names, path, source, start, told } = await setUp(t);
  await mkdir(path);
  const file = join(path, 'web.yaml');
  await writeFile(file, manifest('web'));
  start();
  await until(() => names().length === 1, 'the pod');
  const wanted: boolean[] = [];
  source.onUpdate(({ uid }) => void wanted.push(source.get(uid) !== undefined));
  const before = told.length;
  await writeFile(join(path, '.new'), manifest('web'));
  await rename(join(path, '.new'), file);
  await writeFile(join(path, 'other.yaml'), manifest('other'));
  await until(() => names().length === 2, 'the scan after the replacement');
  assert.deepEqual(told.slice(before), ['other-n1']);
  wanted.length = 0;
  rmSync(file);
  writeFileSync(file, manifest('web'));
  await until(() => wanted.length === 2, 'that it went and came');
  assert.deepEqual(wanted, [false, true]);
  assert.deepEqual(names().toSorted(), ['other-n1', 'web-n1']);
});
