import type { Obj } from './json.ts';
import { age, ageOf, col, name, orNone, wide } from './table-cells.ts';
import type { Column } from './table-cells.ts';

interface Summary {
  ready: string;
  reason: string;
  restarts: number;
  restartedAt: string | undefined;
}

const later = (a: string | undefined, b: string | undefined): string | undefined => (a === undefined || (b !== undefined && b > a) ? b : a);

/** Reads the many states of a pod into the one word kubectl shows, with upstream's precedence. */
export function podSummary(pod: Obj): Summary {
  const status: Obj = pod['status'];
  const conditions: Obj[] = status['conditions'] ?? [];
  const isSidecar = (container: string): boolean =>
    (pod['spec'].initContainers ?? []).some((item: Obj) => item['name'] === container && item['restartPolicy'] === 'Always');
  const inits: Obj[] = pod['spec'].initContainers ?? [];
  const total = (pod['spec'].containers ?? []).length + inits.filter((item) => item['restartPolicy'] === 'Always').length;
  const out = {
    reason: (status['reason'] ?? '') === '' ? (status['phase'] ?? '') : status['reason'],
    restarts: 0,
    restartedAt: undefined as string | undefined,
    ready: 0,
  };
  if (conditions.some((item) => item['type'] === 'PodScheduled' && item['reason'] === 'SchedulingGated')) out.reason = 'SchedulingGated';
  const sidecars = { restarts: 0, at: undefined as string | undefined };
  let isInitializing = false;
  for (const [at, item] of ((status['initContainerStatuses'] ?? []) as Obj[]).entries()) {
    const { terminated, waiting } = item['state'] ?? {};
    const last = item['lastState']?.terminated?.finishedAt;
    out.restarts += item['restartCount'] ?? 0;
    out.restartedAt = later(out.restartedAt, last);
    const sidecar = isSidecar(item['name']);
    if (sidecar) {
      sidecars.restarts += item['restartCount'] ?? 0;
      sidecars.at = later(sidecars.at, last);
    }
    if (terminated !== undefined && (terminated.exitCode ?? 0) === 0) continue;
    if (sidecar && item['started'] === true) {
      if (item['ready'] === true) out.ready++;
      continue;
    }
    isInitializing = true;
    if (terminated !== undefined) out.reason = `Init:${endedText(terminated)}`;
    else if ((waiting?.reason ?? '') !== '' && waiting.reason !== 'PodInitializing') out.reason = `Init:${waiting.reason}`;
    else out.reason = `Init:${at}/${inits.length}`;
    break;
  }
  if (!isInitializing || conditions.some((item) => item['type'] === 'Initialized' && item['status'] === 'True')) readMain(status, conditions, out, sidecars);
  const isTerminal = status['phase'] === 'Succeeded' || status['phase'] === 'Failed';
  if (pod['metadata'].deletionTimestamp !== undefined) {
    if (status['reason'] === 'NodeLost') out.reason = 'Unknown';
    else if (!isTerminal) out.reason = 'Terminating';
  }
  return { ready: `${out.ready}/${total}`, reason: out.reason, restarts: out.restarts, restartedAt: out.restartedAt };
}

function endedText(terminated: Obj): string {
  if ((terminated['reason'] ?? '') !== '') return terminated['reason'];
  return (terminated['signal'] ?? 0) === 0 ? `ExitCode:${terminated['exitCode'] ?? 0}` : `Signal:${terminated['signal']}`;
}

function readMain(
  status: Obj,
  conditions: readonly Obj[],
  out: { reason: string; restarts: number; restartedAt: string | undefined; ready: number },
  sidecars: { restarts: number; at: string | undefined },
): void {
  out.restarts = sidecars.restarts;
  out.restartedAt = sidecars.at;
  let isRunning = false;
  let failed = '';
  for (const item of ((status['containerStatuses'] ?? []) as Obj[]).toReversed()) {
    const { terminated, waiting, running } = item['state'] ?? {};
    out.restarts += item['restartCount'] ?? 0;
    out.restartedAt = later(out.restartedAt, item['lastState']?.terminated?.finishedAt);
    if ((waiting?.reason ?? '') !== '') out.reason = waiting.reason;
    else if (terminated !== undefined) {
      out.reason = endedText(terminated);
      if ((terminated.exitCode ?? 0) !== 0) failed = out.reason;
    } else if (item['ready'] === true && running !== undefined) {
      isRunning = true;
      out.ready++;
    }
  }
  if (out.reason !== 'Completed') return;
  if (isRunning && conditions.some((item) => item['type'] === 'Ready' && item['status'] === 'True')) out.reason = 'Running';
  else if (failed !== '') out.reason = failed;
  else if (isRunning) out.reason = 'NotReady';
}

/** Rows of ended pods carry a mark that kubectl can filter by. */
export function podConditions(pod: Obj): Obj[] | undefined {
  const phase = pod['status'].phase;
  if (phase !== 'Succeeded' && phase !== 'Failed') return undefined;
  return [{ type: 'Completed', status: 'True', reason: phase, message: phase === 'Succeeded' ? 'The pod has completed successfully.' : 'The pod failed.' }];
}

function gates(pod: Obj): string {
  const wanted: Obj[] = pod['spec'].readinessGates ?? [];
  if (wanted.length === 0) return '<none>';
  const met = wanted.filter((gate) =>
    (pod['status'].conditions ?? []).some((item: Obj) => item['type'] === gate['conditionType'] && item['status'] === 'True'),
  );
  return `${met.length}/${wanted.length}`;
}

export const POD_TABLE: readonly Column[] = [
  name,
  col('Ready', (pod) => podSummary(pod).ready),
  col('Status', (pod) => podSummary(pod).reason),
  col('Restarts', (pod, nowMs) => {
    const { restarts, restartedAt } = podSummary(pod);
    return restarts === 0 || restartedAt === undefined ? String(restarts) : `${restarts} (${ageOf(restartedAt, nowMs)} ago)`;
  }),
  age,
  wide('IP', (pod) => orNone(pod['status'].podIPs?.[0]?.ip)),
  wide('Node', (pod) => orNone(pod['spec'].nodeName)),
  wide('Nominated Node', (pod) => orNone(pod['status'].nominatedNodeName)),
  wide('Readiness Gates', gates),
];
