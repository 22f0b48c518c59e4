import type { CsiVolume } from './volume.ts';

/** `vol_data.json`: by it a published or staged volume is taken away again, whoever published it. */
export interface VolumeData {
  readonly specName: string;
  readonly handle: string;
  readonly driver: string;
  readonly mode: 'Persistent' | 'Ephemeral' | '';
  /** The SELinux context that it is mounted with; absent: none. */
  readonly selinuxContext?: string;
}

/** The file beside a published volume. Keys and their order are upstream's (sorted by name). */
export function publishedData(volume: CsiVolume, nodeName: string, attachment: string): string {
  return text({
    attachmentID: attachment,
    driverName: volume.driver,
    nodeName,
    ...contextIn(volume),
    specVolID: volume.specName,
    volumeHandle: volume.handle,
    volumeLifecycleMode: volume.mode,
  });
}

/** The file beside a staged volume. */
export function stagedData(volume: CsiVolume): string {
  return text({ driverName: volume.driver, ...contextIn(volume), volumeHandle: volume.handle });
}

function contextIn({ selinuxContext }: CsiVolume): Record<string, string> {
  return selinuxContext === undefined ? {} : { seLinuxMountContext: selinuxContext };
}

/** The file of a block volume. */
export function blockData(volume: CsiVolume, nodeName: string, attachment: string): string {
  return text({
    attachmentID: attachment,
    driverName: volume.driver,
    nodeName,
    specVolID: volume.specName,
    volumeHandle: volume.handle,
  });
}

/** Reads such a file; null when it is none. */
export function readData(file: string): VolumeData | null {
  let parsed: unknown;
  try {
    parsed = JSON.parse(file);
  } catch {
    return null;
  }
  if (typeof parsed !== 'object' || parsed === null) return null;
  const { driverName, volumeHandle, specVolID, volumeLifecycleMode, seLinuxMountContext } = parsed as Record<string, unknown>;
  if (typeof driverName !== 'string' || typeof volumeHandle !== 'string' || driverName === '' || volumeHandle === '') return null;
  return {
    driver: driverName,
    handle: volumeHandle,
    specName: typeof specVolID === 'string' ? specVolID : '',
    mode: volumeLifecycleMode === 'Persistent' || volumeLifecycleMode === 'Ephemeral' ? volumeLifecycleMode : '',
    ...(typeof seLinuxMountContext === 'string' && seLinuxMountContext !== '' ? { selinuxContext: seLinuxMountContext } : {}),
  };
}

/** As Go's encoder writes a map: with a newline. */
function text(data: Readonly<Record<string, string>>): string {
  return `${JSON.stringify(data)}\n`;
}
