import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { namespacesIn, slugOf } from './collect.ts';
import { GinkgoOutput, type LiveEvent } from './ginkgo-output.ts';
import type { Scoreboard } from './scoreboard.ts';
import type { Spec } from './suites.ts';

const read = (name: string): string => readFileSync(new URL(`testdata/${name}`, import.meta.url), 'utf8');
const { tests } = JSON.parse(readFileSync(new URL('scoreboard.json', import.meta.url), 'utf8')) as Scoreboard;
const SPECS: readonly Spec[] = Object.keys(tests).map((name) => ({ name, labels: [] }));

function eventsOf(text: string, step: number, specs = SPECS): LiveEvent[] {
  const reader = new GinkgoOutput(specs);
  const events: LiveEvent[] = [];
  for (let at = 0; at < text.length; at += step) events.push(...reader.push(text.slice(at, at + step)));
  return [...events, ...reader.end()];
}

const outcomes = (events: readonly LiveEvent[]) => events.flatMap((event) => (event.kind === 'spec' ? [event.outcome] : []));

test('parallel output: each spec as it finishes, with the reason of a failure', () => {
  const events = eventsOf(read('parallel.txt'), 1000);
  assert.deepEqual(
    events.filter((event) => event.kind !== 'spec' && event.kind !== 'suite'),
    [{ kind: 'specs', count: 8 }],
  );
  assert.deepEqual(outcomes(events), [
    {
      name: '[sig-node] PrivilegedPod should enable privileged commands [LinuxOnly] [NodeConformance]',
      result: 'failed',
      reason: 'cmd [ip link add dummy1 type dummy], stdout "", stderr "ip: RTNETLINK answers: Operation not supported": command terminated with exit code 2',
      seconds: 14.7,
    },
    { name: '[sig-cli] Kubectl client Kubectl version should check is all data is printed [Conformance]', result: 'passed', reason: '', seconds: 2.1 },
    { name: '[sig-auth] SubjectReview should support SubjectReview API operations [Conformance]', result: 'passed', reason: '', seconds: 1.3 },
    { name: '[sig-node] Secrets should be consumable via the environment [Conformance] [NodeConformance]', result: 'passed', reason: '', seconds: 15.2 },
    {
      name: '[sig-storage] EmptyDir volumes should support (root,0644,tmpfs) [LinuxOnly] [Conformance] [NodeConformance]',
      result: 'passed',
      reason: '',
      seconds: 52,
    },
    {
      name: '[sig-api-machinery] Aggregator Should be able to support the 1.17 Sample API Server using the current Aggregator [LinuxOnly] [Conformance]',
      result: 'failed',
      reason:
        'deploying extension apiserver in namespace aggregator-623: error waiting for deployment "sample-apiserver-deployment" status to match expectation: deployments.apps "sample-apiserver-deployment" not found',
      seconds: 81,
    },
  ]);
});

test('however the output is cut, it says the same', () => {
  for (const name of ['parallel.txt', 'serial.txt']) {
    const whole = eventsOf(read(name), 1_000_000);
    for (const step of [1, 7, 4096]) assert.deepEqual(eventsOf(read(name), step), whole, `${name} by ${step}`);
  }
});

test('output of one process streams: the name comes first, the end last', () => {
  const events = eventsOf(read('serial.txt'), 1000);
  assert.deepEqual(outcomes(events), [
    {
      name: '[sig-scheduling] SchedulerPreemption PriorityClass endpoints verify PriorityClass endpoints can be operated with different HTTP methods [Conformance] [Serial]',
      result: 'passed',
      reason: '',
      seconds: 60.5,
    },
  ]);
  assert.deepEqual(
    events.filter((event) => event.kind === 'suite' && event.failed),
    [],
  );
});

const BLOCK = (header: string, title: string, ...rest: string[]): string =>
  ['-'.repeat(30), header, title, 'file.go:1', ...rest, '-'.repeat(30), ''].join('\n');
const ONE: readonly Spec[] = [{ name: '[sig-node] Pods does x [Conformance]', labels: ['sig-node', 'Conformance'] }];

