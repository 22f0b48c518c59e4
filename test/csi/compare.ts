import { spawn } from 'node:child_process';
import type { ChildProcess } from 'node:child_process';
import { execFileSync } from 'node:child_process';
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { parseArgs } from 'node:util';
import { setTimeout as delay } from 'node:timers/promises';
import { eventually } from '../set.ts';

/*
 * The same pods with the same driver on a node of upstream's kubelet and on one of ours, and what each kubelet asked of
 * its driver: `node test/csi/compare.ts --kubeconfig FILE --node NAME=PID --node NAME=PID --out DIR`, PIDs of
 * processes in the nodes' mount namespaces. Needs a real control plane whose attach-detach controller runs.
 */

const { values } = parseArgs({
  options: {
    kubeconfig: { type: 'string' },
    kubectl: { type: 'string', default: 'kubectl' },
    node: { type: 'string', multiple: true },
    out: { type: 'string', default: '/tmp/csi-compare' },
    grows: { type: 'boolean', default: false },
    /** Ends the kubelet of a node, NAME=PID, while two pods use a volume; whoever watches over it starts it again. */
    restart: { type: 'string', multiple: true },
  },
});
const { kubeconfig = '', out, kubectl } = values;
const nodes = (values.node ?? []).map((pair) => pair.split('=') as [name: string, pid: string]);
const plain = 'plain.csi.test';
const attached = 'attached.csi.test';

interface Call {
  readonly method: string;
  readonly request: Record<string, unknown>;
  readonly status: string;
}

function k(args: readonly string[], input?: string): string {
  return execFileSync(kubectl, ['--kubeconfig', kubeconfig, ...args], {
    encoding: 'utf8',
    ...(input === undefined ? {} : { input }),
    stdio: ['pipe', 'pipe', 'pipe'],
  });
}

function apply(...objects: readonly object[]): void {
  k(['apply', '--server-side', '-f', '-'], objects.map((object) => JSON.stringify(object)).join('\n---\n'));
}

/** One driver in a node's mount namespace. */
function start(node: string, pid: string, driver: string, more: readonly string[] = []): ChildProcess {
  const state = `${out}/${node}/${driver}`;
  rmSync(state, { recursive: true, force: true });
  mkdirSync(`${state}/volumes`, { recursive: true });
  const main = new URL('main.ts', import.meta.url).pathname;
  const args = ['-t', pid, '-m', '-p', '--', process.execPath, main, '--stdin', '--name', driver, '--node', 'id-of-node', '--state', state, ...more];
  return spawn('nsenter', args, { stdio: ['pipe', 'ignore', 'inherit'] });
}

function volume(node: string, driver: string, name: string, spec: object = {}): object[] {
  const dir = `${out}/${node}/${driver}/volumes/${name}`;
  if ('volumeMode' in spec) writeFileSync(dir, Buffer.alloc(4 << 20));
  else mkdirSync(dir, { recursive: true });
  const pv = `${name}-${node}`;
  const size = { storage: '1Gi' };
  return [
    {
      apiVersion: 'v1',
      kind: 'PersistentVolume',
      metadata: { name: pv },
      spec: {
        capacity: size,
        accessModes: ['ReadWriteOnce'],
        persistentVolumeReclaimPolicy: 'Retain',
        storageClassName: 'by-hand',
        claimRef: { namespace: 'default', name: pv },
        mountOptions: ['noatime'],
        csi: { driver, volumeHandle: name, fsType: 'ext4', volumeAttributes: { a: 'b' } },
        ...spec,
      },
    },
    {
      apiVersion: 'v1',
      kind: 'PersistentVolumeClaim',
      metadata: { name: pv, namespace: 'default' },
      spec: {
        accessModes: ['ReadWriteOnce'],
        storageClassName: 'by-hand',
        volumeName: pv,
        resources: { requests: size },
        ...('volumeMode' in spec ? { volumeMode: 'Block' } : {}),
      },
    },
  ];
}

