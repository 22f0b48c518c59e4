import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { mkdir, open, readFile, rm, writeFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { realClock } from '../../../base/clock.ts';
import { exec, tryExec } from '../../../base/exec.ts';
import { messageOf, OpError } from '../../../base/errors.ts';
import { createKubeApi } from '../../../base/kubeapi/client.ts';
import { readKubeConfig } from '../../../base/kubeapi/config.ts';
import { nodes, pods } from '../../../base/kubeapi/refs.ts';
import type { KubeApi } from '../../../base/kubeapi/types.ts';
import { silentLog } from '../../../base/log.ts';
import { realRng } from '../../../base/rng.ts';
import { connectRuntime, createCriClient, type CriClient } from '../../../cri/mod.ts';
import { LAX_EVICTION } from '../../../node/core/files.ts';
import type { Node, Pod } from '../../../proto/kube/types.ts';
import { busyboxFiles, writeImage } from '../../contract/image-tar.ts';

export type Agent = 'ours' | 'upstream';
export type Driver = 'cgroupfs' | 'systemd';

export interface LoneOptions {
  readonly agent: Agent;
  readonly driver: Driver;
  /** A folder of its own, made anew; on a disk, not a tmpfs: containers' layers lie there. */
  readonly folder: string;
  /** Components; null: the distribution's containerd and runc, and no upstream kubelet. */
  readonly assets: string | null;
  /** Where nodelet.mjs and sys are. */
  readonly dist: string;
  /** The one image that pods have: a shell. */
  readonly image: string;
  readonly signal: AbortSignal;
  /** Fields of the kubelet's configuration from the start on. */
  readonly configuration?: Record<string, unknown>;
}

export const NODE = 'machine';
const ADDRESS = '10.91.0.1';
const POD_RANGE = '10.91.1.0/24';
const LINK = 'lone0';
const PORT = 6453;
const PAUSE = 'registry.k8s.io/pause:3.10.2';
/** For the slowest machine: emulated, and its host busy. */
const START_MS = 900_000;
const STOP_MS = 20_000;
const POLL_MS = 500;

/** The first of these that is there. */
const firstOf = (paths: readonly string[], what: string): string => {
  const found = paths.find((path) => existsSync(path));
  if (found === undefined) throw new OpError('not-found', 'bringing up a kubelet', `there is no ${what} at ${paths.join(', ')}`);
  return found;
};

/** Lowering oom_score_adj takes CAP_SYS_RESOURCE, which a machine within a machine may lack. */
async function mayLowerOomScore(): Promise<boolean> {
  const effective = BigInt(`0x${/^CapEff:\s*(\w+)$/m.exec(await readFile('/proc/self/status', 'utf8'))?.[1] ?? '0'}`);
  return ((effective >> 24n) & 1n) === 1n;
}

function runtimeConfig(folder: string, major: number, driver: Driver, runc: string, restrictOom: boolean): string {
  const head = [
    `version = ${major < 2 ? 2 : 3}`,
    ...[`root = "${folder}/containerd"`, `state = "${folder}/run"`, '[grpc]', `  address = "${folder}/containerd.sock"`],
  ];
  const runtime = major < 2 ? '"io.containerd.grpc.v1.cri"' : "'io.containerd.cri.v1.runtime'";
  const options = [
    `[plugins.${runtime}.containerd.runtimes.runc]`,
    ...["  runtime_type = 'io.containerd.runc.v2'", `  [plugins.${runtime}.containerd.runtimes.runc.options]`],
    ...[`    SystemdCgroup = ${driver === 'systemd'}`, `    BinaryName = '${runc}'`],
  ];
  const oom = `  restrict_oom_score_adj = ${restrictOom}`;
  const pause =
    major < 2
      ? [`[plugins.${runtime}]`, `  sandbox_image = "${PAUSE}"`, oom]
      : [`[plugins.${runtime}]`, oom, "[plugins.'io.containerd.cri.v1.images'.pinned_images]", `  sandbox = "${PAUSE}"`];
  const cni = [`[plugins.${runtime}.cni]`, major < 2 ? '  bin_dir = "/usr/lib/cni"' : '  bin_dirs = ["/usr/lib/cni"]', `  conf_dir = "${folder}/cni"`];
  return [...head, ...pause, ...cni, ...options, ''].join('\n');
}

/**
 * A kubelet of either make directly on this machine, as a distribution's service would run it: beside it a containerd and
 * the embedded control plane. Only for a machine that is thrown away: it takes `/kubepods` and 10.91.0.0/23.
 */
export class LoneNode implements AsyncDisposable {
  readonly api: KubeApi;
  readonly cri: CriClient;
  readonly #options: LoneOptions;
  readonly #running = new Map<string, ChildProcess>();
  #configuration: Record<string, unknown>;

  private constructor(options: LoneOptions, api: KubeApi, running: Map<string, ChildProcess>) {
    this.#options = options;
    this.#running = running;
    this.api = api;
    this.cri = createCriClient(connectRuntime(`${options.folder}/containerd.sock`));
    this.#configuration = {
      apiVersion: 'kubelet.config.k8s.io/v1beta1',
      kind: 'KubeletConfiguration',
      authentication: { anonymous: { enabled: true }, webhook: { enabled: false } },
      authorization: { mode: 'AlwaysAllow' },
      cgroupDriver: options.driver,
      containerRuntimeEndpoint: `unix://${options.folder}/containerd.sock`,
      evictionHard: LAX_EVICTION,
      failSwapOn: false,
      resolvConf: `${options.folder}/resolv.conf`,
      volumePluginDir: `${options.folder}/volumeplugins`,
      ...options.configuration,
    };
  }

  /** Starts all of it; the node is Ready then. */
  static async open(options: LoneOptions): Promise<LoneNode> {
    const { folder, dist, signal } = options;
    await rm(folder, { recursive: true, force: true });
    await mkdir(`${folder}/cni`, { recursive: true });
    await writeFile(`${folder}/resolv.conf`, 'nameserver 127.0.0.1\n');
    // Not every kernel has the dummy driver; a pair whose other end nobody takes serves as well.
    const { code } = await tryExec(['ip', 'link', 'add', LINK, 'type', 'dummy'], { signal });
    if (code !== 0) await tryExec(['ip', 'link', 'add', LINK, 'type', 'veth', 'peer', 'name', `${LINK}-end`], { signal });
    await tryExec(['ip', 'link', 'set', 'lo', 'up'], { signal });
    await tryExec(['ip', 'address', 'add', `${ADDRESS}/24`, 'dev', LINK], { signal });
    await exec(['ip', 'link', 'set', LINK, 'up'], { signal });
    const running = new Map<string, ChildProcess>();
    const control = [
      ...['--data-dir', `${folder}/data`, '--pki-dir', `${folder}/pki`, '--bind-address', ADDRESS, '--advertise-address', ADDRESS],
      ...['--secure-port', String(PORT), '--cluster-cidr', POD_RANGE, '--without', 'scheduler'],
    ];
    try {
      running.set(
        'control',
        await start(folder, 'control', [process.execPath, '--disable-warning=ExperimentalWarning', `${dist}/nodelet.mjs`, 'control', ...control]),
      );
      const kubeconfig = await within('admin.kubeconfig', signal, () => readKubeConfig(`${folder}/pki/admin.kubeconfig`));
      const api = createKubeApi({ config: kubeconfig, log: silentLog, clock: realClock, rng: realRng, userAgent: 'nodelet-lone' });
      const node = new LoneNode(options, api, running);
      await node.#startRuntime();
      await node.configure({});
      return node;
    } catch (error) {
      const words = await Promise.all(
        [...running].map(async ([name, { exitCode }]) => `${name} (${exitCode ?? 'runs'}): ${await lastLine(`${folder}/${name}.log`)}`),
      );
      for (const child of running.values()) await stop(child);
      throw new OpError('failed', 'bringing up a kubelet', `${messageOf(error)}; ${words.join('; ')}`, { cause: error });
    }
  }

  async #startRuntime(): Promise<void> {
    const { folder, assets, driver, image, signal } = this.#options;
    const programs = `${assets ?? '/nonexistent'}/containerd-2.4`;
    const containerd = firstOf([`${programs}/containerd`, '/usr/bin/containerd'], 'containerd');
    const runc = firstOf([`${assets ?? '/nonexistent'}/runc`, '/usr/sbin/runc', '/usr/bin/runc'], 'runc');
    const { stdout } = await exec([containerd, '--version'], { signal });
    const major = Number(/\sv?(\d+)\.\d+\.\d+/.exec(stdout)?.[1] ?? 1);
    await writeFile(`${folder}/containerd.toml`, runtimeConfig(folder, major, driver, runc, !(await mayLowerOomScore())));
    const ipam = { type: 'host-local', dataDir: `${folder}/ipam`, ranges: [[{ subnet: POD_RANGE }]], routes: [{ dst: '0.0.0.0/0' }] };
    await writeFile(`${folder}/cni/10-lone.conflist`, JSON.stringify({ cniVersion: '0.4.0', name: 'lone', plugins: [{ type: 'ptp', ipam }] }));
    const path = `${containerd.slice(0, containerd.lastIndexOf('/'))}:${process.env['PATH'] ?? ''}`;
    this.#running.set('containerd', await start(folder, 'containerd', [containerd, '--config', `${folder}/containerd.toml`], { PATH: path }));
    await within('containerd', signal, async () => this.cri.runtime.version({}, { timeoutMs: 5000 }));
    const files = { [image]: `${folder}/shell.tar`, [PAUSE]: `${folder}/pause.tar` };
    const busybox = firstOf(['/bin/busybox', '/usr/bin/busybox'], 'busybox');
    await writeImage(`${folder}/shell.tar`, image, await busyboxFiles(busybox, ['sh', 'sleep', 'echo', 'cat', 'true', 'touch', 'trap']), {
      Cmd: ['sh'],
      Env: ['PATH=/bin'],
    });
    const pause = { path: 'pause', mode: 0o755, content: await readFile(firstOf(['/usr/bin/catatonit', '/usr/libexec/podman/catatonit'], 'catatonit')) };
    await writeImage(`${folder}/pause.tar`, PAUSE, [pause], { Entrypoint: ['/pause', '-P'], User: '65535:65535' });
    for (const file of Object.values(files))
      await exec(
        [`${containerd.slice(0, containerd.lastIndexOf('/'))}/ctr`, '--address', `${folder}/containerd.sock`, '-n', 'k8s.io', 'images', 'import', file],
        {
          doing: 'giving containerd an image',
          signal,
          timeoutMs: START_MS,
        },
      );
  }

  /** Changes fields of the kubelet's configuration and starts it (again); the node is Ready then. */
  async configure(changes: Record<string, unknown>): Promise<void> {
    const { agent, assets, dist, folder, signal } = this.#options;
    const before = this.#running.get('kubelet');
    if (before !== undefined) await stop(before);
    this.#configuration = { ...this.#configuration, ...changes };
    await writeFile(`${folder}/kubelet.json`, JSON.stringify(this.#configuration, null, 2));
    const program =
      agent === 'ours'
        ? [process.execPath, '--disable-warning=ExperimentalWarning', `${dist}/nodelet.mjs`, 'agent']
        : [firstOf([`${assets ?? '/nonexistent'}/kubelet`], 'kubelet')];
    const words = [
      ...['--kubeconfig', `${folder}/pki/admin.kubeconfig`, '--config', `${folder}/kubelet.json`, '--hostname-override', NODE, '--node-ip', ADDRESS],
      ...['--root-dir', `${folder}/kubelet`, '--cert-dir', `${folder}/kubelet/pki`, '--v', '2'],
    ];
    const since = Date.now();
    const child = await start(folder, 'kubelet', [...program, ...words], { NODELET_SYS: `${dist}/sys` });
    this.#running.set('kubelet', child);
    await within('the node', signal, async () => {
      if (child.exitCode !== null) throw new OpError('failed', 'starting the kubelet', await lastLine(`${folder}/kubelet.log`));
      const { status } = await this.api.get<Node>(nodes(NODE));
      const ready = status?.conditions?.find(({ type }) => type === 'Ready');
      // A condition of the kubelet before this one says nothing.
      if (ready?.status !== 'True' || Date.parse(ready.lastHeartbeatTime ?? '') < since - 1000)
        throw new OpError('unavailable', 'waiting for the node', ready?.message ?? 'no condition yet');
    });
  }

  /** What each program said last, for a person who looks for a cause. */
  async lastWords(): Promise<string[]> {
    const names = [...this.#running.keys()];
    return Promise.all(
      names.map(async (name) => `${name} (${this.#running.get(name)?.exitCode ?? 'runs'}): ${await lastLine(`${this.#options.folder}/${name}.log`)}`),
    );
  }

  /** Waits until a pod holds what is asked for; `what` for the message. */
  async until(namespace: string, name: string, what: string, holds: (pod: Pod) => boolean, limitMs = START_MS): Promise<Pod> {
    return within(
      `${name} to be ${what}`,
      this.#options.signal,
      async () => {
        const pod = await this.api.get<Pod>(pods(namespace, name));
        if (holds(pod)) return pod;
        const [main] = pod.status?.containerStatuses ?? [];
        throw new OpError('unavailable', `waiting for ${name}`, `${pod.status?.phase ?? ''} ${JSON.stringify(main?.state ?? {})}`);
      },
      limitMs,
    );
  }

  /** Deletes pods and waits until they are gone. */
  async remove(namespace: string, names: readonly string[]): Promise<void> {
    for (const name of names) await this.api.delete(pods(namespace, name), { gracePeriodSeconds: 1 });
    await within(`${names.join(', ')} to be gone`, this.#options.signal, async () => {
      const left = (await this.api.list<Pod>(pods(namespace))).items.map(({ metadata }) => metadata.name ?? '').filter((name) => names.includes(name));
      if (left.length > 0) throw new OpError('unavailable', 'removing pods', `still there: ${left.join(', ')}`);
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    const { folder, driver } = this.#options;
    await this.cri[Symbol.asyncDispose]();
    await this.api[Symbol.asyncDispose]();
    for (const name of ['kubelet', 'containerd', 'control']) {
      const child = this.#running.get(name);
      if (child !== undefined) await stop(child);
    }
    if (driver === 'systemd') await tryExec(['systemctl', 'stop', 'kubepods.slice'], {});
    // What still runs then is ended with its cgroup; what is mounted goes from the innermost on.
    const left = `for procs in $(find /sys/fs/cgroup/kubepods /sys/fs/cgroup/kubepods.slice -name cgroup.procs); do kill -9 $(cat $procs); done; sleep 1
      grep -o '${folder}/[^ ]*' /proc/self/mounts | sort -r | while read -r at; do umount -l "$at"; done
      find /sys/fs/cgroup/kubepods -depth -type d -exec rmdir {} +`;
    await tryExec(['sh', '-c', left], {});
    await tryExec(['ip', 'link', 'delete', LINK], {});
    await rm(folder, { recursive: true, force: true }).catch(() => undefined);
  }
}

async function start(folder: string, name: string, argv: readonly string[], env: Record<string, string> = {}): Promise<ChildProcess> {
  await using log = await open(`${folder}/${name}.log`, 'a');
  const child = spawn(argv[0] ?? '', argv.slice(1), { stdio: ['ignore', log.fd, log.fd], env: { ...process.env, ...env } });
  await once(child, 'spawn');
  return child;
}

async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  const ended = once(child, 'exit');
  child.kill('SIGTERM');
  await Promise.race([ended, delay(STOP_MS)]);
  child.kill('SIGKILL');
  await ended;
}

async function lastLine(path: string): Promise<string> {
  const lines = (await readFile(path, 'utf8').catch(() => '')).split('\n').filter((line) => line.trim() !== '');
  return lines.at(-1) ?? 'it said nothing';
}

/** Looks until nothing is thrown, for a bounded time; `failed` is thrown on at once. */
async function within<T>(what: string, signal: AbortSignal, look: () => Promise<T>, limitMs = START_MS): Promise<T> {
  const until = performance.now() + limitMs;
  for (;;) {
    try {
      return await look();
    } catch (error) {
      if (error instanceof OpError && error.code === 'failed') throw error;
      if (signal.aborted) throw new OpError('aborted', `waiting for ${what}`, 'stopped', { cause: error });
      if (performance.now() > until)
        throw new OpError('deadline', `waiting for ${what}`, `${limitMs / 1000} s are over: ${messageOf(error)}`, { cause: error });
    }
    await delay(POLL_MS);
  }
}
