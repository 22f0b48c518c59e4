import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, stat } from 'node:fs/promises';
import { connect, createServer, type AddressInfo, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as wait } from 'node:timers/promises';
import { programPath, type ProgramOptions } from './programs.ts';

const sources = new URL('c', import.meta.url).pathname;
const hasCc = await stat('/usr/bin/cc').then(
  () => true,
  () => false,
);
const skip = hasCc ? false : 'needs cc';
const source = { kind: 'module', module: 'example.org/none', version: 'v1.0.0', package: '.' } as const;

async function optionsIn(dir: string, notes: string[] = []): Promise<ProgramOptions> {
  return { assets: { path: () => null }, sources, dir, build: false, signal: new AbortController().signal, note: (text) => notes.push(text) };
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0);
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

async function reach(to: { path: string } | { host: string; port: number }): Promise<Socket> {
  for (let left = 100; ; left -= 1) {
    const socket = connect(to);
    const failure = await once(socket, 'connect').then(
      () => null,
      (error: Error) => error,
    );
    if (failure === null) return socket;
    if (left === 0) throw failure;
    await wait(50);
  }
}

test('a program of ours stands in for a module that is not built, if there is one', { skip }, async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'programs-'));
  t.after(() => rm(dir, { recursive: true }));
  const notes: string[] = [];
  const options = await optionsIn(dir, notes);
  await assert.rejects(programPath(options, source), /is not built yet/);
  assert.match(await programPath(options, { ...source, otherwise: 'pause.c' }), /-pause$/);
  assert.deepEqual(notes, ['  pause.c stands in for example.org/none']);
});

test('the stand-in of the hostpath driver joins its socket with its port, each end of one ends the other', { skip }, async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'programs-'));
  t.after(() => rm(dir, { recursive: true }));
  const program = await programPath(await optionsIn(dir), { kind: 'c', source: 'hostpathplugin.c' });
  const [path, port] = [join(dir, 's.sock'), await freePort()];
  const child = spawn(program, ['--v=5', `--endpoint=${path}`, `--proxy-endpoint=tcp://:${port}`], { stdio: 'inherit' });
  t.after(() => child.kill());
  for (const round of ['one', 'two']) {
    const near = await reach({ path });
    const far = await reach({ host: '127.0.0.1', port });
    near.write(`to ${round}`);
    assert.equal(String((await once(far, 'data'))[0]), `to ${round}`);
    far.write(`from ${round}`);
    assert.equal(String((await once(near, 'data'))[0]), `from ${round}`);
    near.resume();
    far.end();
    await once(near, 'end');
    near.destroy();
  }
});
