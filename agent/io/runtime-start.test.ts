import assert from 'node:assert/strict';
import { test } from 'node:test';
import { realClock } from '../../base/clock.ts';
import { OpError } from '../../base/errors.ts';
import { silentLog } from '../../base/log.ts';
import type { Sys } from '../../base/sys/types.ts';
import { readConfiguration } from '../core/config.ts';
import type { MachineFacts } from '../core/node-status.ts';
import type { Cri } from './cri.ts';
import { openNodeCgroups, waitForRuntime } from './runtime-start.ts';

/** Opens them on a machine that is looked at no further than its cgroup version and its swap. */
async function opened(fields: object, controllers: string | null, swapBytes: number): Promise<unknown> {
  const { config, problems } = readConfiguration({ apiVersion: 'kubelet.config.k8s.io/v1beta1', kind: 'KubeletConfiguration', ...fields });
  assert.deepEqual(problems, []);
  let looks = 0;
  const readFiles = async (): Promise<(Uint8Array | null)[]> => {
    if (looks++ > 0) throw new Error('went on');
    return [controllers === null ? null : Buffer.from(controllers)];
  };
  const deps = {
    sys: { readFiles } as unknown as Sys,
    clock: realClock,
    log: silentLog,
    config,
    machine: { swapBytes, memoryBytes: 1 << 30, cpus: 1, hugepages: {} } as unknown as MachineFacts,
    driver: 'cgroupfs',
    systemd: null,
    hasOwnCpus: () => false,
    onDone: () => undefined,
  } as const;
  return openNodeCgroups(deps, AbortSignal.timeout(5000));
}

test('a machine that the configuration rules out ends the start in upstream’s words', async () => {
  const refused = (fields: object, controllers: string | null, swapBytes: number, message: RegExp): Promise<void> =>
    assert.rejects(opened(fields, controllers, swapBytes), { code: 'unsupported', message });
  await refused({}, 'cpu memory', 1 << 20, /running with swap on is not supported, please disable swap or set --fail-swap-on flag to false/);
  await refused({}, null, 0, /configured to not run on a host using cgroup v1/);
  await refused({ failCgroupV1: false, singleProcessOOMKill: false }, null, 0, /singleProcessOOMKill must not be explicitly set to false/);
  await refused({ failCgroupV1: false, memorySwap: { swapBehavior: 'LimitedSwap' } }, null, 0, /only supported with cgroupv2/);
  await assert.rejects(opened({ failSwapOn: false }, 'cpu memory', 1 << 20), /went on/);
  await assert.rejects(opened({ failCgroupV1: false }, null, 0), /went on/);
});

test('the cgroup driver is the runtime’s own word; the file’s only where it knows no such question', async () => {
  const driver = async (runtimeConfig: () => Promise<unknown>, fallback: string): Promise<[string, string[]]> => {
    const losing: string[] = [];
    let tries = 0;
    // It is away at first.
    const version = async (): Promise<unknown> =>
      tries++ === 0 ? Promise.reject(new OpError('unavailable', 'ask', 'away')) : { runtimeName: 'r', runtimeVersion: '1' };
    const cri = { runtime: { version, runtimeConfig } } as unknown as Cri;
    const found = await waitForRuntime({ cri, clock: realClock, log: silentLog, fallback, onLosing: (since) => losing.push(since) }, AbortSignal.timeout(5000));
    return [found, losing];
  };
  const says = (cgroupDriver: string) => async () => ({ linux: { cgroupDriver } });
  assert.deepEqual(await driver(says('SYSTEMD'), 'cgroupfs'), ['systemd', []]);
  assert.deepEqual(await driver(says('CGROUPFS'), 'systemd'), ['cgroupfs', []]);
  assert.deepEqual(await driver(async () => ({ linux: null }), 'systemd'), ['systemd', []]);
  const unknown = async (): Promise<never> => Promise.reject(new OpError('unsupported', 'ask', 'unknown method'));
  assert.deepEqual(await driver(unknown, 'systemd'), ['systemd', ['1.38.0']]);
  await assert.rejects(
    driver(async () => Promise.reject(new OpError('failed', 'ask', 'broken')), 'systemd'),
    /broken/,
  );
});
