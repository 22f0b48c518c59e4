import { existsSync, readFileSync } from 'node:fs';
import { mkdir, readFile, rm } from 'node:fs/promises';
import { createConnection } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import { authLines, encodeMessage } from '../../../agent/core/dbus/messages.ts';
import { messageOf } from '../../../base/errors.ts';
import { exec } from '../../../base/exec.ts';
import { namespaces, nodes, pods } from '../../../base/kubeapi/refs.ts';
import { hostOf } from '../../../base/process.ts';
import type { Node, Pod } from '../../../proto/kube/types.ts';
import { IMAGE, NAMESPACE } from '../../contract/upstream/pods.ts';
import { LoneNode, NODE } from './node.ts';

/*
 * In a machine booted by systemd (`nodelet machine run shutdown`): our agent with the systemd driver on whichever cgroup version
 * there is, pods of two priorities, and a shutdown that logind tells of, called off in the end. With `--poweroff` it is real, and
 * the machine ends while this runs: what the pods did stands in /exchange/out (or the folder after the word).
 */

const host = hostOf(process.argv.slice(2));
const at = host.args.indexOf('--poweroff');
const isReal = at >= 0;
const notes = (isReal ? host.args[at + 1] : undefined) ?? '/var/lib/lone-notes';
const assets = host.args.find((word) => word.startsWith('--assets='))?.slice('--assets='.length) ?? host.env['NODELET_ASSETS'] ?? null;
const isV1 = !existsSync('/sys/fs/cgroup/cgroup.controllers');
let failed = 0;

function check(what: string, found: string, wanted: string | RegExp): void {
  const ok = typeof wanted === 'string' ? found === wanted : wanted.test(found);
  if (!ok) failed += 1;
  host.stdout(ok ? `ok   ${what}: ${found}\n` : `FAIL ${what}: ${found} (wanted: ${String(wanted)})\n`);
}

/** Notes when it is asked to stop, and stops two seconds later. */
function podOf(name: string, grace: number, critical: boolean): Pod {
  const note = (word: string): string => `echo ${word} > /notes/${name}-${word}; `;
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, namespace: critical ? 'kube-system' : NAMESPACE },
    spec: {
      nodeName: NODE,
      terminationGracePeriodSeconds: grace,
      ...(critical ? { priorityClassName: 'system-node-critical', priority: 2_000_001_000 } : {}),
      containers: [
        {
          name: 'm',
          image: IMAGE,
          imagePullPolicy: 'IfNotPresent',
          command: ['sh', '-c', `trap '${note('asked')}sleep 2; ${note('stopped')}exit 0' TERM; while :; do sleep 0.2; done`],
          volumeMounts: [{ name: 'notes', mountPath: '/notes' }],
          resources: { requests: { cpu: '50m' }, limits: { memory: '64Mi', cpu: '333m' } },
        },
      ],
      volumes: [{ name: 'notes', hostPath: { path: notes } }],
    },
  };
}

const isReady = (pod: Pod): boolean => pod.status?.conditions?.some(({ type, status }) => type === 'Ready' && status === 'True') === true;
const ready = (node: Node): string => {
  const condition = node.status?.conditions?.find(({ type }) => type === 'Ready');
  return `${condition?.status} ${condition?.reason}: ${condition?.message}`;
};

async function until(node: LoneNode, wanted: RegExp): Promise<string> {
  for (let tries = 0; ; tries += 1) {
    const found = ready(await node.api.get<Node>(nodes(NODE)));
    if (wanted.test(found) || tries > 120) return found;
    await delay(500);
  }
}

/** As logind tells it, by root, on a connection that stays: who has gone cannot be asked who it was. */
async function tellOf(begins: boolean): Promise<void> {
  const address = { path: '/org/freedesktop/login1', interface: 'org.freedesktop.login1.Manager', member: 'PrepareForShutdown' };
  const bus = { destination: 'org.freedesktop.DBus', path: '/org/freedesktop/DBus', interface: 'org.freedesktop.DBus' };
  const socket = createConnection('/run/dbus/system_bus_socket');
  socket.on('error', (error) => check('the bus', messageOf(error), 'no error')).resume();
  socket.write(authLines(0));
  socket.write(encodeMessage({ ...bus, type: 'call', serial: 1, member: 'Hello', body: [] }));
  socket.write(encodeMessage({ ...address, type: 'signal', serial: 2, signature: 'b', body: [begins] }));
  await delay(3000);
  socket.destroy();
}

