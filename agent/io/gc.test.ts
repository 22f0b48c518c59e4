import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OpError } from '../../base/errors.ts';
import { createFakeClock } from '../../base/fake-clock.ts';
import { silentLog } from '../../base/log.ts';
import { FakeSys } from '../../base/sys/fake.ts';
import type { ContainerFacts, PodFacts, SandboxFacts } from '../core/types.ts';
import { Gc } from './gc.ts';
import type { GcOptions } from './gc.ts';

const signal = new AbortController().signal;
const container = (id: string, createdAtMs: number, given: Partial<ContainerFacts> = {}): ContainerFacts =>
  ({ id, sandboxId: 's1', name: 'm', state: 'exited', createdAtMs, imageId: '', imageRef: '', ...given }) as ContainerFacts;
const image = (id: string, given: object = {}) => ({ id, repoTags: [], repoDigests: [], size: '1000', pinned: false, ...given });

/** A node with a runtime that answers from lists and remembers what it was asked to do. */
function world(
  given: { pods?: PodFacts[]; known?: string[]; images?: object[]; fullPercent?: number; totalBytes?: number; sandboxImage?: string; looked?: PodFacts } = {},
) {
  const sys = new FakeSys();
  const clock = createFakeClock();
  const did: string[] = [];
  const events: string[] = [];
  const refuse = new Set<string>();
  const call =
    (name: string, key: string, answer: object = {}) =>
    async (request: Record<string, unknown>) => {
      const image_ = request['image'] as { image?: string } | undefined;
      const what = `${name} ${String(image_?.image ?? request[key])}`;
      if (refuse.has(what)) throw new OpError('failed', what, 'refused');
      did.push(what);
      return answer;
    };
  const runtime = {
    containerStatus: async ({ containerId }: { containerId: string }) => ({ status: { logPath: `/var/log/pods/n_p_u/m/${containerId}.log` } }),
    stopContainer: call('stop', 'containerId'),
    removeContainer: call('remove', 'containerId'),
    stopPodSandbox: call('stop', 'podSandboxId'),
    removePodSandbox: call('remove', 'podSandboxId'),
    status: async () => ({ info: { config: JSON.stringify({ sandboxImage: given.sandboxImage ?? '' }) } }),
  };
  const images = {
    listImages: async () => ({ images: given.images ?? [] }),
    removeImage: call('rmi', 'image'),
    imageFsInfo: async () => ({ imageFilesystems: [{ fsId: { mountpoint: '/images' } }] }),
  };
  sys.statfs = async () => ({
    totalBytes: given.totalBytes ?? 10_000,
    freeBytes: 0,
    availableBytes: 100 * (100 - (given.fullPercent ?? 50)),
    inodes: 0,
    inodesFree: 0,
    magic: 0,
  });
  const left = { dirs: ['u', 'lost'], cgroups: ['lost2'], sweeps: 0 };
  const pods = given.pods ?? [];
  const options: GcOptions = {
    cri: { runtime, images } as never,
    sys,
    clock,
    log: silentLog,
    pods: {
      allFacts: () => pods,
      facts: (uid) => given.looked ?? pods.find((pod) => pod.uid === uid),
      isKnown: (uid) => (given.known ?? ['u']).includes(uid),
      mayRun: () => false,
      synced: () => true,
    },
    volumes: {
      uidsOnDisk: async () => left.dirs,
      teardown: async (uid) => void did.push(`teardown ${uid}`),
      sweep: async () => {
        left.sweeps += 1;
      },
    },
    cgroups: { podUids: async () => left.cgroups, removePod: async (uid) => void did.push(`cgroup ${uid}`) },
    events: { event: (target, type, reason, message) => void events.push(`${target.kind} ${type} ${reason} ${message}`) },
    node: () => ({ apiVersion: 'v1', kind: 'Node', name: 'n1', uid: 'n1' }),
    logs: { remove: async (path) => void did.push(`logs ${path}`) },
    files: { unlinkLog: async () => {} },
    podLogsDir: '/var/log/pods',
    containerLogsDir: '/var/log/containers',
    ready: () => true,
    images: { highThresholdPercent: 85, lowThresholdPercent: 80, minAgeMs: 0, maxAgeMs: 0 },
  };
  return { gc: new Gc(options), did, events, refuse, sys, clock, options, left };
}

