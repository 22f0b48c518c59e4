import { dirname } from 'node:path';
import { findControlPlane } from '../node/io/real.ts';
import { findAssets } from './assets/find.ts';

/**
 * Why a set with a real control plane cannot be started here, or null. What was built here counts as what is named:
 * `up` itself looks only where NODELET_ASSETS points to, so that is set.
 */
export async function realProblem(): Promise<string | null> {
  const built = (await findAssets({ env: process.env })).path('etcd');
  if (built !== null) process.env['NODELET_ASSETS'] = dirname(built);
  return findControlPlane(process.env).then(
    () => null,
    () => 'needs etcd, kube-apiserver, kube-controller-manager and kube-scheduler: nodelet assets makes them',
  );
}
