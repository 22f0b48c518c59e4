import type { ContainerStatus, PodStatus } from '../../proto/kube/types.ts';

export interface LogContainer {
  /** As the runtime knows it. */
  readonly id: string;
  /** As the status says it: `containerd://…`. */
  readonly fullId: string;
}

/**
 * Which container's log is meant: the running one, else the last that ended; with `previous` the one before.
 * A string instead says, in upstream's words, why there is none.
 */
export function logContainerId(podName: string, status: PodStatus, name: string, previous: boolean): LogContainer | string {
  const all = [...(status.containerStatuses ?? []), ...(status.initContainerStatuses ?? []), ...(status.ephemeralContainerStatuses ?? [])];
  const found = all.find((each) => each.name === name);
  if (found === undefined) return `container "${name}" in pod "${podName}" is not available`;
  const last = found.lastState?.terminated?.containerID ?? '';
  if (previous) return last === '' ? `previous terminated container "${name}" in pod "${podName}" not found` : named(last);
  return current(podName, found, last);
}

function current(podName: string, status: ContainerStatus, last: string): LogContainer | string {
  const { name, state } = status;
  if (state?.running !== undefined) return named(status.containerID ?? '');
  if (state?.terminated !== undefined) {
    // The next container could not be started, so it has no log of its own.
    const id = state.terminated.containerID || last;
    return id === '' ? `container "${name}" in pod "${podName}" is terminated` : named(id);
  }
  if (status.lastState?.terminated !== undefined) return last === '' ? `container "${name}" in pod "${podName}" is terminated` : named(last);
  if (state?.waiting === undefined) return `container "${name}" in pod "${podName}" is waiting to start - no logs yet`;
  const start = `container "${name}" in pod "${podName}" is waiting to start: `;
  const { reason = '' } = state.waiting;
  if (reason === 'ErrImagePull') return `${start}image can't be pulled`;
  if (reason === 'ImagePullBackOff') return `${start}trying and failing to pull image`;
  return `${start}${reason}`;
}

function named(fullId: string): LogContainer {
  return { fullId, id: fullId.replace(/^[^:]*:\/\//, '') };
}
