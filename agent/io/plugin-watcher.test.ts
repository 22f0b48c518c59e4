import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { realClock } from '../../base/clock.ts';
import { createLog } from '../../base/log.ts';
import registration from '../../proto/plugins/registration.json' with { type: 'json' };
import type { RegistrationMethods } from '../../proto/plugins/registration.ts';
import { served, serveGrpc, serviceOf } from './grpc.ts';
import { PluginWatcher } from './plugin-watcher.ts';

const log = createLog({ name: 'test', verbosity: 0, nowMs: () => 0, pid: 1, write: () => undefined });
const service = serviceOf<RegistrationMethods>(registration, 'pluginregistration.Registration');

async function until(holds: () => boolean): Promise<void> {
  for (let tries = 0; !holds(); tries += 1) {
    assert.ok(tries < 400, 'it did not happen in 4 s');
    await realClock.sleep(10);
  }
}

test('plugins are registered by type, told what became of it, and again when their socket is made anew', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'plugins-'));
  const done: string[] = [];
  const told: string[] = [];
  const serve = (path: string, type: string, name: string): Promise<AsyncDisposable> =>
    serveGrpc(path, [
      served(service, {
        GetInfo: () => ({ type, name, endpoint: '', supportedVersions: ['1.0.0'] }),
        NotifyRegistrationStatus({ pluginRegistered, error }) {
          told.push(`${name} ${pluginRegistered} ${error}`);
          return {};
        },
      }),
    ]);
  const stop = new AbortController();
  const watcher = new PluginWatcher({
    log,
    clock: realClock,
    dir,
    handlers: {
      CSIPlugin: {
        validate({ name }) {
          if (name === 'bad') throw new Error('no');
        },
        async register({ name, endpoint }) {
          done.push(`+${name} ${endpoint.slice(dir.length)}`);
        },
        async deregister({ name }) {
          done.push(`-${name}`);
        },
      },
    },
  });
  try {
    await mkdir(`${dir}/sub`);
    await writeFile(`${dir}/file`, '');
    const early = await serve(`${dir}/sub/early.sock`, 'CSIPlugin', 'early');
    await using hidden = await serve(`${dir}/.hidden.sock`, 'CSIPlugin', 'hidden');
    void hidden;
    const running = watcher.run(stop.signal);
    await until(() => done.length === 1 && told.length === 1);
    await using other = await serve(`${dir}/other.sock`, 'OtherPlugin', 'other');
    await using bad = await serve(`${dir}/bad.sock`, 'CSIPlugin', 'bad');
    void other;
    void bad;
    await until(() => told.some((line) => line.startsWith('other')) && told.some((line) => line.startsWith('bad')));
    await early[Symbol.asyncDispose]();
    await until(() => done.length === 2);
    await using again = await serve(`${dir}/sub/early.sock`, 'CSIPlugin', 'again');
    void again;
    await until(() => done.length === 3);
    assert.deepEqual(done, ['+early /sub/early.sock', '-early', '+again /sub/early.sock']);
    assert.equal(told[0], 'early true ');
    assert.ok(told.includes(`other false RegisterPlugin error -- no handler registered for plugin type: OtherPlugin at socket ${dir}/other.sock`));
    assert.ok(told.includes('bad false RegisterPlugin error -- plugin validation failed with err: no'));
    stop.abort();
    await running;
  } finally {
    stop.abort();
    await rm(dir, { recursive: true });
  }
});

/** Whether the kernel tells this process of changes in the directory. */
async function isWatched(dir: string): Promise<boolean> {
  const { ino } = await stat(dir);
  const texts = await Promise.all((await readdir('/proc/self/fdinfo')).map((fd) => readFile(`/proc/self/fdinfo/${fd}`, 'utf8').catch(() => '')));
  return texts.some((text) => text.split('\n').some((line) => line.startsWith('inotify ') && line.includes(` ino:${ino.toString(16)} `)));
}

test('a directory that was made anew is watched anew', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'plugins-'));
  const stop = new AbortController();
  const running = new PluginWatcher({ log, clock: realClock, dir, handlers: {} }).run(stop.signal);
  try {
    for (let count = 0; count < 3; count += 1) {
      await mkdir(`${dir}/sub`);
      for (let tries = 0; !(await isWatched(`${dir}/sub`)); tries += 1) {
        assert.ok(tries < 400, 'it is not watched in 4 s');
        await realClock.sleep(10);
      }
      await rm(`${dir}/sub`, { recursive: true });
    }
  } finally {
    stop.abort();
    await running;
    await rm(dir, { recursive: true });
  }
});