test('every end that Ginkgo knows', () => {
  const title = '[sig-node] Pods [It] does x [Conformance] [sig-node, Conformance]';
  const rows: [string, string, string, string?][] = [
    ['• [1.000 seconds]', '[sig-node] Pods does x [Conformance] [sig-node, Conformance]', 'passed'],
    ['• [1.000 seconds]', '[sig-node] Pods  does x [Conformance] [sig-node, Conformance]', 'passed'],
    ['• [1.000 seconds]', '[sig-node] Pods does x [Conformance] [sig-node, Conformance, KubeletMinVersion:1.36] [kubelet: [>=1.36]]', 'passed'],
    ['• [FAILED] [1.000 seconds]', title, 'failed', 'no such pod: line two'],
    ['• [FAILED] [1.000 seconds]', '[sig-node] Pods [BeforeEach] does x [Conformance] [sig-node, Conformance]', 'failed', 'no such pod: line two'],
    [
      '• [FAILED] [1.000 seconds]',
      'TOP-LEVEL [DeferCleanup (Each)] [sig-node] Pods does x [Conformance] [sig-node, Conformance]',
      'failed',
      'no such pod: line two',
    ],
    ['• [PANICKED!] [1.000 seconds]', title, 'failed', 'no such pod: line two'],
    ['• [PANICKED] [1.000 seconds]', title, 'failed', 'no such pod: line two'],
    ['• [TIMEDOUT] [1.000 seconds]', title, 'failed', 'no such pod: line two'],
    ['S [SKIPPED] [1.000 seconds]', title, 'skipped', 'no such pod: line two'],
    ['• [INTERRUPTED] [1.000 seconds]', title, 'other'],
    ['• [ABORTED] [1.000 seconds]', title, 'other'],
    ['• [1.000 seconds]', '[sig-node] Pods does something else', 'other'],
  ];
  for (const [header, name, kind, reason] of rows) {
    const state = /\[([A-Z!]+)\]/.exec(header)?.[1] ?? 'FAILED';
    const text = BLOCK(header, name, '', `  [${state}] no such pod:`, '  line two', '  In [It] at: file.go:12 @ 11/29/26 21:49:14.241', '');
    const [event] = eventsOf(text, 50, ONE);
    assert.ok(event !== undefined, header);
    if (kind === 'other') assert.equal(event.kind, 'other', header);
    else {
      assert.ok(event.kind === 'spec', `${header} ${name}`);
      assert.deepEqual([event.outcome.result, event.outcome.reason], [kind, reason ?? ''], header);
    }
  }
});

test('what an ordered container left out after a failure never ran', () => {
  const text = BLOCK(
    'S [SKIPPED] [0.000 seconds]',
    '[sig-node] Pods [It] does x [Conformance] [sig-node, Conformance]',
    '',
    '  [SKIPPED] Spec skipped because an earlier spec in an ordered container failed',
    '  In [It] at: file.go:12 @ 11/29/26 21:49:14.241',
    '',
  );
  assert.equal(eventsOf(text, 50, ONE)[0]?.kind, 'other');
});

test('a suite that does not start says why', () => {
  const text = BLOCK(
    '[SynchronizedBeforeSuite] [FAILED] [300.1 seconds]',
    '[SynchronizedBeforeSuite] ',
    '',
    '  [FAILED] nodes are not ready',
    '  In [SynchronizedBeforeSuite] at: e2e.go:69 @ 1',
    '',
  );
  assert.deepEqual(
    eventsOf(text, 9).map((event) => (event.kind === 'suite' ? [event.node, event.failed, event.reason] : event)),
    [['SynchronizedBeforeSuite', true, 'nodes are not ready']],
  );
});

test('output without end is bounded', () => {
  const lines = Array.from({ length: 12_000 }, (_, at) => `  line ${at} ${'x'.repeat(150)}`);
  const text = BLOCK(
    '• [FAILED] [1.0 seconds]',
    '[sig-node] Pods [It] does x [Conformance] [sig-node, Conformance]',
    ...lines,
    '  [FAILED] why',
    '  In [It] at: f.go:1 @ 1',
  );
  const [event] = eventsOf(text, 10_000, ONE);
  assert.ok(event?.kind === 'spec');
  assert.equal(event.outcome.reason, 'why');
  assert.ok(event.output.length < 750_000, String(event.output.length));
  assert.match(event.output, /line 0 .*lines are left out.*line 11999 /s);
});

test('only a failed spec’s own namespaces are its own', () => {
  const failed = eventsOf(read('parallel.txt'), 1000).find((event) => event.kind === 'spec' && event.outcome.result === 'failed');
  assert.ok(failed?.kind === 'spec');
  assert.match(failed.output, /services-340\/affinity/, 'its neighbours are named too');
  assert.deepEqual(namespacesIn(failed.output), ['e2e-privileged-pod-1387']);
  assert.deepEqual(namespacesIn('STEP: Collecting events from namespace "kube-system".'), []);
});

test('folders of specs have names of their own, short ones', () => {
  assert.match(slugOf('[sig-node] A (root,0644)'), /^sig-node-a-root-0644-[0-9a-f]{8}$/);
  assert.notEqual(slugOf('[sig-node] a'), slugOf('[sig-node] A'));
  assert.ok(slugOf('x'.repeat(500)).length < 100);
});
