import { rpcStatuses } from './status.ts';
import type { ReportPod } from './report-calls.ts';
import { hasFailed } from './timeline.ts';

type Value = { readonly stringValue: string } | { readonly intValue: string };
interface Attribute {
  readonly key: string;
  readonly value: Value;
}

interface Span {
  readonly traceId: string;
  readonly spanId: string;
  readonly parentSpanId?: string;
  readonly name: string;
  readonly kind: number;
  readonly startTimeUnixNano: string;
  readonly endTimeUnixNano: string;
  readonly attributes: readonly Attribute[];
  readonly status?: { readonly code: number; readonly message?: string };
}

/** An item of `resourceSpans` of OTLP's JSON: ids in hexadecimal, 64-bit numbers as text, enums as numbers. */
export interface ResourceSpans {
  readonly resource: { readonly attributes: readonly Attribute[] };
  readonly scopeSpans: readonly { readonly scope: { readonly name: string; readonly version: string }; readonly spans: readonly Span[] }[];
}

const INTERNAL = 1;
const CLIENT = 3;
const STATUS_ERROR = 2;

function words(key: string, text: string): Attribute[] {
  return text === '' ? [] : [{ key, value: { stringValue: text } }];
}

/** Milliseconds since 1970 as nanoseconds, as exact as they are. */
function nanos(ms: number): string {
  const whole = Math.floor(ms);
  return `${whole}${String(Math.min(999_999, Math.round((ms - whole) * 1e6))).padStart(6, '0')}`;
}

/** A number of 32 or 64 bits in hexadecimal, the same for the same text; never all zeros. */
function hashed(text: string, digits: number): string {
  let out = '';
  for (let round = 1; out.length < digits; round += 1) {
    let hash = Math.imul(0x811c9dc5, round) >>> 0;
    for (let at = 0; at < text.length; at += 1) hash = Math.imul(hash ^ text.charCodeAt(at), 0x01000193) >>> 0;
    out += ((hash ^ (hash >>> 15)) >>> 0).toString(16).padStart(8, '0');
  }
  return /^0+$/.test(out) ? '1'.padStart(digits, '0') : out.slice(0, digits);
}

/** The pod's uid is a number of 128 bits already; the same pod has the same trace in every recording. */
function traceIdOf(uid: string, name: string): string {
  const hex = uid.replaceAll('-', '').toLowerCase();
  return /^[0-9a-f]{32}$/.test(hex) && !/^0+$/.test(hex) ? hex : hashed(`${name} ${uid}`, 32);
}

/** gRPC's name of a status as OpenTelemetry writes it: `DEADLINE_EXCEEDED`; a call that was cut was ended by its caller. */
function statusCode(outcome: string): string {
  if (outcome === 'OK' || outcome === 'message') return 'OK';
  if (outcome === 'cut' || /^Cancell?ed$/.test(outcome)) return 'CANCELLED';
  return (rpcStatuses as readonly string[]).includes(outcome) ? outcome.replaceAll(/(?<=[a-z])(?=[A-Z])/g, '_').toUpperCase() : outcome;
}

/**
 * One trace: a pod from its first call to its last, a span below it for each call. Attributes by OpenTelemetry's
 * conventions for RPC and Kubernetes.
 *
 * @param lastMs where calls end that were open
 * @param server the runtime's socket
 */
export function resourceSpansOf({ pod, calls }: ReportPod, lastMs: number, server: string, version: string): ResourceSpans {
  const name = pod === null ? 'node' : pod.key;
  const traceId = traceIdOf(pod?.uid ?? '', `${name} ${calls[0]?.startMs ?? 0}`);
  const root = hashed(`${traceId} pod`, 16);
  const ends = calls.map(({ startMs, endMs }) => endMs ?? Math.max(lastMs, startMs));
  let end = calls[0]?.startMs ?? 0;
  for (const each of ends) end = Math.max(end, each);
  const spans: Span[] = [
    {
      traceId,
      spanId: root,
      name: pod === null ? 'node' : `pod ${name}`,
      kind: INTERNAL,
      startTimeUnixNano: nanos(calls[0]?.startMs ?? 0),
      endTimeUnixNano: nanos(end),
      attributes: [],
    },
  ];
  for (const [at, call] of calls.entries()) {
    const method = `${call.service}/${call.method.slice(call.method.indexOf('/') + 1)}`;
    const hash = call.container.lastIndexOf('#');
    const code = statusCode(call.outcome);
    spans.push({
      traceId,
      spanId: hashed(`${traceId} ${at}`, 8) + (at + 1).toString(16).padStart(8, '0'),
      parentSpanId: root,
      name: method,
      kind: CLIENT,
      startTimeUnixNano: nanos(call.startMs),
      endTimeUnixNano: nanos(ends[at] as number),
      attributes: [
        ...words('rpc.system.name', 'grpc'),
        ...words('rpc.method', method),
        ...(call.endMs === null ? [] : words('rpc.response.status_code', code)),
        ...words('server.address', server),
        ...(hasFailed(call.outcome) ? words('error.type', code) : []),
        ...(hash < 0
          ? []
          : [
              ...words('k8s.container.name', call.container.slice(0, hash)),
              { key: 'k8s.container.restart_count', value: { intValue: call.container.slice(hash + 1) } },
            ]),
        ...(/Image|CreateContainer/.test(call.method) ? words('container.image.name', call.detail || call.other) : []),
        ...(/^Exec/.test(call.method) ? words('process.command_line', call.detail) : []),
      ],
      ...(hasFailed(call.outcome) ? { status: { code: STATUS_ERROR, message: call.message } } : {}),
    });
  }
  return {
    resource: {
      attributes: [
        ...words('service.name', 'kubelet'),
        ...(pod === null ? [] : [...words('k8s.namespace.name', pod.namespace), ...words('k8s.pod.name', pod.name), ...words('k8s.pod.uid', pod.uid)]),
      ],
    },
    scopeSpans: [{ scope: { name: 'nodelet cri', version }, spans }],
  };
}
