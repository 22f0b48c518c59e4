import { access, constants } from 'node:fs/promises';
import { dirname } from 'node:path';
import { OpError } from '../../base/errors.ts';
import type { AgentKind, ProxyKind } from '../../node/core/plan.ts';
import type { RealPrograms } from '../../node/core/real.ts';
import { findControlPlane } from '../../node/io/real.ts';

export const CONTAINERDS = ['distro', '2.3', '2.4'] as const;
export type ContainerdChoice = (typeof CONTAINERDS)[number];

export interface ClusterPrograms {
  readonly programs: RealPrograms;
  /** Folder of the containerd that was chosen; absent for the distribution's. */
  readonly containerd?: string;
}

async function there(path: string): Promise<string | undefined> {
  return access(path, constants.X_OK).then(
    () => path,
    () => undefined,
  );
}

/** The programs that a cluster of these nodes needs, and those it has the better for. */
export async function findPrograms(
  env: Readonly<Record<string, string | undefined>>,
  want: { agents: readonly AgentKind[]; proxies: readonly ProxyKind[]; containerd: ContainerdChoice },
): Promise<ClusterPrograms> {
  const control = await findControlPlane(env);
  const dir = env['NODELET_ASSETS'] ?? dirname(control.apiserver);
  const one = async (name: string, isNeeded: boolean): Promise<string | undefined> => {
    const path = await there(`${dir}/${name}`);
    if (path === undefined && isNeeded)
      throw new OpError('not-found', 'looking for a real cluster', `${name} is not in ${dir}`, { advice: 'build it with: nodelet assets' });
    return path;
  };
  const optional = {
    kubelet: await one('kubelet', want.agents.includes('upstream')),
    kubeProxy: await one('kube-proxy', want.agents.includes('upstream') || want.proxies.some((proxy) => proxy.startsWith('upstream-'))),
    kubectl: await one('kubectl', false),
    coredns: await one('coredns', false),
    ...(want.containerd === 'distro' ? {} : { runc: await one('runc', true) }),
    cni: (await there(`${dir}/cni/ptp`)) === undefined ? undefined : `${dir}/cni`,
  };
  const found = Object.fromEntries(Object.entries(optional).filter(([, path]) => path !== undefined));
  const containerd = want.containerd === 'distro' ? undefined : `${dir}/containerd-${want.containerd}`;
  if (containerd !== undefined) await one(`containerd-${want.containerd}/containerd`, true);
  return { programs: { ...control, ...found }, ...(containerd === undefined ? {} : { containerd }) };
}
