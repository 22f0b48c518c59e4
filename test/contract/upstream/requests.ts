import type { RecordedEntry } from '../../../cri/core/recording.ts';
import { readRecording } from '../../../cri/io/recording-read.ts';
import api from '../../../proto/cri/api.json' with { type: 'json' };

export interface CriRequest {
  readonly method: string;
  /** gRPC's name, when the runtime refused. */
  readonly refused?: string;
  readonly request: unknown;
}

interface FieldJson {
  type: string;
  rule?: string;
  keyType?: string;
}

const types = api.nested.runtime.nested.v1.nested as unknown as Record<
  string,
  {
    fields?: Record<string, FieldJson>;
    values?: Record<string, number>;
    nested?: Record<string, { fields?: Record<string, FieldJson>; values?: Record<string, number> }>;
  }
>;

/** Calls that change something: those that only look come when a kubelet likes. */
const CHANGES = new Set([
  'RunPodSandbox',
  'StopPodSandbox',
  'RemovePodSandbox',
  'CreateContainer',
  'StartContainer',
  'StopContainer',
  'RemoveContainer',
  'UpdateContainerResources',
  'UpdatePodSandboxResources',
  'PullImage',
  'ExecSync',
]);

/** A message without what it need not say: Go leaves out defaults, Node writes them, and both mean the same. */
export function withoutDefaults(type: string, value: unknown): unknown {
  if (value === null || typeof value !== 'object') return value;
  const fields = types[type]?.fields ?? {};
  const out: Record<string, unknown> = {};
  for (const [key, inner] of Object.entries(value)) {
    const field = fields[key];
    if (field === undefined) out[key] = inner;
    else if (field.keyType !== undefined) {
      if (Object.keys(inner as object).length > 0) out[key] = Object.fromEntries(Object.entries(inner as object).sort(([a], [b]) => (a < b ? -1 : 1)));
    } else if (field.rule === 'repeated') {
      if ((inner as unknown[]).length > 0)
        out[key] = (inner as unknown[]).map((item) => (/^u?int64$/.test(field.type) ? String(item) : withoutDefaults(field.type, item)));
    } else if (types[field.type]?.fields !== undefined) {
      if (inner !== null) out[key] = withoutDefaults(field.type, inner);
    } else if (!isDefault(type, field.type, inner)) out[key] = /^u?int64$/.test(field.type) ? String(inner) : inner;
  }
  return out;
}

function isDefault(owner: string, type: string, value: unknown): boolean {
  const values = types[type]?.values ?? types[owner]?.nested?.[type]?.values;
  if (values !== undefined) return value === Object.keys(values)[0];
  if (value instanceof Uint8Array) return value.length === 0;
  return value === '' || value === 0 || value === '0' || value === false || value === null || value === undefined;
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
  return settled(found.sort((a, b) => a.startMs - b.startMs).map(({ request }) => request));
}

/** Environment values are bytes: text is easier to read. */
function readable(request: Record<string, unknown>): void {
  const config = request['config'] as { envs?: { key?: string; value?: string | Uint8Array }[] } | undefined;
  for (const env of config?.envs ?? []) {
    if (env.value !== undefined) env.value = (typeof env.value === 'string' ? Buffer.from(env.value, 'base64') : Buffer.from(env.value)).toString();
  }
}

/** Containers of a pod are stopped and removed side by side, so that their order says nothing: it is made one. */
function settled(requests: CriRequest[]): CriRequest[] {
  const out: CriRequest[] = [];
  for (let at = 0; at < requests.length;) {
    const method = requests[at]?.method ?? '';
    let end = at + 1;
    if (method === 'RemoveContainer') while (requests[end]?.method === method) end += 1;
    out.push(...requests.slice(at, end).sort((a, b) => (JSON.stringify(a) < JSON.stringify(b) ? -1 : 1)));
    at = end;
  }
  return out;
}

function fieldsOf(entry: Extract<RecordedEntry, { type: 'call' }>, which: 'requests' | 'responses'): Record<string, unknown> {
  const message = entry[which][0];
  return message !== undefined && 'fields' in message ? (message.fields as Record<string, unknown>) : {};
}
