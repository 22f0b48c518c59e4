import assert from 'node:assert/strict';
import { test } from 'node:test';
import { axisText, barText, dotsText, groupLines, PLAIN, rowLine } from './group-text.ts';
import { LineFolder } from './line-folder.ts';
import { PodGroups } from './pod-groups.ts';
import type { SeenCall } from './seen-calls.ts';
import { viewLines } from './watch-view.ts';

const START_MS = Date.parse('2026-06-01T12:00:00Z');

function call(method: string, fromMs: number, lastsMs: number, extra: Partial<SeenCall> = {}): SeenCall {
  return {
    ...{ kind: 'call', call: 1, connection: 1, service: 'runtime.v1.RuntimeService', method, caller: 'grpc-go', pod: 'default/web', group: 'default/web' },
    ...{
      sandboxAttempt: 0,
      container: '',
      other: '',
      startMs: START_MS + fromMs,
      endMs: START_MS + fromMs + lastsMs,
      outcome: 'OK',
      message: '',
      hasFailed: false,
    },
    ...{ request: {}, answer: {}, answers: 1, requests: [], responses: [] },
    ...extra,
  };
}

const life = [
  call('RunPodSandbox', 0, 400, { answer: { podSandboxId: '0123456789abcdef' } }),
  call('PodSandboxStatus', 405, 1, { answer: { status: { network: { ip: '10.0.0.1' } } } }),
  call('PodSandboxStatus', 420, 3, { answer: { status: { network: { ip: '10.0.0.1' } } } }),
  call('PullImage', 430, 100, {
    outcome: 'NotFound',
    message: 'no such image: registry.example/x:1',
    hasFailed: true,
    request: { image: { image: 'registry.example/x:1' } },
  }),
  call('CreateContainer', 600, 100, { container: 'main#0', request: { config: { image: { image: 'busybox' } } } }),
  call('StartContainer', 700, 300, { container: 'main#0', request: { containerId: 'c' } }),
  call('ContainerStatus', 1_001, 1, { container: 'main#0', answer: { status: { state: 'CONTAINER_RUNNING' } } }),
];

test('a pod’s calls are one group: looks fold until the next change, errors stand in full, bars share an axis', () => {
  const groups = new PodGroups(10);
  for (const one of life) groups.take(one);
  for (let at = 1; at <= 10; at++)
    groups.take(call('ContainerStatus', 1_001 + at * 1_000, at, { container: 'main#0', answer: { status: { state: 'CONTAINER_RUNNING' } } }));
  const [group] = groups.groups;
  assert.ok(group !== undefined);
  assert.deepEqual(groupLines(group, 0, PLAIN), [
    'default/web  from 12:00:00.000  17 calls, 1 failed',
    '                                             0                   500 ms        1.00 s',
    '  RunPodSandbox                400 ms  ok    ████████████████                                         → 0123456789ab',
    '  PodSandboxStatus ×2     0.99 ms p50  ok                    ·                                        ≤ 3.0 ms  ready  ip 10.0.0.1',
    '  PullImage                    100 ms  FAIL                   ████                                    registry.example/x:1',
    '      NotFound: no such image: registry.example/x:1',
    '  CreateContainer              100 ms  ok                            ████              main#0         busybox',
    '  StartContainer               300 ms  ok                                ████████████  main#0',
    '  ContainerStatus ×11      5.0 ms p50  ok                                           ·  main#0         ≤ 10 ms  running',
  ]);
});

test('a pod that changes again after a while begins a group of its own', () => {
  const groups = new PodGroups(10);
  for (const one of life) groups.take(one);
  groups.take(call('ContainerStatus', 200_000, 1, { container: 'main#0' }));
  groups.take(call('StopContainer', 201_000, 50, { container: 'main#0' }));
  assert.deepEqual(
    groups.groups.map(({ rows, calls }) => [rows.length, calls]),
    [
      [6, 8],
      [1, 1],
    ],
  );
});

