import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync } from 'node:fs';
import { readdir, stat } from 'node:fs/promises';
import { connect } from 'node:net';
import { homedir } from 'node:os';
import { test } from 'node:test';
import { exec } from '../../base/exec.ts';
import { eventually, kubectlProblem, setProblem, testSet, type TestSet } from '../set.ts';
import { exitOf } from './exit-of.ts';

/** A node with a real containerd and a kubelet of either make: the tap comes, is killed while pods start, sees containerd start again, and goes. */
const problem = (await setProblem()) ?? (await kubectlProblem());
const noUpstream = existsSync(`${homedir()}/.cache/nodelet/assets/current/kubelet`) ? null : 'needs the assets (nodelet assets build)';
const root = new URL('../..', import.meta.url).pathname;
const SLOW_MS = 180_000;
const PODS = 10;

interface Tap {
  readonly child: ChildProcess;
  out(): string;
}

async function said(tap: Tap, words: string): Promise<void> {
  await eventually(`"${words}" is said`, SLOW_MS, async () => {
    assert.ok(tap.child.exitCode === null, `it ended:\n${tap.out()}`);
    return tap.out().includes(words) ? true : null;
  }).catch((cause: unknown) => {
    throw new Error(`"${words}" is not said, but:\n${tap.out()}`, { cause });
  });
}

/** The bundle itself: the launcher would be another process between the signal and the tap. */
async function attached(set: TestSet, ...words: string[]): Promise<Tap> {
  const child = spawn(
    process.execPath,
    ['--disable-warning=ExperimentalWarning', `${root}dist/nodelet.mjs`, 'cri', 'attach', '--node', 'node-1', '--name', set.name, ...words],
    {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...process.env, NODELET_ROOT: root },
    },
  );
  let text = '';
  child.stderr.on('data', (bytes: Buffer) => (text += bytes.toString()));
  const tap = { child, out: () => text };
  await said(tap, 'watch it with');
  return tap;
}

interface Pod {
  readonly metadata: { readonly name: string; readonly deletionTimestamp?: string };
  readonly status: { readonly containerStatuses?: readonly { readonly ready: boolean; readonly restartCount: number; readonly containerID?: string }[] };
}

async function pods(set: TestSet): Promise<Pod[]> {
  const list = JSON.parse(await set.k(['get', 'pods', '-l', 'app=web', '-o', 'json'])) as { items: Pod[] };
  return list.items.filter((pod) => pod.metadata.deletionTimestamp === undefined);
}

async function allReady(set: TestSet, count: number): Promise<Pod[]> {
  return eventually(`${count} pods are ready`, SLOW_MS, async () => {
    const now = await pods(set);
    return now.length === count && now.every((pod) => pod.status.containerStatuses?.[0]?.ready === true) ? now : null;
  });
}

function tellInit(socket: string, line: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const made = connect(socket).once('error', reject);
    made.on('data', (bytes) => resolve(bytes.toString()));
    made.write(`${line}\n`);
  });
}

