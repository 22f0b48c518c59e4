import { differences, type Difference } from './differences.ts';
import { at, type Fields } from './playback-world.ts';
import type { RecordedStatus } from './recording.ts';
import { REPLAY_LABEL } from './replay-rewrite.ts';

/** What is another each time, or this machine's alone. */
const OTHER_EACH_TIME = new Set([
  'id',
  'podSandboxId',
  'containerId',
  'createdAt',
  'startedAt',
  'finishedAt',
  'timestamp',
  'logPath',
  'hostPath',
  'imageRef',
  'imageId',
  'image',
  'info',
  'url',
  'network',
  'io.kubernetes.pod.namespace',
  'namespace',
  REPLAY_LABEL,
]);

function isEmpty(value: unknown): boolean {
  return value !== null && typeof value === 'object' && Object.keys(value).length === 0;
}

/** Without what is another each time, and without what is empty then. */
function comparable(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(comparable);
  if (value === null || typeof value !== 'object') return value;
  const kept = Object.entries(value).filter(([key]) => !OTHER_EACH_TIME.has(key));
  return Object.fromEntries(kept.map(([key, inner]): [string, unknown] => [key, comparable(inner)]).filter(([, inner]) => !isEmpty(inner)));
}

/** Of answers that tell of one sandbox or container, or of a command's end; all others are compared by their status. */
const WITH_FIELDS = new Set(['PodSandboxStatus', 'ContainerStatus', 'ExecSync']);

/** In which fields an answer differs from the recorded one, apart from ids, times, places and addresses. */
export function compareAnswers(method: string, recorded: Fields, seen: Fields): Difference[] {
  if (!WITH_FIELDS.has(method)) return [];
  return differences(comparable(recorded), comparable(seen));
}

/** A status in words, a caller's patience that ended as what the next caller gets for it. */
export function statusName(status: Pick<RecordedStatus, 'name'> | null): string {
  return status === null ? 'DeadlineExceeded' : status.name;
}

/** The state that a status answer tells; '' for other answers. */
export function stateOf(answer: Fields): string {
  const state = at(answer, 'status', 'state');
  return typeof state === 'string' ? state : '';
}

/** Whether a runtime that is not so far yet can come to the recorded state by itself. */
export function isStillToCome(method: string, recorded: string, seen: string): boolean {
  if (method === 'ContainerStatus') return recorded === 'CONTAINER_EXITED' && seen !== 'CONTAINER_EXITED';
  return method === 'PodSandboxStatus' && recorded === 'SANDBOX_NOTREADY' && seen !== recorded;
}

/** Whether a container is further in its life than when it was recorded. */
export function isAhead(method: string, recorded: string, seen: string): boolean {
  return method === 'ContainerStatus' && recorded === 'CONTAINER_RUNNING' && seen === 'CONTAINER_EXITED';
}