function pod(node: string, name: string, volumes: readonly object[], more: { container?: object; spec?: object } = {}): object {
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: `${name}-${node}`, namespace: 'default' },
    spec: {
      nodeName: node,
      terminationGracePeriodSeconds: 1,
      automountServiceAccountToken: false,
      containers: [{ name: 'm', image: 'registry.k8s.io/pause:3.10.2', volumeMounts: [{ name: 'v', mountPath: '/v' }], ...more.container }],
      volumes,
      ...more.spec,
    },
  };
}

const claim = (node: string, name: string): object => ({ name: 'v', persistentVolumeClaim: { claimName: `${name}-${node}` } });

async function running(name: string): Promise<void> {
  await eventually(`${name} is ready`, 90_000, async () =>
    k(['get', 'pod', name, '-o', 'jsonpath={.status.conditions[?(@.type=="Ready")].status}']) === 'True' ? true : null,
  );
}

function gone(name: string): void {
  k(['delete', 'pod', name, '--wait=true', '--timeout=90s']);
}

/** Everything that a node is to do. */
async function scenario(node: string): Promise<void> {
  const uses = async (name: string): Promise<void> => {
    await running(`${name}-${node}`);
  };
  apply(...volume(node, plain, 'fs'), pod(node, 'one', [claim(node, 'fs')], { spec: { securityContext: { fsGroup: 4242 } } }));
  await uses('one');
  apply(pod(node, 'two', [claim(node, 'fs')]));
  await uses('two');
  if (values.grows) await grow(node);
  const kubelet = values.restart?.find((pair) => pair.startsWith(`${node}=`))?.split('=')[1];
  if (kubelet !== undefined) {
    process.kill(Number(kubelet), 'SIGKILL');
    await delay(30_000);
  }
  gone(`one-${node}`);
  gone(`two-${node}`);
  const inline = { name: 'v', csi: { driver: plain, volumeAttributes: { size: '1' } } };
  apply(pod(node, 'inline', [inline]));
  await uses('inline');
  gone(`inline-${node}`);
  const device = { container: { volumeMounts: [], volumeDevices: [{ name: 'v', devicePath: '/dev/raw' }] } };
  apply(...volume(node, plain, 'raw', { volumeMode: 'Block', mountOptions: undefined }), pod(node, 'raw', [claim(node, 'raw')], device));
  await uses('raw');
  gone(`raw-${node}`);
  apply(...volume(node, attached, 'att'), pod(node, 'att', [claim(node, 'att')]));
  await attach(node);
  await uses('att');
  gone(`att-${node}`);
  await eventually('no volume is in use', 60_000, async () => (k(['get', 'node', node, '-o', 'jsonpath={.status.volumesInUse}']) === '' ? true : null));
}

/** What an external attacher does. */
async function attach(node: string): Promise<void> {
  const name = await eventually('the controller asks for an attachment', 60_000, async () => {
    const list = JSON.parse(k(['get', 'volumeattachments', '-o', 'json'])) as { items: { metadata: { name: string }; spec: { nodeName: string } }[] };
    return list.items.find((item) => item.spec.nodeName === node)?.metadata.name ?? null;
  });
  const patch = JSON.stringify({ status: { attached: true, attachmentMetadata: { device: 'sdx' } } });
  k(['patch', 'volumeattachment', name, '--subresource=status', '--type=merge', '-p', patch]);
}

/** What an external resizer does, until the kubelet says that the volume has grown. */
async function grow(node: string): Promise<void> {
  const name = `fs-${node}`;
  k(['patch', 'pv', name, '--type=merge', '-p', JSON.stringify({ spec: { capacity: { storage: '2Gi' } } })]);
  const status = { allocatedResources: { storage: '2Gi' }, allocatedResourceStatuses: { storage: 'NodeResizePending' } };
  k(['patch', 'pvc', name, '--subresource=status', '--type=merge', '-p', JSON.stringify({ status })]);
  await eventually('it has grown', 150_000, async () => (k(['get', 'pvc', name, '-o', 'jsonpath={.status.capacity.storage}']) === '2Gi' ? true : null));
}

