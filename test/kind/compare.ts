import { writeFile, readdir, readFile, readlink } from 'node:fs/promises';
import { cpus, loadavg } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { realClock } from '../../base/clock.ts';
import { OpError } from '../../base/errors.ts';
import { exec } from '../../base/exec.ts';
import { createKubeApi } from '../../base/kubeapi/client.ts';
import { readKubeConfig } from '../../base/kubeapi/config.ts';
import type { KubeApi } from '../../base/kubeapi/types.ts';
import { silentLog } from '../../base/log.ts';
import { realRng } from '../../base/rng.ts';
import { findPlace, type Engine, type Place } from '../../scripts/kind/place.ts';
import type { Program } from '../../scripts/command.ts';
import { findAssets } from '../assets/find.ts';
import { measureIdle, measureRound, type Subject } from '../compare/measure.ts';
import { Watcher } from '../compare/pods.ts';
import { rowsOf, textOf, type Comparison, type Idle, type Sample } from '../compare/report.ts';
import { IMAGES, NAMESPACE, type Flavour } from '../compare/workload.ts';
import { freshNamespace, removeNamespace } from '../namespaces.ts';
import { loadImages } from './images.ts';
import { kubeconfigOf, nodeObjects, sideOf } from './judge.ts';
import { initPidOf } from './viewpoints.ts';

export interface CompareWords {
  readonly sizes: string;
  readonly rounds: string;
  readonly idle: string;
  readonly timeout: string;
  readonly json: boolean | string;
}

const FLAVOURS: readonly Flavour[] = ['plain', 'probed'];

function numbers(flag: string, text: string, most: number): number[] {
  const parts = text.split(',').map(Number);
  if (parts.some((part) => !Number.isInteger(part) || part < 1 || part > most))
    throw new OpError('invalid', `reading ${flag}`, `"${text}" is not a list of whole numbers from 1 to ${most}`);
  return parts;
}

/** Which process of this machine is the one that a node's own process namespace numbers so. */
export async function hostPidOf(initPid: number, inner: number): Promise<number> {
  const space = await readlink(`/proc/${initPid}/ns/pid`);
  for (const name of await readdir('/proc')) {
    if (!/^\d+$/.test(name)) continue;
    const status = await readFile(`/proc/${name}/status`, 'utf8').catch(() => '');
    const numbersOf = /^NSpid:\s+(.*)$/m.exec(status)?.[1]?.split(/\s+/) ?? [];
    if (Number(numbersOf.at(-1)) !== inner) continue;
    if ((await readlink(`/proc/${name}/ns/pid`).catch(() => '')) === space) return Number(name);
  }
  throw new OpError('not-found', 'looking for a node’s process', `none of this machine’s is ${inner} there`, { advice: 'the engine must run on this machine' });
}

async function subjectOf(place: Place, kubeletVersion: string): Promise<Subject> {
  const initPid = await initPidOf(place);
  const main = async (unit: string): Promise<number> =>
    hostPidOf(initPid, Number((await place.inside(['systemctl', 'show', unit, '--property=MainPID', '--value'])).trim()));
  return { side: sideOf(kubeletVersion), node: place.node, agentPid: await main('kubelet'), containerdPid: await main('containerd'), initPid };
}

async function subjectsOf(places: readonly Place[]): Promise<Subject[]> {
  const versions = new Map((await nodeObjects(places[0] as Place)).map(({ metadata, status }) => [metadata.name, status.nodeInfo['kubeletVersion'] ?? '']));
  const subjects: Subject[] = [];
  for (const place of places) subjects.push(await subjectOf(place, versions.get(place.node) ?? ''));
  if (new Set(subjects.map(({ side }) => side)).size !== 2)
    throw new OpError('invalid', 'comparing', places.map(({ node }) => `${node} runs ${versions.get(node) ?? 'nothing'}`).join(', '), {
      advice: 'one must be ours: nodelet kind swap NODE',
    });
  return subjects.toSorted((a, b) => (a.side === b.side ? 0 : a.side === 'upstream' ? -1 : 1));
}

async function bringImages(program: Program, root: string, engine: Engine, cluster: string, nodes: readonly string[]): Promise<void> {
  for (const { name, recipe } of IMAGES.filter((image) => image.recipe !== 'pause'))
    await exec([`${root}/nodelet`, 'image', 'make', name, '--from', recipe], { signal: program.host.signal, doing: `making ${name}` });
  const assets = await findAssets({ env: program.host.env });
  await loadImages(program, assets, engine, { cluster, nodes, images: IMAGES.map(({ name }) => name) });
}

interface Plan {
  readonly sizes: readonly number[];
  readonly rounds: readonly number[];
  readonly idleMs: number;
  readonly timeoutMs: number;
}

