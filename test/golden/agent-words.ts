import { qosClassOf } from '../../agent/core/qos.ts';
import type { ContainerState, ContainerStatus, Pod } from '../../proto/kube/types.ts';

/** What a person wants to know of a pod's status; `gone` when there is no such pod. */
export function statusText(pod: Pod | undefined): string {
  if (pod === undefined) return 'gone';
  const status = pod.status ?? {};
  const head = [
    `phase=${status.phase}`,
    ...(status.reason === undefined ? [] : [`reason=${status.reason}`]),
    ...(status.podIP === undefined ? [] : [`ip=${status.podIP}`]),
  ].join(' ');
  const conditions = (status.conditions ?? [])
    .filter((condition) => condition.type !== 'PodScheduled')
    .map((condition) => `${condition.type}=${condition.status}${condition.reason === undefined ? '' : `(${condition.reason})`}`);
  const lines = [head, `  ${conditions.join(' ')}`];
  for (const each of [...(status.initContainerStatuses ?? []), ...(status.containerStatuses ?? []), ...(status.ephemeralContainerStatuses ?? [])])
    lines.push(`  ${containerText(each)}`);
  if (status.message !== undefined) lines.splice(1, 0, `  ${status.message}`);
  return lines.join('\n');
}

/** What is told of sizes: of each container what it was given and has, of the pod the same, and what a resize is at. */
export function sizesText(pod: Pod): string {
  const { status = {} } = pod;
  const list = (amounts: Record<string, string> | undefined): string =>
    Object.entries(amounts ?? {})
      .toSorted(([left], [right]) => (left < right ? -1 : 1))
      .map(([resource, amount]) => `${resource}=${amount}`)
      .join(',');
  const line = (who: string, given: Record<string, string> | undefined, has: Pod['spec']['resources']): string =>
    `${who}: given ${list(given)} has requests ${list(has?.requests)} limits ${list(has?.limits)}`;
  const conditions = (status.conditions ?? []).filter((condition) => condition.type.startsWith('PodResize'));
  return [
    `observedGeneration=${status.observedGeneration}`,
    ...conditions.map(
      ({ type, reason, message, observedGeneration }) =>
        `${type} ${reason ?? ''} generation=${observedGeneration}${message === undefined ? '' : `\n  ${message}`}`,
    ),
    line('pod', status.allocatedResources, status.resources),
    ...[...(status.initContainerStatuses ?? []), ...(status.containerStatuses ?? [])].map((each) =>
      line(`${each.name} restarts=${each.restartCount}`, each.allocatedResources, each.resources),
    ),
  ].join('\n');
}

function containerText(status: ContainerStatus): string {
  const last = status.lastState?.terminated === undefined ? '' : ` last=${stateWords(status.lastState)}`;
  const flags = [status.started === true ? 'started' : '', status.ready ? 'ready' : ''].filter((flag) => flag !== '').join(' ');
  const message = status.state?.waiting?.message ?? status.state?.terminated?.message;
  return `${status.name}: ${stateWords(status.state)}${flags === '' ? '' : ` ${flags}`} restarts=${status.restartCount}${last}${message === undefined ? '' : `\n    ${message}`}`;
}

export function stateWords(state: ContainerState | undefined): string {
  if (state?.running !== undefined) return 'running';
  if (state?.terminated !== undefined) return `terminated(${state.terminated.exitCode} ${state.terminated.reason ?? ''})`;
  return `waiting(${state?.waiting?.reason ?? ''})`;
}

export function milliseconds(text: string): number {
  const match = /^([\d.]+)(ms|s|m|h)$/.exec(text);
  if (match === null) throw new Error(`not a duration: ${text}`);
  return Number(match[1]) * { ms: 1, s: 1000, m: 60_000, h: 3_600_000 }[match[2] as 'ms'];
}

/** What an API server would have filled in. */
export function fullPod(short: Pod, uid: string): Pod {
  const spec = short.spec;
  const defaults = { terminationMessagePath: '/dev/termination-log', terminationMessagePolicy: 'File', image: 'busybox:1' };
  return {
    ...short,
    metadata: { namespace: 'default', generation: 1, name: 'p', uid, ...short.metadata },
    spec: {
      restartPolicy: 'Always',
      terminationGracePeriodSeconds: 30,
      enableServiceLinks: true,
      nodeName: 'node-1',
      ...spec,
      containers: spec.containers.map((container) => ({ ...defaults, ...container })),
      ...(spec.initContainers === undefined ? {} : { initContainers: spec.initContainers.map((container) => ({ ...defaults, ...container })) }),
    },
    status: { phase: 'Pending', qosClass: qosClassOf({ spec }), conditions: [{ type: 'PodScheduled', status: 'True' }], ...short.status },
  };
}