async function look(node: LoneNode): Promise<void> {
  const { api } = node;
  for (const name of [NAMESPACE, 'kube-system'])
    await api.create(namespaces(''), { apiVersion: 'v1', kind: 'Namespace', metadata: { name } }).catch(() => undefined);
  const made = [podOf('plain', 30, false), podOf('critical', 30, true)];
  await delay(2000);
  for (const pod of made) await api.create<Pod>(pods(pod.metadata.namespace ?? ''), pod);
  for (const { metadata } of made) await node.until(metadata.namespace ?? '', metadata.name ?? '', 'Ready', isReady);
  const plain = await api.get<Pod>(pods(NAMESPACE, 'plain'));
  const slice = `kubepods-burstable-pod${(plain.metadata.uid ?? '').replaceAll('-', '_')}.slice`;
  const { stdout: shown } = await exec(['systemctl', 'show', slice, '-p', 'ActiveState,Slice,CPUQuotaPerSecUSec,MemoryMax,MemoryLimit,DefaultDependencies'], {
    doing: 'asking for the slice',
  });
  const show = shown.trim().split('\n').join(' ');
  check('the pod’s slice', show, /^Slice=kubepods-burstable.slice CPUQuotaPerSecUSec=340ms .*=67108864.* ActiveState=active DefaultDependencies=no$/);
  const path = `/kubepods.slice/kubepods-burstable.slice/${slice}`;
  const quota = isV1 ? readFileSync(`/sys/fs/cgroup/cpu${path}/cpu.cfs_quota_us`, 'utf8') : readFileSync(`/sys/fs/cgroup${path}/cpu.max`, 'utf8');
  check('the pod’s quota in the cgroup', quota.trim(), isV1 ? '34000' : '34000 100000');
  const { stdout: held } = await exec(['systemd-inhibit', '--list', '--no-pager', '--no-legend'], { doing: 'listing inhibitors' });
  check('the inhibitor', held.split('\n').find((line) => line.includes('kubelet')) ?? 'none', /shutdown.*delay/);

  if (isReal) {
    host.stdout('the machine is told to power off\n');
    await exec(['systemctl', 'poweroff', '--no-block'], { doing: 'powering off' });
    await delay(120_000);
    return;
  }
  await tellOf(true);
  check('the node', await until(node, /shutting down/), 'False KubeletNotReady: node is shutting down');
  await api.create<Pod>(pods(NAMESPACE), { ...podOf('late', 1, false), metadata: { name: 'late', namespace: NAMESPACE } });
  const late = await node.until(NAMESPACE, 'late', 'refused', ({ status }) => status?.phase === 'Failed');
  check(
    'a pod that comes then',
    `${late.status?.reason}: ${late.status?.message}`,
    'NodeShutdown: Pod was rejected: Pod was rejected as the node is shutting down.',
  );
  for (const { metadata } of made) {
    const pod = await node.until(
      metadata.namespace ?? '',
      metadata.name ?? '',
      'ended',
      ({ status }) => status?.phase === 'Failed' || status?.phase === 'Succeeded',
    );
    check(
      `${metadata.name}: status`,
      `${pod.status?.phase} ${pod.status?.reason}: ${pod.status?.message}`,
      /^(Failed|Succeeded) Terminated: Pod was terminated in response to imminent node shutdown\.$/,
    );
    const target = pod.status?.conditions?.find(({ type }) => type === 'DisruptionTarget');
    check(`${metadata.name}: DisruptionTarget`, `${target?.status} ${target?.reason}`, 'True TerminationByKubelet');
  }
  const time = async (file: string): Promise<number> => Number((await exec(['stat', '-c', '%.Y', `${notes}/${file}`], { doing: 'reading a note' })).stdout);
  check('critical pods are asked after the others have stopped', String((await time('critical-asked')) >= (await time('plain-stopped'))), 'true');
  const state = '/var/lib/lone/shutdown/kubelet/graceful_node_shutdown_state';
  const over = /^\{"startTime":"20.*","endTime":"20/;
  for (let tries = 0; tries < 40 && !over.test(await readFile(state, 'utf8')); tries += 1) await delay(500);
  check('state file', await readFile(state, 'utf8'), over);
  await tellOf(false);
  check('called off', await until(node, /^True/), /^True KubeletReady/);
}

await mkdir(notes, { recursive: true });
try {
  const folder = '/var/lib/lone/shutdown';
  const configuration = { shutdownGracePeriod: '30s', shutdownGracePeriodCriticalPods: '10s', ...(isV1 ? { failCgroupV1: false, oomScoreAdj: 0 } : {}) };
  const dist = new URL('../../../dist', import.meta.url).pathname;
  await using node = await LoneNode.open({ agent: 'ours', driver: 'systemd', folder, assets, dist, image: IMAGE, signal: host.signal, configuration });
  try {
    await look(node);
  } catch (error) {
    for (const line of await node.lastWords()) host.stdout(`     ${line}\n`);
    throw error;
  }
} catch (error) {
  failed += 1;
  host.stdout(`FAIL ${messageOf(error)}\n`);
}
if (!isReal) await rm(notes, { recursive: true, force: true });
host.stdout(`shutdown: ${failed} failed\n`);
process.exitCode = failed > 0 ? 1 : 0;
