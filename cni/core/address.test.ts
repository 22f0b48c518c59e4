import assert from 'node:assert/strict';
import { isIP } from 'node:net';
import { test } from 'node:test';
import { addressText, bytesOf, cidrText, contains, lastOf, parseAddress, parseAddressPrefix, parseCidr } from './address.ts';

test('addresses are read and written in their canonical form', () => {
  for (const [text, wanted] of [
    ['10.0.0.1', '10.0.0.1'],
    ['0.0.0.0', '0.0.0.0'],
    ['255.255.255.255', '255.255.255.255'],
    ['::', '::'],
    ['::1', '::1'],
    ['FD00:0:0:0:0:0:0:1', 'fd00::1'],
    ['2001:db8:0:0:1:0:0:1', '2001:db8::1:0:0:1'],
    ['2001:db8:0:1:1:1:1:1', '2001:db8:0:1:1:1:1:1'],
    ['1:2:3:4:5:6:7::', '1:2:3:4:5:6:7:0'],
    ['::ffff:10.0.0.1', '10.0.0.1'],
    ['64:ff9b::192.0.2.33', '64:ff9b::c000:221'],
  ] as const)
    assert.equal(addressText(parseAddress(text)!), wanted, text);
  for (const text of [
    '',
    '10.0.0',
    '10.0.0.256',
    '10.0.0.01',
    '10.0.0.1.1',
    'x',
    ':',
    ':::',
    '1::2::3',
    '1:2:3:4:5:6:7:8:9',
    '12345::',
    '1:2:3:4:5:6:7',
    'fe80::1%eth0',
    '::10.0.0.300',
  ])
    assert.equal(parseAddress(text), null, text);
});

test('it agrees with the platform on what is an address', () => {
  const parts = ['', ':', '::', '1', 'ffff', '0', '10.0.0.1', ':1', '1:', 'g', '256'];
  for (const a of parts)
    for (const b of parts)
      for (const c of parts) {
        const text = `${a}${b}${c}`;
        assert.equal(parseAddress(text) !== null, isIP(text) !== 0, text);
      }
});

test('networks', () => {
  assert.equal(cidrText(parseCidr('10.244.1.77/24')!), '10.244.1.0/24');
  assert.equal(cidrText(parseAddressPrefix('10.244.1.77/24')!), '10.244.1.77/24');
  assert.equal(cidrText(parseCidr('fd00:1:2::5/48')!), 'fd00:1:2::/48');
  assert.equal(cidrText(parseCidr('::/0')!), '::/0');
  for (const text of ['10.0.0.0', '10.0.0.0/33', '10.0.0.0/', '/24', 'fd00::/129', '10.0.0.0/x']) assert.equal(parseCidr(text), null, text);
  const cidr = parseCidr('10.244.1.0/24')!;
  assert.equal(addressText({ family: 4, value: lastOf(cidr) }), '10.244.1.255');
  assert.equal(contains(cidr, parseAddress('10.244.1.255')!), true);
  assert.equal(contains(cidr, parseAddress('10.244.2.0')!), false);
  assert.equal(contains(cidr, parseAddress('fd00::1')!), false);
  assert.deepEqual([...bytesOf(parseAddress('fd00::1')!)], [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
});
