import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { readdirSync, readFileSync } from 'node:fs';
import { connect } from 'node:net';
import { test } from 'node:test';
import { connectRuntime } from '../../cri/grpc.ts';
import { createCriClient } from '../../cri/mod.ts';
import { clusterProblem } from '../cluster/programs.ts';
import { eventually, kubectlProblem, setProblem, testSet, type TestSet } from '../set.ts';

/*
 * A recording in the place of a runtime: containerd of a node is stopped and its sandboxes are gone, the Node object is
 * deleted, and the kubelet finds at the runtime's socket what test/cri/recordings/upstream-start.crirec tells.
 */
const ROOT = new URL('../..', import.meta.url).pathname;
const RECORDING = `${ROOT}test/cri/recordings/upstream-start.crirec`;
const SOCKET = '/run/containerd/containerd.sock';
const SLOW_MS = 180_000;

const IMAGE = 'registry.k8s.io/e2e-test-images/busybox:1.37.0-2';

/** The pod of the recording, without the container of it that crashes. */
const web = {
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: 'web', namespace: 'default' },
  spec: {
    terminationGracePeriodSeconds: 2,
    initContainers: [{ name: 'setup', image: IMAGE, command: ['sh', '-c', 'echo hello; sleep 1'] }],
    containers: [{ name: 'app', image: IMAGE, command: ['sleep', 'infinity'], readinessProbe: { exec: { command: ['sh', '-c', 'true'] }, periodSeconds: 1 } }],
  },
};

const problem = (await setProblem()) ?? (await kubectlProblem());
const noCluster = await clusterProblem(process.env, { agents: ['upstream'], proxies: [], containerd: '2.4' });

async function tellInit(folder: string, line: string): Promise<void> {
  const socket = connect(`${folder}/init.ctl`);
  socket.write(`${line}\n`);
  let answer = '';
  for await (const chunk of socket) answer += String(chunk);
  assert.ok(answer.startsWith('ok'), `init: "${line}" was answered ${answer}`);
}

interface Node {
  readonly name: string;
  readonly pid: number;
  readonly directory: string;
}

async function nodeOf(set: TestSet): Promise<Node> {
  const [node] = (await set.status()).nodes;
  assert.ok(node !== undefined && node.pid !== null);
  return { name: node.name, pid: node.pid, directory: node.directory };
}

/** Programs below a process, by their names. */
function programsBelow(pid: number): string[] {
  let children: string[];
  try {
    children = readdirSync(`/proc/${pid}/task`).flatMap((task) => readFileSync(`/proc/${pid}/task/${task}/children`, 'utf8').trim().split(' '));
  } catch {
    return [];
  }
  return children
    .filter((child) => child !== '')
    .flatMap((child) => {
      try {
        return [readFileSync(`/proc/${child}/comm`, 'utf8').trim(), ...programsBelow(Number(child))];
      } catch {
        return [];
      }
    });
}

/** Takes the node's runtime away, with everything that it holds. */
async function takeRuntimeAway(node: Node, kubelet: string): Promise<void> {
  await tellInit(node.directory, `stop ${kubelet}`);
  await eventually('the kubelet is gone', SLOW_MS, async () => (programsBelow(node.pid).some((name) => name === 'kubelet') ? null : true));
  const client = createCriClient(connectRuntime(`/proc/${node.pid}/root${SOCKET}`));
  for (const { id } of (await client.runtime.listPodSandbox({})).items) {
    await client.runtime.stopPodSandbox({ podSandboxId: id });
    await client.runtime.removePodSandbox({ podSandboxId: id });
  }
  await client[Symbol.asyncDispose]();
  await tellInit(node.directory, 'stop containerd');
  await eventually('no runtime runs', SLOW_MS, async () => (programsBelow(node.pid).some((name) => /containerd|runc|pause/.test(name)) ? null : true));
}

interface Served extends AsyncDisposable {
  out(): string;
  err(): string;
}

