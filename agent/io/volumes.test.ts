import assert from 'node:assert/strict';
import { afterEach, test } from 'node:test';
import { OpError } from '../../base/errors.ts';
import { createFakeClock } from '../../base/fake-clock.ts';
import { FakeKubeApi } from '../../base/kubeapi/fake.ts';
import { configMaps, persistentVolumeClaims, persistentVolumes, secrets } from '../../base/kubeapi/refs.ts';
import { silentLog } from '../../base/log.ts';
import { seededRng } from '../../base/rng.ts';
import { FakeSys, fakeRunResult } from '../../base/sys/fake.ts';
import type { FileOp } from '../../base/sys/types.ts';
import type { ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, Secret, TokenRequest, Volume } from '../../proto/kube/types.ts';
import { PodCertificates } from './pod-certificates.ts';
import { Sources } from './sources.ts';
import { Tokens } from './tokens.ts';
import { TrustBundles } from './trust-bundles.ts';
import { VolumeMetrics } from './volume-metrics.ts';
import { openVolumes } from './volumes-open.ts';

const signal = new AbortController().signal;
const open: Sources[] = [];
afterEach(async () => {
  for (const sources of open.splice(0)) await sources[Symbol.asyncDispose]();
});

function world() {
  const clock = createFakeClock();
  const sys = new FakeSys();
  const api = new FakeKubeApi({ clock });
  const rng = seededRng(1);
  sys.put('/proc/self/mountinfo', '');
  // The mount table as the kernel would tell it.
  const readFiles = sys.readFiles.bind(sys);
  sys.readFiles = async (paths, options) => {
    sys.put('/proc/self/mountinfo', sys.mounts.map((mount) => `1 1 0:1 / ${mount.target} rw - ${mount.fstype} x rw`).join('\n'));
    return await readFiles(paths, options);
  };
  const sources = new Sources({ api, clock, log: silentLog });
  open.push(sources);
  const parts = { api, clock, rng, log: silentLog, onChange() {} };
  const trustBundles = new TrustBundles(parts);
  const certificates = new PodCertificates({ ...parts, nodeName: 'n1', nodeUid: () => undefined, tell() {}, onBug() {} });
  const metrics = new VolumeMetrics();
  const reopen = () =>
    openVolumes({
      metrics,
      signal,
      sys,
      api,
      sources,
      events: { event() {} },
      certificates,
      trustBundles,
      csi: {
        setUp: async () => ({ ok: false, message: 'no driver here', event: null }),
        expand: async () => null,
        republishes: async () => false,
        isExhausted: async () => true,
        tearDown: async () => undefined,
      },
      tokens: new Tokens(parts),
      node: () => undefined,
      clock,
      rng,
      log: silentLog,
      rootDir: '/r',
      clusterDomain: 'cluster.local',
      allocatable: () => ({}),
      env: async () => ({ ok: true, env: new Map() }),
    });
  api.put<ConfigMap>(configMaps('n', 'c'), { metadata: { name: 'c', namespace: 'n' }, data: { a: 'one' } });
  api.put<Secret>(secrets('n', 's'), { metadata: { name: 's', namespace: 'n' }, data: { k: 'dg==' } });
  let token = 0;
  api.react('create', 'serviceaccounts/token', (call) => {
    token += 1;
    return { ...(call.body as TokenRequest), status: { token: `t${token}`, expirationTimestamp: new Date(clock.nowMs() + 3_600_000).toISOString() } };
  });
  return { clock, sys, api, sources, metrics, reopen, volumes: reopen() };
}

const podOf = (uid: string, volumes: Volume[], spec: Partial<Pod['spec']> = {}): Pod => ({
  metadata: { name: 'p', namespace: 'n', uid },
  spec: {
    containers: [{ name: 'm', volumeMounts: volumes.map(({ name }) => ({ name, mountPath: `/${name}` })) }],
    serviceAccountName: 'sa',
    volumes,
    ...spec,
  },
});
const all: Volume[] = [
  { name: 'e', emptyDir: {} },
  { name: 'm', emptyDir: { medium: 'Memory' } },
  { name: 'c', configMap: { name: 'c' } },
  { name: 's', secret: { secretName: 's' } },
  { name: 't', projected: { sources: [{ serviceAccountToken: { path: 'token', expirationSeconds: 3600 } }] } },
  { name: 'h', hostPath: { path: '/host/dir', type: 'DirectoryOrCreate' } },
];
const volumeRoot = '/r/pods/u1/volumes';

