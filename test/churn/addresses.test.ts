import assert from 'node:assert/strict';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { parseAddress } from '../../cni/core/address.ts';
import { openStore } from '../../cni/io/store.ts';
import { addressesBelow } from './addresses.ts';

test('addresses of either pod network are seen, and none where there is none', (t) => {
  const root = mkdtempSync(join(tmpdir(), 'nodelet-churn-'));
  t.after(() => rmSync(root, { recursive: true, force: true }));
  const path = (inNode: string): string => `${root}${inNode}`;
  assert.deepEqual(addressesBelow(path), []);
  mkdirSync(path('/run/cni/networks/nodelet'), { recursive: true });
  for (const name of ['10.244.0.5', 'fd00:1::5', 'last_reserved_ip.0', 'lock']) writeFileSync(path(`/run/cni/networks/nodelet/${name}`), '');
  using store = openStore(path('/run/nodelet/cni'));
  const who = { containerId: 'c1', ifname: 'eth0' };
  const [address, podIp] = [parseAddress('10.244.0.6')!, parseAddress('10.244.0.6')!];
  store.transaction(() => {
    store.insert({ ...who, network: 'nodelet', hostLink: 'nl0', phase: 'ready' });
    store.take('nodelet', address, who);
    store.insertPorts('nodelet', who, [{ hostIp: null, protocol: 'tcp', hostPort: 8080, podIp, containerPort: 80 }]);
  });
  assert.deepEqual(addressesBelow(path).sort(), ['10.244.0.5', '10.244.0.6 of c1', 'fd00:1::5', 'nl0 of c1', 'tcp 8080 of c1']);
  store.transaction(() => store.remove('nodelet', who));
  assert.deepEqual(addressesBelow(path).sort(), ['10.244.0.5', 'fd00:1::5']);
});
