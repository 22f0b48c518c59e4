import { joined } from '../../base/bytes.ts';
import { fixed64, number, sized, text } from '../../base/protobuf.ts';

/** Spans as OpenTelemetry has them, W3C's traceparent, and OTLP's protobuf (opentelemetry-proto 1.x, trace service). */

export interface SpanContext {
  /** 32 and 16 hexadecimal digits. */
  readonly traceId: string;
  readonly spanId: string;
  readonly sampled: boolean;
}

export type SpanKind = 'internal' | 'server' | 'client';

export interface FinishedSpan extends SpanContext {
  readonly parentSpanId: string;
  readonly name: string;
  readonly kind: SpanKind;
  /** Nanoseconds since 1970. */
  readonly startNs: bigint;
  readonly endNs: bigint;
  readonly attributes: Readonly<Record<string, string | number>>;
  /** The words of its failure; null: it went well. */
  readonly error: string | null;
}

/** Reads a `traceparent` header; null for none, or for one that is malformed (then a new trace begins). */
export function readTraceparent(text: string | undefined): SpanContext | null {
  const [, version, traceId = '', spanId = '', flags = ''] = /^([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(?:-.*)?$/.exec(text ?? '') ?? [];
  if (version === undefined || version === 'ff' || /^0+$/.test(traceId) || /^0+$/.test(spanId)) return null;
  if (version === '00' && text?.length !== 55) return null;
  return { traceId, spanId, sampled: (Number.parseInt(flags, 16) & 1) === 1 };
}

export function traceparentOf({ traceId, spanId, sampled }: SpanContext): string {
  return `00-${traceId}-${spanId}-${sampled ? '01' : '00'}`;
}

/** Whether a trace that nobody began before is kept: a share of all ids, the same on every node that has the same share. */
export function isSampled(traceId: string, perMillion: number): boolean {
  if (perMillion <= 0) return false;
  if (perMillion >= 1_000_000) return true;
  const low = BigInt(`0x${traceId.slice(16)}`) >> 1n;
  return low < (BigInt(Math.round(perMillion)) * (1n << 63n)) / 1_000_000n;
}

/** What is wrong with the `tracing` of a configuration, in upstream's words. */
export function tracingProblems(tracing: unknown): string[] {
  if (tracing === null || tracing === undefined) return [];
  const problems: string[] = [];
  const { endpoint, samplingRatePerMillion: rate, ...others } = tracing as Record<string, unknown>;
  for (const name of Object.keys(others)) problems.push(`tracing: unknown field "${name}"`);
  if (rate !== undefined && rate !== null && (typeof rate !== 'number' || !Number.isInteger(rate)))
    problems.push('tracing.samplingRatePerMillion: Invalid value: must be an integer');
  else if (typeof rate === 'number' && rate < 0) problems.push(`tracing.samplingRatePerMillion: Invalid value: ${rate}: sampling rate must be positive`);
  else if (typeof rate === 'number' && rate > 1_000_000)
    problems.push(`tracing.samplingRatePerMillion: Invalid value: ${rate}: sampling rate per million must be less than or equal to one million`);
  if (endpoint !== undefined && endpoint !== null && (typeof endpoint !== 'string' || endpointOf(endpoint) === null))
    problems.push(`tracing.endpoint: Invalid value: ${JSON.stringify(endpoint)}: is no host:port`);
  return problems;
}

/** `host:port`, also as gRPC writes it (`dns:///host:port`, `passthrough:///…`); null for what is none. */
export function endpointOf(text: string): string | null {
  const bare = text.replace(/^(dns|passthrough|ipv4|ipv6):(\/\/[^/]*\/)?/, '');
  return /^([A-Za-z0-9._-]+|\[[0-9a-fA-F:.]+\]):\d{1,5}$/.test(bare) ? bare : null;
}

/* ---------- OTLP ---------- */

function hex(digits: string): Uint8Array {
  return Uint8Array.from({ length: digits.length / 2 }, (_, at) => Number.parseInt(digits.slice(at * 2, at * 2 + 2), 16));
}

function attribute(field: number, key: string, value: string | number): Uint8Array {
  const any = typeof value === 'string' ? text(1, value) : number(3, BigInt.asUintN(64, BigInt(Math.trunc(value))));
  return sized(field, joined([text(1, key), sized(2, any)]));
}

const kinds: Readonly<Record<SpanKind, bigint>> = { internal: 1n, server: 2n, client: 3n };
const statusError = 2n;

function encodeSpan(span: FinishedSpan): Uint8Array {
  return joined([
    sized(1, hex(span.traceId)),
    sized(2, hex(span.spanId)),
    ...(span.parentSpanId === '' ? [] : [sized(4, hex(span.parentSpanId))]),
    text(5, span.name),
    number(6, kinds[span.kind]),
    fixed64(7, span.startNs),
    fixed64(8, span.endNs),
    ...Object.entries(span.attributes).map(([key, value]) => attribute(9, key, value)),
    ...(span.error === null ? [] : [sized(15, joined([text(2, span.error), number(3, statusError)]))]),
  ]);
}

/** ExportTraceServiceRequest. */
export function encodeSpans(spans: readonly FinishedSpan[], resource: Readonly<Record<string, string>>, scope: string): Uint8Array {
  const attributes = Object.entries(resource).map(([key, value]) => attribute(1, key, value));
  const scopeSpans = joined([sized(1, text(1, scope)), ...spans.map((span) => sized(2, encodeSpan(span)))]);
  return sized(1, joined([sized(1, joined(attributes)), sized(2, scopeSpans)]));
}
