import { rm } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { exec } from '../../base/exec.ts';
import { OpError } from '../../base/errors.ts';
import { findPlace, type Engine, type Place } from '../../scripts/kind/place.ts';
import { restore, swap, type Swapped } from '../../scripts/kind/swap.ts';
import type { Program } from '../../scripts/command.ts';
import { imagesDir } from '../images/command.ts';
import { makeE2eImages } from '../images/make.ts';
import type { Assets } from '../assets/find.ts';
import { Clients, type Served } from './clients.ts';
import { archiveOf } from './node-image.ts';

export const AGNHOST = 'registry.k8s.io/e2e-test-images/agnhost:2.66.1';
const NAMESPACE = 'swapped';
const READY_MS = 180_000;

export interface Round {
  readonly what: 'swap' | 'restore';
  readonly done: Swapped;
  readonly served: Served;
  /** Restart counts that rose meanwhile: pod/container. */
  readonly restarted: readonly string[];
  readonly isGood: boolean;
}

export interface ProveOptions {
  readonly node: string;
  readonly rounds: number;
  readonly proxy: 'nftables' | 'iptables' | null;
  readonly release: string;
}

interface PodList {
  readonly items: readonly {
    readonly metadata: { readonly name: string };
    readonly spec: { readonly nodeName?: string };
    readonly status: {
      readonly conditions?: readonly { type: string; status: string }[];
      readonly containerStatuses?: readonly {
        name: string;
        restartCount: number;
        ready: boolean;
        containerID?: string;
        resources?: { requests?: { cpu?: string } };
      }[];
      readonly initContainerStatuses?: readonly { name: string; restartCount: number; containerID?: string }[];
    };
  }[];
}

/** Pods of every kind that a swap must not touch, most of them on `node`, and a Service backed by pods on all workers. */
function workload(node: string): object[] {
  const http = { httpGet: { path: '/healthz', port: 8080 }, periodSeconds: 1 };
  const server = {
    name: 'server',
    image: AGNHOST,
    args: ['netexec', '--http-port=8080'],
    ports: [{ containerPort: 8080 }],
    readinessProbe: http,
    livenessProbe: { ...http, failureThreshold: 2 },
  };
  const sidecar = { name: 'sidecar', image: AGNHOST, args: ['pause'], restartPolicy: 'Always', startupProbe: { exec: { command: ['/bin/true'] } } };
  const here = { 'kubernetes.io/hostname': node };
  const labels = (app: string) => ({ app });
  const deployment = (app: string, replicas: number, spec: object) => ({
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name: app, namespace: NAMESPACE },
    spec: {
      replicas,
      selector: { matchLabels: labels(app) },
      template: { metadata: { labels: labels(app) }, spec: { terminationGracePeriodSeconds: 1, ...spec } },
    },
  });
  const spread = [
    {
      maxSkew: 1,
      topologyKey: 'kubernetes.io/hostname',
      whenUnsatisfiable: 'DoNotSchedule',
      nodeTaintsPolicy: 'Honor',
      labelSelector: { matchLabels: labels('web') },
    },
  ];
  return [
    { apiVersion: 'v1', kind: 'Namespace', metadata: { name: NAMESPACE } },
    deployment('web', 4, { containers: [server], topologySpreadConstraints: spread }),
    {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name: 'web', namespace: NAMESPACE },
      spec: { type: 'NodePort', selector: labels('web'), ports: [{ port: 80, targetPort: 8080 }] },
    },
    deployment('sidecars', 3, { nodeSelector: here, initContainers: [sidecar], containers: [server] }),
    deployment('plain', 2, {
      nodeSelector: here,
      containers: [{ name: 'pause', image: AGNHOST, args: ['pause'], resources: { requests: { cpu: '10m' }, limits: { cpu: '200m' } } }],
    }),
    {
      apiVersion: 'apps/v1',
      kind: 'DaemonSet',
      metadata: { name: 'each', namespace: NAMESPACE },
      spec: { selector: { matchLabels: labels('each') }, template: { metadata: { labels: labels('each') }, spec: { containers: [server] } } },
    },
    {
      apiVersion: 'apps/v1',
      kind: 'StatefulSet',
      metadata: { name: 'data', namespace: NAMESPACE },
      spec: {
        replicas: 2,
        serviceName: 'data',
        selector: { matchLabels: labels('data') },
        template: {
          metadata: { labels: labels('data') },
          spec: { nodeSelector: here, containers: [{ ...server, volumeMounts: [{ name: 'data', mountPath: '/data' }] }] },
        },
        volumeClaimTemplates: [{ metadata: { name: 'data' }, spec: { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '10Mi' } } } }],
      },
    },
  ];
}

async function pods(place: Place): Promise<PodList['items']> {
  return (JSON.parse(await place.kubectl(['get', 'pods', `--namespace=${NAMESPACE}`, '--output=json'])) as PodList).items;
}

async function allReady(place: Place, least: number): Promise<void> {
  const until = performance.now() + READY_MS;
  for (;;) {
    const items = await pods(place);
    const isReady = (status: PodList['items'][number]['status']): boolean => status.conditions?.find(({ type }) => type === 'Ready')?.status === 'True';
    if (items.length >= least && items.every(({ status }) => isReady(status))) return;
    if (performance.now() > until) {
      const waiting = items.filter(({ status }) => !isReady(status)).map(({ metadata }) => metadata.name);
      throw new OpError('deadline', 'waiting for the pods', `${items.length} of ${least} are there; not ready: ${waiting.join(', ')}`);
    }
    await delay(1_000);
  }
}

