import assert from 'node:assert/strict';
import { test } from 'node:test';
import { CallStatistics } from './call-statistics.ts';
import { Histogram } from './histogram.ts';
import type { SeenCall } from './seen-calls.ts';
import { WhoAsks, type AskedCall } from './who-asks.ts';

const ALL = { filter: {} };
const READY = { filter: { state: {} } };
const RUNNING = { filter: { state: { state: 'CONTAINER_RUNNING' } } };
const POD = { filter: { labelSelector: { 'io.kubernetes.pod.uid': 'u' } } };

/** As a recording of kubelet 1.37.2 has it: seconds, milliseconds, connection, method, request. */
const recorded: readonly [atS: number, lastsMs: number, connection: number, method: string, request: object, who: string][] = [
  [0.022, 1.1, 1, 'RuntimeConfig', {}, 'start'],
  [30.853, 2.8, 1, 'ListPodSandbox', ALL, 'relist'],
  [30.862, 0.6, 1, 'ListContainers', ALL, 'relist'],
  [32.268, 3.4, 1, 'ListPodSandbox', READY, 'housekeeping'],
  [32.273, 0.7, 1, 'ListContainers', RUNNING, 'housekeeping'],
  [32.4, 96.6, 1, 'ExecSync', { timeout: '1' }, 'probe'],
  [35.599, 2.1, 1, 'Status', {}, 'status'],
  [40.574, 0.2, 1, 'ListContainers', ALL, 'log rotation'],
  [40.576, 5.7, 1, 'ContainerStatus', {}, 'log rotation'],
  [40.583, 1.6, 1, 'ContainerStatus', {}, 'log rotation'],
  [40.806, 1.2, 1, 'ImageFsInfo', {}, 'stats'],
  [40.808, 0.5, 1, 'ListContainers', ALL, 'stats'],
  [40.81, 1.1, 1, 'ListPodSandbox', ALL, 'stats'],
  [40.812, 17.3, 1, 'ListContainerStats', ALL, 'stats'],
  [40.944, 0.9, 1, 'ListPodSandbox', ALL, 'relist'],
  [40.945, 3.6, 1, 'ListContainers', ALL, 'relist'],
  [41.578, 1.3, 1, 'Version', {}, 'status'],
  [48.284, 22.8, 1, 'CreateContainer', {}, 'sync'],
  [48.308, 189.7, 1, 'StartContainer', {}, 'sync'],
  [48.502, 19.6, 1, 'ListPodSandbox', POD, 'sync'],
  [48.535, 1, 1, 'ListContainers', POD, 'sync'],
  [48.544, 0.6, 1, 'PodSandboxStatus', {}, 'sync'],
  [48.546, 0.8, 1, 'ContainerStatus', {}, 'sync'],
  [50.1, 0.8, 1, 'ExecSync', {}, 'hook'],
  [60.249, 0.2, 2, 'ListImages', {}, 'other'],
  [60.351, 0.8, 1, 'ListContainers', ALL, 'log rotation'],
  [60.352, 0.3, 1, 'ListContainers', ALL, 'GC'],
  [60.357, 0.1, 1, 'ListPodSandbox', ALL, 'GC'],
  [300.315, 0.1, 2, 'ListImages', {}, 'image GC'],
  [300.316, 0.6, 1, 'ListPodSandbox', ALL, 'image GC'],
  [300.317, 0.3, 1, 'ListContainers', ALL, 'image GC'],
  [300.318, 0.7, 1, 'ContainerStatus', {}, 'image GC'],
];

function asked([atS, lastsMs, connection, method, request]: (typeof recorded)[number]): AskedCall {
  return { connection, service: 'runtime.v1.RuntimeService', method, pod: '', request: request as never, startMs: atS * 1_000, endMs: atS * 1_000 + lastsMs };
}

test('the parts of a kubelet are told apart by what they ask one after the other', () => {
  const who = new WhoAsks();
  for (const one of recorded) {
    const { asker } = who.of(asked(one));
    assert.equal(asker, one[5], `${one[0]} ${one[3]}`);
  }
  assert.equal(`${who.isKubelet(1)} ${who.isKubelet(2)}`, 'true true');
});

test('a list that turns out to be the collector’s is counted as its own afterwards', () => {
  const statistics = new CallStatistics();
  for (const one of recorded) statistics.take(seen(asked(one)));
  const lists = statistics.numbers().methods.find(({ method }) => method === 'ListContainers');
  assert.deepEqual(Object.fromEntries((lists?.askers ?? []).map(({ asker, calls }) => [asker, calls])), {
    ...{ relist: 2, GC: 2, housekeeping: 1, 'log rotation': 1, stats: 1, sync: 1, 'image GC': 1 },
  });
});

test('another caller’s lists are nobody’s of a kubelet, and what is not CRI is said to be none', () => {
  const who = new WhoAsks();
  const one = (method: string, service: string): string => who.of({ connection: 9, service, method, pod: '', request: RUNNING, startMs: 0, endMs: 1 }).asker;
  assert.equal(one('ListContainers', 'runtime.v1.RuntimeService'), 'other');
  assert.equal(one('Containers/Get', 'containerd.services.containers.v1.Containers'), 'not CRI');
  assert.equal(who.isKubelet(9), false);
});

function seen(call: AskedCall): SeenCall {
  return {
    ...{
      kind: 'call',
      call: 1,
      caller: 'grpc-go/1.82.1',
      group: call.pod,
      sandboxAttempt: null,
      container: '',
      other: '',
      outcome: 'OK',
      message: '',
      hasFailed: false,
    },
    ...{ answer: {}, answers: 1, requests: [], responses: [] },
    ...call,
  };
}

test('numbers: calls a minute, quantiles, errors, callers', () => {
  const statistics = new CallStatistics();
  for (let at = 0; at < 120; at++) {
    const base = seen({
      connection: 1 + (at % 2),
      service: 'runtime.v1.RuntimeService',
      method: 'Version',
      pod: '',
      request: {},
      startMs: at * 1_000,
      endMs: at * 1_000 + at,
    });
    statistics.take(at < 3 ? { ...base, hasFailed: true, outcome: 'Unavailable' } : base);
  }
  const { calls, errors, methods, callers } = statistics.numbers(120_000);
  assert.equal(`${calls} ${errors} ${methods[0]?.perMinute}`, '120 3 60');
  assert.ok(Math.abs((methods[0]?.p50Ms ?? 0) - 60) < 2 && Math.abs((methods[0]?.p99Ms ?? 0) - 118) < 3 && methods[0]?.maxMs === 119);
  assert.deepEqual(
    callers.map(({ connection, calls: of, errors: bad, kind }) => [connection, of, bad, kind]),
    [
      [1, 60, 2, 'other'],
      [2, 60, 1, 'other'],
    ],
  );
});

test('a histogram tells quantiles to 2 % in memory that does not grow', () => {
  const histogram = new Histogram();
  for (let at = 1; at <= 100_000; at++) histogram.add(at / 100);
  for (const part of [0.01, 0.5, 0.9, 0.99, 1]) {
    const wanted = 1_000 * part;
    assert.ok(Math.abs(histogram.quantile(part) - wanted) / wanted < 0.02, `${part}: ${histogram.quantile(part)}`);
  }
  const other = new Histogram();
  other.add(5_000);
  histogram.merge(other);
  assert.equal(`${histogram.count} ${histogram.quantile(1)}`, '100001 5000');
  assert.equal(new Histogram().quantile(0.5), 0);
});
