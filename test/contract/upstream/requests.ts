import { CHANGES, settled } from '../../../cri/core/changes.ts';
import type { RecordedEntry } from '../../../cri/core/recording.ts';
import { withoutDefaults } from '../../../cri/core/without-defaults.ts';
import { readRecording } from '../../../cri/io/recording-read.ts';

export interface CriRequest {
  readonly method: string;
  /** gRPC's name, when the runtime refused. */
  readonly refused?: string;
  readonly request: unknown;
}

/** A call that may concern a pod. */
export interface SeenCall {
  readonly method: string;
  readonly request: Record<string, unknown>;
  readonly answer: Record<string, unknown>;
  /** On any clock: calls are ordered by it. */
  readonly startMs: number;
  readonly refused?: string | undefined;
}

/** The requests that concern one pod, in the order in which they began. */
export async function requestsOf(file: string, uid: string): Promise<CriRequest[]> {
  const calls: SeenCall[] = [];
  for await (const entry of readRecording(file)) {
    if (entry.type !== 'call' || !CHANGES.has(entry.method)) continue;
    const refused = entry.status === null ? (entry.cut ?? 'cut') : entry.status.code === 0 ? undefined : entry.status.name;
    calls.push({ method: entry.method, request: fieldsOf(entry, 'requests'), answer: fieldsOf(entry, 'responses'), startMs: entry.start.monoMs, refused });
  }
  return requestsFrom(calls, uid);
}

/** The same of calls that are at hand, in the order in which they ended. */
export function requestsFrom(calls: readonly SeenCall[], uid: string): CriRequest[] {
  const owned = new Map<string, string>();
  const found: { startMs: number; request: CriRequest }[] = [];
  for (const { method, request, answer, startMs, refused } of calls) {
    if (!CHANGES.has(method)) continue;
    const config = (request['config'] ?? {}) as { metadata?: { uid?: string; name?: string; attempt?: number } };
    const id = (request['containerId'] ?? request['podSandboxId'] ?? '') as string;
    if (!owned.has(id) && config.metadata?.uid !== uid) continue;
    const made = answer['podSandboxId'] ?? answer['containerId'];
    if (typeof made === 'string')
      owned.set(made, method === 'RunPodSandbox' ? '<sandbox>' : `<container ${config.metadata?.name}#${config.metadata?.attempt ?? 0}>`);
    const said = withoutDefaults(`${method}Request`, request) as Record<string, unknown>;
    for (const key of ['containerId', 'podSandboxId']) if (typeof said[key] === 'string') said[key] = owned.get(said[key]) ?? said[key];
    // Repeated whole in each CreateContainer.
    if (said['sandboxConfig'] !== undefined) said['sandboxConfig'] = '<as in RunPodSandbox>';
    readable(said);
    found.push({ startMs, request: { method, ...(refused === undefined ? {} : { refused }), request: said } });
  }
  return settled(
    found.sort((a, b) => a.startMs - b.startMs).map(({ request }) => request),
    (request) => JSON.stringify(request),
  );
}

/** Environment values are bytes: text is easier to read. */
function readable(request: Record<string, unknown>): void {
  const config = request['config'] as { envs?: { key?: string; value?: string | Uint8Array }[] } | undefined;
  for (const env of config?.envs ?? []) {
    if (env.value !== undefined) env.value = (typeof env.value === 'string' ? Buffer.from(env.value, 'base64') : Buffer.from(env.value)).toString();
  }
}

function fieldsOf(entry: Extract<RecordedEntry, { type: 'call' }>, which: 'requests' | 'responses'): Record<string, unknown> {
  const message = entry[which][0];
  return message !== undefined && 'fields' in message ? (message.fields as Record<string, unknown>) : {};
}
