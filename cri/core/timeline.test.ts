import assert from 'node:assert/strict';
import { test } from 'node:test';
import { matcherOf, NO_FILTER, type CallFilter } from './call-filter.ts';
import type { RecordedEntry, RecordedTime } from './recording.ts';
import { TimelineCalls } from './timeline-calls.ts';
import { callBeside, eachBarBetween, Timeline, toneOf, type Row, type TimelineCall } from './timeline.ts';

let made = 0;
function call(method: string, startMs: number, endMs: number | null, over: Partial<TimelineCall> = {}): TimelineCall {
  const outcome = endMs === null ? 'open' : 'OK';
  return {
    id: made++,
    method,
    sandbox: '',
    container: '',
    other: '',
    connection: 1,
    startMs,
    endMs,
    outcome,
    message: '',
    sizeBytes: 0,
    answers: 1,
    ...over,
  };
}
const web = { sandbox: 'default/web#0' };

function timelineOf(calls: readonly TimelineCall[]): Timeline {
  const timeline = new Timeline();
  for (const one of calls) timeline.add(one);
  return timeline;
}

function shape(rows: readonly Row[]): string[] {
  return rows.flatMap((row) => [`${row.prefix}${row.name} ${row.bars.length + row.long.length}`, ...shape(row.parts).map((line) => `  ${line}`)]);
}

test('rows are the node, the images and the pods, with their parts', () => {
  const timeline = timelineOf([
    call('RunPodSandbox', 10, 20, web),
    call('Version', 11, 12),
    call('CreateContainer', 21, 22, { ...web, container: 'app#0' }),
    call('PullImage', 1, 5, { other: 'busybox' }),
    call('Containers/Get', 6, 7),
    call('CreateContainer', 31, 32, { ...web, container: 'app#1' }),
    call('ContainerStatus', 33, 34, { other: '0123456789ab' }),
    call('StopPodSandbox', 40, 41, { sandbox: 'default/web#1' }),
  ]);
  assert.deepEqual(shape(timeline.rows), [
    'node 2',
    '  Version 1',
    '  ContainerStatus 1',
    'images 1',
    '  busybox 1',
    'others 1',
    '  Containers/Get 1',
    'default/web 4',
    '  sandbox 2',
    '  app 2',
  ]);
  assert.deepEqual([timeline.startMs, timeline.endMs, timeline.count], [1, 41, 8]);
});

test('bars stand by their start, whatever ended first; at the same time below each other', () => {
  const timeline = timelineOf([call('Version', 30, 31), call('Version', 10, 40), call('Version', 12, 13), call('Status', 35, 36), call('Status', 50, 51)]);
  const node = timeline.rows[0] as Row;
  assert.deepEqual(
    node.bars.map(({ call: { startMs }, lane }) => [startMs, lane]),
    [
      [10, 1],
      [12, 0],
      [30, 0],
      [35, 0],
      [50, 0],
    ],
  );
  assert.equal(node.lanes, 2);
});

test('long and open calls are seen from far behind their start', () => {
  const timeline = timelineOf([
    call('GetContainerEvents', 0, null),
    call('PullImage', 100, 50_000),
    ...Array.from({ length: 1_000 }, (_, at) => call('Version', at * 100, at * 100 + 5)),
  ]);
  const seen: string[] = [];
  eachBarBetween(timeline.rows[0] as Row, 40_000, 40_050, (bar) => seen.push(bar.call.method));
  assert.deepEqual(seen, ['GetContainerEvents', 'PullImage', 'Version']);
});

test('the next and the call before, by start, of those that are wanted', () => {
  const calls = [call('A', 10, 11), call('B', 20, 21, { outcome: 'NotFound' }), call('C', 20, 90_000), call('D', 30, 31)];
  const row = timelineOf(calls.toReversed()).rows[0] as Row;
  const walked: string[] = [];
  for (let at = callBeside(row, null, 1); at !== null; at = callBeside(row, at, 1)) walked.push(at.method);
  for (let at = callBeside(row, null, -1); at !== null; at = callBeside(row, at, -1)) walked.push(at.method);
  assert.deepEqual(walked.join(''), 'ABCDDCBA');
  assert.equal(callBeside(row, null, 1, ({ outcome }) => outcome !== 'OK')?.method, 'B');
});

