import assert from 'node:assert/strict';
import { test } from 'node:test';
import { focusArguments, parseShard, patternProblem, runsAlone, select, suiteOf, type Spec } from './suites.ts';

const spec = (name: string, ...labels: string[]): Spec => ({ name, labels });
const LIST: readonly Spec[] = [
  spec(
    '[sig-storage] EmptyDir volumes should support (root,0644,tmpfs) [LinuxOnly] [NodeConformance] [Conformance]',
    'sig-storage',
    'NodeConformance',
    'Conformance',
  ),
  spec('[sig-node] Pods should be submitted and removed [NodeConformance] [Conformance]', 'sig-node', 'NodeConformance', 'Conformance'),
  spec('[sig-node] Pod InPlace Resize Container burstable [Slow]', 'sig-node', 'Slow', 'NodeConformance'),
  spec('[sig-apps] Daemon set [Serial] should retry [Conformance]', 'sig-apps', 'Serial', 'Conformance'),
  spec('[sig-instrumentation] Events should delete a collection of events [Conformance]', 'sig-instrumentation', 'Conformance'),
  spec('[sig-network] Netpol should deny [Feature:NetworkPolicy]', 'sig-network', 'Feature:NetworkPolicy'),
  spec('[sig-node] Taints [Disruptive] evicts [Conformance]', 'sig-node', 'Disruptive', 'Conformance'),
];
const names = (specs: readonly Spec[]): string[] => specs.map((one) => one.name);

test('a suite is the judged specs of a SIG, the slow ones too', () => {
  assert.deepEqual(names(select(LIST, { suite: 'node', focus: [], skip: [] })), [
    '[sig-node] Pod InPlace Resize Container burstable [Slow]',
    '[sig-node] Pods should be submitted and removed [NodeConformance] [Conformance]',
    '[sig-node] Taints [Disruptive] evicts [Conformance]',
  ]);
  assert.equal(select(LIST, { suite: 'all', focus: [], skip: [] }).length, 6);
  assert.equal(select(LIST, { suite: 'every', focus: ['Netpol'], skip: [] }).length, 1);
  assert.equal(select(LIST, { suite: 'network', focus: [], skip: [] }).length, 0);
  assert.equal(suiteOf('[sig-instrumentation] Events'), 'other');
  assert.equal(suiteOf('[sig-api-machinery] Watchers'), 'api');
});

test('focus and skip are regular expressions on names', () => {
  assert.deepEqual(names(select(LIST, { suite: 'all', focus: ['tmpfs', '^\\[sig-apps\\]'], skip: ['Serial'] })), [LIST[0]?.name]);
  assert.equal(patternProblem('a|b'), null);
  assert.match(patternProblem('(') ?? '', /Invalid regular expression/);
});

test('shards have every spec once', () => {
  const parts = [1, 2, 3, 4].map((index) => names(select(LIST, { suite: 'every', focus: [], skip: [], shard: { index, of: 4 } })));
  assert.deepEqual(parts.flat().sort(), names(LIST).sort());
  assert.deepEqual(
    parts.map((part) => part.length),
    [2, 2, 2, 1],
  );
  assert.deepEqual(parseShard('2/4'), { index: 2, of: 4 });
  for (const text of ['0/4', '5/4', '1', '1/', 'a/b', '-1/3', '']) assert.equal(parseShard(text), null, text);
});

test('serial and disruptive specs run alone', () => {
  assert.deepEqual(names(LIST.filter(runsAlone)), [
    '[sig-apps] Daemon set [Serial] should retry [Conformance]',
    '[sig-node] Taints [Disruptive] evicts [Conformance]',
  ]);
});

test('focus arguments match exactly the names, and none is too long for the kernel', () => {
  const many = Array.from({ length: 2000 }, (_, at) => `[sig-node] spec (root,0${at},tmpfs) does $x ^ {y} a|b \\ [Conformance]`);
  const given = focusArguments('Kubernetes e2e suite', many);
  assert.ok(given.length > 1);
  for (const argument of given) assert.ok(Buffer.byteLength(argument) < 65_536);
  const pattern = new RegExp(given.map((argument) => argument.replace('--focus=', '')).join('|'));
  for (const name of many) assert.ok(pattern.test(`Kubernetes e2e suite ${name}`), name);
  assert.ok(!pattern.test(`Kubernetes e2e suite ${many[0]} more`));
  assert.ok(!pattern.test(`Kubernetes e2e suite more ${many[0]}`));
});