test('any one call may fail: the next attempt finishes, nothing is mounted twice, the end leaves nothing', async () => {
  for (let nth = 1; ; nth += 1) {
    const { clock, sys, sources, volumes } = world();
    sys.put('/host', null);
    const pod = podOf('u1', all, { securityContext: { fsGroup: 7 } });
    sources.hold(pod);
    await clock.settle();
    let calls = 0;
    sys.fault = (call, path) => {
      calls += 1;
      if (calls === nth) throw new OpError('failed', `${call} ${path}`, 'EIO');
    };
    const outcomes: string[] = [];
    for (let attempt = 0; attempt < 3; attempt += 1) {
      const result = await volumes.prepare(pod, signal);
      outcomes.push(result.ok ? 'ok' : result.message);
      if (result.ok) break;
    }
    assert.equal(outcomes.at(-1), 'ok', `call ${nth}: ${outcomes.join(' | ')}`);
    assert.ok(outcomes.length <= 2, `call ${nth}: ${outcomes.join(' | ')}`);
    assert.equal(sys.get(`${volumeRoot}/kubernetes.io~configmap/c/a`), 'one');
    assert.equal(sys.get(`${volumeRoot}/kubernetes.io~secret/s/k`), 'v');
    assert.match(sys.get(`${volumeRoot}/kubernetes.io~projected/t/token`) ?? '', /^t\d$/);
    assert.deepEqual(
      sys.mounts.map((mount) => mount.target).toSorted(),
      ['empty-dir/m', 'projected/t', 'secret/s'].map((name) => `${volumeRoot}/kubernetes.io~${name}`),
      `call ${nth}`,
    );
    await volumes.teardown('u1', signal).catch(async () => await volumes.teardown('u1', signal));
    sys.fault = () => {};
    assert.deepEqual([sys.mounts.length, await volumes.uidsOnDisk()], [0, []], `call ${nth}`);
    if (calls < nth) {
      assert.ok(nth > 10, 'the loop has gone through all calls');
      return;
    }
  }
});

test('a host path is made below a link to a directory', async () => {
  const { clock, sys, sources, volumes } = world();
  for (const path of ['/run', '/var']) sys.put(path, null);
  const on = async (op: FileOp) => (await sys.fileOps({ root: '/', ops: [op], links: 'follow', timeoutMs: 1000 }))[0];
  await on({ op: 'symlink', target: '/run', path: 'var/run' });
  const pod = podOf('u1', [{ name: 'h', hostPath: { path: '/var/run/cdi/a', type: 'DirectoryOrCreate' } }]);
  sources.hold(pod);
  await clock.settle();
  const result = await volumes.prepare(pod, signal);
  assert.equal(result.ok ? 'ok' : result.message, 'ok');
  assert.equal((await on({ op: 'stat', path: 'run/cdi/a' }))?.stat?.type, 'dir');
});

test('a prepared pod costs no call', async () => {
  const { clock, sys, sources, volumes } = world();
  const pod = podOf('u1', all.slice(0, 4));
  sources.hold(pod);
  await clock.settle();
  assert.ok((await volumes.prepare(pod, signal)).ok);
  sys.fault = (call) => assert.fail(`${call} was called`);
  assert.ok((await volumes.prepare(pod, signal)).ok);
  await volumes.refresh(pod, signal);
});

test('one volume that hangs holds up its own pod only, and is told', async () => {
  const { sys, volumes } = world();
  sys.put('/dead', null);
  sys.fault = (call, path) => {
    if (call === 'fileOps' && path === '/' && hanging) throw new OpError('deadline', 'fileOps /', 'killed after 10 s');
  };
  let hanging = false;
  assert.ok((await volumes.prepare(podOf('u2', [{ name: 'e', emptyDir: {} }]), signal)).ok);
  hanging = true;
  const pod = podOf('u1', [{ name: 'h', hostPath: { path: '/dead', type: 'Directory' } }]);
  const late = await volumes.prepare(pod, signal);
  assert.deepEqual(late.ok ? [] : late.events?.map((event) => event.message), ['MountVolume.SetUp failed for volume "h" : fileOps /: killed after 10 s']);
  hanging = false;
  assert.ok((await volumes.prepare(pod, signal)).ok);
});

