import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { junit, listSpecs, readReport, reasonOf, resultOf } from './ginkgo-report.ts';
import { isJudged } from './suites.ts';

const REPORT = readFileSync(new URL('testdata/report.json', import.meta.url), 'utf8');

test('a report lists specs by the name that filters use, with the labels of their containers', () => {
  const { description, specs } = listSpecs(REPORT);
  assert.equal(description, 'Kubernetes e2e suite');
  assert.equal(specs.length, 5, 'nodes of the suite are no specs');
  assert.deepEqual(specs[2], {
    name: '[sig-node] PrivilegedPod should enable privileged commands [LinuxOnly] [NodeConformance]',
    labels: ['sig-node', 'NodeConformance'],
  });
  assert.deepEqual(specs.map(isJudged), [true, false, true, true, true]);
});

test('results are those that ran: what no filter chose is skipped without a word and left out', () => {
  assert.deepEqual(readReport(REPORT), [
    {
      name: '[sig-node] PrivilegedPod should enable privileged commands [LinuxOnly] [NodeConformance]',
      result: 'failed',
      reason: 'cmd [ip link add dummy1 type dummy], stdout "", stderr "ip: RTNETLINK answers: Operation not supported": command terminated with exit code 2',
      seconds: 14.7,
    },
    { name: '[sig-cli] Kubectl client Kubectl version should check is all data is printed [Conformance]', result: 'passed', reason: '', seconds: 2.1 },
    { name: '[sig-auth] SubjectReview should support SubjectReview API operations [Conformance]', result: 'passed', reason: '', seconds: 1.3 },
  ]);
});

test('only an end of its own is a result', () => {
  assert.equal(resultOf('skipped', 'Spec skipped because an earlier spec in an ordered container failed'), null);
  assert.equal(resultOf('skipped', 'runtime supports recursive read-only mounts'), 'skipped');
  assert.deepEqual(
    ['passed', 'failed', 'panicked', 'timedout', 'skipped', 'interrupted', 'aborted', 'pending', 'nonsense'].map((state) => resultOf(state, '')),
    ['passed', 'failed', 'failed', 'failed', 'skipped', null, null, null, null],
  );
});

test('a reason is one line of bounded length', () => {
  assert.equal(reasonOf('  a\n\tb\u001b[31m red\u001b[0m '), 'a b red');
  assert.equal(reasonOf(`a${'x'.repeat(5000)}z`).length, 298);
  assert.match(reasonOf(`a${'x'.repeat(5000)}z`), /^ax+ … x+z$/);
  const dump = [
    'Verifying state. Pod: {',
    '    "spec": {',
    '      "x": [',
    '      ]',
    '    }',
    '  }',
    '  : [',
    '  oom_score_adj value 0',
    '      {',
    '          s: "again",',
    '      }',
    '  ]',
  ];
  assert.equal(reasonOf('got an error:\n    <*errors.errorString | 0x30798a23ac10>: \n    no'), 'got an error: no');
  assert.equal(reasonOf(dump.join('\n')), 'Verifying state. Pod: {…} : [ oom_score_adj value 0 {…} ]');
});

test('JUnit is well-formed whatever a reason holds', () => {
  const text = junit('e2e ours', [
    { name: 'a "<b>" & c', result: 'failed', reason: 'got \u0000 <nil> & "x"', seconds: 1.5 },
    { name: 'd', result: 'skipped', reason: 'needs two nodes', seconds: 0 },
    { name: 'e', result: 'passed', reason: '', seconds: 2 },
  ]);
  assert.equal(
    text,
    [
      '<?xml version="1.0" encoding="UTF-8"?>',
      '<testsuite name="e2e ours" tests="3" failures="1" skipped="1" time="3.5">',
      '  <testcase classname="e2e ours" name="a &quot;&lt;b&gt;&quot; &amp; c" time="1.5"><failure message="got � &lt;nil&gt; &amp; &quot;x&quot;"/></testcase>',
      '  <testcase classname="e2e ours" name="d" time="0"><skipped message="needs two nodes"/></testcase>',
      '  <testcase classname="e2e ours" name="e" time="2"/>',
      '</testsuite>',
      '',
    ].join('\n'),
  );
});