async function serveIn(node: Node): Promise<Served> {
  const words = [process.execPath, `${ROOT}dist/nodelet.mjs`, 'cri', 'serve', RECORDING, '--listen', SOCKET];
  const child: ChildProcess = spawn(`${ROOT}dist/sys`, ['exec', '--pid', String(node.pid), '--', ...words], { stdio: ['ignore', 'pipe', 'pipe'] });
  let out = '';
  let err = '';
  child.stdout?.on('data', (bytes: Buffer) => (out += bytes.toString()));
  child.stderr?.on('data', (bytes: Buffer) => (err += bytes.toString()));
  const ended = once(child, 'close');
  const served: Served = {
    out: () => out,
    err: () => err,
    [Symbol.asyncDispose]: async () => {
      child.kill('SIGTERM');
      await ended;
    },
  };
  await eventually('the recording is served', SLOW_MS, async () => {
    assert.equal(child.exitCode, null, err);
    return err.includes('listening at') ? true : null;
  });
  return served;
}

for (const { agent, kubelet, start, args, skip } of [
  { agent: 'our agent', kubelet: 'agent', start: ['up'], args: [], skip: problem },
  { agent: 'upstream’s kubelet', kubelet: 'kubelet', start: ['cluster', 'up'], args: ['--agent', 'upstream', '--images', 'basic'], skip: problem ?? noCluster },
]) {
  if (skip !== null) console.log(`skipped: ${agent} with a recording in place of a runtime: ${skip}`);
  test(`a recording brings a node of ${agent} to Ready, and a pod, with no runtime present`, { skip: skip ?? false, timeout: 900_000 }, async () => {
    const name = `played-${kubelet}`;
    await using set = await testSet(name, args, start);
    const node = await nodeOf(set);
    await takeRuntimeAway(node, kubelet);
    await set.k(['delete', 'node', node.name]);
    const shown: string[] = [];
    const show = async (...words: string[]): Promise<string> => {
      const text = await set.k(words);
      shown.push(`$ kubectl ${words.join(' ')}`, text);
      return text;
    };
    {
      await using served = await serveIn(node);
      const startedMs = performance.now();
      await tellInit(node.directory, `start ${kubelet}`);
      const isReady = '{.status.conditions[?(@.type=="Ready")].status}';
      await eventually('the node is ready', SLOW_MS, async () =>
        (await set.k(['get', 'node', node.name, '-o', `jsonpath=${isReady}`])) === 'True' ? true : null,
      );
      shown.push(`Ready after ${((performance.now() - startedMs) / 1000).toFixed(1)} s`);
      await show(
        'get',
        'nodes',
        '-o',
        'custom-columns=NAME:.metadata.name,KUBELET:.status.nodeInfo.kubeletVersion,RUNTIME:.status.nodeInfo.containerRuntimeVersion',
      );

      const account = async (): Promise<true | null> => ((await set.kubectl(['get', 'serviceaccount', 'default'])).code === 0 ? true : null);
      await eventually('the service account', SLOW_MS, account);
      await set.k(['apply', '-f', '-'], JSON.stringify(web));
      await set.k(['wait', '--for=condition=Ready', 'pod/web', `--timeout=${SLOW_MS / 1000}s`]);
      await show('get', 'pods', '-o', 'wide');
      const log = await show('logs', 'web');
      assert.match(log, /app runs only as .*: this is no process$/);
      const running = programsBelow(node.pid).filter((program) => /containerd|runc|pause/.test(program));
      assert.deepEqual(running, [], 'nothing runs a container');
      await set.k(['delete', 'pod', 'web', `--timeout=${SLOW_MS / 1000}s`]);
      const lines = served.out().split('\n');
      shown.push(...lines.filter((line) => /default\/web/.test(line) && !/ContainerStatus|PodSandboxStatus|ExecSync/.test(line)));
      for (const call of [
        /RunPodSandbox +default\/web#0/,
        /StartContainer +default\/web#0\/setup#0/,
        /ExecSync +default\/web#0\/app#0/,
        /StopContainer +default\/web#0\/app#0/,
      ])
        assert.ok(
          lines.some((line) => call.test(line) && line.endsWith('OK  (as recorded)')),
          String(call),
        );
    }
    console.log(shown.join('\n').replaceAll(ROOT, ''));
    await tellInit(node.directory, `stop ${kubelet}`);
  });
}
