import assert from 'node:assert/strict';
import { test } from 'node:test';
import { mayAsk, mayReach } from './egress.ts';

test('the way out leads out, not into the host', () => {
  const closed = [
    '127.0.0.1',
    '127.1.2.3',
    '0.0.0.0',
    '0.1.2.3',
    '169.254.169.254',
    '224.0.0.1',
    '::',
    '::1',
    'fe80::1',
    '::ffff:127.0.0.1',
    'fd00:ec2::254',
    'x',
  ];
  for (const address of closed) assert.ok(!mayReach(address), address);
  for (const address of ['192.0.2.1', '10.0.0.5', '2001:db8::1', '::ffff:192.0.2.1']) assert.ok(mayReach(address), address);
});

test('nodes use it, pods and strangers do not', () => {
  assert.ok(mayAsk('10.89.1.11', '10.89.1.0/24'));
  assert.ok(mayAsk('::ffff:10.89.1.11', '10.89.1.0/24'));
  for (const address of ['10.242.1.2', '10.89.2.11', '192.0.2.7', '::1', '']) assert.ok(!mayAsk(address, '10.89.1.0/24'), address);
});