/** The same pods on two nodes of a kind cluster, one ours and one upstream's, in turn. */
export async function compareNodes(program: Program, engine: Engine, root: string, nodes: readonly string[], plan: Plan): Promise<Comparison> {
  const { progress, host } = program;
  const { signal } = host;
  const places: Place[] = [];
  for (const node of nodes) places.push(await findPlace(engine, node));
  const [first, second] = places;
  if (first === undefined || second === undefined || first.cluster !== second.cluster || first.node === second.node)
    throw new OpError('invalid', 'comparing', 'two nodes of one cluster are wanted');
  const subjects = await subjectsOf(places);
  const assets = await findAssets({ env: host.env });
  await bringImages(program, root, engine, first.cluster, nodes);
  const config = await readKubeConfig(await kubeconfigOf(assets, engine, first.cluster, `${root}/dist/kind-${first.cluster}`));
  await using api = createKubeApi({ config, log: silentLog, clock: realClock, rng: realRng, userAgent: 'nodelet-compare' });
  await freshNamespace(api, NAMESPACE, signal);
  const samples: Sample[] = [];
  const idle: Idle[] = [];
  {
    await using watcher = new Watcher(api);
    const measure = async (subject: Subject, flavour: Flavour, count: number): Promise<Sample> =>
      (await measureRound(api, watcher, subject, { flavour, count, idleMs: 0, timeoutMs: plan.timeoutMs }, signal)).sample;
    await progress.step('warm-up', async () => {
      for (const subject of subjects) for (const flavour of FLAVOURS) await measure(subject, flavour, 1);
    });
    if (plan.idleMs > 0)
      idle.push(...(await progress.step(`both without further pods for ${plan.idleMs / 1000} s`, () => idleOf(api, subjects, plan.idleMs, signal))));
    let turn = 0;
    for (const [at, count] of plan.sizes.entries())
      for (const flavour of FLAVOURS)
        for (let round = 1; round <= (plan.rounds[at] ?? plan.rounds.at(-1) ?? 1); round += 1) {
          const order = turn % 2 === 0 ? subjects : subjects.toReversed();
          turn += 1;
          await progress.step(`${count} ${flavour}, round ${round}: ${order.map(({ side }) => side).join(', ')}`, async () => {
            for (const subject of order) {
              samples.push(await measure(subject, flavour, count));
              await delay(1_000, undefined, { signal });
            }
          });
        }
  }
  await removeNamespace(api, NAMESPACE, signal);
  const info = (await nodeObjects(first))[0]?.status.nodeInfo ?? {};
  const versions = {
    runtime: info['containerRuntimeVersion'] ?? '?',
    kernel: info['kernelVersion'] ?? '?',
    load: loadavg()
      .map((load) => load.toFixed(1))
      .join(' '),
  };
  return { date: new Date().toISOString(), versions, cpus: cpus().length, samples, idle, writes: [] };
}

async function idleOf(api: KubeApi, subjects: readonly Subject[], ms: number, signal: AbortSignal): Promise<Idle[]> {
  const measured = await Promise.all(subjects.map((subject) => measureIdle(api, subject, null, 0, ms, signal)));
  return measured.map(({ idle }) => idle);
}

/** Adds `nodelet kind compare`. */
export function addCompare(program: Program, root: string, engine: () => Promise<Engine>): void {
  program
    .add<CompareWords>(
      'compare <node> <other>',
      'the same pods on a node of ours and on one of upstream’s, in turn: time to Ready, time to gone, CPU, memory, ratios',
      [
        'sudo nodelet kind compare kind-worker kind-worker2',
        'sudo nodelet kind compare kind-worker kind-worker2 --sizes 1,30 --rounds 5,2 --json compare.json',
      ],
      async (words, nodes) => {
        const [idle, timeout] = [Number(words.idle), Number(words.timeout)];
        if (!(idle >= 0)) throw new OpError('invalid', 'reading --idle', `"${words.idle}" is not a number of seconds`);
        if (!(timeout > 0)) throw new OpError('invalid', 'reading --timeout', `"${words.timeout}" is not a number of seconds`);
        const plan = {
          sizes: numbers('--sizes', words.sizes, 90),
          rounds: numbers('--rounds', words.rounds, 1_000),
          idleMs: idle * 1000,
          timeoutMs: timeout * 1000,
        };
        const comparison = await compareNodes(program, await engine(), root, nodes, plan);
        const data = { ...comparison, rows: rowsOf(comparison) };
        if (typeof words.json === 'string') await writeFile(words.json, `${JSON.stringify(data, null, 1)}\n`);
        program.answer(words.json === true, data, textOf(comparison));
        return 0;
      },
      { jsonFile: true },
    )
    .option('--sizes <list>', 'how many pods at once', '1,20')
    .option('--rounds <list>', 'rounds of each size; the last counts for the rest', '5,2')
    .option('--idle <seconds>', 'how long idle nodes are watched; 0: not at all', '30')
    .option('--timeout <seconds>', 'how long a round may take to be ready, and to be gone', '300');
}
