import assert from 'node:assert/strict';
import { test } from 'node:test';
import { splitCniConfig } from './net.ts';

test('the pod network’s file is taken out of the proxy’s arguments, in both ways to write it', () => {
  assert.deepEqual(splitCniConfig(['--config', 'p.json']), { config: null, rest: ['--config', 'p.json'] });
  assert.deepEqual(splitCniConfig(['--cni-config', 'c.json', '--config', 'p.json']), { config: 'c.json', rest: ['--config', 'p.json'] });
  assert.deepEqual(splitCniConfig(['--config', 'p.json', '--cni-config=c.json']), { config: 'c.json', rest: ['--config', 'p.json'] });
});
