import { rm } from 'node:fs/promises';
import { OpError } from '../../base/errors.ts';
import { cgroupOf, type SetPlan } from '../core/plan.ts';
import { removeCgroup } from '../io/cgroup.ts';
import { inspectMachine } from '../io/machine.ts';
import { removeHostLink } from '../io/network.ts';
import { killAndWait } from '../io/processes.ts';
import { lockSet } from '../io/lock.ts';
import { firstProcess } from '../io/running.ts';
import { loadSet, planOf } from '../io/state.ts';
import { requireRoot, type Context } from './context.ts';

const KILL_TIMEOUT_MS = 20_000;

/** Ends everything of a set at once, as power loss does: with PID 1 of each place the kernel takes the rest. */
export async function killSet(plan: SetPlan): Promise<void> {
  const places = [...plan.nodes.map((node) => node.dir), plan.hub.dir];
  const firsts = await Promise.all(places.map(firstProcess));
  await Promise.all(
    firsts.map(async (first) => {
      if (first !== null && !(await killAndWait(first, KILL_TIMEOUT_MS))) {
        throw new OpError('deadline', 'ending a node', `process ${first.pid} does not end`, {
          advice: 'a process waits for a disk or a dead mount: see /proc/PID/stack',
        });
      }
    }),
  );
  await removeHostLink(plan);
}

/** Removes what a set leaves behind: cgroups and files. Nothing of it runs any more. */
export async function removeRemains(context: Context, plan: SetPlan): Promise<void> {
  const machine = await inspectMachine({ path: context.path });
  if (machine.cgroup !== null) await removeCgroup(machine.cgroup, cgroupOf(plan.name));
  await rm(plan.state, { recursive: true, force: true, maxRetries: 10 });
}

/** `nodelet down`: afterwards the machine is as it was before `up`. */
export async function down(context: Context): Promise<number> {
  requireRoot();
  await using _lock = await lockSet(context.home, context.options.name);
  const saved = await loadSet(context.home, context.options.name);
  if (saved === null) {
    context.answer({ name: context.options.name, removed: false }, [`nothing named "${context.options.name}" runs here`]);
    return 0;
  }
  const plan = planOf(context.home, saved);
  await context.progress.step(`ending ${plan.nodes.length === 1 ? 'the node' : `${plan.nodes.length} nodes`} and the control plane`, () => killSet(plan));
  await context.progress.step('removing cgroups and files', () => removeRemains(context, plan));
  context.answer({ name: plan.name, removed: true }, [`"${plan.name}" is gone`]);
  return 0;
}