/** Questions whose number and moment are each kubelet's own. */
const questions = /^NodeGet/;

/** What differs between any two runs, by what it is. */
function plainText(text: string, node: string): string {
  return text
    .replaceAll(/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}/g, '<uid>')
    .replaceAll(/csi-[0-9a-f]{64}/g, '<handle>')
    .replaceAll(/eyJ[\w.-]+/g, '<token>')
    .replaceAll(/\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ/g, '<time>')
    .replaceAll(node, '<node>');
}

function told(node: string, driver: string): string[] {
  const file = `${out}/${node}/${driver}/calls.jsonl`;
  const calls = existsSync(file) ? readFileSync(file, 'utf8').trim().split('\n') : [];
  return calls.map((line) => {
    const { method, request, status } = JSON.parse(line) as Call;
    return plainText(`${method} ${status} ${JSON.stringify(sorted(request))}`, node);
  });
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, each]) => [key, sorted(each)]),
  );
}

const drivers = nodes.flatMap(([node, pid]) => [start(node, pid, plain), start(node, pid, attached)]);
try {
  const spec = {
    podInfoOnMount: true,
    volumeLifecycleModes: ['Persistent', 'Ephemeral'],
    fsGroupPolicy: 'File',
    tokenRequests: [{ audience: 'x', expirationSeconds: 3600 }],
  };
  apply(
    { apiVersion: 'storage.k8s.io/v1', kind: 'CSIDriver', metadata: { name: plain }, spec: { ...spec, attachRequired: false } },
    { apiVersion: 'storage.k8s.io/v1', kind: 'CSIDriver', metadata: { name: attached }, spec: { attachRequired: true } },
  );
  await eventually('both drivers are registered on all nodes', 60_000, async () => {
    const list = JSON.parse(k(['get', 'csinodes', '-o', 'json'])) as { items: { metadata: { name: string }; spec: { drivers: object[] | null } }[] };
    return nodes.every(([node]) => list.items.find(({ metadata }) => metadata.name === node)?.spec.drivers?.length === 2) ? true : null;
  });
  await Promise.all(nodes.map(async ([node]) => await scenario(node)));
  await delay(3000);
  for (const driver of [plain, attached]) {
    const all = nodes.map(([node]) => told(node, driver));
    for (const [index, calls] of all.entries()) writeFileSync(`${out}/${driver}.${nodes[index]?.[0] ?? ''}`, `${calls.join('\n')}\n`);
    const [first, second] = all.map((calls) => calls.filter((line) => !questions.test(line)));
    console.log(`${driver}: ${first?.length ?? 0} calls by ${nodes[0]?.[0] ?? ''}, ${second?.length ?? 0} by ${nodes[1]?.[0] ?? ''}`);
    for (const [index, line] of (first ?? []).entries()) if (line !== second?.[index]) console.log(`- ${line}\n+ ${second?.[index] ?? '(none)'}`);
  }
} finally {
  for (const [node] of nodes) {
    for (const name of ['one', 'two', 'inline', 'raw', 'att'])
      k(['delete', 'pod', `${name}-${node}`, '--ignore-not-found', '--grace-period=0', '--force', '--wait=false']);
    for (const name of ['fs', 'raw', 'att']) {
      k(['delete', 'pvc', `${name}-${node}`, '--ignore-not-found', '--wait=false']);
      k(['delete', 'pv', `${name}-${node}`, '--ignore-not-found', '--wait=false']);
    }
  }
  k(['delete', 'csidriver', plain, attached, '--ignore-not-found']);
  // What is still mounted is taken back by then.
  await delay(5000);
  for (const driver of drivers) driver.stdin?.end();
}