test('a failure is told at once, then at growing distances, and at once when it changes', async () => {
  const { clock, api, sources, metrics, volumes } = world();
  const pod = podOf('u1', [{ name: 'x', configMap: { name: 'later', items: [{ key: 'k', path: 'k' }] } }]);
  sources.hold(pod);
  await clock.settle();
  const told = async (): Promise<string[]> => {
    const result = await volumes.prepare(pod, signal);
    return result.ok ? ['ok'] : (result.events ?? []).map((event) => event.message);
  };
  const missing = 'MountVolume.SetUp failed for volume "x" : configmap "later" not found';
  assert.deepEqual(await told(), [missing]);
  assert.deepEqual(await told(), []);
  await clock.advance(500);
  assert.deepEqual(await told(), [missing]);
  await clock.advance(500);
  assert.deepEqual(await told(), [], 'the second distance is a second');
  api.put<ConfigMap>(configMaps('n', 'later'), { metadata: { name: 'later', namespace: 'n' }, data: {} });
  await clock.settle();
  assert.deepEqual(await told(), ['MountVolume.SetUp failed for volume "x" : configmap references non-existent config key: k']);
  api.put<ConfigMap>(configMaps('n', 'later'), { metadata: { name: 'later', namespace: 'n' }, data: { k: 'v' } });
  await clock.settle();
  assert.deepEqual([await told(), await told()], [['ok'], ['ok']]);
  const whole = metrics.text({ wanted: [], mounted: [], sockets: [], registered: [] });
  assert.match(whole, /^volume_operation_total_seconds_sum\{operation_name="overall_volume_mount",plugin_name="kubernetes.io\/configmap"\} 1$/m);
  assert.match(whole, /^volume_operation_total_seconds_count\{[^}]*\} 1$/m);
});

test('a pod that was adopted after a restart gets its renewed token by refreshes alone', async () => {
  const { clock, sys, sources, reopen, volumes } = world();
  const pod = podOf('u1', all.slice(3, 5));
  sources.hold(pod);
  await clock.settle();
  await volumes.prepare(pod, signal);
  const token = `${volumeRoot}/kubernetes.io~projected/t/token`;
  assert.equal(sys.get(token), 't1');
  const adopted = reopen();
  await adopted.refresh(pod, signal);
  assert.equal(sys.get(token), 't2');
  await clock.advance(3_600_000);
  await adopted.refresh(pod, signal);
  assert.equal(sys.get(token), 't3');
  assert.equal(sys.mounts.length, 2, 'one mount for each volume');
});

test('a change is taken over as soon as it is told, once for many', async () => {
  const { clock, api, sys, sources, volumes } = world();
  const pod = podOf('u1', [{ name: 'c', configMap: { name: 'c' } }]);
  sources.hold(pod);
  await clock.settle();
  await volumes.prepare(pod, signal);
  let writes = 0;
  sys.fault = () => {
    writes += 1;
  };
  for (const value of ['two', 'three']) api.put<ConfigMap>(configMaps('n', 'c'), { metadata: { name: 'c', namespace: 'n' }, data: { a: value } });
  await clock.settle();
  assert.equal(sys.get(`${volumeRoot}/kubernetes.io~configmap/c/a`), 'three');
  assert.ok(writes <= 4, `${writes} calls`);
});

test('a refresh that cannot read leaves the files as they are', async () => {
  const { clock, api, sys, sources, volumes } = world();
  const pod = podOf('u1', [{ name: 'c', configMap: { name: 'c' } }]);
  sources.hold(pod);
  await clock.settle();
  await volumes.prepare(pod, signal);
  api.remove(configMaps('n', 'c'));
  await clock.settle();
  await volumes.refresh(pod, signal);
  assert.equal(sys.get(`${volumeRoot}/kubernetes.io~configmap/c/a`), 'one');
});

