import { access, constants } from 'node:fs/promises';
import { delimiter } from 'node:path';
import { OpError } from '../../base/errors.ts';
import type { RealControlPlane, RealPrograms } from '../core/real.ts';
import type { SavedSet } from './state.ts';

/** The binaries of a real control plane: from NODELET_ASSETS first, then PATH. */
export async function findControlPlane(env: Readonly<Record<string, string | undefined>>): Promise<RealControlPlane> {
  const folders = [...(env['NODELET_ASSETS'] === undefined ? [] : [env['NODELET_ASSETS']]), ...(env['PATH'] ?? '').split(delimiter)];
  const find = async (name: string): Promise<string> => {
    for (const folder of folders) {
      const path = `${folder}/${name}`;
      if (
        await access(path, constants.X_OK).then(
          () => true,
          () => false,
        )
      )
        return path;
    }
    throw new OpError('not-found', 'looking for a real control plane', `${name} is neither in NODELET_ASSETS nor on PATH`, {
      advice: 'put etcd, kube-apiserver, kube-controller-manager and kube-scheduler into one folder and set NODELET_ASSETS to it',
    });
  };
  const [etcd, apiserver, controllerManager, scheduler] = await Promise.all([
    find('etcd'),
    find('kube-apiserver'),
    find('kube-controller-manager'),
    find('kube-scheduler'),
  ]);
  return { etcd, apiserver, controllerManager, scheduler };
}

/** Programs of a set that are not ours: those it was made with, else those that are found now. */
export async function realPrograms(saved: SavedSet, env: Readonly<Record<string, string | undefined>>): Promise<RealPrograms | null> {
  return saved.options.controlPlane === 'real' ? (saved.programs ?? (await findControlPlane(env))) : null;
}
