import type { Program } from '../../scripts/command.ts';
import type { Engine } from '../../scripts/kind/place.ts';
import { OpError } from '../../base/errors.ts';
import type { Assets } from '../assets/find.ts';
import { walkAllLost } from './walk-all-lost.ts';
import { walkCluster } from './walk-cluster.ts';
import { serveImages } from './walk-images.ts';
import { walkLost } from './walk-lost.ts';
import { SHOP } from './walk-manifests.ts';
import { walkSomeLost } from './walk-some-lost.ts';
import { Steps, type Step } from './walk-steps.ts';
import { walkTwo } from './walk-two.ts';
import { openCluster, type Cluster } from './walk-world.ts';

/** What is walked: a new cluster, two workers, one of them lost, several of them lost, all of them lost. */
export const PARTS = ['cluster', 'two', 'lost', 'some-lost', 'all-lost'] as const;
export type Part = (typeof PARTS)[number];

export interface WalkOptions {
  readonly name: string;
  readonly parts: readonly Part[];
  /** Which worker is lost; null for the one with the fewest web pods. */
  readonly lose: string | null;
}

export interface Walked {
  readonly cluster: string;
  readonly versions: Readonly<Record<string, string>>;
  readonly steps: readonly Step[];
}

/** Walks steps 2.1 to 2.14, 3.7 and 4.10 to 4.14 of the documents on a kind cluster with two workers, and removes what it made. */
export async function walk(program: Program, assets: Assets, engine: Engine, options: WalkOptions, onStep: (step: Step) => void): Promise<Walked> {
  const cluster = await openCluster(engine, options.name);
  if (cluster.workers.length < 2)
    throw new OpError('unsupported', `walking on ${options.name}`, `it has ${cluster.workers.length} workers that run, and the documents have two`, {
      advice: `nodelet kind up --name ${options.name} --workers 2`,
    });
  const nodes = await cluster.list(['nodes']);
  const versions = Object.fromEntries(nodes.map(({ metadata, status }) => [metadata.name, status?.nodeInfo?.kubeletVersion ?? '']));
  const steps = new Steps(onStep);
  await clear(cluster);
  if (options.parts.includes('cluster')) await walkCluster(steps, cluster);
  const registry = await serveImages(program, assets, cluster);
  try {
    if (options.parts.includes('two')) await walkTwo(steps, cluster, registry);
    if (options.parts.includes('lost')) await walkLost(steps, cluster, options.lose);
    if (options.parts.includes('some-lost')) await walkSomeLost(steps, cluster);
    if (options.parts.includes('all-lost')) await walkAllLost(steps, cluster);
  } finally {
    await clear(cluster);
    await registry?.[Symbol.asyncDispose]();
  }
  return { cluster: cluster.name, versions, steps: steps.done };
}

async function clear(cluster: Cluster): Promise<void> {
  await cluster.k(['delete', 'namespace', SHOP, '--ignore-not-found', '--timeout=110s']);
}
