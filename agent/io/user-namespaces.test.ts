import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setImmediate } from 'node:timers/promises';
import { OpError } from '../../base/errors.ts';
import { silentLog } from '../../base/log.ts';
import { fakeRunResult } from '../../base/sys/fake.ts';
import type { Pod } from '../../proto/kube/types.ts';
import { UserNamespaces, type MappingFiles, type UserNamespacesOptions } from './user-namespaces.ts';

const own = (uid: string): Pod => ({ metadata: { name: uid, uid }, spec: { hostUsers: false, containers: [] } });

async function optionsIn(t: TestContext, change: Partial<UserNamespacesOptions> = {}): Promise<UserNamespacesOptions> {
  const rootDir = await mkdtemp(join(tmpdir(), 'userns-'));
  t.after(() => rm(rootDir, { recursive: true }));
  const run = async (): Promise<never> => Promise.reject(new OpError('not-found', 'run', 'no such program'));
  return {
    log: silentLog,
    sys: { run },
    rng: { int: () => 0 },
    rootDir,
    idsPerPod: null,
    maxPods: 110,
    supports: (handler) => handler === 'runc',
    passwdFile: '/dev/null',
    ...change,
  };
}

test('each pod gets IDs of its own, kept over restarts and given again when it is gone', async (t) => {
  const options = await optionsIn(t);
  const first = async (opened: UserNamespaces, uid: string): Promise<number | undefined> => (await opened.of(own(uid), 'runc')).uids?.[0]?.hostId;
  const one = await UserNamespaces.open(options);
  assert.deepEqual(await Promise.all(['a', 'b'].map((uid) => first(one, uid))), [65_536, 131_072]);
  assert.equal(await first(one, 'a'), 65_536);
  const again = await UserNamespaces.open(options);
  assert.deepEqual([await first(again, 'c'), await first(again, 'b')], [196_608, 131_072]);
  await rm(join(options.rootDir, 'pods/a'), { recursive: true });
  again.release('a');
  assert.equal(await first(again, 'd'), 65_536);
  assert.match(await readFile(join(options.rootDir, 'pods/d/userns'), 'utf8'), /"hostId":65536/);
});

