import type { Clock } from '../../base/clock.ts';
import { hasCode, OpError } from '../../base/errors.ts';
import type { Host } from '../../base/host.ts';
import type { ContainerStats, PodSandboxStats } from '../../proto/cri/types.ts';
import type { Shown } from '../core/listing.ts';
import { containerItems, findNamed } from '../core/named.ts';
import { plainJson } from '../core/plain-json.ts';
import { containerStatsTable, cpuPercent, sampled, sandboxStatsTable, type Sample } from '../core/stats-table.ts';
import { tableText } from '../core/table.ts';
import { connectEndpoints, type RuntimeConnection } from '../io/endpoint.ts';
import { callOptions } from './list-run.ts';
import type { RuntimeFlags } from './runtime-options.ts';

export interface StatsFlags extends RuntimeFlags {
  readonly pods: boolean;
  readonly pod?: string;
  readonly label: Readonly<Record<string, string>>;
  readonly watch: boolean;
  readonly every: number;
  readonly quiet: boolean;
  readonly trunc: boolean;
}

type Stats = ContainerStats | PodSandboxStats;

/** What differs between containers and sandboxes. */
interface Source<T extends Stats> {
  read(): Promise<T[]>;
  cpu(item: T): ContainerStats['cpu'] | undefined;
  table(samples: readonly Sample<T>[]): Shown;
}

/** Clears the screen of a terminal, and begins above. */
const TOP = '\u001B[2J\u001B[H';
const idOf = (item: Stats): string => item.attributes?.id ?? '';

function containers(host: Host, { client }: RuntimeConnection, id: string, flags: StatsFlags): Source<ContainerStats> {
  const filter = { id, podSandboxId: flags.pod ?? '', labelSelector: flags.label };
  return {
    read: async () => (await client.runtime.listContainerStats({ filter }, callOptions(host, flags))).stats,
    cpu: (item) => item.cpu,
    table: (samples) => containerStatsTable(samples, !flags.trunc),
  };
}

function sandboxes(host: Host, { client }: RuntimeConnection, flags: StatsFlags): Source<PodSandboxStats> {
  const filter = { id: flags.pod ?? '', labelSelector: flags.label };
  return {
    read: async () => (await client.runtime.listPodSandboxStats({ filter }, callOptions(host, flags))).stats,
    cpu: (item) => item.linux?.cpu,
    table: (samples) => sandboxStatsTable(samples, !flags.trunc),
  };
}

async function show<T extends Stats>(host: Host, clock: Clock, source: Source<T>, flags: StatsFlags): Promise<number> {
  let before = await source.read();
  if (flags.quiet) {
    host.stdout(before.map((item) => `${idOf(item)}\n`).join(''));
    return 0;
  }
  const isScreen = flags.watch && process.stdout.isTTY === true && !flags.json;
  for (;;) {
    try {
      await clock.sleep(flags.every, host.signal);
    } catch (error) {
      if (flags.watch && hasCode(error, 'aborted')) return 0;
      throw error;
    }
    const now = await source.read();
    const samples = sampled(before, now, idOf);
    if (flags.json) {
      for (const sample of samples) {
        const percent = Number(cpuPercent(sample.before === undefined ? null : source.cpu(sample.before), source.cpu(sample.now)));
        host.stdout(`${JSON.stringify({ ...(plainJson(sample.now) as object), cpuPercent: Number.isNaN(percent) ? null : percent })}\n`);
      }
    } else {
      const shown = source.table(samples);
      host.stdout(`${isScreen ? TOP : ''}${tableText(shown.titles, shown.rows)}${flags.watch && !isScreen ? '\n' : ''}`);
    }
    if (!flags.watch) return 0;
    before = now;
  }
}

/** `nodelet cri stats`: two samples, or one more every so often. */
export async function stats(host: Host, clock: Clock, word: string | undefined, flags: StatsFlags): Promise<number> {
  if (flags.pods && word !== undefined)
    throw new OpError('invalid', 'stats', '--pods and a container do not go together', { advice: 'choose a sandbox with --pod' });
  await using runtime = await connectEndpoints(flags, host.env);
  if (flags.pods) return await show(host, clock, sandboxes(host, runtime, flags), flags);
  let id = '';
  if (word !== undefined) {
    const all = await runtime.client.runtime.listContainers({}, callOptions(host, flags));
    id = findNamed(containerItems(all.containers, true), word, 'looking for a container').id;
  }
  return await show(host, clock, containers(host, runtime, id, flags), flags);
}
