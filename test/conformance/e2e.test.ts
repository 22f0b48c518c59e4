import assert from 'node:assert/strict';
import { test } from 'node:test';
import { checkChoice, checkOptions, type RunOptions } from './e2e.ts';

const options: RunOptions = { suite: 'all', focus: [], skip: [], parallel: '8', nodes: '2', score: true };

test('a suite, pattern, shard or number that is none is refused with its flag', () => {
  checkChoice(options);
  assert.equal(checkOptions(options).parallel, 8);
  assert.throws(() => checkChoice({ ...options, suite: 'nosuch' }), { code: 'invalid', doing: 'reading --suite' });
  assert.throws(() => checkChoice({ ...options, focus: ['('] }), { code: 'invalid', doing: 'reading --focus' });
  assert.throws(() => checkOptions({ ...options, skip: ['['] }), { code: 'invalid', doing: 'reading --skip' });
  for (const [flag, wrong] of Object.entries({ shard: '3/2', parallel: '0', nodes: 'x', agent: 'theirs' }))
    assert.throws(() => checkOptions({ ...options, [flag]: wrong }), { code: 'invalid', doing: `reading --${flag}` });
});
