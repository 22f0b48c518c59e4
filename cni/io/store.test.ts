import assert from 'node:assert/strict';
import { mkdtempSync, rmSync, truncateSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';
import { test, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { hasCode, OpError } from '../../base/errors.ts';
import { openStore, type Store } from './store.ts';

const who = { containerId: 'c', ifname: 'eth0' };
const row = { ...who, network: 'pods', hostLink: 'nl-1', phase: 'adding' } as const;

function folder(t: TestContext): string {
  const dir = mkdtempSync(join(tmpdir(), 'cni-store-'));
  t.after(() => rmSync(dir, { recursive: true }));
  return dir;
}

async function opened(t: TestContext, dir: string): Promise<Store> {
  const store = await openStore(dir, { boot: 'b' });
  t.after(() => store[Symbol.dispose]());
  return store;
}

test('a file that is no database is told of, with what to do', async (t) => {
  const dir = folder(t);
  writeFileSync(`${dir}/state.db`, 'this is not a database, and long enough to be looked at'.repeat(100));
  await assert.rejects(
    openStore(dir, { boot: 'b' }),
    (error) => error instanceof OpError && /drain the node/.test(error.advice) && /state\.db/.test(error.message),
  );
});

test('a damaged one, too, when it is found out later', async (t) => {
  const dir = folder(t);
  const first = await openStore(dir, { boot: 'b' });
  for (let at = 0; at < 500; at += 1) first.insert({ ...row, containerId: `c${at}` });
  first[Symbol.dispose]();
  truncateSync(`${dir}/state.db`, 8192);
  await assert.rejects(
    opened(t, dir).then((store) => store.all()),
    (error) => error instanceof OpError && /damaged|none of ours/.test(error.advice),
  );
});

test('what ends a transaction by itself is the failure that is told, and the next one works', async (t) => {
  const dir = folder(t);
  const store = await opened(t, dir);
  const other = new DatabaseSync(`${dir}/state.db`);
  // As a full disk does it.
  other.exec("CREATE TRIGGER full BEFORE INSERT ON attachment BEGIN SELECT RAISE(ROLLBACK, 'database or disk is full'); END");
  await assert.rejects(
    store.transaction(() => store.insert(row)),
    (error) => hasCode(error, 'failed') && /disk is full/.test(String(error)),
  );
  other.exec('DROP TRIGGER full');
  other.close();
  await store.transaction(() => store.insert(row));
  assert.equal(store.all().length, 1);
});

test('what a caller throws inside of a transaction comes out as it is, and undoes it', async (t) => {
  const store = await opened(t, folder(t));
  const own = Object.assign(new Error('no address is free'), { code: 100 });
  await assert.rejects(
    store.transaction(() => {
      store.insert(row);
      throw own;
    }),
    own,
  );
  assert.deepEqual(store.all(), []);
});

test('while another process writes, a transaction waits its turn and nothing else does', async (t) => {
  const dir = folder(t);
  const store = await opened(t, dir);
  const other = new DatabaseSync(`${dir}/state.db`);
  t.after(() => other.close());
  other.exec('BEGIN IMMEDIATE');
  let turns = 0;
  const timer = setInterval(() => turns++, 10);
  t.after(() => clearInterval(timer));
  const done = store.transaction(() => store.insert(row));
  await delay(300);
  assert.ok(turns >= 5, `${turns} turns of the event loop in 300 ms`);
  assert.deepEqual(store.all(), []);
  other.exec('COMMIT');
  await done;
  assert.equal(store.all().length, 1);
});

test('a turn that does not come is told as such', async (t) => {
  const dir = folder(t);
  const store = await openStore(dir, { boot: 'b', waitMs: 50 });
  t.after(() => store[Symbol.dispose]());
  const other = new DatabaseSync(`${dir}/state.db`);
  t.after(() => other.close());
  other.exec('BEGIN IMMEDIATE');
  await assert.rejects(
    store.transaction(() => store.insert(row)),
    (error) => hasCode(error, 'unavailable'),
  );
});

test('a folder that cannot be made', async (t) => {
  const dir = folder(t);
  writeFileSync(`${dir}/file`, '');
  await assert.rejects(openStore(`${dir}/file/below`, { boot: 'b' }), OpError);
});

test('while another process has the file locked, opening waits its turn and nothing else does', async (t) => {
  const dir = folder(t);
  (await opened(t, dir)).insert(row);
  const other = new DatabaseSync(`${dir}/state.db`);
  t.after(() => other.close());
  let turns = 0;
  const timer = setInterval(() => turns++, 10);
  t.after(() => clearInterval(timer));
  other.exec('BEGIN IMMEDIATE');
  // Of another boot: the file is written to before it is open.
  const opening = openStore(dir, { boot: 'c' });
  await delay(300);
  assert.ok(turns >= 5, `${turns} turns of the event loop in 300 ms`);
  other.exec('COMMIT');
  const store = await opening;
  t.after(() => store[Symbol.dispose]());
  assert.deepEqual(store.all(), []);
  other.exec('BEGIN IMMEDIATE');
  await assert.rejects(openStore(dir, { boot: 'd', waitMs: 50 }), (error) => hasCode(error, 'unavailable'));
});
