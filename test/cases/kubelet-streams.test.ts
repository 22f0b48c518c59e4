import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { createHash, randomBytes } from 'node:crypto';
import { readdirSync, readFileSync, writeFileSync } from 'node:fs';
import { request } from 'node:http';
import { connect } from 'node:net';
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
  return { code: result.exitCode ?? -1, out: `${result.stdout}`, err: `${result.stderr}` };
}

async function openFiles(): Promise<number> {
  return readdirSync(`/proc/${await at.programPid('agent')}/fd`).length;
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
    await eventually('the agent has closed what it opened', 30_000, async () => ((await openFiles()) <= before ? true : null));
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

  test(`KB-39: a connection that breaks ends alone, over ${protocol}`, { skip, timeout: 120_000 }, async () => {
    const name = `serve-${protocol.toLowerCase()}`;
    // This server answers a POST and closes without reading the body.
    await at.create(name, {
      terminationGracePeriodSeconds: 1,
      containers: [box('m', shell('mkdir /w; echo hello > /w/index.html; exec httpd -f -p 8080 -h /w'))],
    });
    await at.ready(name);
    const before = await openFiles();
    const { kubeconfig } = await at.set.status();
    const forward = spawn('kubectl', [`--kubeconfig=${kubeconfig}`, '-n', NAMESPACE, 'port-forward', name, ':8080', ':8081'], {
      stdio: ['ignore', 'pipe', 'pipe'],
      env: { ...process.env, ...env },
    });
    try {
      let said = '';
      forward.stdout.setEncoding('utf8').on('data', (text: string) => (said += text));
      forward.stderr.setEncoding('utf8').on('data', (text: string) => (said += text));
      const portOf = (to: number): Promise<number> =>
        eventually(`the local port of ${to}`, 20_000, async () => Number(new RegExp(`127\\.0\\.0\\.1:(\\d+) -> ${to}`).exec(said)?.[1] ?? 0) || null);
      const port = await portOf(8080);
      const closed = await portOf(8081);
      const get = (): Promise<string> =>
        new Promise((resolve, reject) => {
          const call = request({ host: '127.0.0.1', port, path: '/index.html', agent: false, timeout: 20_000 }, (response) => {
            let body = '';
            response.setEncoding('utf8').on('data', (text: string) => (body += text));
            response.on('end', () => resolve(`${response.statusCode} ${body.trim()}`));
            response.on('error', reject);
          });
          call.on('timeout', () => call.destroy(new Error('no answer')));
          call.on('error', reject);
          call.end();
        });
      assert.equal(await get(), '200 hello');
      const post = await new Promise<string>((resolve) => {
        const call = request(
          { host: '127.0.0.1', port, method: 'POST', path: '/index.html', agent: false, timeout: 20_000, headers: { 'content-length': 20 * 2 ** 20 } },
          (response) => {
            response.resume();
            response.on('error', () => {});
            resolve(String(response.statusCode));
          },
        );
        call.on('timeout', () => call.destroy(new Error('hangs')));
        call.on('error', (error) => resolve(error.message));
        call.end(Buffer.alloc(20 * 2 ** 20));
      });
      assert.notEqual(post, 'hangs');
      for (let turn = 0; turn < 50; turn += 1) assert.equal(await get(), '200 hello', `request ${turn} after the broken one (${post}); ${said}`);
      assert.deepEqual(
        await Promise.all(Array.from({ length: 20 }, get)),
        Array.from({ length: 20 }, () => '200 hello'),
      );
      await new Promise<void>((resolve) => {
        const socket = connect(closed, '127.0.0.1');
        socket.on('error', () => {});
        socket.on('close', () => resolve());
        socket.resume();
      });
      await eventually('the error of the closed port', 20_000, async () => (/error forwarding port 8081|8081.*(?:refused|failed)/i.test(said) ? true : null));
      // kubectl itself gives up after an error of one port, so what the session is worth then shows with a new one only.
    } finally {
      forward.kill('SIGKILL');
    }
    await eventually('the agent has closed what it opened', 30_000, async () => ((await openFiles()) <= before ? true : null));
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
