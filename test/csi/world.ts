import assert from 'node:assert/strict';
import { existsSync, mkdirSync, mkdtempSync, readFileSync, realpathSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, afterEach } from 'node:test';
import type { SelinuxNode } from '../../agent/core/selinux.ts';
import { openCsi } from '../../agent/io/csi/open.ts';
import type { CsiSide } from '../../agent/io/csi/open.ts';
import { PluginWatcher } from '../../agent/io/plugin-watcher.ts';
import { PodCertificates } from '../../agent/io/pod-certificates.ts';
import { Sources } from '../../agent/io/sources.ts';
import { Tokens } from '../../agent/io/tokens.ts';
import { TrustBundles } from '../../agent/io/trust-bundles.ts';
import { openVolumes } from '../../agent/io/volumes-open.ts';
import type { PodVolumes } from '../../agent/io/volumes.ts';
import { realClock } from '../../base/clock.ts';
import { FakeKubeApi } from '../../base/kubeapi/fake.ts';
import { csiDrivers, nodes, persistentVolumeClaims, persistentVolumes } from '../../base/kubeapi/refs.ts';
import { createLog } from '../../base/log.ts';
import { realRng } from '../../base/rng.ts';
import { createSysClient } from '../../base/sys/client.ts';
import type {
  CSIDriver,
  CSIDriverSpec,
  Node,
  PersistentVolume,
  PersistentVolumeClaim,
  PersistentVolumeSpec,
  Pod,
  TokenRequest,
  Volume,
} from '../../proto/kube/types.ts';
import { allCapabilities, startDriver } from './driver.ts';
import type { DriverOptions, TestDriver } from './driver.ts';
import { eventually } from '../set.ts';

/* A real CSI driver with real mounts, the agent's own parts with the sys program, and an API server in memory. */
const sysPath = process.env['NODELET_SYS'] ?? new URL('../../dist/sys', import.meta.url).pathname;
export const need = process.getuid?.() !== 0 ? 'needs root' : !existsSync(sysPath) ? `needs ${sysPath} (built by sys/build.sh)` : false;
if (need !== false) console.log(`csi: skipped, ${need}`);
export const hasLoop = existsSync('/dev/loop-control');
if (!hasLoop) console.log('csi: block volumes skipped, needs /dev/loop-control');

const log = createLog({
  name: 'csi',
  verbosity: 2,
  nowMs: () => Date.now(),
  pid: 1,
  write: (line) => process.env['CSI_LOG'] === undefined || process.stderr.write(line),
});
export const driverName = 'test.example';
const sys = need === false ? createSysClient({ path: sysPath, log }) : undefined;
const stops: (() => Promise<unknown>)[] = [];
afterEach(async () => {
  for (const stop of stops.splice(0).toReversed()) await stop();
});
after(async () => {
  await sys?.[Symbol.asyncDispose]();
});

export interface Agent {
  readonly csi: CsiSide;
  readonly volumes: PodVolumes;
  readonly kicked: string[];
  stop(): Promise<void>;
}

export interface World {
  readonly api: FakeKubeApi;
  readonly root: string;
  readonly events: string[];
  readonly driver: (options?: Partial<DriverOptions>) => Promise<TestDriver>;
  readonly agent: (selinux?: SelinuxNode) => Promise<Agent>;
  readonly csiDriver: (spec?: Partial<CSIDriverSpec>) => void;
  /** A volume of the driver with a claim that is bound to it. */
  readonly volume: (name: string, spec?: Partial<PersistentVolumeSpec>, claim?: Partial<PersistentVolumeClaim>) => string;
  readonly node: () => Node;
}

