import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { after, before, test } from 'node:test';
import { execa } from 'execa';
import { eventually } from '../set.ts';
import { box, Cases, isRunning, NAMESPACE, shell, skip, untilTerm } from './world.ts';

/* Logs, exec, attach and port-forward through the agent's own server, with stock kubectl, on one real set. */
let at: Cases;
before(async () => {
  if (skip !== false) return;
  at = await Cases.open('kc-streams');
  const path = `${at.folder}/agent.json`;
  const config = JSON.parse(readFileSync(path, 'utf8')) as object;
  writeFileSync(path, JSON.stringify({ ...config, containerLogMaxSize: '100Ki', containerLogMaxFiles: 3, containerLogMonitorInterval: '3s' }));
  await at.init('restart agent');
  await at.create('p', { terminationGracePeriodSeconds: 1, containers: [box('m', untilTerm('exit 0'))] });
  await at.ready('p');
});
after(() => at?.[Symbol.asyncDispose]());

/** Over WebSocket, or over SPDY as older clients do. */
const protocols = {
  WebSocket: {},
  SPDY: { KUBECTL_REMOTE_COMMAND_WEBSOCKETS: 'false', KUBECTL_PORT_FORWARD_WEBSOCKETS: 'false' },
};

async function kubectl(args: readonly string[], env: Record<string, string>, input?: Buffer | string): Promise<{ code: number; out: string; err: string }> {
  const { kubeconfig } = await at.set.status();
  const result = await execa('kubectl', [`--kubeconfig=${kubeconfig}`, '-n', NAMESPACE, ...args], {
    reject: false,
    timeout: 60_000,
    env,
    ...(input === undefined ? { stdin: 'ignore' as const } : { input }),
  });
  return { code: result.exitCode ?? -1, out: result.stdout, err: result.stderr };
}

/** A connection of the agent's own may open or close meanwhile; a stream that is left behind is two. */
const OWN = 1;

async function openFiles(): Promise<number> {
  return readdirSync(`/proc/${await at.programPid('agent')}/fd`).length;
}

/** `kubectl port-forward` to one port of a pod. */
class Forward implements AsyncDisposable {
  readonly #child: ChildProcess;
  readonly #ended: Promise<unknown>;
  #port = 0;
  said = '';

  private constructor(child: ChildProcess) {
    this.#child = child;
    this.#ended = new Promise((resolve) => child.on('close', resolve));
    for (const stream of [child.stdout, child.stderr]) stream?.setEncoding('utf8').on('data', (text: string) => (this.said += text));
  }

