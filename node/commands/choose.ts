import { OpError } from '../../base/errors.ts';
import { cgroupOf, conflicts, MAX_NODES, MAX_SETS, subnetProblem, type CniKind, type Conflict, type SetOptions } from '../core/plan.ts';
import type { RealPrograms } from '../core/real.ts';
import { claimNumber, processIn, requirePorts } from '../io/claim.ts';
import type { Machine } from '../io/machine.ts';
import { hasHostLink, hostRoutes } from '../io/network.ts';
import { listSets, planOf, saveSet, type SavedSet } from '../io/state.ts';
import type { Context } from './context.ts';

/** Options of `up` that say what a set is; absent ones are what it was before, or the defaults. */
export interface SetChoice extends Pick<SetOptions, 'agents' | 'proxies' | 'join' | 'audit' | 'cni' | 'dualStack'> {
  readonly nodes?: string;
  readonly controlPlane?: 'embedded' | 'real';
  readonly containerd?: string;
  readonly subnet?: string;
  readonly podCidr?: string;
  readonly serviceCidr?: string;
  /** Programs that are not ours, for a set that has none yet. */
  readonly programs?: RealPrograms;
}

/** Refuses what is no number or subnet, before anything is looked at or installed. */
export function checkChoice(choice: SetChoice): void {
  if (choice.nodes !== undefined) {
    const count = Number(choice.nodes);
    if (!Number.isInteger(count) || count < 1 || count > MAX_NODES)
      throw new OpError('invalid', 'reading --nodes', `"${choice.nodes}" is not a number from 1 to ${MAX_NODES}`);
  }
  const subnets: [string | undefined, 16 | 24, string][] = [
    [choice.subnet, 24, '--subnet'],
    [choice.podCidr, 16, '--pod-cidr'],
    [choice.serviceCidr, 16, '--service-cidr'],
  ];
  for (const [value, prefix, flag] of subnets) {
    const problem = value === undefined ? null : subnetProblem(value, prefix);
    if (problem !== null) throw new OpError('invalid', `reading ${flag}`, problem);
  }
}

/** The set that is there already, grown by more nodes if that was asked for; it cannot change otherwise. */
export async function growSet(context: Context, previous: SavedSet, choice: SetChoice): Promise<Chosen> {
  const { options } = previous;
  const differs: [string, string | undefined, string | undefined][] = [
    ['--control-plane', choice.controlPlane, options.controlPlane],
    ['--containerd', choice.containerd, previous.containerd],
    ['--subnet', choice.subnet, options.subnet],
    ['--pod-cidr', choice.podCidr, options.podCidr],
    ['--service-cidr', choice.serviceCidr, options.serviceCidr],
    ['--agent', choice.agents?.join(','), options.agents?.join(',')],
    ['--proxy', choice.proxies?.join(','), options.proxies?.join(',')],
    ['--audit', choice.audit?.toString(), options.audit?.toString()],
    ['--cni', choice.cni, options.cni ?? 'reference'],
    ['--dual-stack', choice.dualStack?.toString(), options.dualStack?.toString()],
  ];
  for (const [flag, wanted, had] of differs) {
    if (wanted !== undefined && wanted !== had)
      throw new OpError('conflict', `reading ${flag}`, `the set "${options.name}" runs with ${had ?? 'the default'}`, {
        advice: `end it first with: nodelet down --name ${options.name}`,
      });
  }
  const nodeCount = Number(choice.nodes ?? options.nodeCount);
  if (nodeCount < options.nodeCount)
    throw new OpError('conflict', 'reading --nodes', `the set "${options.name}" has ${options.nodeCount} nodes`, {
      advice: `stop some with: nodelet node stop NAME --name ${options.name}, or end the set with: nodelet down --name ${options.name}`,
    });
  const saved: SavedSet = { ...previous, options: { ...options, nodeCount } };
  if (nodeCount > options.nodeCount) await saveSet(context.home, saved);
  return { saved, [Symbol.asyncDispose]: () => Promise.resolve() };
}