test('dead containers go with their logs, then their empty sandboxes, then logs of gone pods', async () => {
  const sandbox = (id: string, createdAtMs: number): SandboxFacts => ({ id, uid: 'u', ready: false, createdAtMs }) as SandboxFacts;
  const pod: PodFacts = {
    uid: 'u',
    namespace: 'n',
    name: 'p',
    sandboxes: [sandbox('s2', 2), sandbox('s1', 1)],
    containers: [container('c2', 2, { sandboxId: 's2' }), container('c1', 1)],
  };
  const { gc, did, sys } = world({ pods: [pod] });
  for (const path of ['/var/log/pods/n_p_u/m/0.log', '/var/log/pods/n_q_gone/m/0.log']) sys.put(path, '');
  await gc.containersPass(signal);
  assert.deepEqual(did, ['logs /var/log/pods/n_p_u/m/c1.log', 'remove c1', 'stop s1', 'remove s1']);
  assert.deepEqual([sys.get('/var/log/pods/n_p_u/m/0.log'), sys.get('/var/log/pods/n_q_gone/m/0.log')], ['', null]);
});

test('one failure does not stop the rest and is told the second time', async () => {
  const pod: PodFacts = { uid: 'gone', namespace: 'n', name: 'p', sandboxes: [], containers: [container('c1', 1), container('c2', 2)] };
  const { gc, did, events, refuse } = world({ pods: [pod] });
  refuse.add('remove c2');
  await gc.containersPass(signal);
  assert.ok(did.includes('remove c1'));
  assert.deepEqual(events, []);
  await gc.containersPass(signal);
  assert.deepEqual(events, ['Node Warning ContainerGCFailed remove c2: refused']);
});

test('a full disk frees unused images, never the sandbox image of a runtime that pins nothing', async () => {
  const images = [image('pause', { repoTags: ['registry.k8s.io/pause:3.6'] }), image('used'), image('free1', { size: '1500' }), image('free2')];
  const pod: PodFacts = { uid: 'u', namespace: 'n', name: 'p', sandboxes: [], containers: [container('c', 1, { imageId: 'used' })] };
  const { gc, did, events } = world({ images, pods: [pod], fullPercent: 95, sandboxImage: 'registry.k8s.io/pause:3.6' });
  await gc.imagesPass(signal);
  assert.deepEqual([did, events], [['rmi free1'], []]);
});

test('an image that is mounted in a container is used', async () => {
  const pod: PodFacts = { uid: 'u', namespace: 'n', name: 'p', sandboxes: [], containers: [container('c', 1, { imageId: 'used' })] };
  const looked = { ...pod, containers: [container('c', 1, { imageId: 'used', imageMounts: [{ containerPath: '/i', image: 'mounted' }] })] };
  const { gc, did } = world({ pods: [pod], looked, images: [image('pause', { pinned: true }), image('used'), image('mounted')], fullPercent: 95 });
  await gc.imagesPass(signal);
  assert.deepEqual(did, []);
});

test('by runtime handler: an image that is mounted in a container is used for the container’s handler', async () => {
  const using = { imageId: 'used', imageHandler: 'kata' };
  const pod: PodFacts = { uid: 'u', namespace: 'n', name: 'p', sandboxes: [], containers: [container('c', 1, using)] };
  const looked = { ...pod, containers: [container('c', 1, { ...using, imageMounts: [{ containerPath: '/i', image: 'mounted' }] })] };
  const of = (id: string, runtimeHandler: string): object => image(id, { spec: { image: id, runtimeHandler } });
  const images = [image('pause', { pinned: true, spec: null }), of('used', 'kata'), of('mounted', 'kata'), of('mounted', 'runc')];
  const { options, did } = world({ pods: [pod], looked, images, fullPercent: 95 });
  const asked: unknown[] = [];
  const cri = { ...options.cri, images: { ...options.cri.images, removeImage: async (request: object) => void asked.push(request) } } as never;
  await new Gc({ ...options, cri, imagesByHandler: true }).imagesPass(signal);
  assert.deepEqual([did, asked], [[], [{ image: { image: 'mounted', runtimeHandler: 'runc' } }]]);
});

test('an image without an ID is told of and left alone where images are counted by handler', async () => {
  const images = [image('', { spec: { image: '', runtimeHandler: 'kata' } }), image('free', { spec: { image: 'free', runtimeHandler: '' } })];
  const { options, did, events } = world({ images, fullPercent: 95 });
  await new Gc({ ...options, imagesByHandler: true }).imagesPass(signal);
  assert.deepEqual(did, ['rmi free']);
  assert.match(events.join(), /InvalidImageID ImageID is not valid, skipping, image: ,kata/);
});

test('once the runtime is listed containers are collected and images remembered; images go after five minutes, the one seen first', async () => {
  const listed = [image('first', { size: '1500' })];
  const pod: PodFacts = { uid: 'u', namespace: 'n', name: 'p', sandboxes: [], containers: [container('c2', 2), container('c1', 1)] };
  const { options, did, clock } = world({ images: listed, pods: [pod], fullPercent: 95, known: ['u', 'lost', 'lost2'] });
  let isReady = false;
  const stop = new AbortController();
  const running = new Gc({ ...options, ready: () => isReady }).run(stop.signal);
  await clock.advance(5000);
  assert.equal(did.length, 0);
  isReady = true;
  await clock.advance(1000);
  assert.deepEqual(did, ['logs /var/log/pods/n_p_u/m/c1.log', 'remove c1']);
  listed.unshift(image('later', { size: '1500' }));
  await clock.advance(5 * 60_000 - 1000);
  assert.ok(!did.some((what) => what.startsWith('rmi')));
  await clock.advance(1000);
  assert.deepEqual(
    did.filter((what) => what.startsWith('rmi')),
    ['rmi first'],
  );
  stop.abort();
  await running;
});

