/** Whose a replay is: a process for good, in its PID namespace. */
export interface RunOwner {
  readonly pid: number;
  readonly startTicks: string;
  /** The inode of its PID namespace. */
  readonly namespace: string;
}

/** A replay's name, which tells whose it is. Letters, digits and dots: it is a label's value, and part of cgroups' and folders' names. */
export function runName(random: string, { pid, startTicks, namespace }: RunOwner): string {
  return `${random}.${pid}.${startTicks}.${namespace}`;
}

/** Whose it is; null for one that is to be kept, and for what is no replay's name. */
export function ownerOf(run: string): RunOwner | null {
  const found = /^[\da-f]+\.(\d+)\.(\d+)\.(\d+)$/.exec(run);
  return found === null ? null : { pid: Number(found[1]), startTicks: found[2] ?? '', namespace: found[3] ?? '' };
}
