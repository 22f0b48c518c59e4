import assert from 'node:assert/strict';
import { existsSync, readFileSync } from 'node:fs';
import { describe, test } from 'node:test';
import { cgroupPath } from '../../agent/core/cgroups.ts';
import { limitProperties, sliceOf, sliceProperties } from '../../agent/core/systemd-units.ts';
import { createSystemd, systemdSockets } from '../../agent/io/systemd.ts';
import type { Systemd } from '../../agent/io/systemd.ts';
import { FakeSystemd } from '../../agent/io/systemd-fake.ts';
import { realClock } from '../../base/clock.ts';
import { hasCode } from '../../base/errors.ts';
import { silentLog } from '../../base/log.ts';

/*
 * One contract for systemd and its stand-in, and of the real one for each way to it. The units are of the test's own and go with
 * it. `nodelet machine run root` runs it where there is a systemd.
 */
const need = process.getuid?.() !== 0 ? 'needs root' : !existsSync('/run/systemd/system') ? 'needs a machine booted by systemd' : false;
if (need !== false) console.log(`systemd: skipped, ${need}`);
const version = existsSync('/sys/fs/cgroup/cgroup.controllers') ? 2 : 1;
const none = { cpuShares: null, cpuQuotaUs: null, cpuPeriodUs: 100_000n, memoryBytes: null, pidsMax: null };
const signal = AbortSignal.timeout(300_000);

function contract(open: () => Systemd, isReal: boolean): void {
  const top = [`nodelettest${process.pid}`];
  const name = [...top, 'pod1-2-3'];
  const unit = sliceOf(name);

  test('slices are made once, hold limits, and go', async () => {
    await using systemd = open();
    const number = await systemd.version(signal);
    assert.ok(number > 200 && number < 1000, String(number));
    try {
      assert.equal(await systemd.startSlice(unit, sliceProperties(name, version), signal), 'started');
      assert.equal(await systemd.startSlice(unit, sliceProperties(name, version), signal), 'exists');
      const limits = { ...none, cpuShares: 102n, cpuQuotaUs: 20_000n, memoryBytes: 64n << 20n, pidsMax: 77n };
      await systemd.setProperties(unit, limitProperties(limits, version, number), signal);
      if (isReal) assert.equal(control(name), version === 2 ? '20000 100000 67108864 77' : '102 67108864 77');
      await systemd.setProperties(unit, limitProperties({ ...none, memoryBytes: 96n << 20n, cpuQuotaUs: -1n, pidsMax: -1n }, version, number), signal);
      if (isReal && version === 2) assert.equal(control(name), 'max 100000 100663296 max');
      // Many at once, each with a job of its own.
      const more = ['a', 'b', 'c', 'd'].map((each) => [...top, each]);
      assert.deepEqual(await Promise.all(more.map((each) => systemd.startSlice(sliceOf(each), sliceProperties(each, version), signal))), [
        'started',
        'started',
        'started',
        'started',
      ]);
    } finally {
      await systemd.stop(sliceOf(top), signal);
    }
    if (isReal) assert.equal(existsSync(directory('pids', name)), false);
    assert.equal(await systemd.startSlice(unit, sliceProperties(name, version), signal), 'started');
    await systemd.stop(unit, signal);
    await systemd.stop(unit, signal);
    await systemd.stop(sliceOf(top), signal);
  });

  test('what systemd would not take is refused', async () => {
    await using systemd = open();
    const unknown = { name: 'MemoryMost', value: { signature: 't', value: 1n } };
    const wrong = { name: 'TasksMax', value: { signature: 's', value: '1' } };
    try {
      await systemd.startSlice(unit, sliceProperties(name, version), signal);
      for (const property of [unknown, wrong])
        await assert.rejects(systemd.setProperties(unit, [property], signal), (error) => hasCode(error, 'failed') || hasCode(error, 'invalid'), property.name);
      await assert.rejects(systemd.startSlice('no slice', [], signal));
      await assert.rejects(
        systemd.version(signal).then(() => systemd.stop(unit, AbortSignal.abort())),
        (error) => hasCode(error, 'aborted'),
      );
    } finally {
      await systemd.stop(sliceOf(top), signal);
    }
  });
}

function directory(controller: string, name: readonly string[]): string {
  return `/sys/fs/cgroup${version === 2 ? '' : `/${controller}`}${cgroupPath('systemd', name)}`;
}

function control(name: readonly string[]): string {
  const read = (controller: string, file: string): string => readFileSync(`${directory(controller, name)}/${file}`, 'utf8').trim();
  if (version === 2) return [read('cpu', 'cpu.max'), read('memory', 'memory.max'), read('pids', 'pids.max')].join(' ');
  return [read('cpu', 'cpu.shares'), read('memory', 'memory.limit_in_bytes'), read('pids', 'pids.max')].join(' ');
}

describe('systemd contract: fake', () => contract(() => new FakeSystemd(), false));
for (const socket of systemdSockets) {
  const skip = need === false && !existsSync(socket.path) ? `needs ${socket.path}` : need;
  describe(`systemd contract: ${socket.path}`, { skip }, () =>
    contract(() => createSystemd({ clock: realClock, log: silentLog, uid: process.getuid?.() ?? 0, sockets: [socket] }), true),
  );
}
