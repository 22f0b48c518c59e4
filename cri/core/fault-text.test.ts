import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OpError } from '../../base/errors.ts';
import type { FaultRule } from './fault-rules.ts';
import { parseLines, parseRule, printRule, ruleFrom } from './fault-text.ts';

const cases: readonly (readonly [line: string, rule: FaultRule, printed?: string])[] = [
  [
    'RunPodSandbox pod=default/web nth=1 after error deadline',
    { method: 'RunPodSandbox', pod: 'default/web', nth: 1, after: true, error: 'DeadlineExceeded' },
    'RunPodSandbox pod=default/web nth=1 after error DeadlineExceeded',
  ],
  ['StopContainer container=app* every=3 delay 1.5s', { method: 'StopContainer', container: 'app*', every: 3, delayMs: 1500 }],
  [
    'PullImage,ImageStatus image=*/busybox:1.* chance=25% error 14 "disk \\"on\\" fire"',
    { method: 'PullImage,ImageStatus', image: '*/busybox:1.*', chance: 0.25, error: 'Unavailable', words: 'disk "on" fire' },
    'PullImage,ImageStatus image=*/busybox:1.* chance=0.25 error Unavailable "disk \\"on\\" fire"',
  ],
  ['* agent="crictl/v1 x" first=2 delay 20ms drop', { method: '*', agent: 'crictl/v1 x', first: 2, delayMs: 20, drop: 'call' }],
  ['Version drop connection', { method: 'Version', drop: 'connection' }],
  ['Status after hang', { method: 'Status', after: true, hang: true }],
  ['StreamContainers truncate 3', { method: 'StreamContainers', truncate: 3 }],
  ['StreamContainers truncate 0 end', { method: 'StreamContainers', truncate: 0, end: true }],
  ['Stream* truncate 2 error Unavailable "gone"', { method: 'Stream*', truncate: 2, error: 'Unavailable', words: 'gone' }],
  ['ListPodSandbox first=2 hide pod=default/web', { method: 'ListPodSandbox', first: 2, hide: { pod: 'default/web' } }],
  ['List* delay 2s hide container=app chance=0.5', { method: 'List*', delayMs: 2000, hide: { container: 'app', chance: 0.5 } }],
  [
    'GetContainerEvents events drop pod=web-? type=stopped nth=2',
    { method: 'GetContainerEvents', events: { do: 'drop', pod: 'web-?', type: 'stopped', nth: 2 } },
  ],
  ['GetContainerEvents events delay 90s', { method: 'GetContainerEvents', events: { do: 'delay', delayMs: 90_000 } }],
];

for (const [line, rule, printed = line] of cases) {
  test(`reads and prints ${line}`, () => {
    assert.deepEqual(parseRule(line), rule);
    assert.equal(printRule(rule), printed);
    assert.deepEqual(parseRule(printed), rule);
    assert.deepEqual(ruleFrom(JSON.parse(JSON.stringify(rule))), rule);
  });
}

for (const [line, message] of [
  ['', /it is empty/],
  ['RunPodSandox error unavailable', /no method RunPodSandox; the nearest is RunPodSandbox/],
  ['Version', /does not say what to do/],
  ['Version error', /error takes a gRPC status/],
  ['Version error una', /may be Unavailable or Unauthenticated/],
  ['Version error unavailble', /no gRPC status unavailble; the nearest is Unavailable/],
  ['Version error ok', /OK is no error/],
  ['Version delay 3', /delay takes a time as 300ms, 2s or 4m, not 3/],
  ['Version hang drop', /of drop and hang there can be one/],
  ['Version nth=1 first=2 hang', /of nth=, every= and first= there can be one/],
  ['Version nth=0 hang', /nth is a whole number from 1, not 0/],
  ['Version chance=110% hang', /chance is above 0 and at most 1/],
  ['Version pood=x hang', /pood= has no place here/],
  ['Version pod= hang', /pod= says nothing/],
  ['Version pod=a pod=b hang', /pod= stands there twice/],
  ['Version hang pod=a', /stands too late/],
  ['Version hnag', /no action; the nearest is hang/],
  ['Version hang hang', /hang stands there twice/],
  ['Version error unknown "half', /has no end/],
  ['Version truncate 3', /truncate is for streams/],
  ['StreamContainers truncate x', /a whole number from 1, not x/],
  ['Version hide pod=a', /hide is for lists/],
  ['ListContainers hide', /hide takes pod=/],
  ['ListContainers after hide pod=a', /after says nothing new of hide/],
  ['Version events drop', /events is for GetContainerEvents/],
  ['GetContainerEvents events lose', /events takes drop, duplicate or delay, not lose/],
  ['GetContainerEvents events drop type=born', /type= is one of created/],
] as const) {
  test(`refuses "${line}"`, () => {
    assert.throws(
      () => parseRule(line),
      (error) => error instanceof OpError && error.code === 'invalid' && message.test(error.message) && error.advice !== '',
    );
  });
}

test('objects that a rule cannot say are refused', () => {
  for (const value of [
    null,
    3,
    {},
    { method: 'Version', hang: 'yes' },
    { method: 'Version', hang: true, extra: 1 },
    { method: 'Version', hang: true, nth: 'x' },
  ])
    assert.throws(
      () => ruleFrom(value),
      (error) => error instanceof OpError && error.code === 'invalid',
    );
  assert.deepEqual(ruleFrom({ method: 'Version', error: 'deadline' }), { method: 'Version', error: 'DeadlineExceeded' });
});

test('a file of lines has comments', () => {
  assert.deepEqual(parseLines('# all\n\nVersion hang # why\n Status error unknown "a # b"  # c\n').map(printRule), [
    'Version hang',
    'Status error Unknown "a # b"',
  ]);
});
