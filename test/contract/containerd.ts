import { execa, type ResultPromise } from 'execa';
import { existsSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, rm, rmdir, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { connectRuntime } from '../../cri/grpc.ts';
import { createCriClient, type CriClient } from '../../cri/mod.ts';
import { busyboxFiles, writeImage } from './image-tar.ts';

const pause = 'registry.k8s.io/pause:3.10.2';
export const busybox = 'docker.io/library/busybox:test';

/** A containerd of its own: root, state, network, mounts, processes and cgroups; gone without a trace when disposed. */
export interface TestContainerd extends AsyncDisposable {
  readonly client: CriClient;
  readonly version: string;
  /** For `linux.cgroupParent`. */
  readonly cgroupParent: string;
  readonly folder: string;
}

const binary = process.env['NODELET_TEST_CONTAINERD'] ?? '/usr/bin/containerd';
const busyboxBinary = ['/bin/busybox', '/usr/bin/busybox'].find((path) => existsSync(path));
const catatonit = ['/usr/bin/catatonit', '/usr/libexec/podman/catatonit'].find((path) => existsSync(path));

/** Why it cannot run here, or null. */
export function containerdProblem(): string | null {
  if (process.getuid?.() !== 0) return 'needs root';
  if (!existsSync(binary)) return `needs ${binary}`;
  if (busyboxBinary === undefined || catatonit === undefined) return 'needs busybox-static and catatonit';
  if (!existsSync('/usr/lib/cni/ptp')) return 'needs the CNI plugins in /usr/lib/cni';
  return null;
}

function configText(folder: string, major: number): string {
  const conflist = join(folder, 'cni');
  const head = `version = ${major < 2 ? 2 : 3}\nroot = "${folder}/root"\nstate = "${folder}/state"\n[grpc]\n  address = "${folder}/containerd.sock"\n`;
  if (major < 2) {
    return `${head}[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "${pause}"
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "/usr/lib/cni"
    conf_dir = "${conflist}"
`;
  }
  return `${head}[plugins.'io.containerd.cri.v1.images'.pinned_images]
  sandbox = "${pause}"
[plugins.'io.containerd.cri.v1.runtime']
  restrict_oom_score_adj = true
  netns_mounts_under_state_dir = true
  [plugins.'io.containerd.cri.v1.runtime'.cni]
    bin_dirs = ["/usr/lib/cni"]
    conf_dir = "${conflist}"
`;
}

async function removeCgroups(parent: string): Promise<void> {
  const roots = ['/sys/fs/cgroup', ...(await readdir('/sys/fs/cgroup')).map((name) => join('/sys/fs/cgroup', name))];
  const remove = async (path: string): Promise<void> => {
    if (!existsSync(path)) return;
    for (const entry of await readdir(path, { withFileTypes: true })) if (entry.isDirectory()) await remove(join(path, entry.name));
    for (let tries = 0; tries < 50; tries++) {
      try {
        await rmdir(path);
        return;
      } catch {
        await delay(20);
      }
    }
  };
  for (const root of roots) await remove(join(root, parent));
}

export async function startContainerd(): Promise<TestContainerd> {
  const folder = await mkdtemp(join(tmpdir(), 'cri-contract-'));
  const { stdout } = await execa(binary, ['--version']);
  const version = /v?(\d+\.\d+\.\d+)/.exec(stdout)?.[1] ?? '0';
  for (const name of ['cni', 'logs']) await mkdir(join(folder, name));
  await writeFile(join(folder, 'containerd.toml'), configText(folder, Number(version.split('.')[0])));
  const network = {
    cniVersion: '0.4.0',
    name: 'contract',
    plugins: [
      { type: 'ptp', ipam: { type: 'host-local', dataDir: `${folder}/ipam`, ranges: [[{ subnet: '10.213.0.0/24' }]], routes: [{ dst: '0.0.0.0/0' }] } },
    ],
  };
  await writeFile(join(folder, 'cni/10-contract.conflist'), JSON.stringify(network));
  // Two places that no setting moves: they are covered in the mount namespace, and taken away if they were not there.
  const fixed = ['/run/containerd', '/var/lib/cni'];
  const absent = fixed.filter((path) => !existsSync(path));
  const script = `set -e; for d in ${fixed.join(' ')}; do mkdir -p $d; mount -t tmpfs contract $d; done; ip link set lo up; exec "$0" --config "$1/containerd.toml" > "$1/containerd.log" 2>&1`;
  const env = { PATH: `${binary.slice(0, binary.lastIndexOf('/'))}:${process.env['PATH'] ?? ''}` };
  const running: ResultPromise = execa(
    'unshare',
    ['--net', '--mount', '--pid', '--fork', '--mount-proc', '--kill-child=SIGKILL', 'sh', '-c', script, binary, folder],
    { reject: false, env, stdio: 'ignore' },
  );
  const cgroupParent = `/nodelet-contract-${process.pid}`;
  const client = createCriClient(connectRuntime(join(folder, 'containerd.sock')));

  const dispose = async (): Promise<void> => {
    try {
      const { items } = await client.runtime.listPodSandbox({}, { timeoutMs: 5000 });
      for (const { id } of items) await client.runtime.removePodSandbox({ podSandboxId: id }, { timeoutMs: 20_000 });
    } catch {
      // Whatever is left ends with its process namespace.
    }
    await client[Symbol.asyncDispose]();
    running.kill('SIGKILL');
    await running;
    await removeCgroups(cgroupParent);
    for (const path of absent) await rmdir(path).catch(() => {});
    await rm(folder, { recursive: true, force: true, maxRetries: 10, retryDelay: 100 });
  };

  try {
    await untilServing(client, running);
    await load(folder, join(folder, 'containerd.sock'));
  } catch (error) {
    await dispose();
    throw error;
  }
  return { client, version, cgroupParent, folder, [Symbol.asyncDispose]: dispose };
}

async function untilServing(client: CriClient, running: ResultPromise): Promise<void> {
  let ended = false;
  void running.then(() => (ended = true));
  for (let tries = 0; ; tries++) {
    try {
      const { status } = await client.runtime.status({}, { timeoutMs: 2000 });
      // containerd 2 has a third that is false when it has something deprecated to say.
      if (status?.conditions.filter(({ type }) => type.endsWith('Ready')).every((condition) => condition.status) === true) return;
    } catch (error) {
      if (ended) throw error;
    }
    if (tries > 300) throw new Error('containerd does not become ready');
    await delay(50);
  }
}

async function load(folder: string, socket: string): Promise<void> {
  const shell = await busyboxFiles(busyboxBinary ?? '', ['sh', 'sleep', 'echo', 'cat', 'true', 'false', 'trap']);
  await writeImage(join(folder, 'busybox.tar'), busybox, shell, { Cmd: ['sh'], Env: ['PATH=/bin'] });
  const { readFile } = await import('node:fs/promises');
  await writeImage(join(folder, 'pause.tar'), pause, [{ path: 'pause', mode: 0o755, content: await readFile(catatonit ?? '') }], {
    Entrypoint: ['/pause', '-P'],
    User: '65535:65535',
  });
  const ctr = join(binary, '../ctr');
  for (const name of ['pause', 'busybox']) await execa(ctr, ['--address', socket, '-n', 'k8s.io', 'images', 'import', join(folder, `${name}.tar`)]);
}
