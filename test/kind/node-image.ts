import { spawn } from 'node:child_process';
import { createHash } from 'node:crypto';
import { copyFile, cp, link, mkdir, mkdtemp, readFile, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { OpError } from '../../base/errors.ts';
import { exec, tryExec } from '../../base/exec.ts';
import { blobPath, type ImageStore } from '../../node/io/images.ts';
import { lockFile } from '../../node/io/lock.ts';
import type { Program } from '../../scripts/command.ts';
import type { AssetName } from '../assets/catalogue.ts';
import type { Assets } from '../assets/find.ts';
import { imagesDir } from '../images/command.ts';
import { PRELOADED } from '../images/kind.ts';
import { makeE2eImages, imageCache } from '../images/make.ts';
import { makeTree, readOrigin } from '../machine/tree.ts';
import type { Docker } from './docker.ts';

/** The name `nodelet kind up` gives to `kind create cluster --image`. */
export const NODE_IMAGE = 'nodelet/kind-node:v1.37.2';
/** The image's label that says from what it was made. */
const KEY = 'nodelet.key';
const FILES = new URL('node', import.meta.url).pathname;

const PACKAGES = [
  ...['systemd', 'systemd-sysv', 'dbus', 'kmod', 'mount', 'util-linux', 'procps', 'hostname'],
  ...['iptables', 'nftables', 'ebtables', 'conntrack', 'iproute2', 'ethtool', 'socat', 'iputils-ping'],
  ...['jq', 'curl', 'ca-certificates', 'libseccomp2'],
];

/** Where programs of the assets lie in the image. */
const PLACES: Readonly<Partial<Record<AssetName, string>>> = {
  kubeadm: '/usr/bin/kubeadm',
  kubelet: '/usr/bin/kubelet',
  kubectl: '/usr/bin/kubectl',
  'containerd-2.4/containerd': '/usr/local/bin/containerd',
  'containerd-2.4/containerd-shim-runc-v2': '/usr/local/bin/containerd-shim-runc-v2',
  'containerd-2.4/ctr': '/usr/local/bin/ctr',
  runc: '/usr/local/bin/runc',
  crictl: '/usr/local/bin/crictl',
  'cni/ptp': '/opt/cni/bin/ptp',
  'cni/host-local': '/opt/cni/bin/host-local',
  'cni/loopback': '/opt/cni/bin/loopback',
  'cni/portmap': '/opt/cni/bin/portmap',
};
const ENABLED = ['containerd.service', 'kubelet.service'];
const MASKED = [
  'systemd-udevd.service',
  'systemd-networkd.service',
  'systemd-logind.service',
  'getty.target',
  'console-getty.service',
  'systemd-resolved.service',
];
const IMPORT_MS = 600_000;
const LOCK_WAIT_MS = 20 * 60_000;

export interface NodeImage {
  readonly name: string;
  readonly id: string;
  readonly state: 'made' | 'kept';
}

/** Makes the node image in the engine, or finds that it is the one that would be made. Needs root and the distribution's mirror. */
export async function makeNodeImage(program: Program, docker: Docker, assets: Assets, refresh = false): Promise<NodeImage> {
  const { progress, host } = program;
  const programs = Object.entries(PLACES).map(([name, to]) => ({ from: assets.require(name as AssetName, 'making the node image'), to }));
  const made = await makeE2eImages({ host, store: { dir: imagesDir() }, assets, progress, choice: { only: PRELOADED }, build: false });
  if (made.left.length > 0) throw new OpError('not-found', 'making the node image', `${made.left[0]?.name ?? ''}: ${made.left[0]?.why ?? ''}`);
  const origin = await readOrigin(host.signal);
  const sources = await exec(['sh', '-c', 'find . -type f | LC_ALL=C sort | xargs sha256sum; find . -type f -perm -100 | LC_ALL=C sort'], { cwd: FILES });
  const stamps = await Promise.all(programs.map(async ({ from, to }) => [to, (await stat(from)).size, Math.trunc((await stat(from)).mtimeMs)]));
  const key = createHash('sha256')
    .update(JSON.stringify([origin.release, PACKAGES, sources.stdout, stamps, made.images.map(({ digest }) => digest)]))
    .digest('hex')
    .slice(0, 16);
  const cache = `${imageCache(host.env)}/../kind`;
  await mkdir(cache, { recursive: true });
  // Two that make it at once would remove each other's trees; the second then finds what the first has made.
  await using _lock = await lockFile(`${cache}/lock`, 'making the node image', LOCK_WAIT_MS);
  const known = await docker.ask(['image', 'inspect', '--format', `{{.Id}} {{index .Config.Labels "${KEY}"}}`, NODE_IMAGE]);
  const [id = '', ofKey = ''] = known.stdout.trim().split(' ');
  if (!refresh && known.code === 0 && ofKey === key) return { name: NODE_IMAGE, id, state: 'kept' };

  const base = `${cache}/base-${createHash('sha256')
    .update(JSON.stringify([origin.release, PACKAGES]))
    .digest('hex')
    .slice(0, 16)}`;
  if ((await stat(base).catch(() => null)) === null || refresh) {
    await rm(base, { recursive: true, force: true });
    await makeTree({ progress, signal: host.signal }, origin, base, PACKAGES);
  }
  const tree = await mkdtemp(`${cache}/tree-`);
  try {
    await progress.step('programs and files put in', () => fill(base, tree, programs));
    await progress.step(`${PRELOADED.length} images put in`, () => preload(program, assets, tree, cache));
    const made = await progress.step('node image imported', () => importTree(program, docker, tree, key));
    return { name: NODE_IMAGE, id: made, state: 'made' };
  } finally {
    await rm(tree, { recursive: true, force: true });
  }
}

async function fill(base: string, tree: string, programs: readonly { from: string; to: string }[]): Promise<void> {
  await exec(['cp', '-a', '--reflink=auto', `${base}/.`, tree]);
  await exec(['chmod', '0755', tree]);
  await cp(FILES, tree, { recursive: true });
  for (const folder of ['/var/lib/kubelet', '/etc/cni/net.d', '/opt/cni/bin', '/kind']) await mkdir(`${tree}${folder}`, { recursive: true });
  for (const { from, to } of programs) {
    await mkdir(`${tree}${to.slice(0, to.lastIndexOf('/'))}`, { recursive: true });
    await copyFile(from, `${tree}${to}`);
    await exec(['chmod', '0755', `${tree}${to}`]);
  }
  const units = `${tree}/etc/systemd/system`;
  await mkdir(`${units}/multi-user.target.wants`, { recursive: true });
  const linked = async (to: string, at: string): Promise<void> => {
    await rm(at, { force: true });
    await symlink(to, at);
  };
  for (const unit of ENABLED) await linked(`../${unit}`, `${units}/multi-user.target.wants/${unit}`);
  for (const unit of MASKED) await linked('/dev/null', `${units}/${unit}`);
  await linked('/lib/systemd/system/multi-user.target', `${units}/default.target`);
  await writeFile(`${tree}/etc/hostname`, 'node\n');
}

/** Puts the images where the node's containerd will look, unpacked: its first pods start at once. */
async function preload(program: Program, assets: Assets, tree: string, cache: string): Promise<void> {
  const run = await mkdtemp(`${cache}/run-`);
  const socket = `${run}/containerd.sock`;
  await writeFile(
    `${run}/config.toml`,
    `version = 3\nroot = "${tree}/var/lib/containerd"\nstate = "${run}/state"\ndisabled_plugins = ["io.containerd.grpc.v1.cri", "io.containerd.cri.v1.images", "io.containerd.cri.v1.runtime"]\n[grpc]\n  address = "${socket}"\n[ttrpc]\n  address = "${run}/ttrpc.sock"\n`,
  );
  const containerd = spawn(assets.require('containerd-2.4/containerd', 'putting images in'), ['--config', `${run}/config.toml`], { stdio: 'ignore' });
  const ended = new Promise<void>((resolve) => void containerd.once('exit', () => resolve()));
  const ctr = (...args: string[]): Promise<{ code: number; stderr: string }> =>
    tryExec([assets.require('containerd-2.4/ctr', 'putting images in'), '--address', socket, '--namespace', 'k8s.io', ...args], {
      signal: program.host.signal,
      timeoutMs: IMPORT_MS,
    });
  try {
    for (let left = 100; (await ctr('version')).code !== 0; left -= 1) {
      if (left === 0) throw new OpError('deadline', 'putting images in', 'containerd does not answer');
      await delay(200, undefined, { signal: program.host.signal });
    }
    for (const name of PRELOADED) {
      const archive = await archiveOf({ dir: imagesDir() }, name, run);
      const result = await ctr('images', 'import', '--local', archive);
      await rm(archive);
      if (result.code !== 0) throw new OpError('failed', `importing ${name}`, result.stderr.trim().split('\n').at(-1) ?? '');
    }
  } finally {
    containerd.kill('SIGTERM');
    await ended;
    await rm(run, { recursive: true, force: true });
  }
}

interface Descriptor {
  readonly mediaType: string;
  readonly digest: string;
  readonly size: number;
  readonly annotations?: Readonly<Record<string, string>>;
}

/** Images of the store as an archive (OCI image layout) that an import gives their names; what they share is in it once. */
export async function archiveOf(store: ImageStore, name: string | readonly string[], folder: string): Promise<string> {
  const names = typeof name === 'string' ? [name] : name;
  const index = JSON.parse(await readFile(`${store.dir}/index.json`, 'utf8')) as { manifests: Descriptor[] };
  const layout = await mkdtemp(`${folder}/layout-`);
  await mkdir(`${layout}/blobs/sha256`, { recursive: true });
  const manifests: Descriptor[] = [];
  for (const one of names) {
    const found = index.manifests.find(({ annotations }) => annotations?.['org.opencontainers.image.ref.name'] === one);
    if (found === undefined) throw new OpError('not-found', `packing ${one}`, `it is not in ${store.dir}`);
    const { mediaType, digest, size } = found;
    const manifest = JSON.parse(await readFile(blobPath(store, digest), 'utf8')) as { config: Descriptor; layers: Descriptor[] };
    for (const blob of [found, manifest.config, ...manifest.layers]) {
      const to = `${layout}/blobs/sha256/${blob.digest.slice('sha256:'.length)}`;
      if ((await stat(to).catch(() => null)) === null) await link(blobPath(store, blob.digest), to).catch(() => copyFile(blobPath(store, blob.digest), to));
    }
    manifests.push({ mediaType, digest, size, annotations: { 'io.containerd.image.name': one } });
  }
  await writeFile(`${layout}/oci-layout`, '{"imageLayoutVersion":"1.0.0"}');
  await writeFile(`${layout}/index.json`, JSON.stringify({ schemaVersion: 2, manifests }));
  const archive = `${layout}.tar`;
  await exec(['tar', '--create', '--file', archive, '--directory', layout, 'oci-layout', 'index.json', 'blobs']);
  await rm(layout, { recursive: true });
  return archive;
}

async function importTree(program: Program, docker: Docker, tree: string, key: string): Promise<string> {
  const raw = `${NODE_IMAGE}-raw`;
  // A shell's pipe: what the engine says of a failure is wanted, not that tar could not write on.
  const line = 'tar --create --numeric-owner --xattrs --directory "$0" . 2>/dev/null | docker import - "$1"';
  const options = { env: docker.env, signal: program.host.signal, timeoutMs: IMPORT_MS, doing: 'importing the node image' };
  const imported = await tryExec(['sh', '-c', line, tree, raw], options);
  if (imported.code !== 0) throw new OpError('failed', options.doing, imported.stderr.trim());
  // An import cannot say how the container ends; a build can.
  const says = ['ENV container=docker', 'STOPSIGNAL SIGRTMIN+3', 'ENTRYPOINT ["/usr/local/bin/entrypoint","/sbin/init"]', `LABEL ${KEY}=${key}`];
  await docker.run(['build', '--quiet', '--tag', NODE_IMAGE, '-'], { input: [`FROM ${raw}`, ...says, ''].join('\n'), timeoutMs: IMPORT_MS });
  await docker.run(['rmi', raw]);
  return (await docker.run(['image', 'inspect', '--format', '{{.Id}}', NODE_IMAGE])).stdout.trim();
}
