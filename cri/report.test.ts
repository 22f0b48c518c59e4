import { FakeHost } from '../base/fake-host.ts';
import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, stat } from 'node:fs/promises';
import { createRequire } from 'node:module';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { pathToFileURL } from 'node:url';
import { after, before, test } from 'node:test';
import { hasCode } from '../base/errors.ts';
import { fakeRecording, fakeUid, type FakePod } from './core/fake-recording.ts';
import type { RecordedEntry } from './core/recording.ts';
import { RecordingWriter } from './io/recording-write.ts';
import { report, type ReportOptions } from './report.ts';

let folder = '';
let file = '';
/** What a page, a diagram or a trace may stumble over. */
const EVIL = 'broken; <script>alert("1")</script> & #35; %% end\nsecond line: --x "quoted" \'single\' loop';
const pods: FakePod[] = [
  { namespace: 'default', name: 'web', uid: fakeUid('web'), containers: ['main', 'beside'] },
  { namespace: 'default', name: 'evil', uid: fakeUid('evil'), containers: ['<b>'] },
];

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'cri-report-'));
  file = join(folder, 'a.crirec');
  using writer = new RecordingWriter(file, { maxBytes: 1024 ** 2, append: false });
  const change = (method: string, pod: FakePod, request: Record<string, unknown>): Record<string, unknown> =>
    method === 'CreateContainer' && pod.name === 'evil' ? { fails: EVIL } : request;
  const entries: RecordedEntry[] = [...fakeRecording({ pods, seed: 3, everyMs: 5_000, relistMs: 1_000, change })];
  const stop = entries.pop() as RecordedEntry;
  const at = (ms: number) => ({ wall: new Date(Date.UTC(2026, 0, 2, 3, 3) + ms).toISOString(), monoMs: 1_000 + ms });
  // A stream that ended, one that was open, and a call that was cut.
  const of = { connection: 1, service: 'runtime.v1.RuntimeService' };
  entries.push({ ...of, type: 'opening', call: 900, stream: 901, method: 'GetContainerEvents', start: at(3), requests: [{ fields: {}, sizeBytes: 0 }] });
  entries.push({ type: 'message', call: 900, at: at(9), message: { fields: {}, sizeBytes: 5 } });
  entries.push({
    ...of,
    type: 'call',
    call: 901,
    stream: 903,
    method: 'Status',
    start: at(20),
    end: at(30),
    requests: [],
    responses: [],
    status: null,
    cut: 'the caller reset it',
  });
  for (const entry of [...entries, stop]) writer.add(entry);
});
after(async () => rm(folder, { recursive: true, force: true }));

const usual: ReportOptions = { html: false, mermaid: false, perfetto: false, otlp: false, json: false, force: false };

async function text(options: Partial<ReportOptions>): Promise<string> {
  const host = new FakeHost();
  assert.equal(await report(host, file, { ...usual, ...options }), 0);
  return host.out;
}

test('a file is its owner’s alone, and none that is there is overwritten unless it is said so', async () => {
  const output = join(folder, 'out.json');
  assert.equal(await text({ json: true, output }), '');
  assert.equal((await stat(output)).mode & 0o777, 0o600);
  await assert.rejects(text({ json: true, output }), (error) => hasCode(error, 'exists'));
  await text({ json: true, output, force: true });
});

