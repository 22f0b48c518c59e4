import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { rmSync, writeFileSync } from 'node:fs';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { createServer as createHttp } from 'node:http';
import { createServer as createHttp2, type ServerHttp2Stream } from 'node:http2';
import { request } from 'node:https';
import { connect, createServer, type AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { eventually } from '../set.ts';
import { freePort, startForTest } from '../control/control.ts';
import { buildProgram, sysProblem } from '../sys/program.ts';
import { bareConfiguration } from './bare-configuration.ts';

/* The agent on a machine without an API server: pods from files and a URL, and a control plane that comes up out of its own static pods. The runtime is the one in memory. */

const repo = new URL('../..', import.meta.url).pathname;
const skip = process.getuid?.() !== 0 ? 'the agent needs root' : false;

interface Pods {
  readonly items: readonly {
    readonly metadata: { readonly name: string; readonly annotations?: Record<string, string> };
    readonly status?: { readonly phase?: string; readonly containerStatuses?: readonly { readonly restartCount: number; readonly ready: boolean }[] };
  }[];
}

class Agent {
  readonly folder: string;
  readonly port: number;
  child: ChildProcess | undefined;
  said = '';

  private constructor(folder: string, port: number) {
    this.folder = folder;
    this.port = port;
  }

  static async open(t: TestContext): Promise<Agent> {
    const agent = new Agent(await mkdtemp(join(tmpdir(), 'standalone-')), await freePort());
    const socket = join(agent.folder, 'cri.sock');
    const runtime = spawn(process.execPath, [join(repo, 'test/cri/fake-runtime.ts'), socket, 'pulls'], { stdio: ['ignore', 'pipe', 'inherit'] });
    await once(runtime.stdout, 'data');
    t.after(async () => {
      const ended = agent.child?.exitCode === null ? once(agent.child, 'exit') : null;
      agent.child?.kill('SIGKILL');
      runtime.kill('SIGKILL');
      await ended;
      await rm(agent.folder, { recursive: true, force: true });
    });
    await mkdir(join(agent.folder, 'manifests'));
    return agent;
  }

  async manifest(name: string, spec: object = {}): Promise<void> {
    await writeFile(join(this.folder, 'manifests', `${name}.yaml`), JSON.stringify(podOf(name, spec)));
  }

  async start(config: object, args: readonly string[] = [], env: Readonly<Record<string, string>> = {}): Promise<void> {
    await writeFile(
      join(this.folder, 'kubelet.yaml'),
      JSON.stringify({
        ...bareConfiguration({ folder: this.folder, port: this.port }),
        ...config,
      }),
    );
    const own = [`--config=${join(this.folder, 'kubelet.yaml')}`, '--hostname-override=n1', `--root-dir=${join(this.folder, 'root')}`];
    this.child = spawn(process.execPath, [join(repo, 'node/main.ts'), 'agent', ...own, ...args], {
      stdio: ['ignore', 'ignore', 'pipe'],
      env: { ...process.env, ...env },
    });
    this.child.stderr?.setEncoding('utf8').on('data', (text: string) => (this.said += text));
  }

  /** Names and phases, in order; null while the agent does not answer. */
  async pods(): Promise<string[] | null> {
    const items = await this.items();
    return items?.map(({ metadata, status }) => `${metadata.name} ${status?.phase}`).toSorted() ?? null;
  }

  async items(): Promise<Pods['items'] | null> {
    const sent = request({ host: '127.0.0.1', port: this.port, path: '/pods', rejectUnauthorized: false, agent: false });
    sent.end();
    try {
      const [response] = (await once(sent, 'response')) as [AsyncIterable<Buffer>];
      let text = '';
      for await (const piece of response) text += String(piece);
      return (JSON.parse(text) as Pods).items;
    } catch {
      return null;
    }
  }

  async until(expected: readonly string[]): Promise<void> {
    let last: string[] | null = null;
    await eventually(`the pods ${expected.join(', ')} (${this.said.slice(-500)})`, 120_000, async () => {
      last = await this.pods();
      return JSON.stringify(last) === JSON.stringify(expected) ? true : null;
    }).catch((error: unknown) => assert.deepEqual(last, expected, `${String(error)} ${this.said.slice(-2000)}`));
  }
}

const podOf = (name: string, spec: object = {}) => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name, namespace: 'kube-system' },
  spec: { hostNetwork: true, containers: [{ name: 'c', image: 'registry.example/app:1', imagePullPolicy: 'IfNotPresent' }], ...spec },
});

