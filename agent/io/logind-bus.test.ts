import assert from 'node:assert/strict';
import { spawn, spawnSync } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { chmod, mkdtemp, rm, writeFile } from 'node:fs/promises';
import { createConnection } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { realClock } from '../../base/clock.ts';
import { authLines, encodeMessage } from '../core/dbus/messages.ts';
import { openLogind } from './logind.ts';

/*
 * A real bus with the policy that system buses have: whose signals of a shutdown it carries, and whose are believed.
 */

const policy = '/usr/share/dbus-1/system.conf';
const skip = process.getuid?.() !== 0 || !existsSync(policy) ? 'needs root and dbus-daemon' : false;
const nobody = 65_534;
const signal = { path: '/org/freedesktop/login1', interface: 'org.freedesktop.login1.Manager', member: 'PrepareForShutdown' };

async function setUp(t: TestContext, believeAnyone: boolean) {
  const folder = await mkdtemp(join(tmpdir(), 'system-bus-'));
  await chmod(folder, 0o755);
  const [socket, config] = [join(folder, 'bus'), join(folder, 'bus.conf')];
  const own = `<busconfig><type>system</type><listen>unix:path=${socket}</listen><auth>EXTERNAL</auth>`;
  // The default policy alone: what other files add is about services that are not here.
  const [rules = ''] = /<policy context="default">[^]*?<\/policy>/.exec(spawnSync('cat', [policy], { encoding: 'utf8' }).stdout) ?? [];
  await writeFile(config, `<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN" "x">${own}${rules}</busconfig>`);
  const bus = spawn('dbus-daemon', [`--config-file=${config}`, '--nofork', '--nopidfile', '--nosyslog', '--print-address'], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  t.after(async () => {
    bus.kill('SIGKILL');
    await rm(folder, { recursive: true });
  });
  await once(bus.stdout, 'data');
  const never = (): Promise<never> => Promise.reject(new Error('not asked here'));
  const options = { clock: realClock, sys: { holdDescriptor: never }, systemd: { kill: never }, uid: 0, socket, believeAnyone };
  const logind = await openLogind(options, t.signal);
  t.after(() => logind[Symbol.asyncDispose]());
  const told: boolean[] = [];
  await logind.follow((begins) => told.push(begins), t.signal);
  /** Sends a signal and leaves at once. */
  const send = (uid: number, begins: boolean): void => {
    const words = [`--bus=unix:path=${socket}`, '--type=signal', signal.path, `${signal.interface}.${signal.member}`, `boolean:${begins}`];
    const { status, stderr } = spawnSync('dbus-send', words, { uid, encoding: 'utf8' });
    assert.equal(status, 0, stderr);
  };
  /** Root, that stays on the bus. */
  const stay = async (begins: boolean): Promise<void> => {
    const connection = createConnection(socket);
    t.after(() => connection.destroy());
    connection.resume().write(authLines(0));
    const hello = { destination: 'org.freedesktop.DBus', path: '/org/freedesktop/DBus', interface: 'org.freedesktop.DBus', member: 'Hello', body: [] };
    connection.write(encodeMessage({ ...hello, type: 'call', serial: 1 }));
    connection.write(encodeMessage({ ...signal, type: 'signal', serial: 2, signature: 'b', body: [begins] }));
  };
  const wait = async (count: number): Promise<boolean[]> => {
    for (let i = 0; told.length < count && i < 1_000; i += 1) await delay(10);
    return told;
  };
  return { send, stay, wait };
}

test('a system bus carries anybody’s signal of a shutdown; root’s alone is believed', { skip }, async (t) => {
  const { send, stay, wait } = await setUp(t, false);
  send(nobody, true);
  await stay(false);
  assert.deepEqual(await wait(1), [false]);
});

test('on request everybody is believed, who has left the bus at once too', { skip }, async (t) => {
  const { send, wait } = await setUp(t, true);
  send(nobody, true);
  send(0, false);
  assert.deepEqual(await wait(2), [true, false]);
});