test('the page loads nothing, runs nothing and shows failures in full', async () => {
  const page = await text({ html: true });
  assert.doesNotMatch(page, /<script|javascript:|https?:\/\/|<link|<img|@import|url\(/i);
  assert.match(page, /default-src 'none'; style-src 'unsafe-inline'/);
  assert.ok(page.includes('broken; &#60;script&#62;alert(&#34;1&#34;)&#60;/script&#62; &#38; #35; %% end\nsecond line'), 'the message is whole and escaped');
  assert.equal(page.match(/<svg /g)?.length, 3, 'two pods and the node');
  assert.match(page, /<b>default\/web<\/b><span>\d+ calls · containers started in \d+ ms<\/span>/);
  const opened = [...page.matchAll(/<(\w+)[^>]*?(\/?)>/g)]
    .filter(([, name = '', closed]) => closed === '' && !/^(meta|br)$/.test(name))
    .map(([, name]) => name);
  const closed = [...page.matchAll(/<\/(\w+)>/g)].map(([, name]) => name);
  assert.equal(opened.length, closed.length, 'every element is closed');
  assert.doesNotMatch(page, /NaN|Infinity|undefined/);
});

/** What of Mermaid's sequence diagrams is written here. */
const MERMAID_LINE =
  /^(sequenceDiagram| {2}participant (kubelet|runtime)| {2}Note over (kubelet,runtime|runtime): \S.*| {2,4}kubelet->>runtime: \S.*| {2,4}runtime--(>>|x)kubelet: \S.*| {2}loop \S.*| {2}end)$/;

function assertMermaid(diagram: string): void {
  const lines = diagram.trimEnd().split('\n');
  assert.equal(lines[0], 'sequenceDiagram');
  let depth = 0;
  for (const line of lines) {
    assert.match(line, MERMAID_LINE);
    // A bare ; ends a statement, a bare # begins a character's name.
    assert.doesNotMatch(line.replaceAll(/#\d+;/g, '').replaceAll('<br/>', ''), /[#;<]|%%/, line);
    depth += /^ {2}loop /.test(line) ? 1 : line === '  end' ? -1 : 0;
    assert.ok(depth === 0 || depth === 1, line);
  }
  assert.equal(depth, 0);
}

/** Mermaid itself, where it is installed: it is larger than all of this project. */
async function mermaidParse(): Promise<((diagram: string) => Promise<unknown>) | null> {
  const where = process.env['NODELET_MERMAID'] ?? '';
  if (where === '') return null;
  const path = pathToFileURL(createRequire(join(where, 'x.js')).resolve('mermaid')).href;
  const loaded = (await import(path)) as { default: { parse(diagram: string): Promise<unknown> } };
  return (diagram) => loaded.default.parse(diagram);
}

test('the diagram of a pod has calls and answers in order, looks folded, failures in full', async () => {
  const diagram = await text({ mermaid: true, pod: 'default/web' });
  assertMermaid(diagram);
  assert.match(diagram, /kubelet->>runtime: RunPodSandbox\n {2}runtime-->>kubelet: OK, \d+ ms\n {2}kubelet->>runtime: PodSandboxStatus/);
  assert.match(diagram, / {2}loop 3 times in 6\.0 ms\n {4}kubelet->>runtime: ContainerStatus main\n {4}runtime-->>kubelet: OK, 1\.0 ms at most\n {2}end/);
  const evil = await text({ mermaid: true, pod: 'default/evil' });
  assertMermaid(evil);
  assert.match(evil, /runtime--xkubelet: Unknown: broken#59; #60;script#62;.*second line/);
  const parse = await mermaidParse();
  if (parse === null) console.log('not parsed by Mermaid itself: NODELET_MERMAID names no folder with its package');
  else for (const each of [diagram, evil]) assert.ok(await parse(each));
  await assert.rejects(text({ mermaid: true }), { code: 'invalid', advice: /--pod; the recording has default\/web, default\/evil/ });
});

interface TraceEvent {
  readonly ph: string;
  readonly name: string;
  readonly pid: number;
  readonly tid: number;
  readonly ts: number;
  readonly dur: number;
  readonly args: Record<string, unknown>;
}

test('the trace keeps to the trace event format, and spans of a thread nest', async () => {
  const { traceEvents, displayTimeUnit } = JSON.parse(await text({ perfetto: true })) as { traceEvents: TraceEvent[]; displayTimeUnit: string };
  assert.equal(displayTimeUnit, 'ms');
  const ends = new Map<string, number>();
  for (const event of traceEvents) {
    assert.match(event.ph, /^[XM]$/);
    assert.ok(Number.isInteger(event.pid) && Number.isInteger(event.tid) && event.name !== '');
    if (event.ph === 'M') continue;
    assert.ok(Number.isInteger(event.ts) && event.ts >= 0 && Number.isInteger(event.dur) && event.dur >= 0, JSON.stringify(event));
    const thread = `${event.pid} ${event.tid}`;
    assert.ok(event.ts >= (ends.get(thread) ?? 0), 'no two overlap in one thread');
    ends.set(thread, event.ts + event.dur);
  }
  const names = traceEvents.filter(({ ph, name }) => ph === 'M' && name === 'process_name').map(({ args }) => args['name']);
  assert.deepEqual(names, ['node', 'default/web', 'default/evil']);
  const threads = traceEvents.filter(({ name, pid }) => name === 'thread_name' && pid === 2).map(({ args }) => args['name']);
  assert.deepEqual(threads, ['sandbox', 'main', 'beside']);
});

/** The JSON mapping of what is used of opentelemetry.proto.trace.v1: each field's form; `?` may be absent. */
const SPAN_FORMS: Readonly<Record<string, RegExp>> = {
  traceId: /^"(?!0{32})[0-9a-f]{32}"$/,
  spanId: /^"(?!0{16})[0-9a-f]{16}"$/,
  'parentSpanId?': /^"(?!0{16})[0-9a-f]{16}"$/,
  name: /^".+"$/,
  kind: /^[1-5]$/,
  startTimeUnixNano: /^"\d{19}"$/,
  endTimeUnixNano: /^"\d{19}"$/,
  attributes: /^\[(\{"key":"[a-z0-9_.]+","value":\{("stringValue":"([^"\\]|\\.)+"|"intValue":"-?\d+")\}\},?)*\]$/,
  'status?': /^\{"code":[0-2](,"message":".*")?\}$/,
};

test('traces keep to the JSON mapping of OpenTelemetry’s proto: one for each pod, a span for each call', async () => {
  interface Spans {
    readonly resource: { readonly attributes: readonly { readonly key: string; readonly value: { readonly stringValue: string } }[] };
    readonly scopeSpans: readonly { readonly spans: readonly Record<string, unknown>[] }[];
  }
  const { resourceSpans, ...rest } = JSON.parse(await text({ otlp: true })) as { resourceSpans: Spans[] };
  assert.deepEqual(rest, {});
  const ids = new Set<unknown>();
  const traces = resourceSpans.map(({ resource, scopeSpans }) => {
    const spans = scopeSpans.flatMap(({ spans: each }) => each);
    for (const span of spans) {
      for (const [key, form] of Object.entries(SPAN_FORMS)) {
        const value = span[key.replace('?', '')];
        if (value !== undefined || !key.endsWith('?')) assert.match(JSON.stringify(value ?? null), form, key);
      }
      assert.deepEqual(
        Object.keys(span).filter((key) => !(key in SPAN_FORMS) && !(`${key}?` in SPAN_FORMS)),
        [],
      );
      assert.ok(BigInt(span['endTimeUnixNano'] as string) >= BigInt(span['startTimeUnixNano'] as string));
      assert.ok(!ids.has(span['spanId']), 'ids of spans are all different');
      ids.add(span['spanId']);
    }
    assert.equal(new Set(spans.map(({ traceId }) => traceId)).size, 1);
    const [root, ...calls] = spans;
    assert.ok(calls.every(({ parentSpanId }) => parentSpanId === root?.['spanId']));
    return { names: Object.fromEntries(resource.attributes.map(({ key, value }) => [key, value.stringValue])), root, calls };
  });
  assert.equal(traces.length, 3);
  const [, web, evil] = traces;
  assert.deepEqual(web?.names, { 'service.name': 'kubelet', 'k8s.namespace.name': 'default', 'k8s.pod.name': 'web', 'k8s.pod.uid': fakeUid('web') });
  assert.equal(web?.root?.['traceId'], fakeUid('web').replaceAll('-', ''));
  const failed = evil?.calls.find(({ status }) => status !== undefined);
  assert.deepEqual(failed?.['status'], { code: 2, message: EVIL });
  assert.deepEqual(failed?.['attributes'], [
    { key: 'rpc.system.name', value: { stringValue: 'grpc' } },
    { key: 'rpc.method', value: { stringValue: 'runtime.v1.RuntimeService/CreateContainer' } },
    { key: 'rpc.response.status_code', value: { stringValue: 'UNKNOWN' } },
    { key: 'server.address', value: { stringValue: 'unix:///run/containerd/containerd.sock' } },
    { key: 'error.type', value: { stringValue: 'UNKNOWN' } },
    { key: 'k8s.container.name', value: { stringValue: '<b>' } },
    { key: 'k8s.container.restart_count', value: { intValue: '0' } },
    { key: 'container.image.name', value: { stringValue: 'docker.io/library/busybox:1.36' } },
  ]);
});

test('the summary, into a file; a wrong word is told', async () => {
  const output = join(folder, 'sum.json');
  await text({ json: true, output });
  const summary = JSON.parse(await readFile(output, 'utf8')) as {
    calls: number;
    failed: number;
    pods: { name: string; startedInMs: number | null }[];
    failures: { count: number; message: string }[];
  };
  assert.equal(summary.failed, 1);
  assert.deepEqual(
    summary.failures.map(({ count, message }) => [count, message]),
    [[1, EVIL]],
  );
  assert.deepEqual(
    summary.pods.map(({ name, startedInMs }) => [name, startedInMs === null]),
    [
      ['web', false],
      ['evil', true],
    ],
  );
  const fenced = join(folder, 'web.md');
  await text({ mermaid: true, pod: 'default/web', output: fenced });
  assert.match(await readFile(fenced, 'utf8'), /^```mermaid\nsequenceDiagram\n[^]*```\n$/);
  await assert.rejects(text({}), { code: 'invalid' });
  await assert.rejects(text({ html: true, json: true }), { code: 'invalid' });
  await assert.rejects(text({ json: true, pod: 'default/absent' }), { code: 'not-found', advice: /default\/web, default\/evil/ });
  await assert.rejects(text({ json: true, output: join(folder, 'absent', 'x') }), { code: 'failed', message: /ENOENT/ });
});
