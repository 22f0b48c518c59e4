import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { connectRuntime, createCriClient, type CriClient } from '../../cri/mod.ts';
import type { Container, ContainerStatus, Pod, PodSpec } from '../../proto/kube/types.ts';
import { eventually, kubectlProblem, setProblem, testSet, type TestSet } from '../set.ts';
import { runtimeCalls, type RuntimeCall } from './calls.ts';
import { Watch } from './watch.ts';

/** Why the cases cannot run here, or false: node:test's `skip`. */
export const skip: string | false = (await setProblem()) ?? (await kubectlProblem()) ?? false;
if (skip !== false) console.log(`cases: skipped, ${skip}`);

export const IMAGE = 'busybox:1.37';
export const NAMESPACE = 'cases';

/** A shell that goes on until TERM, with its own words at that signal. */
export const untilTerm = (atTerm: string, before = 'true'): string[] => ['sh', '-c', `trap '${atTerm}' TERM; ${before}; while :; do sleep 0.2; done`];
export const deaf = untilTerm('');
export const shell = (script: string): string[] => ['sh', '-c', script];

/** A container of the test's image. */
export const box = (name: string, command: string[], more: Partial<Container> = {}): Container => ({ name, image: IMAGE, command, ...more });

/** A kubelet of upstream's to run the cases on, in place of the agent: what it does is what is right. */
const upstream = process.env['NODELET_CASES_KUBELET'];

async function tellInit(folder: string, line: string): Promise<void> {
  const socket = connect(`${folder}/init.ctl`);
  socket.write(`${line}\n`);
  let answer = '';
  for await (const chunk of socket) answer += String(chunk);
  if (!answer.startsWith('ok')) throw new Error(`init: "${line}" was answered ${JSON.stringify(answer)}`);
}

/** The same flags, configuration, certificates and folders, another program. */
async function useUpstream(kubelet: string, folder: string, initPid: number): Promise<void> {
  const path = `${folder}/init.spec`;
  const services = readFileSync(path, 'utf8').split('\n\n');
  const changed = services.map((text) => (text.startsWith('service agent\n') ? text.replace(/argv [\s\S]*?\nargv agent\n/, `argv ${kubelet}\n`) : text));
  writeFileSync(path, changed.join('\n\n'));
  await tellInit(folder, 'stop agent');
  process.kill(initPid, 'SIGHUP');
  await tellInit(folder, 'start agent');
}

/** A set of its own with one namespace, watched from the start, and the node's insides at hand. */
export class Cases implements AsyncDisposable {
  readonly set: TestSet;
  readonly watch: Watch;
  /** The node's first process, on this machine. */
  readonly pid: number;
  /** The node's folder on this machine. */
  readonly folder: string;
  readonly cri: CriClient;

  private constructor(set: TestSet, watch: Watch, node: { pid: number; directory: string }) {
    this.set = set;
    this.watch = watch;
    this.pid = node.pid;
    this.folder = node.directory;
    this.cri = createCriClient(connectRuntime(this.path('/run/containerd/containerd.sock')));
  }