test('who has none, who cannot have one, and what is not believed', async (t) => {
  const options = await optionsIn(t);
  const opened = await UserNamespaces.open(options);
  assert.deepEqual(await opened.of({ metadata: {}, spec: { containers: [] } }, 'x'), { mode: 'NODE' });
  await assert.rejects(opened.of(own('p'), ''), { message: "can't set `spec.hostUsers: false`, runtime does not support user namespaces" });
  await assert.rejects(opened.of(own('p'), 'kata'), {
    message: 'can\'t set `spec.hostUsers: false`, RuntimeClass handler "kata" does not support user namespaces',
  });
  await mkdir(join(options.rootDir, 'pods/evil'), { recursive: true });
  const mapping = [{ hostId: 0, containerId: 0, length: 65_536 }];
  await writeFile(join(options.rootDir, 'pods/evil/userns'), JSON.stringify({ uidMappings: mapping, gidMappings: mapping }));
  await assert.rejects(opened.of(own('evil'), 'runc'), /its first ID 0 is none of this node's/);
});

test('the IDs that the machine’s owner gave the user kubelet, to their last', async (t) => {
  const passwdFile = join((await optionsIn(t)).rootDir, 'passwd');
  await writeFile(passwdFile, 'root:x:0:0::/root:/bin/sh\nkubelet:x:900:900::/:/bin/false\n');
  const asked: string[][] = [];
  const run = async ({ argv }: { argv: readonly string[] }) => {
    asked.push([...argv]);
    return fakeRunResult({ code: 0, stdout: '0: kubelet 131072 131072\n' });
  };
  const options = await optionsIn(t, { passwdFile, sys: { run }, maxPods: 2 });
  const opened = await UserNamespaces.open(options);
  assert.deepEqual(asked, [
    ['getsubids', 'kubelet'],
    ['getsubids', '-g', 'kubelet'],
  ]);
  assert.deepEqual((await opened.of(own('a'), 'runc')).gids, [{ hostId: 131_072, containerId: 0, length: 65_536 }]);
  await opened.of(own('b'), 'runc');
  await assert.rejects(opened.of(own('c'), 'runc'), /could not find an empty slot/);
  await rm(join(options.rootDir, 'pods/a'), { recursive: true });
  assert.equal((await opened.of(own('c'), 'runc')).uids?.[0]?.hostId, 131_072);
  await assert.rejects(UserNamespaces.open({ ...options, maxPods: 3 }), /not enough to support 3 pods/);
});

/** Files whose answers a test can hold back or refuse, and what is in them. */
class HeldFiles implements MappingFiles {
  readonly texts = new Map<string, string>();
  /** By `read a`, `write a`, `uids`: what happens before. */
  readonly before = new Map<string, () => Promise<void>>();

  async read(uid: string): Promise<string | null> {
    await this.before.get(`read ${uid}`)?.();
    return this.texts.get(uid) ?? null;
  }

  async write(uid: string, text: string): Promise<void> {
    await this.before.get(`write ${uid}`)?.();
    this.texts.set(uid, text);
  }

  async uids(): Promise<string[]> {
    await this.before.get('uids')?.();
    return [...this.texts.keys()];
  }
}

/** With a namespace each for `slots` pods. */
async function heldIn(
  t: TestContext,
  slots: number,
  rng?: UserNamespacesOptions['rng'],
): Promise<{ files: HeldFiles; options: UserNamespacesOptions; opened: UserNamespaces }> {
  const passwdFile = join((await optionsIn(t)).rootDir, 'passwd');
  await writeFile(passwdFile, 'kubelet:x:900:900::/:/bin/false\n');
  const run = async () => fakeRunResult({ code: 0, stdout: `0: kubelet 65536 ${slots * 65_536}\n` });
  const files = new HeldFiles();
  const options = await optionsIn(t, { passwdFile, sys: { run }, maxPods: slots, files, ...(rng === undefined ? {} : { rng }) });
  return { files, options, opened: await UserNamespaces.open(options) };
}

const firstId = async (opened: UserNamespaces, uid: string): Promise<number | undefined> => (await opened.of(own(uid), 'runc')).uids?.[0]?.hostId;

test('pods that ask at once are given IDs in the order in which they asked, however long each file takes', async (t) => {
  const { files, opened } = await heldIn(t, 4);
  const slow = Promise.withResolvers<void>();
  files.before.set('read a', () => slow.promise);
  const asked = Promise.all(['a', 'b', 'c'].map((uid) => firstId(opened, uid)));
  await setImmediate();
  slow.resolve();
  assert.deepEqual(await asked, [65_536, 131_072, 196_608]);
});

test('two pods never share IDs: a search for pods that are gone does not take those of one whose file is being written', async (t) => {
  let from = 0;
  const { files, opened } = await heldIn(t, 2, { int: () => from });
  await firstId(opened, 'gone');
  from = 1;
  files.texts.delete('gone');
  const slow = Promise.withResolvers<void>();
  files.before.set('write a', () => slow.promise);
  const asked = Promise.all(['a', 'b'].map((uid) => firstId(opened, uid)));
  await setImmediate();
  slow.resolve();
  assert.deepEqual(await asked, [131_072, 65_536]);
});

test('IDs whose file could not be written are nobody’s, and nobody was told of them', async (t) => {
  const { files, options, opened } = await heldIn(t, 1);
  const slow = Promise.withResolvers<void>();
  files.before.set('write a', () => slow.promise);
  const asked = Promise.allSettled(['a', 'a', 'b'].map((uid) => firstId(opened, uid)));
  await setImmediate();
  slow.reject(new Error('no space left'));
  const [one, two, other] = await asked;
  assert.deepEqual([one?.status, two?.status, other], ['rejected', 'rejected', { status: 'fulfilled', value: 65_536 }]);
  assert.equal(await firstId(await UserNamespaces.open(options), 'b'), 65_536);
});

test('where the directories of pods cannot be read, nothing is taken for gone', async (t) => {
  const { files, options, opened } = await heldIn(t, 1);
  await firstId(opened, 'a');
  files.before.set('uids', () => Promise.reject(new Error('too many open files')));
  await assert.rejects(firstId(opened, 'b'), /too many open files/);
  await assert.rejects(UserNamespaces.open(options), /too many open files/);
  files.before.clear();
  await assert.rejects(firstId(opened, 'b'), /could not find an empty slot/);
  assert.equal(await firstId(opened, 'a'), 65_536);
  // A file in the place of the directory, which even root cannot list.
  const { rootDir } = await optionsIn(t);
  await writeFile(join(rootDir, 'pods'), '');
  await assert.rejects(UserNamespaces.open(await optionsIn(t, { rootDir })), { code: 'ENOTDIR' });
});

test('a file among the directories of pods is nobody’s', async (t) => {
  const options = await optionsIn(t);
  await mkdir(join(options.rootDir, 'pods'));
  await writeFile(join(options.rootDir, 'pods/notes'), '');
  const opened = await UserNamespaces.open(options);
  assert.equal((await opened.of(own('a'), 'runc')).uids?.[0]?.hostId, 65_536);
});