export function world(): World {
  assert.ok(sys !== undefined);
  const root = mkdtempSync(join(realpathSync(tmpdir()), 'nodelet-csi-'));
  const state = join(root, 'driver');
  mkdirSync(join(state, 'volumes'), { recursive: true });
  const api = new FakeKubeApi({ clock: realClock });
  const events: string[] = [];
  const nodeRef = nodes('n1');
  api.put<Node>(nodeRef, { metadata: { name: 'n1' }, spec: {} });
  let tokens = 0;
  api.react('create', 'serviceaccounts/token', (call) => {
    tokens += 1;
    return { ...(call.body as TokenRequest), status: { token: `t${tokens}`, expirationTimestamp: '2099-01-01T00:00:00Z' } };
  });
  stops.push(async () => {
    const mounted = mountsBelow(root);
    for (const target of mounted.toReversed()) await sys.umount(target, { lazy: true });
    rmSync(root, { recursive: true });
    assert.deepEqual(mounted, [], 'the test left mounts');
  });
  const node = (): Node => api.objects<Node>(nodes())[0] as Node;
  return {
    api,
    root,
    events,
    node,
    async driver(options = {}) {
      const driver = await startDriver({
        name: driverName,
        nodeId: 'id-1',
        stateDir: state,
        socket: `${root}/plugins/${driverName}/csi.sock`,
        registration: `${root}/plugins_registry/${driverName}-reg.sock`,
        capabilities: allCapabilities,
        ...options,
      });
      stops.push(async () => await driver[Symbol.asyncDispose]());
      return driver;
    },
    async agent(selinux) {
      const stop = new AbortController();
      const kicked: string[] = [];
      const listeners: (() => void)[] = [];
      const tell = (target: { kind: string }, type: string, reason: string, message: string): void =>
        void events.push(`${target.kind} ${type} ${reason} ${message}`);
      const parts = { api, clock: realClock, rng: realRng, log, onChange() {} };
      const nodeInfo = {
        name: 'n1',
        node,
        hostIPs: () => [],
        ready: async () => node(),
        onChange: (callback: () => void) => void listeners.push(callback),
      };
      const tokenSource = new Tokens(parts);
      const csi: CsiSide = await openCsi({
        ...parts,
        sys,
        rootDir: root,
        node: nodeInfo,
        events: { event: tell },
        tokens: tokenSource,
        selinux: selinux ?? null,
        onCall() {},
        // As the node's own status does it.
        report: () =>
          setImmediate(() => {
            const now = node();
            api.put<Node>(nodeRef, { ...now, status: { ...now.status, volumesInUse: [...csi.inUse()] } });
            for (const listener of listeners) listener();
          }),
        kick: (uid) => kicked.push(uid),
        synced: () => true,
        signal: stop.signal,
      });
      const sources = new Sources(parts);
      const volumes = openVolumes({
        ...parts,
        events: { event: tell },
        sys,
        sources,
        rootDir: root,
        clusterDomain: 'cluster.local',
        signal: stop.signal,
        csi: csi.volumes,
        tokens: tokenSource,
        node,
        trustBundles: new TrustBundles(parts),
        certificates: new PodCertificates({ ...parts, nodeName: 'n1', nodeUid: () => undefined, tell() {}, onBug() {} }),
        allocatable: () => ({}),
        env: async () => ({ ok: true, env: new Map() }),
      });
      const watcher = new PluginWatcher({ clock: realClock, log, dir: `${root}/plugins_registry`, handlers: { CSIPlugin: csi.drivers } });
      const running = Promise.all([watcher.run(stop.signal), csi.run(stop.signal)]);
      let stopped = false;
      const agent: Agent = {
        csi,
        volumes,
        kicked,
        async stop() {
          if (stopped) return;
          stopped = true;
          stop.abort();
          await running.catch(() => undefined);
          await csi[Symbol.asyncDispose]();
          await sources[Symbol.asyncDispose]();
        },
      };
      stops.push(async () => await agent.stop());
      return agent;
    },
    csiDriver(spec = {}) {
      const whole = { attachRequired: false, fsGroupPolicy: 'ReadWriteOnceWithFSType', podInfoOnMount: false, requiresRepublish: false, ...spec };
      api.put<CSIDriver>(csiDrivers(driverName), { metadata: { name: driverName }, spec: whole });
    },
    volume(name, spec = {}, claim = {}) {
      const block = spec.volumeMode === 'Block';
      if (block) writeFileSync(join(state, 'volumes', name), Buffer.alloc(1 << 20));
      else mkdirSync(join(state, 'volumes', name));
      const object = api.put<PersistentVolumeClaim>(persistentVolumeClaims('ns', name), {
        metadata: { name, namespace: 'ns' },
        spec: { volumeName: `pv-${name}`, accessModes: ['ReadWriteOnce'] },
        status: { phase: 'Bound', capacity: { storage: '1Gi' } },
        ...claim,
      });
      api.put<PersistentVolume>(persistentVolumes(`pv-${name}`), {
        metadata: { name: `pv-${name}` },
        spec: {
          accessModes: ['ReadWriteOnce'],
          capacity: { storage: '1Gi' },
          claimRef: { uid: object.metadata.uid ?? '' },
          csi: { driver: driverName, volumeHandle: name, fsType: 'ext4', volumeAttributes: { a: 'b' } },
          ...spec,
        },
      });
      return name;
    },
  };
}

function mountsBelow(root: string): string[] {
  return readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .map((line) => line.split(' ')[4] ?? '')
    .filter((target) => target.startsWith(`${root}/`));
}

export const podOf = (uid: string, volumes: Volume[], spec: Partial<Pod['spec']> = {}): Pod => ({
  metadata: { name: `p-${uid}`, namespace: 'ns', uid },
  spec: {
    containers: [{ name: 'm', volumeMounts: volumes.map(({ name }) => ({ name, mountPath: `/${name}` })) }],
    serviceAccountName: 'sa',
    volumes,
    ...spec,
  },
});
export const claimed = (claimName: string, readOnly = false): Volume => ({ name: 'v', persistentVolumeClaim: { claimName, readOnly } });
export const never: AbortSignal = new AbortController().signal;
export const named = (driver: TestDriver): string[] =>
  driver.calls.filter(({ method }) => !method.startsWith('NodeGet')).map(({ method, status }) => (status === 'OK' ? method : `${method} ${status}`));
export const last = (driver: TestDriver, method: string): Record<string, unknown> => driver.calls.findLast((call) => call.method === method)?.request ?? {};

export async function prepared(agent: Agent, pod: Pod): Promise<void> {
  const outcome = await eventually('the volumes are there', 15_000, async () => {
    const result = await agent.volumes.prepare(pod, never);
    if (!result.ok) throw new Error(result.message);
    return result;
  });
  assert.ok(outcome.ok);
}

export async function pathOf(agent: Agent, pod: Pod): Promise<string> {
  const mounts = await agent.volumes.containerMounts(pod, { name: 'm', volumeMounts: [{ name: 'v', mountPath: '/v' }] }, [], never);
  assert.ok(mounts.ok, JSON.stringify(mounts));
  return mounts.mounts[0]?.hostPath ?? '';
}