test('what a call is drawn as', () => {
  const cases: readonly [string, string, string][] = [
    ['RunPodSandbox', 'OK', 'make'],
    ['RemoveContainer', 'OK', 'end'],
    ['RemoveImage', 'OK', 'image'],
    ['ExecSync', 'OK', 'run'],
    ['ListContainers', 'OK', 'read'],
    ['StreamContainers', 'OK', 'watch'],
    ['ListContainers', 'Unavailable', 'failed'],
    ['ListContainers', 'Canceled', 'cut'],
    ['ListContainers', 'cut', 'cut'],
  ];
  for (const [method, outcome, tone] of cases) assert.equal(toneOf(call(method, 1, 2, { outcome })), tone, `${method} ${outcome}`);
  assert.equal(toneOf(call('Version', 1, null)), 'open');
});

test('filters', () => {
  const calls = [
    call('RunPodSandbox', 0, 300, { ...web, outcome: 'Unknown', message: 'no IP addresses' }),
    call('RunPodSandbox', 0, 20, { sandbox: 'kube-system/dns#0' }),
    call('GetContainerEvents', 0, null),
  ];
  const wanted = (filter: Partial<CallFilter>): number[] => {
    const matches = matcherOf({ ...NO_FILTER, ...filter });
    return calls.flatMap((one, at) => (matches(one) ? [at] : []));
  };
  assert.deepEqual(wanted({}), [0, 1, 2]);
  assert.deepEqual(wanted({ pod: 'DNS' }), [1]);
  assert.deepEqual(wanted({ method: 'runpodsandbox, Version' }), [0, 1]);
  assert.deepEqual(wanted({ outcome: 'failed' }), [0]);
  assert.deepEqual(wanted({ outcome: 'ok' }), [1]);
  assert.deepEqual(wanted({ outcome: 'open' }), [2]);
  assert.deepEqual(wanted({ slowerThanMs: 100 }), [0]);
  assert.deepEqual(wanted({ text: 'addresses run' }), [0]);
});

test('entries become calls: a stream is one, whose answers are counted', () => {
  const time = (monoMs: number): RecordedTime => ({ wall: '2026-01-01T00:00:00.000Z', monoMs });
  const of = { connection: 1, stream: 1, service: 'runtime.v1.RuntimeService' };
  const calls = new TimelineCalls();
  const take = (entry: RecordedEntry): TimelineCall | null => calls.take(entry);
  take({ type: 'recording', version: 1, recorder: '', startedAt: time(5_000), listen: '', upstream: '', redacted: true });
  const stream = take({ ...of, type: 'opening', call: 1, method: 'GetContainerEvents', start: time(5_001.5), requests: [{ fields: {}, sizeBytes: 1 }] });
  assert.equal(stream?.startMs, Date.parse('2026-01-01T00:00:00Z') + 1.5);
  const told = [1, 2, 3].map(() => take({ type: 'message', call: 1, at: time(5_002), message: { fields: {}, sizeBytes: 10 } }) !== null);
  assert.deepEqual(told, [true, true, false]);
  const ended = take({
    ...of,
    type: 'call',
    call: 1,
    method: 'GetContainerEvents',
    start: time(5_001.5),
    end: time(9_000),
    requests: [],
    responses: [],
    responsesBefore: 3,
    status: { code: 14, name: 'Unavailable', message: 'gone' },
  });
  assert.equal(ended, stream);
  assert.deepEqual([stream?.answers, stream?.sizeBytes, stream?.outcome, stream?.message], [3, 31, 'Unavailable', 'gone']);
});
