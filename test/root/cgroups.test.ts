import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { cgroupParent, cgroupPath } from '../../agent/core/cgroups.ts';
import type { CgroupDriver } from '../../agent/core/cgroups.ts';
import { sliceOf } from '../../agent/core/systemd-units.ts';
import { openCgroups } from '../../agent/io/cgroups.ts';
import type { PodCgroups } from '../../agent/io/cgroups.ts';
import { createSystemd } from '../../agent/io/systemd.ts';
import type { Systemd } from '../../agent/io/systemd.ts';
import { realClock } from '../../base/clock.ts';
import { silentLog } from '../../base/log.ts';
import { createSysClient } from '../../base/sys/client.ts';
import type { Sys } from '../../base/sys/types.ts';
import type { Pod } from '../../proto/kube/types.ts';

/* Real cgroups of this machine, whichever version it has, below a root of the test's own. */
const sysPath = process.env['NODELET_SYS'] ?? new URL('../../dist/sys', import.meta.url).pathname;
const need =
  process.getuid?.() !== 0
    ? 'needs root'
    : !existsSync(sysPath)
      ? `needs ${sysPath} (built by sys/build.sh)`
      : !/ cgroup2? /.test(readFileSync('/proc/mounts', 'utf8'))
        ? 'needs a mounted cgroup file system'
        : false;
if (need !== false) console.log(`cgroups: skipped, ${need}`);
const signal = new AbortController().signal;
const isSystemd = existsSync('/run/systemd/system');
if (need === false && !isSystemd) console.log('cgroups, driver systemd: skipped, needs a machine booted by systemd');
const pod: Pod = {
  metadata: { name: 'p', namespace: 'n', uid: 'u-1' },
  spec: { containers: [{ name: 'm', resources: { requests: { cpu: '200m', memory: '32Mi' }, limits: { cpu: '500m', memory: '64Mi' } } }] },
};

for (const driver of ['cgroupfs', 'systemd'] as const)
  describe(`cgroups of this machine, driver ${driver}`, { skip: need !== false ? need : driver === 'systemd' && !isSystemd ? 'needs systemd' : false }, () =>
    contract(driver),
  );

function contract(driver: CgroupDriver): void {
  // In a slice's name a dash stands between parts.
  const rootName = `nodelet${driver}${process.pid}`;
  const at = (...parts: string[]): string => cgroupPath(driver, [rootName, ...parts]);
  let sys: Sys;
  let systemd: Systemd;
  let cgroups: PodCgroups;
  const read = (controller: string, path: string): string => {
    const mount =
      cgroups.layout.version === 2
        ? cgroups.layout.hierarchies[0]?.mount
        : cgroups.layout.hierarchies.find((each) => each.controllers.includes(controller))?.mount;
    return readFileSync(`${mount}${path}`, 'utf8').trim();
  };
  before(async () => {
    sys = createSysClient({ path: sysPath, log: silentLog });
    systemd = createSystemd({ clock: realClock, log: silentLog, uid: 0 });
    cgroups = await openCgroups({
      sys,
      clock: realClock,
      log: silentLog,
      driver,
      ...(driver === 'systemd' ? { systemd } : {}),
      cgroupRoot: `/${rootName}`,
      failCgroupV1: false,
      pod: { cpuCFSQuota: true, cpuPeriodUs: 100_000n, podPidsLimit: 100n },
      allocatable: { milliCpu: 2000n, memoryBytes: 1n << 30n, pids: 10_000n },
    });
  });
  after(async () => {
    if (driver === 'systemd') await systemd.stop(sliceOf([rootName]), signal);
    const paths = [at('kubepods', 'burstable'), at('kubepods', 'besteffort'), at('kubepods'), at()];
    for (const { mount } of cgroups.layout.hierarchies)
      await sys.fileOps({ root: mount, ops: paths.map((path) => ({ op: 'unlink', path: path.slice(1) })), timeoutMs: 5000 });
    for (const { mount } of cgroups.layout.hierarchies) assert.equal(existsSync(`${mount}${at()}`), false);
    await sys[Symbol.asyncDispose]();
    await systemd[Symbol.asyncDispose]();
  });

  test('a pod is limited, what it left is killed, and nothing stays', async () => {
    await cgroups.ensureRoots();
    await cgroups.syncQos([]);
    const own = at('kubepods', 'burstable', 'podu-1');
    assert.equal(await cgroups.ensurePod(pod), cgroupParent(driver, [rootName, 'kubepods', 'burstable', 'podu-1']));
    if (cgroups.version === 2)
      assert.deepEqual([read('', `${own}/cpu.max`), read('', `${own}/memory.max`), read('', `${own}/pids.max`)], ['50000 100000', '67108864', '100']);
    else
      assert.deepEqual(
        [
          read('cpu', `${own}/cpu.shares`),
          read('cpu', `${own}/cpu.cfs_quota_us`),
          read('memory', `${own}/memory.limit_in_bytes`),
          read('pids', `${own}/pids.max`),
          read('cpu', `${at('kubepods', 'burstable')}/cpu.shares`),
        ],
        ['204', '50000', '67108864', '100', '204'],
      );
    assert.deepEqual(await cgroups.podUids(), ['u-1']);
    const values = await cgroups.values(pod);
    // The older rule for weights is coarse: what is read back of version 2 is not what was written.
    const shares = cgroups.version === 2 ? (values?.cpuShares ?? 0n) : 204n;
    assert.deepEqual(
      { ...values, memoryUsageBytes: 0n },
      { cpuShares: shares, cpuQuotaUs: 50_000n, cpuPeriodUs: 100_000n, memoryBytes: 64n << 20n, memoryUsageBytes: 0n },
    );
    const untouched = { cpuShares: null, cpuQuotaUs: null, cpuPeriodUs: 100_000n, memoryBytes: null, pidsMax: null };
    await cgroups.setLimits(pod, { ...untouched, memoryBytes: 96n << 20n });
    await cgroups.setLimits(pod, { ...untouched, cpuQuotaUs: 60_000n });
    const after = await cgroups.values(pod);
    assert.deepEqual([after?.memoryBytes, after?.cpuQuotaUs, after?.cpuShares], [96n << 20n, 60_000n, shares]);
    // A pod whose containers run is not given its limits by the way.
    await cgroups.ensurePod(pod, signal, true);
    assert.equal((await cgroups.values(pod))?.memoryBytes, 96n << 20n);
    const left = spawn('sleep', ['600']);
    const ended = once(left, 'exit');
    const mount = cgroups.layout.hierarchies.find((each) => each.controllers.includes('memory') || cgroups.version === 2)?.mount ?? '';
    await sys.fileOps({ root: mount, ops: [{ op: 'mkdir', path: `${own}/inner`.slice(1), mode: 0o755 }], timeoutMs: 5000 });
    writeFileSync(`${mount}${own}/inner/cgroup.procs`, String(left.pid));
    await cgroups.removePod('u-1', signal);
    assert.deepEqual((await ended)[1], 'SIGKILL');
    for (const each of cgroups.layout.hierarchies) assert.equal(existsSync(`${each.mount}${own}`), false);
    assert.deepEqual(await cgroups.podUids(), []);
    await cgroups.removePod('u-1', signal);
  });
}
