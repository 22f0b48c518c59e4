import assert from 'node:assert/strict';
import { test } from 'node:test';
import { ArmedRules, type Subject } from './fault-rules.ts';
import { parseRule } from './fault-text.ts';

const nobody: Subject = { pod: '', container: '', images: [] };
const web: Subject = { pod: 'default/web-1', container: 'app', images: ['docker.io/library/busybox:1.36'] };
const never = (): number => assert.fail('nothing here is left to chance');

function fired(line: string, calls: number, draw: () => number = never): string {
  const armed = new ArmedRules([parseRule(line)], draw);
  return Array.from({ length: calls }, () => (armed.decide({ method: 'StopContainer', agent: 'kubelet/v1.37', subject: web }) === null ? '.' : 'x')).join('');
}

for (const [line, outcome] of [
  ['StopContainer hang', 'xxxxxx'],
  ['StopContainer nth=2 hang', '.x....'],
  ['StopContainer every=2 hang', '.x.x.x'],
  ['StopContainer first=2 hang', 'xx....'],
  ['Stop* pod=default/web-* hang', 'xxxxxx'],
  ['* pod=web-? hang', 'xxxxxx'],
  ['* pod=kube-system/* hang', '......'],
  ['* pod=web hang', '......'],
  ['Version,StopContainer container=app hang', 'xxxxxx'],
  ['* container=ap hang', '......'],
  ['* image=busybox hang', 'xxxxxx'],
  ['* image=busybox:1.* hang', 'xxxxxx'],
  ['* image=docker.io/* hang', 'xxxxxx'],
  ['* image=busy hang', '......'],
  ['* agent=kubelet* hang', 'xxxxxx'],
  ['* agent=crictl* hang', '......'],
  ['StartContainer hang', '......'],
] as const)
  test(`${line}: ${outcome}`, () => assert.equal(fired(line, 6), outcome));

test('chance draws only where the rest holds', () => {
  const draws = [0.9, 0.1, 0.9];
  assert.equal(
    fired('* chance=0.5 hang', 3, () => draws.shift() ?? 1),
    '.x.',
  );
  assert.equal(fired('* pod=other/* chance=0.5 hang', 3), '...');
  let drawn = 0;
  assert.equal(
    fired('* first=1 chance=1 hang', 3, () => (drawn++, 0)),
    'x..',
  );
  assert.equal(drawn, 1);
});

test('the first rule that is due is done, and the others count', () => {
  const armed = new ArmedRules([parseRule('* nth=1 hang'), parseRule('Version first=2 drop')], never);
  const numbers = Array.from({ length: 3 }, () => armed.decide({ method: 'Version', agent: '', subject: nobody })?.number);
  assert.deepEqual(numbers, [1, 2, undefined]);
  assert.deepEqual(
    armed.states().map(({ matched, fired: times }) => [matched, times]),
    [
      [3, 1],
      [3, 1],
    ],
  );
});

test('a message is asked for only where a rule looks at it', () => {
  const armed = new ArmedRules([parseRule('RunPodSandbox pod=a hang'), parseRule('List* agent=kubelet* delay 1s')], never);
  assert.equal(armed.needs('RunPodSandbox', 'x'), 'message');
  assert.equal(armed.needs('ListImages', 'kubelet/1'), 'head');
  assert.equal(armed.needs('ListImages', 'crictl'), 'nothing');
});

test('events are counted anew for each stream', () => {
  const rule = parseRule('GetContainerEvents events drop pod=default/* type=stopped nth=2');
  const armed = new ArmedRules([rule], never);
  for (let stream = 0; stream < 2; stream++) {
    const fate = armed.eventsOf(rule);
    const copies = (['stopped', 'started', 'stopped', 'stopped'] as const).map((type) => fate({ ...web, type }).copies);
    assert.deepEqual(copies, [1, 1, 0, 1]);
  }
  const twice = parseRule('GetContainerEvents events duplicate');
  assert.equal(armed.eventsOf(twice)({ ...web, type: 'created' }).copies, 2);
  assert.deepEqual(armed.eventsOf(parseRule('GetContainerEvents events delay 2s'))({ ...web, type: 'created' }), { copies: 1, delayMs: 2000 });
});
