import { chmod, mkdir, readFile, writeFile } from 'node:fs/promises';
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
  await mkdir(options.folder, { recursive: true });
  if (options.agent === 'ours') await chmod(options.release, 0o755);
  const config = `${options.folder}/kind.yaml`;
  const kubeconfig = `${options.folder}/kubeconfig`;
  await writeFile(config, await clusterConfig(options));
  const args = ['create', 'cluster', '--name', options.name, '--config', config, '--kubeconfig', kubeconfig, '--wait', '180s'];
  const result = await program.progress.step(`cluster ${options.name}: a control plane and ${options.workers} workers`, () =>
    tryExec([kind, ...args, ...(options.image === null ? [] : ['--image', options.image]), '--retain'], {
      env: docker.env,
      signal: program.host.signal,
      timeoutMs: CREATE_MS,
      doing: 'kind create cluster',
    }),
  );
  if (result.code !== 0) {
    const text = result.stderr.trim().split('\n');
    throw new OpError('failed', 'kind create cluster', text.filter((line) => line.includes('rror')).at(-1) ?? text.at(-1) ?? '', {
      advice: await adviceFor(docker, options),
    });
  }
  return kubeconfig;
}

/** A container that was made can be looked into; where none was, the image is what is missing. */
async function adviceFor(docker: Docker, { name, image }: { name: string; image: string | null }): Promise<string> {
  const { stdout } = await tryExec(['docker', 'ps', '--all', '--quiet', '--filter', `label=io.x-k8s.kind.cluster=${name}`], {
    env: docker.env,
    doing: 'listing containers',
  });
  if (stdout.trim() !== '') return `its nodes are kept: docker exec ${name}-control-plane journalctl --unit=kubelet; then: nodelet kind down --name ${name}`;
  return image === null
    ? 'no node was made: is the registry reachable? one can be made here: --image made'
    : `no node was made: is ${image} here? docker images`;
}

export async function deleteCluster(program: Program, docker: Docker, assets: Assets, name: string): Promise<void> {
  const kind = assets.require('kind', 'deleting a kind cluster');
  await exec([kind, 'delete', 'cluster', '--name', name], { env: docker.env, signal: program.host.signal, timeoutMs: CREATE_MS });
}
