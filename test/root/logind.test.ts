import assert from 'node:assert/strict';
import { existsSync, mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, test } from 'node:test';
import { openLogind } from '../../agent/io/logind.ts';
import { createSystemd } from '../../agent/io/systemd.ts';
import { realClock } from '../../base/clock.ts';
import { exec } from '../../base/exec.ts';
import { silentLog } from '../../base/log.ts';
import { createSysClient } from '../../base/sys/client.ts';

/* The inhibitor at a real logind, and its signal as upstream's own test gives it: by dbus-send. Nothing is shut down. */
const sysPath = process.env['NODELET_SYS'] ?? new URL('../../dist/sys', import.meta.url).pathname;
const need =
  process.getuid?.() !== 0
    ? 'needs root'
    : !existsSync('/run/systemd/system') || !existsSync('/run/dbus/system_bus_socket') || !existsSync('/usr/lib/systemd/systemd-logind')
      ? 'needs a machine booted by systemd, with a bus and logind'
      : !existsSync(sysPath)
        ? `needs ${sysPath} (built by sys/build.sh)`
        : false;
if (need !== false) console.log(`logind: skipped, ${need}`);
const signal = AbortSignal.timeout(300_000);

describe('logind of this machine', { skip: need }, () => {
  test('a shutdown is put off by what sys holds, and told of', async () => {
    const confDir = mkdtempSync(join(tmpdir(), 'logind-'));
    await using sys = createSysClient({ path: sysPath, log: silentLog });
    await using systemd = createSystemd({ clock: realClock, log: silentLog, uid: 0 });
    try {
      await using logind = await openLogind({ clock: realClock, sys, systemd, uid: 0, confDir }, signal);
      assert.ok((await logind.delayMs(signal)) > 0);
      const told: boolean[] = [];
      const both = Promise.withResolvers<void>();
      await logind.follow((begins) => {
        told.push(begins);
        if (told.length === 2) both.resolve();
      }, signal);
      const held = await logind.inhibit();
      assert.match(await inhibitors(), /kubelet.*shutdown.*Kubelet needs time to handle node shutdown.*delay/);
      for (const word of ['true', 'false']) {
        const words = ['--system', '--type=signal', '/org/freedesktop/login1', 'org.freedesktop.login1.Manager.PrepareForShutdown', `boolean:${word}`];
        await exec(['dbus-send', ...words], { doing: 'telling of a shutdown' });
      }
      await both.promise;
      assert.deepEqual(told, [true, false]);
      await held[Symbol.asyncDispose]();
      for (let tries = 0; /kubelet/.test(await inhibitors()); tries += 1) {
        assert.ok(tries < 100, 'the inhibitor goes with the descriptor');
        await realClock.sleep(50);
      }
      await logind.askForDelay(31_000, signal);
      assert.equal(readFileSync(`${confDir}/99-kubelet.conf`, 'utf8'), '# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=31\n');
    } finally {
      rmSync(confDir, { recursive: true });
    }
  });
});

async function inhibitors(): Promise<string> {
  const { stdout } = await exec(['systemd-inhibit', '--list', '--no-pager', '--no-legend'], { doing: 'listing inhibitors' });
  return stdout;
}
