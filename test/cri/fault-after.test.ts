import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { readRecording } from '../../cri/io/recording-read.ts';
import { clusterProblem } from '../cluster/programs.ts';
import { eventually, kubectlProblem, setProblem, testSet, type TestSet } from '../set.ts';

/*
 * The runtime makes a pod's sandbox, and the kubelet is told that it took too long: what does it do next? Shown in
 * docs/cri.md for both makes.
 */
const ROOT = new URL('../..', import.meta.url).pathname;
const RULE = 'RunPodSandbox pod=default/web nth=1 after error deadline';
const SLOW_MS = 240_000;

const problem = (await setProblem()) ?? (await kubectlProblem());
const noCluster = await clusterProblem(process.env, { agents: ['upstream'], proxies: [], containerd: '2.4' });

const web = {
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: 'web', namespace: 'default' },
  spec: {
    terminationGracePeriodSeconds: 1,
    containers: [{ name: 'app', image: 'registry.k8s.io/e2e-test-images/busybox:1.37.0-2', command: ['sleep', 'infinity'] }],
  },
};

interface AttachedTap extends AsyncDisposable {
  readonly control: string;
}

async function attached(set: TestSet, record: string): Promise<AttachedTap> {
  const words = ['cri', 'attach', '--node', 'node-1', '--name', set.name, '--record', record, '--json'];
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', `${ROOT}dist/nodelet.mjs`, ...words], {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, NODELET_ROOT: ROOT },
  });
  let said = '';
  let out = '';
  child.stderr.on('data', (bytes: Buffer) => (said += bytes.toString()));
  child.stdout.on('data', (bytes: Buffer) => (out += bytes.toString()));
  const ended = once(child, 'close');
  await eventually('the tap is attached', SLOW_MS, async () => {
    assert.equal(child.exitCode, null, said);
    return out.includes('\n') ? true : null;
  });
  return {
    control: (JSON.parse(out) as { control: string }).control,
    [Symbol.asyncDispose]: async () => {
      child.kill('SIGTERM');
      await ended;
    },
  };
}

interface MadeSandbox {
  readonly attempt: number;
  readonly status: string;
  readonly isOurs: boolean;
}

async function sandboxesMade(record: string): Promise<MadeSandbox[]> {
  const made: MadeSandbox[] = [];
  for await (const entry of readRecording(record)) {
    if (entry.type !== 'call' || entry.method !== 'RunPodSandbox') continue;
    const [request] = entry.requests;
    assert.ok(request !== undefined && 'fields' in request);
    const { name, attempt = 0 } = (request.fields as { config: { metadata: { name: string; attempt?: number } } }).config.metadata;
    if (name !== 'web') continue;
    made.push({ attempt, status: entry.status?.name ?? 'cut', isOurs: entry.trailers?.['nodelet-fault'] !== undefined });
  }
  return made;
}

for (const { agent, name, start, args, skip } of [
  { agent: 'our agent', name: 'fault-ours', start: ['up'], args: [], skip: problem },
  {
    agent: 'upstream’s kubelet',
    name: 'fault-upstream',
    start: ['cluster', 'up'],
    args: ['--agent', 'upstream', '--images', 'basic'],
    skip: problem ?? noCluster,
  },
]) {
  if (skip !== null) console.log(`skipped: ${agent} and a sandbox that is made and told as failed: ${skip}`);
  test(
    `${agent} is told that a sandbox failed which was made: the pod runs all the same, and none is left over`,
    { skip: skip ?? false, timeout: 900_000 },
    async () => {
      const folder = await mkdtemp(join(tmpdir(), 'fault-after-'));
      await using set = await testSet(name, args, start);
      await eventually('the service account', SLOW_MS, async () => ((await set.kubectl(['get', 'serviceaccount', 'default'])).code === 0 ? true : null));
      const record = join(folder, 'calls.crirec');
      {
        await using tap = await attached(set, record);
        const cri = async (...words: readonly string[]): Promise<string> => {
          const { code, out, err } = await execNodelet(['cri', ...words]);
          assert.equal(code, 0, err);
          return out;
        };
        await cri('fault', RULE, '--tap', tap.control);
        await set.k(['apply', '-f', '-'], JSON.stringify(web));
        await set.k(['wait', '--for=condition=Ready', 'pod/web', `--timeout=${SLOW_MS / 1000}s`]);
        console.log(await cri('fault', '--list', '--tap', tap.control));
        console.log(await set.k(['get', 'events', '--field-selector', 'involvedObject.name=web', '-o', 'custom-columns=REASON:.reason,MESSAGE:.message']));
        console.log(await set.k(['get', 'pod', 'web']));
        await cri('fault', '--clear', '--tap', tap.control);
        const { rules } = JSON.parse(await cri('fault', '--list', '--json', '--tap', tap.control)) as { rules: unknown[] };
        assert.deepEqual(rules, []);
      }
      console.log((await execNodelet(['cri', 'show', record, '--pod', 'default/web'])).out);
      const [first, ...others] = await sandboxesMade(record);
      assert.deepEqual(first, { attempt: 0, status: 'DeadlineExceeded', isOurs: true });
      assert.ok(
        others.every(({ isOurs }) => !isOurs),
        'the rule is for the first alone',
      );
      assert.ok(others.filter(({ status }) => status === 'OK').length <= 1, JSON.stringify(others));
      await rm(folder, { recursive: true });
    },
  );
}

async function execNodelet(words: readonly string[]): Promise<{ code: number; out: string; err: string }> {
  const child = spawn(`${ROOT}nodelet`, words, { stdio: ['ignore', 'pipe', 'pipe'] });
  let out = '';
  let err = '';
  child.stdout.on('data', (bytes: Buffer) => (out += bytes.toString()));
  child.stderr.on('data', (bytes: Buffer) => (err += bytes.toString()));
  const [code] = (await once(child, 'close')) as [number | null];
  return { code: code ?? -1, out, err };
}