test('standalone: pods from files and from a URL run, change and end without an API server', { skip, timeout: 360_000 }, async (t) => {
  const answer = { body: JSON.stringify({ apiVersion: 'v1', kind: 'PodList', items: [podOf('web')] }) };
  const source = createHttp((_, response) => response.end(answer.body)).listen(0, '127.0.0.1');
  t.after(() => source.close());
  await once(source, 'listening');
  const agent = await Agent.open(t);
  await agent.manifest('file');
  await agent.start({ staticPodURL: `http://127.0.0.1:${(source.address() as AddressInfo).port}/pods`, httpCheckFrequency: '1s' });
  await agent.until(['file-n1 Running', 'web-n1 Running']);
  answer.body = JSON.stringify({ apiVersion: 'v1', kind: 'PodList', items: [] });
  await rm(join(agent.folder, 'manifests/file.yaml'));
  await agent.manifest('later');
  await agent.until(['later-n1 Running']);
  assert.match(agent.said, /"Standalone mode, no API client"/);
  const child = agent.child ?? assert.fail('it does not run');
  child.kill('SIGTERM');
  assert.deepEqual(await once(child, 'exit'), [0, null]);
});

test(
  'standalone: it waits for its lock file, and gives it up to who opens it where it is told to',
  { skip: skip || sysProblem(), timeout: 240_000 },
  async (t) => {
    using program = buildProgram();
    const [first, second] = [await Agent.open(t), await Agent.open(t)];
    const args = [`--lock-file=${first.folder}/lock`];
    await first.manifest('one');
    await second.manifest('two');
    await first.start({}, [...args, '--exit-on-lock-contention'], { NODELET_SYS: program.path });
    await first.until(['one-n1 Running']);
    const child = first.child ?? assert.fail('it does not run');
    const ended = once(child, 'exit');
    await second.start({}, args, { NODELET_SYS: program.path });
    assert.deepEqual(await ended, [0, null]);
    assert.match(first.said, /"The lock file was opened by somebody else"/);
    await second.until(['two-n1 Running']);
  },
);

test('standalone: a file that is removed and written again at once gives its pod a restart', { skip, timeout: 120_000 }, async (t) => {
  const agent = await Agent.open(t);
  const file = join(agent.folder, 'manifests/file.yaml');
  writeFileSync(file, JSON.stringify(podOf('file')));
  await agent.start({});
  await agent.until(['file-n1 Running']);
  rmSync(file);
  writeFileSync(file, JSON.stringify(podOf('file')));
  await eventually('a restart', 60_000, async () => {
    const [status] = (await agent.items())?.[0]?.status?.containerStatuses ?? [];
    return status?.restartCount === 1 && status.ready ? true : null;
  });
});

test('spans of a pod’s start reach a collector', { skip, timeout: 240_000 }, async (t) => {
  let got = '';
  const sessions = new Set<{ destroy(): void }>();
  const collector = createHttp2()
    .on('session', (session) => sessions.add(session))
    .on('stream', (stream: ServerHttp2Stream) => {
      stream.on('data', (piece: Buffer) => (got += piece.toString('latin1')));
      stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true });
      stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
      stream.on('end', () => stream.end(Buffer.alloc(5)));
    })
    .listen(0, '127.0.0.1');
  t.after(() => {
    for (const session of sessions) session.destroy();
    collector.close();
  });
  await once(collector, 'listening');
  const agent = await Agent.open(t);
  await agent.manifest('file');
  await agent.start({ tracing: { endpoint: `127.0.0.1:${(collector.address() as AddressInfo).port}`, samplingRatePerMillion: 1_000_000 } });
  await agent.until(['file-n1 Running']);
  const words = ['syncPod', 'k8s.pod.name', 'file-n1', 'runtime.v1.RuntimeService/RunPodSandbox', 'runtime.v1.ImageService/PullImage', 'GET /pods'];
  await eventually(`spans with ${words.join(', ')}`, 30_000, async () => (words.every((word) => got.includes(word)) ? true : null));
});

test('standalone: what needs an API server is refused at the start', { skip, timeout: 60_000 }, async (t) => {
  const agent = await Agent.open(t);
  await agent.start({ authentication: { webhook: { enabled: true } } });
  const [code] = (await once(agent.child ?? assert.fail('it does not run'), 'exit')) as [number];
  assert.equal(code, 1);
  assert.match(agent.said, /no client provided, cannot use webhook authentication/);
});