test("hosts files follow the container starts and stand back for a mount of the pod's own", async () => {
  const { sys, volumes } = world();
  const pod = podOf('u1', [{ name: 'e', emptyDir: {} }], { hostAliases: [{ ip: '192.0.2.8', hostnames: ['a.example'] }], hostname: 'h', subdomain: 's' });
  await volumes.prepare(pod, signal);
  const mountsOf = async (mountPath: string): Promise<string[]> => {
    const result = await volumes.containerMounts(pod, { name: 'm', volumeMounts: [{ name: 'e', mountPath }] }, ['10.0.0.9'], signal);
    return result.ok ? result.mounts.map((mount) => `${mount.hostPath}:${mount.containerPath}`) : [result.message];
  };
  assert.deepEqual(await mountsOf('/d'), [`${volumeRoot}/kubernetes.io~empty-dir/e:/d`, '/r/pods/u1/etc-hosts:/etc/hosts']);
  const text = sys.get('/r/pods/u1/etc-hosts') ?? '';
  assert.match(text, /^10\.0\.0\.9\th\.s\.n\.svc\.cluster\.local\th$/m);
  assert.match(text, /^192\.0\.2\.8\ta\.example$/m);
  sys.put('/r/pods/u1/etc-hosts', 'changed by a container');
  await mountsOf('/d');
  assert.equal(sys.get('/r/pods/u1/etc-hosts'), text);
  assert.deepEqual(await mountsOf('/etc/hosts'), [`${volumeRoot}/kubernetes.io~empty-dir/e:/etc/hosts`]);
});

test('claims that end on this node', async () => {
  const { api, sys, metrics, volumes } = world();
  sys.put('/data/v', null);
  sys.put('/data/h', null);
  const claim = (name: string, phase: string, more: Partial<PersistentVolumeClaim['metadata']> = {}): void => {
    const metadata = { name, namespace: 'n', ...more };
    const object: PersistentVolumeClaim = { metadata, spec: { volumeName: `pv-${name}` }, status: { phase } };
    const { uid } = api.put<PersistentVolumeClaim>(persistentVolumeClaims('n', name), object).metadata;
    const nfs = { server: 'nfs.example', path: '/x', readOnly: true };
    const source =
      name === 'export'
        ? { nfs }
        : name === 'host'
          ? { hostPath: { path: '/data/h', type: 'Directory' } }
          : { local: { path: name === 'away' ? '/data/none' : '/data/v' } };
    const spec = { ...source, claimRef: { uid: name === 'other' ? 'x' : (uid ?? '') }, ...(name === 'block' ? { volumeMode: 'Block' } : {}) };
    const annotations = { 'pv.beta.kubernetes.io/gid': name === 'host' ? '1234' : 'staff' };
    api.put<PersistentVolume>(persistentVolumes(`pv-${name}`), { metadata: { name: `pv-${name}`, annotations }, spec });
  };
  for (const name of ['bound', 'host', 'export', 'other', 'away', 'block']) claim(name, 'Bound');
  claim('open', 'Pending');
  claim('u-made-v', 'Bound', { ownerReferences: [{ apiVersion: 'v1', kind: 'Pod', name: 'p', uid: 'u-made', controller: true }] });
  claim('u-taken-v', 'Bound');
  const of = async (name: string, volume: Volume): Promise<string> => {
    const pod = podOf(`u-${name}`, [volume]);
    pod.metadata.name = `u-${name}`;
    pod.spec.containers = [{ name: 'm', volumeMounts: [{ name: 'v', mountPath: '/v' }] }];
    const prepared = await volumes.prepare(pod, signal);
    if (!prepared.ok) return prepared.message;
    const mounts = await volumes.containerMounts(pod, { name: 'm', volumeMounts: [{ name: 'v', mountPath: '/v' }] }, [], signal);
    return mounts.ok ? (mounts.mounts[0]?.hostPath ?? '') : mounts.message;
  };
  const ofClaim = (claimName: string): Promise<string> => of(claimName, { name: 'v', persistentVolumeClaim: { claimName } });
  assert.equal(await ofClaim('bound'), '/r/pods/u-bound/volumes/kubernetes.io~local-volume/pv-bound');
  assert.equal(sys.mounts.find(({ target }) => target.endsWith('pv-bound'))?.source, '/data/v');
  await volumes.teardown('u-bound', signal);
  assert.deepEqual(sys.mounts, []);
  const patience: (number | undefined)[] = [];
  const get = api.get.bind(api);
  api.get = (ref, options, stop) => (patience.push(options?.timeoutMs), get(ref, options, stop));
  assert.equal(await ofClaim('host'), '/data/h');
  assert.deepEqual(patience.splice(0), [30_000, 30_000]);
  // A pod that has its volumes does not stand still for long while nobody answers.
  await volumes.refresh(podOf('u-host', [{ name: 'v', persistentVolumeClaim: { claimName: 'host' } }]), signal);
  assert.deepEqual(patience, [5_000, 5_000]);
  assert.deepEqual([volumes.groupsOf('u-host'), volumes.groupsOf('u-bound')], [[1234], []]);
  const exported = '/r/pods/u-export/volumes/kubernetes.io~nfs/pv-export';
  assert.equal(await ofClaim('export'), exported);
  assert.match(await of('inline', { name: 'v', nfs: { server: 'nfs.example', path: '/y' } }), /kubernetes\.io~nfs\/v$/);
  sys.onRun = () => fakeRunResult({ code: 32, stderr: 'mount: no such type.\n       see dmesg\n' });
  assert.match(
    await of('refused', { name: 'v', nfs: { server: 'nfs.example', path: '/y' } }),
    /^MountVolume.SetUp failed for volume "v" : mount failed: exit status 32\nMounting command: mount\nMounting arguments: {2}-t nfs nfs.example:\/y \S+\nOutput: mount: no such type.\n {7}see dmesg\n$/,
  );
  const page = metrics.text({ ...volumes.counts(), sockets: [], registered: [] });
  for (const plugin of ['host-path', 'local-volume', 'nfs']) assert.match(page, new RegExp(`status="success",volume_plugin="kubernetes.io/${plugin}"`));
  assert.match(page, /^volume_manager_total_volumes\{plugin_name="kubernetes.io\/host-path",state="desired_state_of_world"\} 1$/m);
  // Whose content is not the agent's own is asked for how full it is; a hostPath is not, as with upstream.
  assert.deepEqual(
    volumes.measured().map(({ uid, how, claim }) => [uid, how, claim?.name ?? null]),
    [
      ['u-export', 'fs', 'export'],
      ['u-inline', 'fs', null],
    ],
  );
  assert.match(await ofClaim('away'), /^MountVolume.NewMounter initialization failed for volume "pv-away" : path "\/data\/none" does not exist$/);
  assert.match(await ofClaim('other'), /pv.Spec.ClaimRef.UID "x" does not point to claim.UID/);
  assert.match(await ofClaim('block'), /volume v has volumeMode Block, but is specified in volumeMounts$/);
  assert.match(await ofClaim('open'), /error processing PVC n\/open: PVC is not bound$/);
  assert.match(await ofClaim('none'), /failed to fetch PVC from API server: persistentvolumeclaims "none" not found$/);
  assert.match(await of('made', { name: 'v', ephemeral: {} }), /local-volume\/pv-u-made-v$/);
  assert.match(await of('taken', { name: 'v', ephemeral: {} }), /PVC n\/u-taken-v was not created for pod n\/u-taken \(pod is not owner\)$/);
});

