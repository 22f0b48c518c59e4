import assert from 'node:assert/strict';
import { test } from 'node:test';
import { mostPids } from './settings.ts';

test('as many processes as the lower of both limits of the kernel allows', () => {
  assert.equal(mostPids(['4194304\n', '15871\n']), 15_871);
  assert.equal(mostPids(['', '15871\n']), 15_871);
  assert.equal(mostPids(['', '']), null);
});
