import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import {
  chownSync,
  existsSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readFileSync,
  readdirSync,
  readlinkSync,
  rmSync,
  statSync,
  symlinkSync,
  truncateSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { PodCertificates } from '../../agent/io/pod-certificates.ts';
import { Sources } from '../../agent/io/sources.ts';
import { Tokens } from '../../agent/io/tokens.ts';
import { TrustBundles } from '../../agent/io/trust-bundles.ts';
import { openVolumes } from '../../agent/io/volumes-open.ts';
import type { PodVolumes } from '../../agent/io/volumes.ts';
import { realClock } from '../../base/clock.ts';
import { FakeKubeApi } from '../../base/kubeapi/fake.ts';
import { configMaps, persistentVolumeClaims, persistentVolumes, secrets } from '../../base/kubeapi/refs.ts';
import { silentLog } from '../../base/log.ts';
import { realRng } from '../../base/rng.ts';
import { createSysClient } from '../../base/sys/client.ts';
import type { Sys } from '../../base/sys/types.ts';
import type { Container, ConfigMap, PersistentVolume, PersistentVolumeClaim, Pod, Secret, TokenRequest, Volume } from '../../proto/kube/types.ts';

/* Real mounts of real volumes by the sys program, beside an API server in memory. */
const sysPath = process.env['NODELET_SYS'] ?? new URL('../../dist/sys', import.meta.url).pathname;
const need = process.getuid?.() !== 0 ? 'needs root' : !existsSync(sysPath) ? `needs ${sysPath} (built by sys/build.sh)` : false;
if (need !== false) console.log(`volumes: skipped, ${need}`);
const needLoop = existsSync('/dev/loop-control') ? false : 'needs /dev/loop-control';
const signal = new AbortController().signal;

/** Volumes of CSI drivers have tests of their own. */
const noCsi: Parameters<typeof openVolumes>[0]['csi'] = {
  setUp: async () => ({ ok: false, message: 'no driver here', event: null }),
  expand: async () => null,
  republishes: async () => false,
  isExhausted: async () => false,
  tearDown: async () => undefined,
};

interface World {
  sys: Sys;
  api: FakeKubeApi;
  sources: Sources;
  root: string;
  /** Reason and message of each Event. */
  told: string[];
  volumes: PodVolumes;
  /** As after a restart: nothing remembered. */
  reopen(): PodVolumes;
}

async function openWorld(): Promise<World> {
  const root = mkdtempSync(join(tmpdir(), 'nodelet-volumes-'));
  const sys = createSysClient({ path: sysPath, log: silentLog });
  const api = new FakeKubeApi({ clock: realClock });
  const sources = new Sources({ api, clock: realClock, log: silentLog });
  const parts = { api, clock: realClock, rng: realRng, log: silentLog, onChange() {} };
  const trustBundles = new TrustBundles(parts);
  const certificates = new PodCertificates({ ...parts, nodeName: 'n1', nodeUid: () => undefined, tell() {}, onBug() {} });
  const told: string[] = [];
  let running = new AbortController();
  const start = (): PodVolumes =>
    openVolumes({
      signal: running.signal,
      sys,
      api,
      sources,
      events: { event: (_target, _type, reason, message) => void told.push(`${reason} ${message}`) },
      certificates,
      trustBundles,
      csi: noCsi,
      tokens: new Tokens(parts),
      node: () => undefined,
      clock: realClock,
      rng: realRng,
      log: silentLog,
      rootDir: root,
      clusterDomain: 'cluster.local',
      allocatable: () => ({ memory: '256Mi', cpu: '2' }),
      env: async () => ({ ok: true, env: new Map([['POD', 'p']]) }),
    });
  const opened: World = {
    sys,
    api,
    sources,
    root,
    told,
    volumes: start(),
    reopen() {
      running.abort();
      running = new AbortController();
      opened.volumes = start();
      return opened.volumes;
    },
  };
  return opened;
}

const mounting = (volumes: Volume[]): Container => ({ name: 'm', volumeMounts: volumes.map(({ name }) => ({ name, mountPath: `/${name}` })) });

function podOf(uid: string, volumes: Volume[], spec: Partial<Pod['spec']> = {}): Pod {
  return { metadata: { name: 'p', namespace: 'n', uid }, spec: { containers: [mounting(volumes)], serviceAccountName: 'default', volumes, ...spec } };
}

const modeOf = (path: string): string => (statSync(path).mode & 0o7777).toString(8);
const mountsBelow = (path: string): string[] =>
  readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .filter((line) => line.split(' ')[4]?.startsWith(`${path}/`));

describe('volumes on this machine', { skip: need }, () => {
  let world: World;
  before(async () => {
    world = await openWorld();
    await world.api.create<ConfigMap>(configMaps('n'), { metadata: { name: 'c', namespace: 'n' }, data: { 'one.ini': 'v1', other: 'o' } });
    await world.api.create<Secret>(secrets('n'), { metadata: { name: 's', namespace: 'n' }, data: { password: 'c2VjcmV0' } });
  });
  after(async () => {
    await world.sources[Symbol.asyncDispose]();
    await world.sys[Symbol.asyncDispose]();
    assert.deepEqual(mountsBelow(world.root), []);
    rmSync(world.root, { recursive: true });
  });

  const prepared = async (pod: Pod, volumes = world.volumes): Promise<string> => {
    world.sources.hold(pod);
    const result = await volumes.prepare(pod, signal);
    assert.ok(result.ok, result.ok ? '' : result.message);
    return join(world.root, 'pods', pod.metadata.uid ?? '', 'volumes');
  };

  test('emptyDir: mode 0777, memory as tmpfs of its size, fsGroup', async () => {
    const pod = podOf(
      'u-empty',
      [
        { name: 'd', emptyDir: {} },
        { name: 'm', emptyDir: { medium: 'Memory', sizeLimit: '8Mi' } },
      ],
      { securityContext: { fsGroup: 2000 } },
    );
    const dir = await prepared(pod);
    assert.equal(modeOf(`${world.root}/pods/u-empty`), '750');
    assert.equal(modeOf(`${dir}/kubernetes.io~empty-dir/d`), '2777');
    assert.equal(statSync(`${dir}/kubernetes.io~empty-dir/d`).gid, 2000);
    const facts = await world.sys.statfs(`${dir}/kubernetes.io~empty-dir/m`, { timeoutMs: 5000 });
    assert.deepEqual([facts.totalBytes, facts.magic], [8 << 20, 0x01021994]);
    assert.equal(modeOf(`${dir}/kubernetes.io~empty-dir/m`), '3777');
    writeFileSync(`${dir}/kubernetes.io~empty-dir/m/kept`, 'x');
    // A restarted agent finds what is there and mounts nothing twice.
    await prepared(pod, world.reopen());
    assert.equal(readFileSync(`${dir}/kubernetes.io~empty-dir/m/kept`, 'utf8'), 'x');
    assert.equal(mountsBelow(dir).length, 1);
    await world.volumes.teardown('u-empty', signal);
    assert.deepEqual([existsSync(`${world.root}/pods/u-empty`), mountsBelow(`${world.root}/pods/u-empty`)], [false, []]);
  });

  test('configMap and secret: swapped as a whole, secrets in memory, changes in place', async () => {
    const pod = podOf('u-config', [
      { name: 'c', configMap: { name: 'c' } },
      { name: 's', secret: { secretName: 's', defaultMode: 0o400 } },
    ]);
    const dir = await prepared(pod);
    const config = `${dir}/kubernetes.io~configmap/c`;
    assert.equal(readFileSync(`${config}/one.ini`, 'utf8'), 'v1');
    assert.equal(readlinkSync(`${config}/one.ini`), '..data/one.ini');
    assert.equal(modeOf(`${config}/one.ini`), '644');
    assert.equal(readFileSync(`${dir}/kubernetes.io~secret/s/password`, 'utf8'), 'secret');
    assert.equal(modeOf(`${dir}/kubernetes.io~secret/s/password`), '400');
    assert.equal((await world.sys.statfs(`${dir}/kubernetes.io~secret/s`, { timeoutMs: 5000 })).magic, 0x01021994);
    const before = readlinkSync(`${config}/..data`);
    await world.volumes.refresh(pod, signal);
    assert.equal(readlinkSync(`${config}/..data`), before, 'nothing is written without a change');
    const again = world.reopen();
    await prepared(pod, again);
    assert.equal(readlinkSync(`${config}/..data`), before, 'nor after a restart');
    const told = new Promise<string>((resolve) => world.sources.onChange(resolve));
    const object = await world.api.get<ConfigMap>(configMaps('n', 'c'));
    await world.api.update<ConfigMap>(configMaps('n', 'c'), { ...object, data: { 'one.ini': 'v2' } });
    assert.equal(await told, 'u-config');
    for (let tries = 0; tries < 100 && readFileSync(`${config}/one.ini`, 'utf8') !== 'v2'; tries += 1) await delay(20);
    await again.refresh(pod, signal);
    assert.equal(readFileSync(`${config}/one.ini`, 'utf8'), 'v2');
    assert.deepEqual(
      readdirSync(config).filter((name) => !name.startsWith('..')),
      ['one.ini'],
    );
    assert.equal(readdirSync(config).filter((name) => /^\.\.\d/.test(name)).length, 1);
    await world.volumes.teardown('u-config', signal);
    world.sources.release('u-config');
    assert.equal(world.sources.watchCount, 0);
  });

  test("a missing object is told in upstream's words and starts by itself when it comes", async () => {
    const pod = podOf('u-missing', [
      { name: 'x', configMap: { name: 'later' } },
      { name: 'y', secret: { secretName: 'never', optional: true } },
    ]);
    world.sources.hold(pod);
    const failed = await world.volumes.prepare(pod, signal);
    assert.ok(!failed.ok);
    assert.deepEqual(failed.events, [
      { type: 'Warning', reason: 'FailedMount', message: 'MountVolume.SetUp failed for volume "x" : configmap "later" not found' },
    ]);
    const told = new Promise<string>((resolve) => world.sources.onChange(resolve));
    await world.api.create<ConfigMap>(configMaps('n'), { metadata: { name: 'later', namespace: 'n' }, data: { k: 'v' } });
    await told;
    const dir = await prepared(pod);
    assert.equal(readFileSync(`${dir}/kubernetes.io~configmap/x/k`, 'utf8'), 'v');
    assert.deepEqual(
      readdirSync(`${dir}/kubernetes.io~secret/y`).filter((name) => !name.startsWith('..')),
      [],
    );
    await world.volumes.teardown('u-missing', signal);
    world.sources.release('u-missing');
  });

  test('a projected token is asked for once, belongs to the user, and stays one mount over a restart', async () => {
    let asked = 0;
    world.api.react('create', 'serviceaccounts/token', (call) => {
      asked += 1;
      return { ...(call.body as TokenRequest), status: { token: `token-${asked}`, expirationTimestamp: new Date(Date.now() + 3_600_000).toISOString() } };
    });
    const volume: Volume = {
      name: 'kube-api-access',
      projected: {
        sources: [
          { serviceAccountToken: { path: 'token', expirationSeconds: 3607 } },
          { configMap: { name: 'c', items: [{ key: 'one.ini', path: 'ca.crt' }] } },
          { downwardAPI: { items: [{ path: 'namespace', fieldRef: { fieldPath: 'metadata.namespace' } }] } },
        ],
      },
    };
    const pod = podOf('u-token', [volume], { securityContext: { runAsUser: 1234 } });
    const dir = `${await prepared(pod)}/kubernetes.io~projected/kube-api-access`;
    assert.equal(readFileSync(`${dir}/token`, 'utf8'), 'token-1');
    assert.deepEqual([modeOf(`${dir}/token`), statSync(`${dir}/token`).uid], ['600', 1234]);
    assert.equal(readFileSync(`${dir}/namespace`, 'utf8'), 'n');
    await world.volumes.refresh(pod, signal);
    assert.equal(asked, 1);
    await prepared(pod, world.reopen());
    assert.equal(readFileSync(`${dir}/token`, 'utf8'), 'token-2');
    assert.equal(mountsBelow(`${world.root}/pods/u-token`).length, 1);
    await world.volumes.teardown('u-token', signal);
    world.sources.release('u-token');
  });

  test('subPaths: files of a ConfigMap, made directories, no way out of the volume', async () => {
    const pod = podOf('u-sub', [
      { name: 'c', configMap: { name: 'c' } },
      { name: 'e', emptyDir: {} },
    ]);
    const dir = await prepared(pod);
    symlinkSync('/etc', `${dir}/kubernetes.io~empty-dir/e/escape`);
    const mounts = async (volumeMounts: NonNullable<Pod['spec']['containers'][0]['volumeMounts']>) =>
      await world.volumes.containerMounts(pod, { name: 'm', volumeMounts }, ['10.0.0.9'], signal);
    const first = await mounts([
      { name: 'c', mountPath: '/etc/one.ini', subPath: 'one.ini' },
      { name: 'e', mountPath: '/logs', subPathExpr: 'logs/$(POD)' },
    ]);
    assert.ok(first.ok, first.ok ? '' : first.message);
    const [file, logs, hosts] = first.mounts;
    assert.equal(file?.hostPath, `${world.root}/pods/u-sub/volume-subpaths/c/m/0`);
    assert.equal(readFileSync(file.hostPath, 'utf8'), 'v2');
    assert.ok(statSync(`${dir}/kubernetes.io~empty-dir/e/logs/p`).isDirectory() && statSync(logs?.hostPath ?? '').isDirectory());
    assert.match(readFileSync(hosts?.hostPath ?? '', 'utf8'), /^10\.0\.0\.9\tp$/m);
    // The file behind the bind changes: the old container keeps its content, the next one gets the new.
    const object = await world.api.get<ConfigMap>(configMaps('n', 'c'));
    await world.api.update<ConfigMap>(configMaps('n', 'c'), { ...object, data: { 'one.ini': 'v3' } });
    for (let tries = 0; tries < 50 && readFileSync(`${dir}/kubernetes.io~configmap/c/one.ini`, 'utf8') !== 'v3'; tries += 1) {
      await delay(20);
      await world.volumes.refresh(pod, signal);
    }
    assert.equal(readFileSync(file.hostPath, 'utf8'), 'v2');
    const second = await mounts([{ name: 'c', mountPath: '/etc/one.ini', subPath: 'one.ini' }]);
    assert.ok(second.ok);
    assert.equal(readFileSync(file.hostPath, 'utf8'), 'v3');
    assert.equal(mountsBelow(`${world.root}/pods/u-sub/volume-subpaths`).length, 2, 'one mount for each subPath');
    const escape = await mounts([{ name: 'e', mountPath: '/x', subPath: 'escape' }]);
    assert.deepEqual(escape, { ok: false, reason: 'CreateContainerConfigError', message: 'failed to prepare subPath for volumeMount "e" of container "m"' });
    await world.volumes.teardown('u-sub', signal);
    assert.equal(existsSync(`${world.root}/pods/u-sub`), false);
    assert.ok(existsSync('/etc/passwd'));
    world.sources.release('u-sub');
  });

  test('host paths are checked, made and never removed', async () => {
    const base = join(world.root, 'host');
    mkdirSync(base);
    writeFileSync(`${base}/file`, '');
    const volumes: Volume[] = [
      { name: 'd', hostPath: { path: `${base}/a/b`, type: 'DirectoryOrCreate' } },
      { name: 'f', hostPath: { path: `${base}/new`, type: 'FileOrCreate' } },
      { name: 'z', hostPath: { path: '/dev/null', type: 'CharDevice' } },
    ];
    await prepared(podOf('u-host', volumes));
    assert.deepEqual([modeOf(`${base}/a/b`), modeOf(`${base}/new`)], ['755', '644']);
    const wrong = await world.volumes.prepare(podOf('u-host2', [{ name: 'w', hostPath: { path: `${base}/file`, type: 'Directory' } }]), signal);
    assert.equal(
      wrong.ok ? '' : wrong.message,
      `MountVolume.SetUp failed for volume "w" : hostPath type check failed: ${base}/file is not a directory, it's a File`,
    );
    await world.volumes.teardown('u-host', signal);
    await world.volumes.teardown('u-host2', signal);
    assert.ok(lstatSync(`${base}/a/b`).isDirectory());
  });

  test('a local volume: bound with its options, its files given to the group of the first pod, the next is told', async () => {
    const path = join(world.root, 'local');
    mkdirSync(path);
    writeFileSync(`${path}/file`, '');
    const pvc: PersistentVolumeClaim = { metadata: { name: 'l', namespace: 'n' }, spec: { volumeName: 'pv-l' }, status: { phase: 'Bound' } };
    const { uid = '' } = world.api.put<PersistentVolumeClaim>(persistentVolumeClaims('n', 'l'), pvc).metadata;
    const spec = { local: { path }, claimRef: { uid }, mountOptions: ['noexec', 'nosuid'] };
    world.api.put<PersistentVolume>(persistentVolumes('pv-l'), { metadata: { name: 'pv-l' }, spec });
    const volume = { name: 'l', persistentVolumeClaim: { claimName: 'l' } };
    const of = (name: string, fsGroup: number): Pod => podOf(name, [volume], { securityContext: { fsGroup } });
    const dir = `${await prepared(of('u-one', 3000))}/kubernetes.io~local-volume/pv-l`;
    assert.deepEqual([statSync(`${dir}/file`).gid, modeOf(path)], [3000, '2775']);
    const line = mountsBelow(`${world.root}/pods/u-one`).find((each) => each.split(' ')[4] === dir);
    assert.match(line ?? '', / rw,nosuid,noexec[, ]/);
    await prepared(of('u-two', 3001));
    assert.equal(statSync(`${path}/file`).gid, 3000);
    assert.match(world.told.join(), /^AlreadyMountedVolume The requested fsGroup is 3001, but the volume pv-l has GID 3000\./);
    // A restart gives nothing anew: the group may have been changed by whoever uses the volume.
    chownSync(`${path}/file`, 0, 3002);
    await prepared(of('u-one', 3000), world.reopen());
    assert.equal(statSync(`${path}/file`).gid, 3002);
    for (const each of ['u-one', 'u-two']) await world.volumes.teardown(each, signal);
    assert.deepEqual([existsSync(`${path}/file`), mountsBelow(`${world.root}/pods`)], [true, []]);
  });

  test('a local volume on a device: a file system is made once, mounted for all pods, and taken off after the last', { skip: needLoop }, async () => {
    const image = join(world.root, 'disk');
    writeFileSync(image, '');
    truncateSync(image, 16 << 20);
    const device = execFileSync('losetup', ['--find', '--show', image], { encoding: 'utf8' }).trim();
    try {
      const pvc: PersistentVolumeClaim = { metadata: { name: 'd', namespace: 'n' }, spec: { volumeName: 'pv-d' }, status: { phase: 'Bound' } };
      const { uid = '' } = world.api.put<PersistentVolumeClaim>(persistentVolumeClaims('n', 'd'), pvc).metadata;
      world.api.put<PersistentVolume>(persistentVolumes('pv-d'), { metadata: { name: 'pv-d' }, spec: { local: { path: device }, claimRef: { uid } } });
      const volume = { name: 'd', persistentVolumeClaim: { claimName: 'd' } };
      const at = async (name: string, volumes = world.volumes): Promise<string> =>
        `${await prepared(podOf(name, [volume], { securityContext: { fsGroup: 3000 } }), volumes)}/kubernetes.io~local-volume/pv-d`;
      const first = await at('u-first');
      writeFileSync(`${first}/file`, 'kept');
      assert.equal(statSync(first).gid, 3000);
      const global = `${world.root}/plugins/kubernetes.io/local-volume/mounts/pv-d`;
      assert.equal(readFileSync(`${global}/file`, 'utf8'), 'kept');
      // Another process knows of it by what is mounted.
      assert.equal(readFileSync(`${await at('u-second', world.reopen())}/file`, 'utf8'), 'kept');
      await world.volumes.teardown('u-first', signal);
      assert.equal(readFileSync(`${global}/file`, 'utf8'), 'kept');
      await world.reopen().teardown('u-second', signal);
      assert.deepEqual([existsSync(global), mountsBelow(world.root)], [false, []]);
      assert.equal(readFileSync(`${await at('u-third')}/file`, 'utf8'), 'kept', 'what has a file system keeps it');
      await world.volumes.teardown('u-third', signal);
    } finally {
      execFileSync('losetup', ['--detach', device]);
    }
  });

  test('what an earlier run left is found and goes', async () => {
    await prepared(
      podOf('u-left', [
        { name: 'm', emptyDir: { medium: 'Memory' } },
        { name: 'c', configMap: { name: 'c' } },
      ]),
    );
    const fresh = world.reopen();
    assert.deepEqual(await fresh.uidsOnDisk(), ['u-left']);
    await fresh.teardown('u-left', signal);
    assert.deepEqual(await fresh.uidsOnDisk(), []);
    world.sources.release('u-left');
  });
});
