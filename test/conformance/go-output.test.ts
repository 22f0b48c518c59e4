import assert from 'node:assert/strict';
import { test } from 'node:test';
import { readGoTest } from './go-output.ts';

const TEXT = `=== RUN   TestConformance
    suite.go:1: Test Setup: Applying base manifests
=== RUN   TestConformance/Ingress
    apply.go:9: Creating one Policy
=== RUN   TestConformance/Ingress/Should_allow
=== RUN   TestConformance/Ingress/Should_deny
    helper.go:71: FAILED Command was [connect]
    helper.go:72: Expected connection to be dropped
=== NAME  TestConformance/Ingress
    apply.go:9: Deleting one Policy
=== RUN   TestConformance/Ports
=== RUN   TestConformance/Ports/Should_know_ranges
    helper.go:71: it returned a different status: OTHER: protocol not supported
=== RUN   TestConformance/Names
    suite.go:7: Skipping Names: suite does not support them
=== RUN   TestConformance/Late
--- FAIL: TestConformance (9.10s)
    --- FAIL: TestConformance/Ingress (4.00s)
        --- PASS: TestConformance/Ingress/Should_allow (1.50s)
        --- FAIL: TestConformance/Ingress/Should_deny (2.50s)
    --- FAIL: TestConformance/Ports (3.00s)
        --- FAIL: TestConformance/Ports/Should_know_ranges (3.00s)
    --- SKIP: TestConformance/Names (0.00s)
`;

test('what Go’s tests say: those with none below them, failures with their words, no protocol as no verdict', () => {
  assert.deepEqual(readGoTest(TEXT), [
    { name: 'Ingress/Should allow', result: 'passed', seconds: 1.5, reason: '' },
    {
      name: 'Ingress/Should deny',
      result: 'failed',
      seconds: 2.5,
      reason: 'helper.go:71: FAILED Command was [connect] helper.go:72: Expected connection to be dropped',
    },
    { name: 'Ports/Should know ranges', result: 'skipped', seconds: 3, reason: 'needs a protocol that this kernel lacks' },
    { name: 'Names', result: 'skipped', seconds: 0, reason: 'suite.go:7: Skipping Names: suite does not support them' },
  ]);
  assert.deepEqual(readGoTest(''), []);
});
