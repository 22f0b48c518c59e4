import { chmod, mkdir, readFile, rm, rmdir, writeFile } from 'node:fs/promises';
import { exec, tryExec } from '../../base/exec.ts';
import { OpError } from '../../base/errors.ts';
import type { Program } from '../../scripts/command.ts';
import type { Assets } from '../assets/find.ts';
import { hasSysResource, type Docker } from './docker.ts';

export interface ClusterOptions {
  readonly name: string;
  readonly workers: number;
  /** Which kubelet the workers have from the start. */
  readonly agent: 'ours' | 'upstream';
  /** A node image; null for kind's own. */
  readonly image: string | null;
  /** The release's file, for workers that are ours. */
  readonly release: string;
  readonly folder: string;
}

const CREATE_MS = 15 * 60_000;
const KUBECTL = ['kubectl', '--kubeconfig=/etc/kubernetes/admin.conf'] as const;

/** What this machine makes a kubelet's defaults impossible by; kind's configuration says the rest. */
async function kubeletPatch(): Promise<string> {
  const isV1 = (await readFile('/sys/fs/cgroup/cgroup.controllers', 'utf8').catch(() => null)) === null;
  const lines = [...(isV1 ? ['failCgroupV1: false'] : []), ...((await hasSysResource()) ? [] : ['oomScoreAdj: 0'])];
  return lines.length === 0 ? '' : `kubeadmConfigPatches:\n- |\n  kind: KubeletConfiguration\n${lines.map((line) => `  ${line}\n`).join('')}`;
}

/** The configuration for `kind create cluster`. */
export async function clusterConfig(options: ClusterOptions): Promise<string> {
  const mount = `  extraMounts:\n  - { hostPath: ${options.release}, containerPath: /usr/bin/kubelet, readOnly: true }\n`;
  const workers = Array.from({ length: options.workers }, () => `- role: worker\n${options.agent === 'ours' ? mount : ''}`).join('');
  return `kind: Cluster\napiVersion: kind.x-k8s.io/v1alpha4\nnetworking: { podSubnet: 10.244.0.0/16 }\n${await kubeletPatch()}nodes:\n- role: control-plane\n${workers}`;
}

/** Makes a cluster with the real kind. Returns the path of its kubeconfig. */
export async function createCluster(program: Program, docker: Docker, assets: Assets, options: ClusterOptions): Promise<string> {
  const kind = assets.require('kind', 'making a kind cluster');
  if (await hasNodes(docker, options.name))
    throw new OpError('exists', 'making a kind cluster', `there is one of the name ${options.name}`, {
      advice: `delete it with: nodelet kind down --name ${options.name}; or give another --name`,
    });
  await mkdir(options.folder, { recursive: true });
  if (options.agent === 'ours') await chmod(options.release, 0o755);
  const config = `${options.folder}/kind.yaml`;
  const kubeconfig = `${options.folder}/kubeconfig`;
  await writeFile(config, await clusterConfig(options));
  const args = ['create', 'cluster', '--name', options.name, '--config', config, '--kubeconfig', kubeconfig, '--wait', '180s'];
  await program.progress.step(`cluster ${options.name}: a control plane and ${options.workers} workers`, async () => {
    const result = await tryExec([kind, ...args, ...(options.image === null ? [] : ['--image', options.image]), '--retain'], {
      env: docker.env,
      signal: program.host.signal,
      timeoutMs: CREATE_MS,
      doing: 'kind create cluster',
    });
    if (result.code === 0) return waitForNodes(docker, options.name);
    const text = result.stderr.trim().split('\n');
    throw new OpError('failed', 'kind create cluster', text.filter((line) => line.includes('rror')).at(-1) ?? text.at(-1) ?? '', {
      advice: await adviceFor(docker, options),
    });
  });
  return kubeconfig;
}

/** kind's own waiting is for the control plane alone. */
async function waitForNodes(docker: Docker, cluster: string): Promise<void> {
  const control = `${cluster}-control-plane`;
  const { code, stderr } = await docker.ask(['exec', control, ...KUBECTL, 'wait', 'nodes', '--all', '--for=condition=Ready', '--timeout=120s']);
  if (code !== 0)
    throw new OpError('deadline', 'making a kind cluster', `not every node is Ready: ${stderr.trim().split('\n').at(-1) ?? ''}`, {
      advice: `see: docker exec ${control} ${KUBECTL.join(' ')} describe nodes; then: nodelet kind down --name ${cluster}`,
    });
}

/** Whether a cluster has containers in the engine, running or not. */
async function hasNodes({ env }: Docker, cluster: string): Promise<boolean> {
  const { stdout } = await tryExec(['docker', 'ps', '--all', '--quiet', '--filter', `label=io.x-k8s.kind.cluster=${cluster}`], {
    env,
    doing: 'listing containers',
  });
  return stdout.trim() !== '';
}

/** A container that was made can be looked into; where none was, the image is what is missing. */
async function adviceFor(docker: Docker, { name, image }: { name: string; image: string | null }): Promise<string> {
  if (await hasNodes(docker, name))
    return `its nodes are kept: docker exec ${name}-control-plane journalctl --unit=kubelet; then: nodelet kind down --name ${name}`;
  return image === null
    ? 'no node was made: is the registry reachable? one can be made here: --image made'
    : `no node was made: is ${image} here? docker images`;
}

/** Deletes a cluster and its folder. Returns whether there was one. */
export async function deleteCluster(
  program: Program,
  docker: Docker,
  assets: Assets,
  { name, folder }: Pick<ClusterOptions, 'name' | 'folder'>,
): Promise<boolean> {
  const kind = assets.require('kind', 'deleting a kind cluster');
  const isThere = await hasNodes(docker, name);
  const options = { env: docker.env, signal: program.host.signal, timeoutMs: CREATE_MS, doing: 'kind delete cluster' };
  // An engine that missed the end of a container lets go of it once it was started anew.
  const advice = `try it again; should that fail too: nodelet kind docker-stop, then: nodelet kind down --name ${name}`;
  if (isThere) await program.progress.step(`cluster ${name} deleted`, () => exec([kind, 'delete', 'cluster', '--name', name], { ...options, advice }));
  for (const file of ['kind.yaml', 'kubeconfig']) await rm(`${folder}/${file}`, { force: true });
  await rmdir(folder).catch(() => undefined);
  return isThere;
}