/** A set that was chosen; its number stays held against other commands until this is disposed. */
export interface Chosen extends AsyncDisposable {
  readonly saved: SavedSet;
}

/** Chooses the first number whose link and addresses nothing on this machine has. */
export async function newSet(context: Context, machine: Machine, choice: SetChoice): Promise<Chosen> {
  const rival = machine.cgroup === null ? null : await processIn(machine.cgroup, cgroupOf(context.options.name));
  if (rival !== null)
    throw new OpError('conflict', 'choosing a name', `process ${rival} belongs to a set "${context.options.name}" that has its files elsewhere`, {
      advice: 'nothing was started; choose another with --name, or end that one (NODELET_STATE names the folder it was started with)',
    });
  const [sets, routes] = [await listSets(context.home), await hostRoutes()];
  await requirePorts();
  const numbers = new Set(sets.map((set) => set.options.index));
  let taken = `${MAX_SETS} sets run already`;
  for (let index = 0; index < MAX_SETS; index += 1) {
    if (numbers.has(index)) continue;
    const saved = savedSet(context.options.name, index, machine, choice);
    const plan = planOf(context.home, saved);
    const held = await claimNumber(index);
    // A link without a set of ours here belongs to a set whose state lies elsewhere.
    const problems = held === null || (await hasHostLink(plan)) ? null : conflicts(plan, routes);
    if (held !== null && problems?.length === 0) return { saved, [Symbol.asyncDispose]: () => held[Symbol.asyncDispose]() };
    await held?.[Symbol.asyncDispose]();
    const given = problems?.find(({ flag }) => isGiven(choice, flag));
    if (given !== undefined) throw new OpError('conflict', 'choosing addresses', given.text, { advice: 'nothing was started' });
    taken = problems?.[0]?.text ?? taken;
  }
  throw new OpError('exhausted', 'choosing addresses', taken, { advice: 'nothing was started; end another set with: nodelet down --name NAME' });
}

function isGiven(choice: SetChoice, flag: Conflict['flag']): boolean {
  switch (flag) {
    case '--subnet':
      return choice.subnet !== undefined;
    case '--pod-cidr':
      return choice.podCidr !== undefined;
    case '--service-cidr':
      return choice.serviceCidr !== undefined;
  }
}

/** Whose pod network a new set gets. A cluster that is judged has what upstream's own clusters have, unless it is told. */
export function cniOf(choice: Pick<SetChoice, 'cni' | 'join'>): CniKind {
  return choice.cni ?? (choice.join === 'token' ? 'reference' : 'nodelet');
}

function savedSet(name: string, index: number, machine: Machine, choice: SetChoice): SavedSet {
  return {
    version: 1,
    options: {
      name,
      index,
      nodeCount: Number(choice.nodes ?? Math.max(1, choice.agents?.length ?? 1, choice.proxies?.length ?? 1)),
      controlPlane: choice.controlPlane ?? 'embedded',
      ...(choice.agents === undefined ? {} : { agents: choice.agents }),
      ...(choice.proxies === undefined ? {} : { proxies: choice.proxies }),
      ...(choice.join === undefined ? {} : { join: choice.join }),
      ...(choice.audit === undefined ? {} : { audit: choice.audit }),
      cni: cniOf(choice),
      ...(choice.dualStack === undefined ? {} : { dualStack: choice.dualStack }),
      ...(choice.subnet === undefined ? {} : { subnet: choice.subnet }),
      ...(choice.podCidr === undefined ? {} : { podCidr: choice.podCidr }),
      ...(choice.serviceCidr === undefined ? {} : { serviceCidr: choice.serviceCidr }),
    },
    ...(choice.containerd === undefined ? {} : { containerd: choice.containerd }),
    ...(choice.programs === undefined ? {} : { programs: choice.programs }),
    cgroupVersion: machine.cgroup?.version ?? 2,
  };
}
