import { OpError } from '../../base/errors.ts';
import { killAndWait } from '../io/processes.ts';
import { lockSet } from '../io/lock.ts';
import { realPrograms } from '../io/real.ts';
import { firstProcess } from '../io/running.ts';
import { forgetVolatile, runningNodes, startSet } from '../io/start.ts';
import { routeHub } from '../io/network.ts';
import { lookAtMachine, requireNode, requireRoot, requireSet, type Context } from './context.ts';

const KILL_TIMEOUT_MS = 20_000;

/** `nodelet node stop|start NAME`: stop takes every process of the node at once, as power loss does. */
export async function power(context: Context, action: string, name: string): Promise<number> {
  if (action !== 'stop' && action !== 'start') throw new OpError('invalid', 'reading the action', `"${action}" is neither stop nor start`);
  requireRoot();
  await using _lock = await lockSet(context.home, context.options.name);
  const { saved, plan } = await requireSet(context);
  const node = requireNode(plan, name);
  const hub = await firstProcess(plan.hub.dir);
  if (action === 'stop') {
    const first = await firstProcess(node.dir);
    if (first !== null && !(await killAndWait(first, KILL_TIMEOUT_MS))) throw new OpError('deadline', `stopping ${name}`, `process ${first.pid} does not end`);
    await forgetVolatile(node);
    if (hub !== null) await routeHub(plan, await runningNodes(plan), hub.pid);
    context.answer({ node: name, running: false, wasRunning: first !== null }, [first === null ? `${name} was not running` : `${name} is off`]);
    return 0;
  }
  const machine = await lookAtMachine(context, saved.containerd);
  const real = await realPrograms(saved, context.host.env);
  await startSet({ context, plan, saved, machine, real, only: [node] });
  context.answer({ node: name, running: true }, [`${name} runs`]);
  return 0;
}
