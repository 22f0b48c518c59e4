import assert from 'node:assert/strict';
import { mkdtempSync, readdirSync, rmSync, statSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { realClock } from '../../base/clock.ts';
import { openStore } from './store.ts';
import type { Change, Store, StoreOptions } from './store.ts';

const open = (options: Partial<StoreOptions> = {}): Store =>
  openStore({
    path: ':memory:',
    clock: realClock,
    fatal: (error) => {
      throw error;
    },
    ...options,
  });
const object = (name: string, value = 0): Record<string, unknown> => ({ kind: 'X', metadata: { name }, value });

test('each write gets the next version and carries it', async () => {
  using store = open();
  const first = store.put('/x', 'a', 'one', object('one'));
  const second = store.put('/x', 'a', 'one', object('one', 1));
  assert.equal(second.revision, first.revision + 1);
  assert.equal(second.object['metadata'].resourceVersion, String(second.revision));
  assert.equal(store.revision, 0, 'nothing is on disk yet');
  await store.committed();
  assert.equal(store.revision, second.revision);
});

test('lists are sorted, and a namespace is only its own', async () => {
  using store = open();
  for (const [space, name] of [
    ['b', 'x'],
    ['a', 'z'],
    ['a', 'y'],
    ['ab', 'w'],
  ] as const)
    store.put('/x', space, name, object(name));
  assert.deepEqual(
    store.list('/x', '').map((entry) => `${entry.namespace}/${entry.name}`),
    ['a/y', 'a/z', 'ab/w', 'b/x'],
  );
  assert.deepEqual(
    store.list('/x', 'a').map((entry) => entry.name),
    ['y', 'z'],
  );
});

test('an older version of a collection can be read until it is compacted', async () => {
  using store = open();
  const one = store.put('/x', '', 'one', object('one'));
  store.put('/x', '', 'two', object('two'));
  store.put('/x', '', 'one', object('one', 1));
  store.remove('/x', '', 'two', object('two'));
  await store.committed();
  const then = store.listAt('/x', '', one.revision + 1);
  assert.deepEqual(
    then?.map((entry) => [entry.name, entry.object['value']]),
    [
      ['one', 0],
      ['two', 0],
    ],
  );
  assert.deepEqual(
    store.listAt('/x', '', store.revision)?.map((entry) => entry.object['value']),
    [1],
  );
  store.compact();
  assert.equal(store.listAt('/x', '', one.revision), undefined);
});

test('a watch gives each later change once and in order, from the window and then live', async () => {
  using store = open();
  const first = store.put('/x', '', 'one', object('one'));
  store.put('/y', '', 'other', object('other'));
  store.put('/x', '', 'one', object('one', 1));
  await store.committed();
  const seen: Change[] = [];
  using _feed = store.watch('/x', first.revision, (change) => seen.push(change));
  store.put('/x', '', 'two', object('two'));
  store.remove('/x', '', 'one', object('one', 1));
  await store.committed();
  assert.deepEqual(
    seen.map(({ type, entry }) => `${type} ${entry.name}`),
    ['MODIFIED one', 'ADDED two', 'DELETED one'],
  );
  assert.deepEqual(
    seen.map(({ revision }) => revision),
    seen.map(({ revision }) => revision).toSorted((a, b) => a - b),
  );
});

test('what was committed is there again after opening, at the same version', async () => {
  const directory = mkdtempSync(join(tmpdir(), 'store-'));
  try {
    const path = join(directory, 'state.db');
    const before = open({ path });
    before.put('/x', 'a', 'one', object('one', 7));
    const gone = before.put('/x', 'a', 'two', object('two'));
    before.remove('/x', 'a', 'two', gone.object);
    await before.committed();
    const { revision } = before;
    before[Symbol.dispose]();
    using after = open({ path });
    assert.equal(after.revision, revision, 'the deletion was the newest version');
    assert.equal(after.get('/x', 'a', 'one')?.object['value'], 7);
    assert.equal(after.get('/x', 'a', 'two'), undefined);
    assert.equal(after.compacted, revision, 'watches cannot start before the process did');
  } finally {
    rmSync(directory, { recursive: true, force: true });
  }
});

test('the window is bounded by count', async () => {
  using store = open({ windowChanges: 100 });
  for (let at = 0; at < 1200; at++) store.put('/x', '', 'one', object('one', at));
  await store.committed();
  assert.ok(store.counts().changes <= 600, String(store.counts().changes));
  assert.ok(store.compacted > 0);
});

test('nobody else can read what is on disk: it holds Secrets', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'store-'));
  const before = process.umask(0);
  try {
    using store = open({ path: join(dir, 'state.db') });
    store.put('/x', 'a', 'one', object('one'));
    await store.committed();
    for (const name of readdirSync(dir)) assert.equal(statSync(join(dir, name)).mode & 0o777, 0o600, name);
  } finally {
    process.umask(before);
    rmSync(dir, { recursive: true });
  }
});

test('a full disk refuses writes, keeps what was acknowledged, and takes writes again once there is room', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'store-'));
  const path = join(dir, 'state.db');
  const large = (size: number): Record<string, unknown> => ({ ...object('one'), data: 'x'.repeat(size) });
  try {
    {
      using store = open({ path, maxPages: 30 });
      const kept = store.put('/x', 'a', 'one', object('one', 1));
      store.put('/x', 'a', 'two', object('two', 1));
      await store.committed();
      store.put('/x', 'a', 'one', large(300_000));
      store.remove('/x', 'a', 'two', object('two'));
      store.put('/x', 'a', 'three', object('three'));
      await assert.rejects(store.committed(), /disk is full/);
      assert.deepEqual(
        store.list('/x', 'a').map((entry) => entry.name),
        ['one', 'two'],
      );
      assert.equal(store.get('/x', 'a', 'one'), kept);
      const seen: string[] = [];
      using _feed = store.watch('/x', store.revision, (change) => seen.push(`${change.type} ${change.entry.name}`));
      store.put('/x', 'a', 'four', object('four'));
      await store.committed();
      assert.deepEqual(seen, ['ADDED four'], 'what was refused is never told');
    }
    using again = open({ path });
    assert.deepEqual(
      again.list('/x', 'a').map((entry) => entry.name),
      ['four', 'one', 'two'],
    );
  } finally {
    rmSync(dir, { recursive: true });
  }
});
