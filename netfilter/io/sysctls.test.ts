import assert from 'node:assert/strict';
import { test } from 'node:test';
import { silentLog, type Log } from '../../base/log.ts';
import { createFakeSys, type FakeSys } from '../../base/sys/fake.ts';
import { proxyConfig, type ConntrackConfig } from '../core/config.ts';
import { conntrackMax, setConntrackSysctls } from './sysctls.ts';

const NETFILTER = '/proc/sys/net/netfilter';
const HASHSIZE = '/sys/module/nf_conntrack/parameters/hashsize';
const config = (conntrack: object = {}): ConntrackConfig => proxyConfig({ conntrack }).conntrack;

function machine(values: Record<string, number>): FakeSys {
  const sys = createFakeSys();
  for (const [path, value] of Object.entries(values)) sys.put(path.startsWith('/') ? path : `${NETFILTER}/${path}`, `${value}\n`);
  return sys;
}

const read = (sys: FakeSys, path: string): number => Number(sys.get(path.startsWith('/') ? path : `${NETFILTER}/${path}`));

test('how many entries there may be', () => {
  for (const [conntrack, cpus, max] of [
    [{}, 2, 131_072],
    [{}, 8, 262_144],
    [{}, 64, 1_048_576],
    [{ min: 0 }, 2, 65_536],
    [{ maxPerCore: 0 }, 8, 0],
  ] as const)
    assert.equal(conntrackMax(config(conntrack), cpus), max, JSON.stringify(conntrack));
});

test('settings are raised and set, the hash table follows, and what is larger stays', async () => {
  const there = { nf_conntrack_max: 65_536, nf_conntrack_tcp_timeout_established: 432_000, nf_conntrack_tcp_timeout_close_wait: 60, [HASHSIZE]: 16_384 };
  const others = { nf_conntrack_udp_timeout: 30, nf_conntrack_udp_timeout_stream: 120, nf_conntrack_tcp_be_liberal: 0 };
  const sys = machine({ ...there, ...others });
  await setConntrackSysctls(sys, config(), 8, silentLog);
  assert.deepEqual(
    Object.keys({ ...there, ...others }).map((path) => read(sys, path)),
    [262_144, 86_400, 3600, 65_536, 30, 120, 0],
  );
  const larger = machine({ ...there, ...others, nf_conntrack_max: 500_000, [HASHSIZE]: 100_000 });
  await setConntrackSysctls(larger, config({ tcpBeLiberal: true, udpTimeout: '40s', udpStreamTimeout: '2m30s', tcpEstablishedTimeout: '0s' }), 8, silentLog);
  assert.deepEqual(
    Object.keys({ ...there, ...others }).map((path) => read(larger, path)),
    [500_000, 432_000, 3600, 100_000, 40, 150, 1],
  );
});

test('with no limit asked for nothing of it is touched', async () => {
  const sys = machine({ nf_conntrack_max: 10, [HASHSIZE]: 2 });
  await setConntrackSysctls(sys, config({ maxPerCore: 0 }), 8, silentLog);
  assert.deepEqual([read(sys, 'nf_conntrack_max'), read(sys, HASHSIZE)], [10, 2]);
});

test('what a network namespace does not let be written is told in one line', async () => {
  const sys = machine({ nf_conntrack_max: 10, [HASHSIZE]: 2, nf_conntrack_tcp_timeout_established: 1, nf_conntrack_tcp_timeout_close_wait: 3600 });
  const write = sys.writeFiles.bind(sys);
  sys.writeFiles = async (files) =>
    (await write(files)).map((result, index) => (files[index]!.path.endsWith('_max') ? { errno: 'EACCES', message: 'denied' } : result));
  const told: string[] = [];
  const log = { ...silentLog, warn: (message: string, fields?: object) => told.push(`${message} ${JSON.stringify(fields)}`) } as unknown as Log;
  await setConntrackSysctls(sys, config(), 8, log);
  assert.deepEqual(told, ['Some conntrack settings cannot be written here and are left as they are {"settings":"nf_conntrack_max (EACCES)"}']);
  assert.deepEqual([read(sys, HASHSIZE), read(sys, 'nf_conntrack_tcp_timeout_established')], [2, 86_400]);
});