test('a volume that the node cannot attach any more is told as such once the wait is over, and not before', async () => {
  const { api, clock, volumes } = world();
  const metadata = { name: 'c', namespace: 'n' };
  const { uid = '' } = api.put<PersistentVolumeClaim>(persistentVolumeClaims('n', 'c'), {
    metadata,
    spec: { volumeName: 'pv' },
    status: { phase: 'Bound' },
  }).metadata;
  const spec = { csi: { driver: 'd', volumeHandle: 'h' }, claimRef: { uid }, accessModes: ['ReadWriteOnce'] };
  api.put<PersistentVolume>(persistentVolumes('pv'), { metadata: { name: 'pv' }, spec });
  const pod = podOf('u1', [{ name: 'v', persistentVolumeClaim: { claimName: 'c' } }]);
  const prepare = async (): Promise<string> => {
    const prepared = await volumes.prepare(pod, signal);
    return prepared.ok ? 'ok' : `${prepared.reason}: ${prepared.message}`;
  };
  assert.equal(await prepare(), 'FailedMount: no driver here');
  await clock.advance(124_000);
  assert.equal(
    await prepare(),
    'VolumeAttachmentLimitExceeded: Node has reached its volume attachment limit, rejecting pod. unmounted volumes=[v], unattached volumes=[], failed to process volumes=[]: context deadline exceeded',
  );
});
