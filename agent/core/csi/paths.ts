/*
 * Where volumes of CSI drivers lie below the kubelet's root directory, as upstream lays them out: other programs
 * know these paths, and a process that starts again finds its volumes by them. All relative to the root directory.
 */

const plugin = 'plugins/kubernetes.io/csi';
/** What a volume is known by when nothing but the disk is left. */
export const dataFile = 'vol_data.json';
export const podPluginDir = 'kubernetes.io~csi';

/** Directory of a staged volume; `sha` is the hexadecimal SHA-256 of its handle. */
export function stageDir(driver: string, sha: string): string {
  return `${plugin}/${driver}/${sha}`;
}

export const stagedVolumes = plugin;

export function stagePath(driver: string, sha: string): string {
  return `${stageDir(driver, sha)}/globalmount`;
}

/** Directory of a published volume; `vol_data.json` and `mount` are in it. */
export function publishDir(uid: string, specName: string): string {
  return `pods/${uid}/volumes/${podPluginDir}/${specName}`;
}

export function publishPath(uid: string, specName: string): string {
  return `${publishDir(uid, specName)}/mount`;
}

/** Paths of a block volume: a device file in place of a directory. */
export interface BlockPaths {
  readonly dir: string;
  readonly data: string;
  readonly staging: string;
  readonly publishDir: string;
  readonly publish: string;
  /** Where devices of all pods are bound. */
  readonly globalMap: string;
  /** Directory of the link that stands for the device in the pod. */
  readonly podDir: string;
  readonly podLink: string;
}

export const blockVolumes = `${plugin}/volumeDevices`;

export function blockPaths(uid: string, specName: string): BlockPaths {
  const dir = `${blockVolumes}/${specName}`;
  const podDir = `pods/${uid}/volumeDevices/${podPluginDir}`;
  return {
    dir,
    data: `${dir}/data`,
    staging: `${blockVolumes}/staging/${specName}`,
    publishDir: `${blockVolumes}/publish/${specName}`,
    publish: `${blockVolumes}/publish/${specName}/${uid}`,
    globalMap: `${dir}/dev`,
    podDir,
    podLink: `${podDir}/${specName}`,
  };
}
