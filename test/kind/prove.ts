import { setTimeout as delay } from 'node:timers/promises';
import { OpError } from '../../base/errors.ts';
import { findPlace, nodesOf, type Engine, type Place } from '../../scripts/kind/place.ts';
import { restore, swap, type Swapped } from '../../scripts/kind/swap.ts';
import { until } from '../../scripts/kind/until.ts';
import type { Program } from '../../scripts/command.ts';
import { imagesDir } from '../images/command.ts';
import { makeE2eImages } from '../images/make.ts';
import type { Assets } from '../assets/find.ts';
import { Clients, together, type Served } from './clients.ts';
import { loadImages } from './images.ts';
import { AGNHOST, allReady, lives, NAMESPACE, pods, READY_MS, workload } from './pods.ts';
import { viewpointsOf } from './viewpoints.ts';

/** How long the other kubelet is watched after it has taken over. */
const AFTER_MS = 5_000;

export interface Round {
  readonly what: 'swap' | 'restore';
  readonly done: Swapped;
  /** What all clients saw, and by where they stood and what they asked. */
  readonly served: Served;
  readonly byClient: Readonly<Record<string, Served>>;
  /** Containers that are others than before: pod/container, restarts and id. */
  readonly restarted: readonly string[];
  readonly isGood: boolean;
}

export interface ProveOptions {
  readonly node: string;
  readonly rounds: number;
  readonly proxy: 'nftables' | 'iptables' | null;
  readonly release: string;
}

/** Makes agnhost, and loads it into the cluster's nodes. */
export async function loadAgnhost(program: Program, assets: Assets, engine: Engine, cluster: string): Promise<void> {
  const { host, progress } = program;
  await makeE2eImages({ host, store: { dir: imagesDir() }, assets, progress, choice: { only: [AGNHOST] }, build: false });
  const nodes = (await nodesOf(engine, cluster)).map(({ name }) => name);
  await loadImages(program, assets, engine, { cluster, nodes, images: [AGNHOST] });
}

/** What makes the way back harder: the other kubelet has resized a pod, started one, and restarted a container. */
async function meanwhile(place: Place, round: number): Promise<void> {
  const resized = (await pods(place)).find(({ metadata }) => metadata.name.startsWith('plain-'))?.metadata.name;
  if (resized === undefined) throw new OpError('not-found', 'looking for the pods', 'one of "plain" is wanted');
  const cpu = `${20 + round * 10}m`;
  const patch = { spec: { containers: [{ name: 'pause', resources: { requests: { cpu }, limits: { cpu: `${300 + round * 10}m` } } }] } };
  await place.kubectl(['patch', 'pod', resized, `--namespace=${NAMESPACE}`, '--subresource=resize', `--patch=${JSON.stringify(patch)}`]);
  const made = `made-${round}-${Date.now().toString(36)}`;
  const pod = {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: made, namespace: NAMESPACE },
    spec: { nodeName: place.node, containers: [{ name: 'pause', image: AGNHOST, args: ['pause'] }] },
  };
  await place.kubectl(['apply', '--filename=-'], { input: JSON.stringify(pod) });
  const statuses = async () => new Map((await pods(place)).map(({ metadata, status }) => [metadata.name, status.containerStatuses?.[0]]));
  let first = '';
  await until(place, `${made} runs and ${resized} is resized`, { timeoutMs: READY_MS }, async () => {
    const now = await statuses();
    first = now.get(made)?.containerID ?? '';
    return now.get(made)?.ready === true && now.get(resized)?.resources?.requests?.cpu === cpu;
  });
  // A fresh pod's: one that was restarted in each round would be waited for longer each time.
  await place.inside(['crictl', 'stop', '--timeout=0', first.replace(/^.*:\/\//, '')]);
  await until(place, `the container of ${made} is restarted`, { timeoutMs: READY_MS }, async () => {
    const now = (await statuses()).get(made);
    return now?.ready === true && now.containerID !== first;
  });
}

type Lives = ReadonlyMap<string, string>;

const changed = (before: Lives, after: Lives): string[] =>
  [...before].filter(([name, life]) => after.get(name) !== life).map(([name, life]) => `${name}: ${life} -> ${after.get(name) ?? 'gone'}`);

/** Swaps and restores a node again and again while clients outside it ask a Service, and looks for what its pods felt. */
export async function prove(program: Program, engine: Engine, options: ProveOptions, onRound: (round: Round) => void): Promise<Round[]> {
  const { progress } = program;
  const place = await findPlace(engine, options.node);
  await progress.step('pods made', async () => {
    await place.kubectl(['apply', '--filename=-'], { input: JSON.stringify({ apiVersion: 'v1', kind: 'List', items: workload(options.node) }) });
    await allReady(place, 12);
  });
  const viewpoints = await viewpointsOf(place);
  progress.note(`clients: ${viewpoints.flatMap(({ name, urls }) => Object.keys(urls).map((what) => `${name}: ${what}`)).join('; ')}`);
  const rounds: Round[] = [];
  let last: Lives = await lives(place);
  for (let at = 0; at < options.rounds; at += 1) {
    for (const what of ['swap', 'restore'] as const) {
      // What was restarted since the last look counts against the round that came before, and so against all.
      const since = changed(last, await lives(place));
      if (what === 'restore') await progress.step('a container restarted, a pod resized, a pod made', () => meanwhile(place, at));
      const before = await lives(place);
      await using clients = new Clients(viewpoints);
      await delay(1_000);
      const done = await (what === 'swap'
        ? swap(place, { proxy: options.proxy, release: async () => options.release, progress })
        : restore(place, { progress }));
      await delay(AFTER_MS);
      const byClient = await clients.end();
      const served = together(byClient);
      last = await lives(place);
      const restarted = [...since, ...changed(before, last)];
      const isGood =
        restarted.length === 0 &&
        served.failures.length === 0 &&
        Object.values(byClient).every(({ requests }) => requests > 0) &&
        done.isReadyThroughout &&
        done.containers.lost.length === 0;
      const round = { what, done, served, byClient, restarted, isGood };
      rounds.push(round);
      onRound(round);
    }
  }
  return rounds;
}
