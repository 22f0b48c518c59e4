import { assert } from '../../base/assert.ts';

/** Paths of a pod below the kubelet's root directory, as upstream lays them out. All absolute. */
export interface PodPaths {
  readonly pods: string;
  readonly pod: string;
  readonly volumes: string;
  readonly plugins: string;
  readonly subpaths: string;
  readonly etcHosts: string;
}

export type VolumePlugin = 'empty-dir' | 'configmap' | 'secret' | 'projected' | 'downward-api' | 'host-path' | 'local-volume' | 'nfs';

const uidShape = /^[A-Za-z0-9][A-Za-z0-9._-]{0,252}$/;
const labelShape = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;

/** Whether a UID can be a directory name; API servers make sure of it, a hostile one must not lead us elsewhere. */
export function isSafeUid(uid: string): boolean {
  return uidShape.test(uid);
}

/** Names of volumes and containers are DNS labels. */
export function isSafeName(name: string): boolean {
  return labelShape.test(name);
}

export function podPaths(rootDir: string, uid: string): PodPaths {
  assert(isSafeUid(uid), `pod UID ${JSON.stringify(uid)} cannot be a directory name`);
  const pods = `${rootDir}/pods`;
  const pod = `${pods}/${uid}`;
  return { pods, pod, volumes: `${pod}/volumes`, plugins: `${pod}/plugins`, subpaths: `${pod}/volume-subpaths`, etcHosts: `${pod}/etc-hosts` };
}

/** `<pod>/volumes/kubernetes.io~<plugin>/<name>`, relative to the pod's directory. */
export function volumeDir(plugin: VolumePlugin, name: string): string {
  return `volumes/kubernetes.io~${plugin}/${name}`;
}

/** Where upstream marks an emptyDir as set up; volumes that stand on one are marked as `wrapped_<name>`. */
export function readyMarker(plugin: VolumePlugin, name: string): string {
  return `plugins/kubernetes.io~empty-dir/${plugin === 'empty-dir' ? name : `wrapped_${name}`}/ready`;
}

/** The directories from the first below the pod's own down to `path` itself. */
export function parentsOf(path: string): string[] {
  const parts = path.split('/').filter((part) => part !== '');
  return parts.map((_, index) => parts.slice(0, index + 1).join('/'));
}