/** Restart counts and ids of all containers, by pod and container. */
async function lives(place: Place): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  for (const { metadata, status } of await pods(place))
    for (const each of [...(status.initContainerStatuses ?? []), ...(status.containerStatuses ?? [])])
      found.set(`${metadata.name}/${each.name}`, `${each.restartCount} ${each.containerID ?? ''}`);
  return found;
}

/** Loads agnhost into the cluster's nodes. */
export async function loadAgnhost(program: Program, assets: Assets, engine: Engine, cluster: string, folder: string): Promise<void> {
  const { host, progress } = program;
  await makeE2eImages({ host, store: { dir: imagesDir() }, assets, progress, choice: { only: [AGNHOST] }, build: false });
  const archive = await archiveOf({ dir: imagesDir() }, AGNHOST, folder);
  const kind = assets.require('kind', 'loading images');
  await progress.step(`${AGNHOST} loaded`, () =>
    exec([kind, 'load', 'image-archive', archive, '--name', cluster], { env: engine.env, signal: engine.signal, timeoutMs: READY_MS }),
  );
  await rm(archive, { force: true });
}

/** What makes the way back harder: the other kubelet has restarted a container, resized a pod and started one. */
async function meanwhile(place: Place, round: number): Promise<void> {
  const plain = (await pods(place)).filter(({ metadata }) => metadata.name.startsWith('plain-'));
  const [first, second] = plain;
  if (first === undefined || second === undefined) throw new OpError('not-found', 'looking for the pods', 'two of "plain" are wanted');
  const id = first.status.containerStatuses?.[0]?.containerID?.replace(/^.*:\/\//, '') ?? '';
  await place.inside(['crictl', 'stop', '--timeout=0', id]);
  const cpu = `${20 + round * 10}m`;
  const patch = { spec: { containers: [{ name: 'pause', resources: { requests: { cpu }, limits: { cpu: `${300 + round * 10}m` } } }] } };
  await place.kubectl(['patch', 'pod', second.metadata.name, `--namespace=${NAMESPACE}`, '--subresource=resize', `--patch=${JSON.stringify(patch)}`]);
  const made = {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: `made-${round}`, namespace: NAMESPACE },
    spec: { nodeName: place.node, containers: [{ name: 'pause', image: AGNHOST, args: ['pause'] }] },
  };
  await place.kubectl(['apply', '--filename=-'], { input: JSON.stringify(made) });
  const until = performance.now() + READY_MS;
  for (;;) {
    const now = new Map((await pods(place)).map((pod) => [pod.metadata.name, pod.status.containerStatuses?.[0]]));
    const restarted = now.get(first.metadata.name);
    const isRestarted = restarted?.containerID !== undefined && !restarted.containerID.endsWith(id) && restarted.ready;
    if (isRestarted && now.get(second.metadata.name)?.resources?.requests?.cpu === cpu && now.get(`made-${round}`)?.ready === true) return;
    if (performance.now() > until) throw new OpError('deadline', 'waiting for what our kubelet was asked for', JSON.stringify([...now]));
    await delay(500);
  }
}

/** Swaps and restores a node again and again while clients outside it ask a Service, and looks for what its pods felt. */
export async function prove(program: Program, engine: Engine, options: ProveOptions, onRound: (round: Round) => void): Promise<Round[]> {
  const { progress } = program;
  const place = await findPlace(engine, options.node);
  await progress.step('pods made', async () => {
    await place.kubectl(['apply', '--filename=-'], { input: JSON.stringify({ apiVersion: 'v1', kind: 'List', items: workload(options.node) }) });
    await allReady(place, 12);
  });
  const port = (await place.kubectl(['get', 'service', 'web', `--namespace=${NAMESPACE}`, '--output=jsonpath={.spec.ports[0].nodePort}'])).trim();
  const address = (await place.kubectl(['get', 'node', place.controlPlane, '--output=jsonpath={.status.addresses[?(@.type=="InternalIP")].address}'])).trim();
  const rounds: Round[] = [];
  for (let at = 0; at < options.rounds; at += 1) {
    for (const what of ['swap', 'restore'] as const) {
      if (what === 'restore') await progress.step('a container restarted, a pod resized, a pod made', () => meanwhile(place, at));
      const before = await lives(place);
      let served: Served;
      let done: Swapped;
      {
        await using clients = new Clients(`http://${address}:${port}/hostname`);
        await delay(1_000);
        done = await (what === 'swap' ? swap(place, { proxy: options.proxy, release: options.release, progress }) : restore(place, { progress }));
        await delay(3_000);
        served = clients.served;
      }
      const after = await lives(place);
      const restarted = [...before]
        .filter(([name, life]) => after.get(name) !== life)
        .map(([name, life]) => `${name}: ${life} -> ${after.get(name) ?? 'gone'}`);
      const isGood = restarted.length === 0 && served.failures.length === 0 && done.isReadyThroughout && done.containers.lost.length === 0;
      const round = { what, done, served, restarted, isGood };
      rounds.push(round);
      onRound(round);
    }
  }
  return rounds;
}
