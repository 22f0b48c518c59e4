import assert from 'node:assert/strict';
import { once } from 'node:events';
import { chmod, mkdir, mkdtemp, readdir, rename, rm, stat, symlink, unlink, writeFile } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { realClock } from '../../base/clock.ts';
import { hasCode } from '../../base/errors.ts';
import { createCriClient, type CriClient } from '../../cri/client.ts';
import { FakeRuntime } from '../../cri/fake.ts';
import { serveFake, type ServedRuntime } from '../../cri/fake-serve.ts';
import { connectRuntime } from '../../cri/grpc.ts';
import { attach, type AttachOptions } from '../../cri/io/attach.ts';
import { attachStates } from '../../cri/io/attach-state.ts';
import { runningTaps } from '../../cri/io/tap-registry.ts';

/**
 * Sockets and a runtime are true ones over gRPC; the C program is a few words of shell that do what it does while all is
 * well. What it does when the tap is killed is tested with the true one (test/cri/).
 */
let folder: string;
let sys: string;
let made = 0;
const never = new AbortController().signal;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'attach-'));
  sys = join(folder, 'sys');
  await writeFile(sys, '#!/bin/sh\nif [ "$1" = guard ]; then echo ready; read -r word; else echo 0; fi\n');
  await chmod(sys, 0o755);
});

after(async () => rm(folder, { recursive: true }));

interface World extends AsyncDisposable {
  readonly socket: string;
  readonly said: string[];
  options(extra?: Partial<AttachOptions>): AttachOptions;
  names(): Promise<string[]>;
  /** Ends the runtime as one does that was told to: its socket goes, too. */
  end(): void;
  start(): Promise<void>;
  caller(): CriClient;
}

async function world(): Promise<World> {
  const home = join(folder, String(++made));
  const socket = join(home, 'run/containerd.sock');
  await mkdir(join(home, 'run'), { recursive: true });
  const said: string[] = [];
  const callers: CriClient[] = [];
  let server: ServedRuntime | null = null;
  const start = async (): Promise<void> => {
    // One that was there has ended by now; what listens to nothing any more would keep this process.
    server?.forceShutdown();
    // Runtimes remove what lies in their place, whoever's it is.
    await unlink(socket).catch(() => {});
    server = await serveFake(new FakeRuntime({ clock: realClock }), socket);
    await chmod(socket, 0o640);
  };
  await start();
  return {
    socket,
    said,
    options: (extra = {}) => ({
      ...{
        where: { socket },
        tap: { recorder: 'a test' },
        sys,
        stateHome: home,
        registry: join(home, 'registry'),
        pid: process.pid,
        clock: realClock,
        say: (text) => said.push(text),
      },
      ...extra,
    }),
    names: async () => (await readdir(join(home, 'run'))).toSorted(),
    end: () => {
      server?.forceShutdown();
      server = null;
    },
    start,
    caller: () => {
      const client = createCriClient(connectRuntime(socket));
      callers.push(client);
      return client;
    },
    [Symbol.asyncDispose]: async () => {
      for (const one of callers) await one[Symbol.asyncDispose]();
      server?.forceShutdown();
    },
  };
}

async function until(what: string, look: () => boolean | Promise<boolean>): Promise<void> {
  for (let tries = 0; !(await look()); tries++) {
    assert.ok(tries < 500, `not in time: ${what}`);
    await delay(20);
  }
}

/** Connects; resolves to a promise that resolves when the other side has ended it. */
async function knock(socket: string): Promise<{ ended: Promise<void> }> {
  const made = connect(socket);
  await once(made, 'connect');
  made.resume();
  const ended = new Promise<void>((resolve) => void made.once('close', () => resolve()));
  made.on('error', () => {});
  // The tap has taken it when it is counted, a turn of the loop later.
  await delay(50);
  return { ended };
}

const works = async (client: CriClient): Promise<boolean> =>
  client.runtime.version({}, { timeoutMs: 2000 }).then(
    () => true,
    () => false,
  );

test('the tap takes the place of the socket, callers pass through it, and the folder is afterwards as it was', async () => {
  await using here = await world();
  const inode = (await stat(here.socket)).ino;
  const attached = await attach(here.options(), never);
  assert.deepEqual(await here.names(), ['containerd.sock', 'containerd.sock.nodelet', 'containerd.sock.real']);
  assert.equal((await stat(here.socket)).mode & 0o777, 0o640);
  assert.equal((await stat(`${here.socket}.real`)).ino, inode);
  assert.ok(await works(here.caller()));
  assert.equal(attached.tap.counts.opened, 1);
  const [running] = await runningTaps(here.options().registry);
  assert.equal(running?.control, attached.control);
  assert.equal(running?.listen, here.socket);
  await attached[Symbol.asyncDispose]();
  assert.deepEqual(await here.names(), ['containerd.sock']);
  assert.equal((await stat(here.socket)).ino, inode);
  assert.ok(await works(here.caller()));
  assert.deepEqual(await readdir(here.options().registry ?? ''), []);
});