  /** @param args more words for `nodelet up` */
  static async open(name: string, args: readonly string[] = []): Promise<Cases> {
    const set = await testSet(name, args);
    try {
      await set.nodelet(['image', 'make', IMAGE, '--from', 'busybox']);
      await set.k(['create', 'namespace', NAMESPACE]);
      await eventually('the namespace’s service account', 20_000, async () =>
        (await set.kubectl(['-n', NAMESPACE, 'get', 'serviceaccount', 'default'])).code === 0 ? true : null,
      );
      const status = await set.status();
      const node = status.nodes[0];
      if (node === undefined || node.pid === null) throw new Error('the set has no running node');
      if (upstream !== undefined) await useUpstream(upstream, node.directory, node.pid);
      return new Cases(set, new Watch(status.kubeconfig, NAMESPACE), { pid: node.pid, directory: node.directory });
    } catch (error) {
      await set[Symbol.asyncDispose]();
      throw error;
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.watch[Symbol.dispose]();
    await this.cri[Symbol.asyncDispose]();
    await this.set[Symbol.asyncDispose]();
  }

  /** Gives the kubelet of the node other settings, beside those that it has, and starts it again; `meanwhile` is done while it is stopped. */
  async configure(settings: object, meanwhile?: () => Promise<unknown>): Promise<void> {
    const path = `${this.folder}/agent.json`;
    await this.stopAgent();
    writeFileSync(path, JSON.stringify({ ...(JSON.parse(readFileSync(path, 'utf8')) as object), ...settings }));
    await meanwhile?.();
    await this.init('start agent');
  }

  /** A path of the node as this machine sees it. */
  path(inNode: string): string {
    return `/proc/${this.pid}/root${inNode}`;
  }

  /** A file of the node, '' when it is not there. */
  file(inNode: string): string {
    return existsSync(this.path(inNode)) ? readFileSync(this.path(inNode), 'utf8') : '';
  }

  /** Lines of a file of the node. */
  lines(inNode: string): string[] {
    return this.file(inNode)
      .split('\n')
      .filter((line) => line !== '');
  }

  /** Mounts of the node below a path. */
  mounts(below: string): string[] {
    return readFileSync(`/proc/${this.pid}/mountinfo`, 'utf8')
      .split('\n')
      .map((line) => line.split(' ')[4] ?? '')
      .filter((path) => path.startsWith(below));
  }

  async k(...args: string[]): Promise<string> {
    return this.set.k(['-n', NAMESPACE, ...args]);
  }

  async apply(object: object): Promise<void> {
    await this.set.k(['apply', '-f', '-'], JSON.stringify(object));
  }

  async configMap(name: string, data: Record<string, string>): Promise<void> {
    await this.apply({ apiVersion: 'v1', kind: 'ConfigMap', metadata: { name, namespace: NAMESPACE }, data });
  }

  /** Creates a pod, bound to the node; a `log` volume is a folder of the node for containers that mount it. */
  async create(name: string, spec: Partial<PodSpec>, metadata: Record<string, unknown> = {}): Promise<void> {
    await this.apply({
      apiVersion: 'v1',
      kind: 'Pod',
      metadata: { name, namespace: NAMESPACE, ...metadata },
      spec: { ...spec, volumes: [{ name: 'log', hostPath: { path: `${this.folder}/cases/${name}`, type: 'DirectoryOrCreate' } }, ...(spec.volumes ?? [])] },
    });
  }

  /** A line file of the pod's `log` volume. */
  log(pod: string, file: string): string[] {
    return this.lines(`${this.folder}/cases/${pod}/${file}`);
  }

  async remove(name: string, ...options: string[]): Promise<void> {
    await this.k('delete', 'pod', name, '--wait=false', ...options);
  }

  async ready(name: string, timeoutMs = 60_000): Promise<Pod> {
    return this.watch.pod(name, 'ready', timeoutMs, (pod) => conditionOf(pod, 'Ready')?.status === 'True');
  }

  /** What the runtime was asked to do with a pod. */
  calls(pod: string): RuntimeCall[] {
    return runtimeCalls(`${this.folder}/log/containerd.log`).filter((call) => call.pod === pod);
  }

  /** A command in the namespaces of the node; its trimmed output. */
  async inNode(...argv: string[]): Promise<string> {
    const answer = await this.set.nodelet(['exec', '--', ...argv]);
    if (answer.code !== 0) throw new Error(`${argv.join(' ')} in the node ended with ${answer.code}: ${answer.err}`);
    return answer.out.trim();
  }

  /** One line to the node's PID 1: `stop agent`, `start agent`, `restart agent`. */
  async init(line: string): Promise<void> {
    await tellInit(this.folder, line);
  }

  /** The pid of a program of the node on this machine, or null. */
  async programPid(name: string): Promise<number | null> {
    return (await this.set.status()).processes.find((process) => process.place === 'node-1' && process.name === name)?.pid ?? null;
  }

  async stopAgent(): Promise<void> {
    const pid = await this.programPid('agent');
    await this.init('stop agent');
    await eventually('the agent is gone', 20_000, async () => (pid === null || !existsSync(`/proc/${pid}`) ? true : null));
  }

  /** Ids of a pod's containers, in every state. */
  async containers(pod: string, name?: string): Promise<{ id: string; name: string; attempt: number; running: boolean }[]> {
    const { containers } = await this.cri.runtime.listContainers({
      filter: { labelSelector: { 'io.kubernetes.pod.name': pod, 'io.kubernetes.pod.namespace': NAMESPACE } },
    });
    return containers
      .map((one) => ({ id: one.id, name: one.metadata?.name ?? '', attempt: one.metadata?.attempt ?? 0, running: one.state === 'CONTAINER_RUNNING' }))
      .filter((one) => name === undefined || one.name === name);
  }

  async sandboxes(pod: string): Promise<{ id: string; ready: boolean; uid: string }[]> {
    const { items } = await this.cri.runtime.listPodSandbox({
      filter: { labelSelector: { 'io.kubernetes.pod.name': pod, 'io.kubernetes.pod.namespace': NAMESPACE } },
    });
    return items.map((one) => ({ id: one.id, ready: one.state === 'SANDBOX_READY', uid: one.metadata?.uid ?? '' }));
  }
}

export const logMount = { name: 'log', mountPath: '/log' };

export const conditionOf = (pod: Pod, type: string) => pod.status?.conditions?.find((condition) => condition.type === type);

export const statusOf = (pod: Pod | undefined, name = 'm'): ContainerStatus | undefined =>
  [...(pod?.status?.initContainerStatuses ?? []), ...(pod?.status?.containerStatuses ?? []), ...(pod?.status?.ephemeralContainerStatuses ?? [])].find(
    (one) => one.name === name,
  );

export const isRunning = (pod: Pod, name = 'm'): boolean => statusOf(pod, name)?.state?.running !== undefined;
