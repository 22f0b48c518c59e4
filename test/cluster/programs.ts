import { basename } from 'node:path';
import type { AgentKind, ProxyKind } from '../../node/core/plan.ts';
import type { RealPrograms } from '../../node/core/real.ts';
import type { SavedSet } from '../../node/io/state.ts';
import { findAssets, type Assets } from '../assets/find.ts';

export const CONTAINERDS = ['distro', '2.3', '2.4'] as const;
export type ContainerdChoice = (typeof CONTAINERDS)[number];

export interface ClusterWants {
  readonly agents: readonly AgentKind[];
  readonly proxies: readonly ProxyKind[];
  readonly containerd: ContainerdChoice;
}

export interface ClusterPrograms {
  readonly programs: RealPrograms;
  /** Folder of the containerd that was chosen; absent for the distribution's. */
  readonly containerd?: string;
}

const FOR = 'starting a cluster';

/** The programs that a cluster of such nodes needs; OpError `not-found` names the first that is not there. */
export function chosenPrograms(assets: Assets, { agents, proxies, containerd }: ClusterWants): ClusterPrograms {
  const optional: [keyof RealPrograms, string | null][] = [
    ['kubelet', agents.includes('upstream') ? assets.require('kubelet', FOR) : null],
    ['kubeProxy', needsKubeProxy(agents, proxies) ? assets.require('kube-proxy', FOR) : null],
    ['kubectl', assets.path('kubectl')],
    ['coredns', assets.path('coredns')],
    // The distribution's containerd goes with the distribution's runc.
    ['runc', containerd === 'distro' ? null : assets.require('runc', FOR)],
    ['cni', assets.dir('cni')],
  ];
  return {
    programs: {
      etcd: assets.require('etcd', FOR),
      apiserver: assets.require('kube-apiserver', FOR),
      controllerManager: assets.require('kube-controller-manager', FOR),
      scheduler: assets.require('kube-scheduler', FOR),
      ...Object.fromEntries(optional.filter(([, path]) => path !== null)),
    },
    ...(containerd === 'distro' ? {} : { containerd: assets.requireDir(`containerd-${containerd}`, FOR) }),
  };
}

/** Which containerd a cluster was made with: folders of chosen ones are called as `chosenPrograms` has them. */
export function containerdOf({ containerd }: Pick<SavedSet, 'containerd'>): string {
  return containerd === undefined ? 'distro' : basename(containerd).replace('containerd-', '');
}

function needsKubeProxy(agents: readonly AgentKind[], proxies: readonly ProxyKind[]): boolean {
  return proxies.length === 0 ? agents.includes('upstream') : proxies.some((proxy) => proxy.startsWith('upstream-'));
}

/** Why no cluster of such nodes can be started here, or null. */
export async function clusterProblem(env: Readonly<Record<string, string | undefined>>, wants: ClusterWants): Promise<string | null> {
  try {
    chosenPrograms(await findAssets({ env }), wants);
    return null;
  } catch (error) {
    return error instanceof Error ? error.message : String(error);
  }
}