  static async open(pod: string, to: number, env: Record<string, string>): Promise<Forward> {
    const { kubeconfig } = await at.set.status();
    const args = [`--kubeconfig=${kubeconfig}`, '-n', NAMESPACE, 'port-forward', pod, `:${to}`];
    const forward = new Forward(spawn('kubectl', args, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env } }));
    const port = async (): Promise<number | null> => Number(new RegExp(`127\\.0\\.0\\.1:(\\d+) -> ${to}`).exec(forward.said)?.[1] ?? 0) || null;
    forward.#port = await eventually(`the local port of ${to}`, 20_000, port);
    return forward;
  }

  /** Status and body. */
  get(): Promise<string> {
    return new Promise((resolve, reject) => {
      const call = request({ host: '127.0.0.1', port: this.#port, path: '/index.html', agent: false, timeout: 20_000 }, (response) => {
        let body = '';
        response.setEncoding('utf8').on('data', (text: string) => (body += text));
        response.on('end', () => resolve(`${response.statusCode} ${body.trim()}`));
        response.on('error', reject);
      });
      call.on('timeout', () => call.destroy(new Error('no answer')));
      call.on('error', reject);
      call.end();
    });
  }

  /** The status, or how it broke, or `hangs`. */
  post(bytes: number): Promise<string> {
    return new Promise((resolve) => {
      const options = { host: '127.0.0.1', port: this.#port, method: 'POST', path: '/index.html', agent: false, timeout: 20_000 };
      const call = request({ ...options, headers: { 'content-length': bytes } }, (response) => {
        response.resume();
        response.on('error', () => {});
        resolve(String(response.statusCode));
      });
      call.on('timeout', () => call.destroy(new Error('hangs')));
      call.on('error', (error) => resolve(error.message));
      call.end(Buffer.alloc(bytes));
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.#ended;
  }
}

for (const [protocol, env] of Object.entries(protocols)) {
  test(`KB-41: exec over ${protocol}: closed input, later output, exit code; five megabytes through`, { skip, timeout: 120_000 }, async () => {
    const startedMs = performance.now();
    const half = await kubectl(['exec', '-i', 'p', '--', 'sh', '-c', 'cat; sleep 2; echo done; echo said >&2; exit 7'], env, 'abc');
    assert.deepEqual([half.out, half.code], ['abcdone', 7]);
    assert.match(half.err, /^said$/m);
    assert.match(half.err, /command terminated with exit code 7/);
    assert.ok(performance.now() - startedMs < 20_000);
    const bytes = randomBytes(5 * 2 ** 20);
    const sum = await kubectl(['exec', '-i', 'p', '--', 'sh', '-c', 'cat | md5sum'], env, bytes);
    assert.equal(sum.out.split(' ')[0], createHash('md5').update(bytes).digest('hex'), sum.err);
    const down = await kubectl(['exec', 'p', '--', 'sh', '-c', 'dd if=/dev/zero bs=1M count=5 2>/dev/null | od -v -An -tx1 | wc -l'], env);
    assert.equal(down.out.trim(), String((5 * 2 ** 20) / 16));
  });

  test(`KB-41: a client that disappears leaves nothing open, over ${protocol}`, { skip, timeout: 120_000 }, async () => {
    const before = await openFiles();
    const { kubeconfig } = await at.set.status();
    const child = spawn('kubectl', [`--kubeconfig=${kubeconfig}`, '-n', NAMESPACE, 'exec', '-i', 'p', '--', 'sh', '-c', 'echo here; sleep 3000'], {
      stdio: ['pipe', 'pipe', 'ignore'],
      env: { ...process.env, ...env },
    });
    await new Promise((resolve) => child.stdout.once('data', resolve));
    child.kill('SIGKILL');
    await eventually('the agent has closed what it opened', 30_000, async () => ((await openFiles()) <= before + OWN ? true : null));
    await at.k('exec', 'p', '--', 'pkill', '-f', 'sleep 3000').catch(() => {});
  });

  test(`attach gives input and takes output, over ${protocol}`, { skip, timeout: 60_000 }, async () => {
    const name = `attach-${protocol.toLowerCase()}`;
    await at.create(name, { terminationGracePeriodSeconds: 1, restartPolicy: 'Never', containers: [{ ...box('m', ['cat']), stdin: true, stdinOnce: true }] });
    await at.watch.pod(name, 'running', 60_000, (pod) => isRunning(pod));
    const answer = await kubectl(['attach', '-i', name], env, 'over and out\n');
    assert.equal(answer.out, 'over and out', answer.err);
    await at.watch.pod(name, 'Succeeded', 30_000, (pod) => pod.status?.phase === 'Succeeded');
  });

  test(`KB-39: connections that break or find nobody leave the agent whole, over ${protocol}`, { skip, timeout: 120_000 }, async () => {
    const name = `serve-${protocol.toLowerCase()}`;
    // This server answers a POST and closes without reading the body.
    await at.create(name, {
      terminationGracePeriodSeconds: 1,
      containers: [box('m', shell('mkdir /w; echo hello > /w/index.html; exec httpd -f -p 8080 -h /w'))],
    });
    await at.ready(name);
    const before = await openFiles();
    {
      await using forward = await Forward.open(name, 8080, env);
      for (let turn = 0; turn < 50; turn += 1) assert.equal(await forward.get(), '200 hello', `request ${turn}; ${forward.said}`);
      assert.deepEqual(
        await Promise.all(Array.from({ length: 20 }, () => forward.get())),
        Array.from({ length: 20 }, () => '200 hello'),
      );
      // Whether the session goes on after this is up to kubectl and the runtime, which carry it; the stream must not hang.
      assert.notEqual(await forward.post(20 * 2 ** 20), 'hangs');
    }
    {
      await using forward = await Forward.open(name, 8081, env);
      await forward.get().catch(() => {});
      await eventually('the error of the closed port', 20_000, async () => (/error forwarding port 8081.*connection refused/.test(forward.said) ? true : null));
    }
    {
      await using forward = await Forward.open(name, 8080, env);
      assert.equal(await forward.get(), '200 hello', 'the next session is not harmed');
    }
    await eventually('the agent has closed what it opened', 30_000, async () => ((await openFiles()) <= before + OWN ? true : null));
    await at.remove(name);
  });
}

test('KB-23: a followed log goes on over rotations, each line once and in order', { skip, timeout: 180_000 }, async () => {
  const lines = 6000;
  const script = `i=0; while [ $i -lt ${lines} ]; do n=0; while [ $n -lt 20 ]; do printf "%06d %093d\\n" $i 0; i=$((i+1)); n=$((n+1)); done; sleep 0.1; done; sleep 5`;
  await at.create('talks', { restartPolicy: 'Never', containers: [box('m', shell(script))] });
  const { metadata } = await at.watch.pod('talks', 'running', 60_000, (pod) => isRunning(pod));
  const { kubeconfig } = await at.set.status();
  const child = spawn('kubectl', [`--kubeconfig=${kubeconfig}`, '-n', NAMESPACE, 'logs', '-f', 'talks'], { stdio: ['ignore', 'pipe', 'inherit'] });
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => (text += chunk));
  const ended = new Promise<number>((resolve) => child.on('close', () => resolve(performance.now())));
  const folder = `/var/log/pods/${NAMESPACE}_talks_${metadata?.uid}/m`;
  const rotated = new Set<string>();
  let most = 0;
  await at.watch.until('the end', 150_000, () => {
    const names = readdirSync(at.path(folder));
    most = Math.max(most, names.filter((name) => !name.endsWith('.tmp')).length);
    for (const name of names) if (name !== '0.log') rotated.add(name.replace(/\.(gz|tmp)$/, ''));
    return at.watch.last('talks')?.status?.phase === 'Succeeded' ? true : null;
  });
  const succeededMs = performance.now();
  assert.ok((await ended) - succeededMs < 10_000, 'following ends with the container');
  const numbers = text
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => Number(line.split(' ')[0]));
  assert.equal(numbers.length, lines);
  assert.ok(
    numbers.every((number, index) => number === index),
    'each number once and in order',
  );
  assert.ok(rotated.size >= 3, `${rotated.size} rotations: ${[...rotated].join(' ')}`);
  assert.ok(most <= 4, `${most} files at once`);
  assert.ok(readdirSync(at.path(folder)).some((name) => name.endsWith('.gz')));
  await at.remove('talks');
});
