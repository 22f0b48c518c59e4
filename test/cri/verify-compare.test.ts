import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Outcome } from '../conformance/ginkgo-report.ts';
import { compareRuns, count } from './verify-compare.ts';

const results = (ends: Readonly<Record<string, Outcome['result']>>): Map<string, Outcome> =>
  new Map(Object.entries(ends).map(([name, result]) => [name, { name, result, reason: result === 'failed' ? `${name} broke` : '', seconds: 1 }]));

test('a spec differs when neither side ever ends as the other, and is a flake when one does', async () => {
  const direct = results({ same: 'passed', broken: 'failed', flaky: 'passed', wrong: 'passed', lost: 'passed' });
  const tapped = results({ same: 'passed', broken: 'failed', flaky: 'failed', wrong: 'failed' });
  const asked: string[] = [];
  const { differences, failedInBoth } = await compareRuns(direct, tapped, async (name, side) => {
    asked.push(`${side} ${name}`);
    return name === 'flaky' || side === 'direct' ? 'passed' : 'failed';
  });
  assert.deepEqual(failedInBoth, ['broken']);
  assert.deepEqual(
    differences.map(({ name, verdict, direct: straight, tapped: through, reason }) => ({ name, verdict, straight, through, reason })),
    [
      { name: 'flaky', verdict: 'flake', straight: ['passed', 'passed'], through: ['failed', 'passed'], reason: 'flaky broke' },
      { name: 'lost', verdict: 'differs', straight: ['passed', 'passed', 'passed', 'passed'], through: ['none', 'failed', 'failed', 'failed'], reason: '' },
      {
        name: 'wrong',
        verdict: 'differs',
        straight: ['passed', 'passed', 'passed', 'passed'],
        through: ['failed', 'failed', 'failed', 'failed'],
        reason: 'wrong broke',
      },
    ],
  );
  assert.equal(asked.length, 2 + 6 + 6);
  assert.deepEqual(count(direct), { passed: 4, failed: 1, skipped: 0 });
});
