import type { Clock } from '../../base/clock.ts';
import type { Host } from '../../base/host.ts';
import type { ContainerState, PodSandboxState } from '../../proto/cri/types.ts';
import type { ClientOptions } from '../client.ts';
import { chooseContainers, chooseImages, chooseSandboxes, containerTable, imageTable, sandboxTable, type Shown } from '../core/listing.ts';
import { plainJson } from '../core/plain-json.ts';
import { tableText } from '../core/table.ts';
import { connectEndpoints } from '../io/endpoint.ts';
import type { RuntimeFlags } from './runtime-options.ts';

interface ListFlags extends RuntimeFlags {
  readonly quiet: boolean;
  /** False is what `--no-trunc` says. */
  readonly trunc: boolean;
}

interface ChoiceFlags extends ListFlags {
  readonly id?: string;
  readonly name?: string;
  readonly namespace?: string;
  readonly label: Readonly<Record<string, string>>;
  readonly latest: boolean;
  readonly last?: number;
}

export interface PsFlags extends ChoiceFlags {
  readonly all: boolean;
  readonly pod?: string;
  readonly image?: string;
  readonly state?: 'created' | 'running' | 'exited' | 'unknown';
}

export interface PodsFlags extends ChoiceFlags {
  readonly state?: 'ready' | 'notready';
}

export interface ImagesFlags extends ListFlags {
  readonly digests: boolean;
}

/** The deadline that was asked for, else the method's own. */
export function callOptions(host: Host, flags: RuntimeFlags): ClientOptions {
  return { signal: host.signal, ...(flags.timeout === undefined ? {} : { timeoutMs: flags.timeout }) };
}

function print(host: Host, flags: ListFlags, items: readonly { readonly id: string }[], shown: Shown): number {
  if (flags.json) host.stdout(items.map((item) => `${JSON.stringify(plainJson(item))}\n`).join(''));
  else if (flags.quiet) host.stdout(items.map(({ id }) => `${id}\n`).join(''));
  else host.stdout(tableText(shown.titles, shown.rows));
  return 0;
}

/** `nodelet cri ps`. What the runtime can choose it chooses; the rest is chosen here. */
export async function ps(host: Host, clock: Clock, flags: PsFlags): Promise<number> {
  await using runtime = await connectEndpoints(flags, host.env);
  const isAll = flags.all || flags.latest || flags.last !== undefined;
  const word = flags.state ?? (isAll ? undefined : 'running');
  const state = word === undefined ? {} : { state: { state: `CONTAINER_${word.toUpperCase()}` as ContainerState } };
  const filter = { id: flags.id ?? '', podSandboxId: flags.pod ?? '', labelSelector: flags.label, ...state };
  const { containers } = await runtime.client.runtime.listContainers({ filter }, callOptions(host, flags));
  const chosen = chooseContainers(containers, { ...flags, last: flags.latest ? 1 : flags.last });
  return print(host, flags, chosen, containerTable(chosen, clock.nowMs(), !flags.trunc));
}

/** `nodelet cri pods`. */
export async function pods(host: Host, clock: Clock, flags: PodsFlags): Promise<number> {
  await using runtime = await connectEndpoints(flags, host.env);
  const state = flags.state === undefined ? {} : { state: { state: `SANDBOX_${flags.state.toUpperCase()}` as PodSandboxState } };
  const filter = { id: flags.id ?? '', labelSelector: flags.label, ...state };
  const { items } = await runtime.client.runtime.listPodSandbox({ filter }, callOptions(host, flags));
  const chosen = chooseSandboxes(items, { ...flags, last: flags.latest ? 1 : flags.last });
  return print(host, flags, chosen, sandboxTable(chosen, clock.nowMs(), !flags.trunc));
}

/** `nodelet cri images`. */
export async function images(host: Host, wanted: string | undefined, flags: ImagesFlags): Promise<number> {
  await using runtime = await connectEndpoints(flags, host.env);
  const answer = await runtime.client.images.listImages({}, callOptions(host, flags));
  const chosen = chooseImages(answer.images, wanted);
  return print(host, flags, chosen, imageTable(chosen, !flags.trunc, flags.digests));
}
