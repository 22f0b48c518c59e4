import assert from 'node:assert/strict';
import { test } from 'node:test';
import { stepAside, stepIn, undo, whoStands, type Move, type Name, type Standing } from './standing.ts';

type Folder = Partial<Record<Name, string>>;

/** As the kernel does it. */
function move(folder: Folder, one: Move): Folder {
  const next = { ...folder };
  if (one.do === 'unlink') delete next[one.name];
  else {
    const from = next[one.from];
    assert.ok(from !== undefined, `${one.do} ${one.from}: nothing there`);
    if (one.do === 'link') assert.equal(next[one.to], undefined, `${one.to} is there`);
    // The kernel leaves both names when they are the same file.
    if (one.do === 'rename' && next[one.to] !== from) delete next[one.from];
    next[one.to] = from;
  }
  return next;
}

const see = (folder: Folder): Standing => ({ path: folder.path ?? null, real: folder.real ?? null, own: folder.own ?? null });

/** Every state in between, the first and the last included. */
function states(folder: Folder, moves: readonly Move[]): Folder[] {
  const all = [folder];
  for (const one of moves) all.push(move(all.at(-1) ?? {}, one));
  return all;
}

const last = (all: readonly Folder[]): Folder => all.at(-1) ?? {};

/** What a guard or `detach` does: what was half made goes first. */
function undone(folder: Folder): Folder {
  const moves = undo(see(folder));
  const { next: _, ...rest } = folder;
  return last(states(moves.length === 0 ? folder : rest, moves));
}

test('stepping in never leaves the place empty, and is undone from each state in between', () => {
  const all = states({ path: 'runtime', own: 'tap' }, stepIn({ path: 'runtime', real: null, own: 'tap' }));
  for (const folder of all) {
    assert.ok(folder.path !== undefined);
    assert.deepEqual(undone(folder), { path: 'runtime' });
  }
  assert.deepEqual(last(all), { path: 'tap', real: 'runtime', own: 'tap' });
  assert.equal(whoStands(see(last(all))), 'tap');
  assert.deepEqual(stepIn(see(last(all))), []);
});

test('the runtime binds anew: the tap steps in again, and what is undone then is the new socket', () => {
  const all = states({ path: 'second', real: 'first', own: 'tap' }, stepIn({ path: 'second', real: 'first', own: 'tap' }));
  for (const folder of all) assert.deepEqual(undone(folder), { path: 'second' });
  assert.deepEqual(last(all), { path: 'tap', real: 'second', own: 'tap' });
});

test('a runtime that took its socket away has no socket afterwards but the dead one', () => {
  const gone: Folder = { real: 'runtime', own: 'tap' };
  assert.equal(whoStands(see(gone)), 'nobody');
  assert.deepEqual(stepIn(see(gone)), []);
  assert.deepEqual(undone(gone), { path: 'runtime' });
});

test('stepping aside and in again', () => {
  const aside = states({ path: 'tap', real: 'runtime', own: 'tap' }, stepAside({ path: 'tap', real: 'runtime', own: 'tap' }));
  for (const folder of aside) assert.deepEqual(undone(folder), { path: 'runtime' });
  assert.deepEqual(last(aside), { path: 'runtime', real: 'runtime', own: 'tap' });
  assert.deepEqual(stepAside(see(last(aside))), []);
  const back = states(last(aside), stepIn(see(last(aside))));
  assert.deepEqual(last(back), { path: 'tap', real: 'runtime', own: 'tap' });
});

test('what is not ours is left alone', () => {
  assert.deepEqual(undo({ path: 'runtime', real: 'somebody else’s', own: null }), []);
  assert.deepEqual(undone({ path: 'tap', own: 'tap' }), {});
});
