import { setTimeout as delay } from 'node:timers/promises';
import { OpError } from '../../base/errors.ts';
import type { KubeApi } from '../../base/kubeapi/types.ts';
import { costOf, family, loopDelayMs, type Cost } from '../../scripts/cost.ts';
import { runRound, type Watcher } from './pods.ts';
import type { Idle, Sample, Side } from './report.ts';
import type { Flavour } from './workload.ts';

/** A node of one side and the processes that are measured. */
export interface Subject {
  readonly side: Side;
  readonly node: string;
  /** The kubelet, or our agent. */
  readonly agentPid: number;
  readonly containerdPid: number;
  /** The node's first process: shims are its children once their starter has ended. */
  readonly initPid: number;
}

interface Scrape {
  readonly calls: number;
  readonly callSeconds: number;
  readonly loopMaxMs: number | null;
  readonly loopP99Ms: number | null;
}

/** Sums the values of all lines of a metric. */
export function sumOf(page: string, metric: string): number {
  let sum = 0;
  for (const line of page.split('\n')) {
    if (!line.startsWith(metric)) continue;
    const rest = line.slice(metric.length);
    if (rest.startsWith('{') || rest.startsWith(' ')) sum += Number(line.slice(line.lastIndexOf(' ') + 1));
  }
  return sum;
}

export function scrapeOf(page: string): Scrape {
  return {
    calls: sumOf(page, 'kubelet_runtime_operations_total'),
    callSeconds: sumOf(page, 'kubelet_runtime_operations_duration_seconds_sum'),
    loopMaxMs: loopDelayMs(page, '1'),
    loopP99Ms: loopDelayMs(page, '0.99'),
  };
}

async function scrape(api: KubeApi, node: string): Promise<Scrape> {
  const answer = await api.raw('GET', `/api/v1/nodes/${node}/proxy/metrics`, { timeoutMs: 30_000 });
  if (answer.status !== 200) throw new OpError('unavailable', `reading the metrics of ${node}`, `the API server says ${answer.status}`);
  return scrapeOf(Buffer.from(answer.body).toString());
}

/** The agent with what it keeps beside it, and containerd with the shims: everything below the node's first process but the pods' own. */
async function costs(subject: Subject): Promise<{ agent: Cost; runtime: Cost }> {
  const agent = await family(subject.agentPid);
  const shims = await shimsOf(subject.initPid);
  return { agent: await costOf(agent), runtime: await costOf([subject.containerdPid, ...shims]) };
}

async function shimsOf(initPid: number): Promise<number[]> {
  const { readFile } = await import('node:fs/promises');
  const children = (await readFile(`/proc/${initPid}/task/${initPid}/children`, 'utf8').catch(() => '')).split(' ').filter(Boolean).map(Number);
  const names = await Promise.all(children.map((pid) => readFile(`/proc/${pid}/comm`, 'utf8').catch(() => '')));
  return children.filter((_, at) => names[at]?.startsWith('containerd-shim'));
}

export interface Measured {
  readonly sample: Sample;
  readonly idle: Idle | null;
}

/** One round on one side; with `idleMs`, also what the node costs while its pods stand there. */
export async function measureRound(
  api: KubeApi,
  watcher: Watcher,
  subject: Subject,
  options: { flavour: Flavour; count: number; idleMs: number; timeoutMs: number },
  signal: AbortSignal,
): Promise<Measured> {
  const { flavour, count, idleMs, timeoutMs } = options;
  const before = { ...(await costs(subject)), scrape: await scrape(api, subject.node) };
  let idle: Idle | null = null;
  let idleSpent = { agent: 0, runtime: 0 };
  // Shims end with their pods: what they spent is read while they live.
  let shimsAtMost = 0;
  const round = await runRound({
    api,
    watcher,
    node: subject.node,
    flavour,
    count,
    timeoutMs,
    signal,
    meanwhile: async () => {
      const now = await costs(subject);
      shimsAtMost = now.runtime.cpuSeconds;
      if (idleMs === 0) return;
      const measured = await measureIdle(api, subject, flavour, count, idleMs, signal);
      idle = measured.idle;
      idleSpent = measured.spent;
      shimsAtMost += idleSpent.runtime;
    },
  });
  const after = { ...(await costs(subject)), scrape: await scrape(api, subject.node) };
  return {
    idle,
    sample: {
      side: subject.side,
      flavour,
      count,
      readyMs: round.readyMs,
      goneMs: round.goneMs,
      agentCpuSeconds: after.agent.cpuSeconds - before.agent.cpuSeconds - idleSpent.agent,
      runtimeCpuSeconds: Math.max(after.runtime.cpuSeconds, shimsAtMost) - before.runtime.cpuSeconds - idleSpent.runtime,
      calls: after.scrape.calls - before.scrape.calls,
      callSeconds: after.scrape.callSeconds - before.scrape.callSeconds,
      loopMaxMs: after.scrape.loopMaxMs,
    },
  };
}

/** What a node costs in `ms` milliseconds in which nobody asks anything of it. */
export async function measureIdle(
  api: KubeApi,
  subject: Subject,
  flavour: Flavour | null,
  pods: number,
  ms: number,
  signal: AbortSignal,
): Promise<{ idle: Idle; spent: { agent: number; runtime: number } }> {
  await scrape(api, subject.node);
  const before = await costs(subject);
  await delay(ms, undefined, { signal });
  const after = await costs(subject);
  const spent = { agent: after.agent.cpuSeconds - before.agent.cpuSeconds, runtime: after.runtime.cpuSeconds - before.runtime.cpuSeconds };
  const { loopP99Ms } = await scrape(api, subject.node);
  return {
    spent,
    idle: {
      side: subject.side,
      flavour,
      pods,
      agentCores: spent.agent / (ms / 1000),
      runtimeCores: spent.runtime / (ms / 1000),
      anonMiB: after.agent.anonMiB,
      fileMiB: after.agent.fileMiB,
      loopP99Ms,
    },
  };
}
