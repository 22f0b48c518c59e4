import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, readdir, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { test } from 'node:test';
import { processOf } from '../../node/io/processes.ts';
import { bareNode } from './bare.ts';

const HEAD = 'state /x/init.state\ncontrol /x/init.ctl';
const RUNTIME = 'service containerd\nargv containerd';
const KUBELET = 'service agent\nargv agent';
const WHOLE = `${[HEAD, RUNTIME, KUBELET].join('\n\n')}\n`;

/** A node's folder, with a first process that only takes notice of being told. */
async function world(spec: string, running: readonly string[]): Promise<{ dir: string } & AsyncDisposable> {
  const dir = await mkdtemp(`${tmpdir()}/bare-`);
  const first = spawn(process.execPath, ['-e', "process.on('SIGHUP', () => {}); setInterval(() => {}, 1000); console.log('up')"], {
    stdio: ['ignore', 'pipe', 'ignore'],
  });
  await once(first.stdout, 'data');
  const found = await processOf(first.pid ?? 0);
  await writeFile(`${dir}/init.pid`, `${found?.pid} ${found?.startTicks}\n`);
  await writeFile(`${dir}/init.spec`, spec);
  await writeFile(`${dir}/init.state`, running.map((name) => `${name} 1 0\n`).join(''));
  return {
    dir,
    async [Symbol.asyncDispose]() {
      first.kill('SIGKILL');
      await once(first, 'exit');
      await rm(dir, { recursive: true });
    },
  };
}

const specIn = (dir: string): Promise<string> => readFile(`${dir}/init.spec`, 'utf8');

test('a node is without its kubelet until it is put back', async () => {
  await using node = await world(WHOLE, ['containerd']);
  {
    await using _bare = await bareNode('/nowhere', node.dir, new AbortController().signal);
    assert.equal((await specIn(node.dir)).trim(), [HEAD, RUNTIME].join('\n\n'));
  }
  assert.equal(await specIn(node.dir), WHOLE);
  assert.deepEqual((await readdir(node.dir)).sort(), ['init.pid', 'init.spec', 'init.state']);
});

test('stopped while the kubelet ends, the node has it again', async () => {
  await using node = await world(WHOLE, ['containerd', 'agent']);
  const stop = new AbortController();
  setTimeout(() => stop.abort(), 300);
  await assert.rejects(bareNode('/nowhere', node.dir, stop.signal));
  assert.equal(await specIn(node.dir), WHOLE);
});

test('after a run that was killed the next one puts the kubelet back', async () => {
  await using node = await world(WHOLE, ['containerd']);
  // Never disposed: as if it had been killed.
  await bareNode('/nowhere', node.dir, new AbortController().signal);
  {
    await using _bare = await bareNode('/nowhere', node.dir, new AbortController().signal);
  }
  assert.equal(await specIn(node.dir), WHOLE);
});