test('when nothing may be freed it is told and nothing is removed', async () => {
  const { gc, did, events } = world({ images: [image('pause', { pinned: true })], fullPercent: 95 });
  await gc.imagesPass(signal);
  await gc.imagesPass(signal);
  assert.deepEqual(did, []);
  assert.deepEqual(
    events.map((event) => event.split(' ')[2]),
    ['FreeDiskSpaceFailed', 'FreeDiskSpaceFailed', 'ImageGCFailed'],
  );
  const roomy = world({ images: [image('a')], fullPercent: 84 });
  await roomy.gc.imagesPass(signal);
  assert.deepEqual([roomy.did, roomy.events], [[], []]);
  const unknown = world({ images: [image('a')], totalBytes: 0 });
  await unknown.gc.imagesPass(signal);
  assert.deepEqual(unknown.did, []);
  assert.match(unknown.events.join(), /InvalidDiskCapacity.*invalid capacity 0 on image filesystem/);
});

test('directories and cgroups of pods nobody knows go, once the wishes are known', async () => {
  const { gc, did, left } = world();
  await gc.orphansPass(signal);
  assert.deepEqual(did, ['teardown lost', 'cgroup lost2']);
  assert.equal(left.sweeps, 1, 'what was mounted for pods together is looked at too');
  const early = world();
  const gone = new Gc({ ...early.options, pods: { ...early.options.pods, synced: () => false } });
  await gone.orphansPass(signal);
  assert.deepEqual(early.did, []);
  const alive: PodFacts = { uid: 'lost', namespace: 'n', name: 'p', sandboxes: [], containers: [container('c', 1, { state: 'running' })] };
  const busy = world({ pods: [alive] });
  await busy.gc.orphansPass(signal);
  assert.deepEqual(busy.did, ['cgroup lost2'], 'not while something of it still runs');
});

test('of a pod that crashes again and again only the newest dead container of each name stays, with its log', async () => {
  const { gc, did } = world();
  const containers = [
    container('c4', 4, { state: 'running' }),
    container('c3', 3),
    container('c2', 2),
    container('c1', 1, { state: 'created' }),
    container('d1', 1, { name: 'd' }),
  ];
  await gc.deadPass({ uid: 'u', namespace: 'n', name: 'p', sandboxes: [], containers }, signal);
  assert.deepEqual(did, ['logs /var/log/pods/n_p_u/m/c2.log', 'remove c2']);
});

test('under disk pressure ended pods lose all dead containers, and every image that nothing uses goes', async () => {
  const living: PodFacts = {
    uid: 'living',
    namespace: 'n',
    name: 'l',
    sandboxes: [],
    containers: [container('l2', 2, { imageId: 'used' }), container('l1', 1)],
  };
  const ended: PodFacts = { uid: 'u', namespace: 'n', name: 'p', sandboxes: [], containers: [container('e1', 1)] };
  const { gc, did, options } = world({ pods: [living, ended], images: [image('used'), image('unused'), image('pinned', { pinned: true })] });
  (options.pods as { mayRun: (uid: string) => boolean }).mayRun = (uid) => uid === 'living';
  await gc.reclaimContainers(signal);
  await gc.reclaimImages(signal);
  assert.deepEqual(
    did.filter((line) => !line.startsWith('logs')),
    ['remove l1', 'remove e1', 'rmi unused'],
  );
});

test('a link whose log and container are gone is taken away; one whose log is there may be of a container just made', async () => {
  const { gc, sys, options } = world();
  const unlinked: string[] = [];
  options.files.unlinkLog = async (_dir, id) => void unlinked.push(id);
  sys.put('/var/log/containers/p_n_m-new.log', 'text');
  const fileOps = sys.fileOps.bind(sys);
  sys.fileOps = async (request) => {
    const [op] = request.ops;
    if (op?.op === 'list' && op.path === 'var/log/containers') return [{ errno: '', names: ['p_n_m-new.log', 'p_n_m-dead.log'] }];
    if (op?.op === 'stat') return [{ errno: op.path.endsWith('-dead.log') ? 'ENOENT' : '' }];
    return fileOps(request);
  };
  await gc.containersPass(signal);
  assert.deepEqual(unlinked, ['dead']);
});
