import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { Pod } from '../../proto/kube/types.ts';
import { PodDns } from './dns.ts';

const pod: Pod = { metadata: { name: 'p', namespace: 'n', uid: 'u' }, spec: { containers: [], dnsPolicy: 'ClusterFirst' } };

test('the node is told of a missing cluster DNS, and of a resolv.conf that cannot be read or given whole', async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'dns-'));
  t.after(() => rm(dir, { recursive: true }));
  const resolvConf = join(dir, 'resolv.conf');
  const told: string[] = [];
  const options = { resolvConf, clusterDNS: [], clusterDomain: 'c.local', nodeIPs: () => [] };
  const dns = new PodDns({ ...options, tellNode: ({ reason, message }) => told.push(`${reason}: ${message}`) });
  await dns.checkLimits();
  assert.match(told.splice(0).join(), /^CheckLimitsForResolvConf: .*ENOENT/);
  await writeFile(resolvConf, 'nameserver 192.0.2.1\n');
  await dns.checkLimits();
  assert.deepEqual(told, []);
  const { events } = await dns.forPod(pod);
  assert.deepEqual([events.length, told], [1, [`MissingClusterDNS: ${events[0]?.message.replace('pod: "p_n(u)". ', '')}`]]);
  await writeFile(resolvConf, `search ${Array.from({ length: 30 }, (_, index) => `d${index}`).join(' ')}\n`);
  await dns.checkLimits();
  assert.match(told.at(-1) ?? '', /^CheckLimitsForResolvConf: Resolv.conf file '.*' contains search line consisting of more than 29 domains!$/);
});