test('what is held does not grow: rows of a group, and groups', () => {
  const groups = new PodGroups(3);
  for (let at = 0; at < 1_000; at++) groups.take(call('StopContainer', at, 1, { container: `c#${at}` }));
  assert.deepEqual([groups.groups[0]?.rows.length, groups.groups[0]?.omitted], [200, 800]);
  for (let at = 0; at < 10; at++) groups.take(call('RunPodSandbox', at, 1, { pod: `n/${at}`, group: `n/${at}` }));
  assert.equal(groups.groups.length, 3);
  assert.equal(groups.dropped, 8);
});

test('calls that are not of the CRI are numbers, whatever they are refused with', () => {
  const groups = new PodGroups(10);
  for (let at = 0; at < 5; at++)
    groups.take(
      call('Containers/Get', at, 1, {
        service: 'containerd.services.containers.v1.Containers',
        pod: '',
        group: '',
        hasFailed: true,
        outcome: 'NotFound',
        message: `no ${at}`,
      }),
    );
  assert.deepEqual(
    groups.groups[0]?.rows.map(({ method, count, message }) => [method, count, message]),
    [['Containers/Get', 5, 'no 4']],
  );
});

test('lines: looks wait for their like, and are told before the next change or after ten seconds', () => {
  const folder = new LineFolder();
  const lines = (rows: ReturnType<LineFolder['take']>): string[] => rows.map(({ pod, row }) => rowLine(row, pod, PLAIN));
  const list = (at: number): SeenCall => call('ListContainers', at, 2, { pod: '', group: '', answer: { containers: [{}] } });
  assert.deepEqual(lines(folder.take(list(0))), []);
  assert.deepEqual(lines(folder.take(list(1_000))), []);
  assert.deepEqual(lines(folder.take(call('PodSandboxStatus', 1_500, 1))), []);
  assert.deepEqual(lines(folder.take(call('StopPodSandbox', 2_000, 120))), [
    '12:00:01.500      1.0 ms  PodSandboxStatus     default/web  ok',
    '12:00:02.000      120 ms  StopPodSandbox       default/web  ok',
  ]);
  assert.deepEqual(lines(folder.due(START_MS + 9_000)), []);
  assert.deepEqual(lines(folder.due(START_MS + 10_000)), ['12:00:00.000  2.0 ms p50  ListContainers ×2    ok  ≤ 2.0 ms  1 container']);
  folder.take(list(20_000));
  assert.equal(folder.rest().length, 1);
});

test('bars begin in their column and are never nothing', () => {
  const axis = { fromMs: 0, toMs: 100, columns: 10 };
  assert.deepEqual(
    [barText(axis, 0, 50), barText(axis, 95, 100), barText(axis, 42, 42), barText(axis, 0, 55), barText(axis, 500, 600)],
    ['█████', '         ▌', '    ▏', '█████▌', '         █'],
  );
  assert.equal(dotsText(axis, 20, 60), '  ·····');
  assert.equal(axisText({ fromMs: 0, toMs: 1_000, columns: 30 }), '0              500 ms   1.00 s');
  assert.equal(axisText({ fromMs: 0, toMs: 1_000, columns: 12 }), '0     1.00 s');
});

test('a window: the node’s calls first, then the pod that was changed last, no line too long or too many', () => {
  const slow = call('PullImage', 2_000, 9);
  const groups = new PodGroups(10);
  for (const one of life) groups.take(one);
  groups.take(call('RunPodSandbox', 5_000, 9, { pod: 'n/late', group: 'n/late' }));
  groups.take(call('Status', 5_100, 2, { pod: '', group: '' }));
  const lines = viewLines({ words: '/run/x.sock', calls: 9, failed: 1, note: '', running: [slow], nowMs: slow.startMs + 3_500 }, groups.groups, 20, 100, PLAIN);
  assert.ok(lines.length <= 20);
  assert.ok(lines.every((line) => line.length <= 100));
  const at = (text: string): number => lines.findIndex((line) => line.startsWith(text));
  assert.ok(at('the node') < at('n/late') && at('n/late') < at('default/web'), lines.join('\n'));
  assert.ok(lines.some((line) => line.includes('NotFound: no such image')));
  assert.match(lines[2] ?? '', /^ +3\.50 s …  PullImage .* {2}███$/);
});