async function through(set: TestSet, agent: string, say: (text: string) => void): Promise<void> {
  const node = (await set.status()).nodes[0];
  assert.ok(node?.pid, 'the node runs');
  const folder = `/proc/${node.pid}/root/run/containerd`;
  const socket = `${folder}/containerd.sock`;
  const kubelet = async (): Promise<{ pid: number | null; restarts: number }> => {
    const row = (await set.status()).processes.find((one) => one.place === 'node-1' && one.name === agent);
    assert.ok(row, `${agent} is a service of the node`);
    return { pid: row.pid, restarts: row.restarts };
  };
  const before = { names: (await readdir(folder)).toSorted(), inode: (await stat(socket)).ino, kubelet: await kubelet() };
  const peers = async (which: string): Promise<number> => Number((await exec([`${root}dist/sys`, 'peers', String(before.kubelet.pid), socket + which])).stdout);

  const first = await attached(set);
  assert.match(first.out(), /closed \d+ connections? of the kubelet/);
  assert.match(first.out(), /speaks through the tap/);
  say(first.out().trim());
  await set.k(['scale', 'deploy/web', `--replicas=${PODS}`]);
  await eventually('pods start', SLOW_MS, async () => ((await pods(set)).length > 3 ? true : null));
  first.child.kill('SIGKILL');
  const killedMs = performance.now();
  const since = (): number => Math.round(performance.now() - killedMs);
  await eventually('the socket is back', SLOW_MS, async () => ((await readdir(folder)).some((name) => name.endsWith('.nodelet')) ? null : true));
  const backMs = since();
  await eventually('the kubelet has connected to the runtime', SLOW_MS, async () => ((await peers('')) > 0 ? true : null));
  say(`killed with -9 while ${PODS} pods start: the socket is back after ${backMs} ms, the kubelet connected to the runtime after ${since()} ms`);
  const ready = await allReady(set, PODS);
  say(`all ${PODS} pods ready ${Math.round(since() / 1000)} s after it was killed`);
  assert.deepEqual(
    ready.map((pod) => pod.status.containerStatuses?.[0]?.restartCount),
    ready.map(() => 0),
  );
  assert.equal((await stat(socket)).ino, before.inode);
  assert.deepEqual((await readdir(folder)).toSorted(), before.names);
  assert.deepEqual(await kubelet(), before.kubelet, 'the kubelet ran on');

  const second = await attached(set);
  assert.equal(await tellInit(`${node.directory}/init.ctl`, 'restart containerd'), 'ok\n');
  await said(second, 'anew: in its place again');
  await eventually('the kubelet speaks through the tap again', SLOW_MS, async () =>
    (await peers('.nodelet')) > 0 && (await peers('.real')) === 0 ? true : null,
  );
  await set.k(['delete', 'pod', ready[0]?.metadata.name ?? '', '--wait=false']);
  const later = await allReady(set, PODS);
  const containers = (list: readonly Pod[]): Map<string, string | undefined> =>
    new Map(list.map((pod) => [pod.metadata.name, pod.status.containerStatuses?.[0]?.containerID]));
  const same = [...containers(later)].filter(([name, id]) => containers(ready).get(name) === id).length;
  assert.equal(same, PODS - 1, 'all but the deleted one are the containers that they were');
  second.child.kill('SIGINT');
  assert.deepEqual(await exitOf(second.child), [0, null]);
  say(second.out().trim());
  assert.deepEqual((await readdir(folder)).toSorted(), before.names);
  await eventually('the kubelet has connected to the runtime', SLOW_MS, async () => ((await peers('')) > 0 ? true : null));
  assert.deepEqual(await kubelet(), before.kubelet, 'the kubelet ran on');

  const third = await attached(set, '--reconnect', 'restart');
  assert.match(third.out(), new RegExp(`${agent} started again`));
  assert.match(third.out(), /the first caller comes through the tap/);
  const now = await kubelet();
  assert.notEqual(now.pid, before.kubelet.pid);
  // It may have ended before the command that ends it.
  const ended = exitOf(third.child);
  const done = await exec([`${root}nodelet`, 'cri', 'detach', '--node', 'node-1', '--name', set.name]);
  say(done.stdout.trim());
  assert.deepEqual(await ended, [0, null]);
  assert.deepEqual((await readdir(folder)).toSorted(), before.names);
  const last = await allReady(set, PODS);
  // What a kubelet does with containers when it starts is its own matter: said, not judged here.
  const anew = last.filter((pod) => containers(later).get(pod.metadata.name) !== containers(last).get(pod.metadata.name));
  say(
    `containers started anew around a restart of the kubelet: ${anew.length} of ${PODS}${anew.map((pod) => ` ${pod.metadata.name} ${JSON.stringify(pod.status)}`).join('')}`,
  );
}

test('attached to a node with our kubelet, killed while pods start', { skip: problem ?? false, timeout: 900_000 }, async (t) => {
  await using set = await testSet('attach', ['examples/web.yaml']);
  await through(set, 'agent', (text) => t.diagnostic(text));
});

test('attached to a node with upstream’s kubelet, killed while pods start', { skip: problem ?? noUpstream ?? false, timeout: 900_000 }, async (t) => {
  await using set = await testSet('attach-up', ['--agent', 'upstream'], ['cluster', 'up']);
  const made = await exec([`${root}nodelet`, 'image', 'make', 'nginx:1.29', '--from', 'server']);
  assert.equal(made.code, 0);
  await set.k(['apply', '-f', `${root}examples/web.yaml`]);
  await allReady(set, 3);
  await through(set, 'kubelet', (text) => t.diagnostic(text));
});