test('a caller that was there before goes on, and comes through the tap when it connects anew', async () => {
  await using here = await world();
  const kubelet = here.caller();
  assert.ok(await works(kubelet));
  const attached = await attach(here.options(), never);
  assert.ok(await works(kubelet));
  assert.equal(attached.tap.counts.opened, 0);
  const other = await knock(here.socket);
  assert.equal(attached.tap.counts.opened, 1);
  await attached[Symbol.asyncDispose]();
  // Its connection ends with the tap, so that it connects to the runtime.
  await other.ended;
  await until('the caller reaches the runtime', () => works(kubelet));
});

test('the runtime binds its socket anew: the tap steps in again, and detaching leaves the new one', async () => {
  await using here = await world();
  const attached = await attach(here.options(), never);
  for (let round = 1; round <= 3; round++) {
    const before = (await stat(`${here.socket}.real`)).ino;
    here.end();
    await here.start();
    await until('it steps in', () => here.said.filter((line) => line.includes('anew')).length === round);
    const { opened } = attached.tap.counts;
    await knock(here.socket);
    assert.equal(attached.tap.counts.opened, opened + 1);
    await until('callers reach it', () => works(here.caller()));
    assert.equal((await stat(here.socket)).mode & 0o777, 0o640);
    assert.notEqual((await stat(`${here.socket}.real`)).ino, before);
  }
  const last = (await stat(`${here.socket}.real`)).ino;
  await attached[Symbol.asyncDispose]();
  assert.deepEqual(await here.names(), ['containerd.sock']);
  assert.equal((await stat(here.socket)).ino, last);
  await until('callers reach it', () => works(here.caller()));
});

test('a runtime that was killed: callers are refused by the kernel; when it is back they come through the tap', async () => {
  await using here = await world();
  // A socket whose listener is gone while the name stays, as after kill -9.
  const dead = createServer().listen(`${here.socket}.first`);
  await once(dead, 'listening');
  await rename(`${here.socket}.first`, here.socket);
  const attached = await attach(here.options(), never);
  await new Promise<void>((resolve) => void dead.close(() => resolve()));
  await (
    await knock(here.socket)
  ).ended;
  await until('it steps aside', () => here.said.some((line) => line.includes('does not listen')));
  await assert.rejects(knock(here.socket), { code: 'ECONNREFUSED' });
  await here.start();
  await until('it steps in', () => here.said.some((line) => line.includes('anew')));
  const { opened } = attached.tap.counts;
  await knock(here.socket);
  assert.equal(attached.tap.counts.opened, opened + 1);
  await attached[Symbol.asyncDispose]();
  assert.deepEqual(await here.names(), ['containerd.sock']);
  await until('callers reach it', () => works(here.caller()));
});

test('a second one is refused, and says who is there', async () => {
  await using here = await world();
  const attached = await attach(here.options(), never);
  await assert.rejects(attach(here.options(), never), (error: Error) => hasCode(error, 'conflict') && error.message.includes(`process ${process.pid}`));
  assert.ok(await works(here.caller()));
  assert.equal((await attachStates(here.options().registry ?? '')).length, 1);
  await attached[Symbol.asyncDispose]();
  const next = await attach(here.options(), never);
  await next[Symbol.asyncDispose]();
  assert.deepEqual(await here.names(), ['containerd.sock']);
});

test('through symbolic links to the folder and to the socket itself', async () => {
  await using here = await world();
  const other = join(folder, `links-${made}`);
  await mkdir(other);
  await symlink(join(here.socket, '..'), join(other, 'run'));
  await symlink('run/containerd.sock', join(other, 'runtime.sock'));
  const attached = await attach(here.options({ where: { socket: `unix://${other}/runtime.sock` } }), never);
  assert.equal(attached.socket, here.socket);
  await assert.rejects(attach(here.options(), never), (error) => hasCode(error, 'conflict'));
  const client = createCriClient(connectRuntime(join(other, 'runtime.sock')));
  assert.ok(await works(client));
  assert.equal(attached.tap.counts.opened, 1);
  await client[Symbol.asyncDispose]();
  await attached[Symbol.asyncDispose]();
  assert.deepEqual(await here.names(), ['containerd.sock']);
});

test('what stands in the way, or is missing, is said before anything is changed', async () => {
  await using here = await world();
  await writeFile(`${here.socket}.real`, 'somebody else’s');
  await assert.rejects(attach(here.options(), never), (error) => hasCode(error, 'exists'));
  assert.deepEqual(await here.names(), ['containerd.sock', 'containerd.sock.real']);
  await assert.rejects(attach(here.options({ where: { socket: `${here.socket}.not` } }), never), (error) => hasCode(error, 'not-found'));
  await rm(`${here.socket}.real`);
  await assert.rejects(attach(here.options({ sys: join(folder, 'no-sys') }), never), (error) => hasCode(error, 'not-found'));
  assert.deepEqual(await here.names(), ['containerd.sock']);
});

test('told to stop meanwhile, it leaves the folder as it was', async () => {
  await using here = await world();
  const stop = new AbortController();
  await assert.rejects(attach(here.options({ say: () => stop.abort() }), stop.signal), (error) => hasCode(error, 'aborted'));
  assert.deepEqual(await here.names(), ['containerd.sock']);
  assert.ok(await works(here.caller()));
});