test(
  'a control plane’s four static pods run while there is no API server, and get their mirror pods once it answers',
  { skip, timeout: 240_000 },
  async (t) => {
    const agent = await Agent.open(t);
    const names = ['etcd', 'kube-apiserver', 'kube-controller-manager', 'kube-scheduler'];
    for (const name of names) await agent.manifest(name, { priorityClassName: 'system-node-critical', priority: 2_000_001_000 });
    await using control = await startForTest();
    // Until it listens, connections to the API server's address are refused.
    const port = await freePort();
    const gate = createServer((client) => {
      const server = connect(Number(new URL(control.server).port), '127.0.0.1');
      client.on('error', () => server.destroy()).on('close', () => server.destroy());
      server.on('error', () => client.destroy()).on('close', () => client.destroy());
      client.pipe(server).pipe(client);
    });
    t.after(() => gate.close());
    const kubeconfig = join(agent.folder, 'kubeconfig');
    await writeFile(kubeconfig, (await readFile(control.kubeconfig, 'utf8')).replaceAll(control.server, `https://127.0.0.1:${port}`));
    await agent.start({}, [`--kubeconfig=${kubeconfig}`]);
    await agent.until(names.map((name) => `${name}-n1 Running`));
    // A broken API server is mended by its file while the agent is away: the old one ends, though nobody can be asked of it.
    const stopped = agent.child ?? assert.fail('it does not run');
    stopped.kill('SIGTERM');
    await once(stopped, 'exit');
    await agent.manifest('kube-apiserver', {
      priorityClassName: 'system-node-critical',
      priority: 2_000_001_000,
      containers: [{ name: 'c', image: 'registry.example/app:1', imagePullPolicy: 'IfNotPresent', args: ['--mended'] }],
    });
    await agent.start({}, [`--kubeconfig=${kubeconfig}`]);
    await agent.until(names.map((name) => `${name}-n1 Running`));
    gate.listen(port, '127.0.0.1');
    const mirrors = await eventually('the mirror pods', 90_000, async () => {
      const { out } = await control.kubectl(['get', 'pods', '-n', 'kube-system', '-o', 'json']);
      const { items } = JSON.parse(out === '' ? '{"items":[]}' : out) as Pods;
      const ours = items.filter(({ metadata }) => metadata.annotations?.['kubernetes.io/config.mirror'] !== undefined);
      return ours.length === names.length && ours.every(({ status }) => status?.phase === 'Running') ? ours : null;
    });
    assert.deepEqual(
      mirrors.map(({ metadata }) => metadata.name).toSorted(),
      names.map((name) => `${name}-n1`),
    );
  },
);

test('a static pod stays started and ready while its agent starts again, though its probes fail then', { skip, timeout: 120_000 }, async (t) => {
  const agent = await Agent.open(t);
  await using control = await startForTest();
  const probed = createServer((client) => client.destroy()).listen(0, '127.0.0.1');
  t.after(() => probed.close());
  await once(probed, 'listening');
  const tcpSocket = { host: '127.0.0.1', port: (probed.address() as AddressInfo).port };
  const probe = { tcpSocket, periodSeconds: 30, failureThreshold: 3 };
  const container = { name: 'c', image: 'registry.example/app:1', imagePullPolicy: 'IfNotPresent', startupProbe: probe, readinessProbe: probe };
  await agent.manifest('probed', { containers: [container] });
  await agent.start({}, [`--kubeconfig=${control.kubeconfig}`]);
  const words = '{.status.startTime} {.status.containerStatuses[0].started} {.status.containerStatuses[0].ready}{"\\n"}';
  const get = ['get', 'pod', 'probed-n1', '-n', 'kube-system', '-o', `jsonpath=${words}`];
  const first = await eventually('a ready mirror', 60_000, async () => {
    const { out } = await control.kubectl(get);
    return / true true$/m.test(out) ? out.trim() : null;
  });
  const child = agent.child ?? assert.fail('it does not run');
  child.kill('SIGTERM');
  await once(child, 'exit');
  probed.close();
  const watching = control.kubectl([...get, '--watch', '--request-timeout=12s']);
  await agent.start({}, [`--kubeconfig=${control.kubeconfig}`]);
  const seen = (await watching).out.trim().split('\n');
  assert.match(agent.said.slice(agent.said.lastIndexOf('"Kubelet version"')), /Static pods read/);
  assert.deepEqual([...new Set(seen)], [first]);
});
