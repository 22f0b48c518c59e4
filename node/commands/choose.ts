import { networkInterfaces } from 'node:os';
import { OpError } from '../../base/errors.ts';
import { conflicts, MAX_NODES, planSet, subnetProblem } from '../core/plan.ts';
import { lockFile } from '../io/lock.ts';
import type { Machine } from '../io/machine.ts';
import { hostRoutes } from '../io/network.ts';
import { freeIndex, listSets, planOf, saveSet, type SavedSet } from '../io/state.ts';
import type { Context } from './context.ts';

const LOCK_WAIT_MS = 10_000;

/** Options of `up` that say what a set is; absent ones are what it was before, or the defaults. */
export interface SetChoice {
  readonly nodes?: string;
  readonly controlPlane?: 'embedded' | 'real';
  readonly containerd?: string;
  readonly subnet?: string;
  readonly podCidr?: string;
  readonly serviceCidr?: string;
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
export async function growSet(context: Context, previous: SavedSet, choice: SetChoice): Promise<SavedSet> {
  const { options } = previous;
  const differs: [string, unknown, unknown][] = [
    ['--control-plane', choice.controlPlane, options.controlPlane],
    ['--containerd', choice.containerd, previous.containerd],
    ['--subnet', choice.subnet, options.subnet],
    ['--pod-cidr', choice.podCidr, options.podCidr],
    ['--service-cidr', choice.serviceCidr, options.serviceCidr],
  ];
  for (const [flag, wanted, had] of differs) {
    if (wanted !== undefined && wanted !== had)
      throw new OpError('conflict', `reading ${flag}`, `the set "${options.name}" runs with ${had === undefined ? 'the default' : String(had)}`, {
        advice: 'end it first with: nodelet down',
      });
  }
  const nodeCount = Number(choice.nodes ?? options.nodeCount);
  if (nodeCount < options.nodeCount)
    throw new OpError('conflict', 'reading --nodes', `the set "${options.name}" has ${options.nodeCount} nodes`, {
      advice: 'stop some with: nodelet node stop NAME, or end the set with: nodelet down',
    });
  const saved: SavedSet = { ...previous, options: { ...options, nodeCount } };
  if (nodeCount > options.nodeCount) await saveSet(context.home, saved);
  return saved;
}

/** Chooses a number and addresses that nothing on this machine has, and writes the set down. */
export async function newSet(context: Context, machine: Machine, choice: SetChoice): Promise<SavedSet> {
  await using _lock = await lockFile(`${context.home}/choosing.lock`, 'choosing addresses', LOCK_WAIT_MS);
  const links = networkInterfaces();
  // A link without a set of ours here belongs to a set whose state lies elsewhere.
  const foreign = (index: number): boolean =>
    planSet({ name: 'x', index, stateHome: context.home, nodeCount: 1, controlPlane: 'embedded' }).hub.hostLink in links;
  const saved: SavedSet = {
    version: 1,
    options: {
      name: context.options.name,
      index: freeIndex(await listSets(context.home), foreign),
      nodeCount: Number(choice.nodes ?? 1),
      controlPlane: choice.controlPlane ?? 'embedded',
      ...(choice.subnet === undefined ? {} : { subnet: choice.subnet }),
      ...(choice.podCidr === undefined ? {} : { podCidr: choice.podCidr }),
      ...(choice.serviceCidr === undefined ? {} : { serviceCidr: choice.serviceCidr }),
    },
    ...(choice.containerd === undefined ? {} : { containerd: choice.containerd }),
    cgroupVersion: machine.cgroup?.version ?? 2,
  };
  const taken = conflicts(planOf(context.home, saved), await hostRoutes());
  if (taken.length > 0) throw new OpError('conflict', 'choosing addresses', taken[0] ?? '', { advice: 'nothing was started' });
  await saveSet(context.home, saved);
  return saved;
}
