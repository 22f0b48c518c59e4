/** What users ask the kubelet for and do not get; each is off unless `--wishes` names it. docs/wishes.md tells of all. */
export const wishes = [
  'BelieveAnyShutdownSignal',
  'KillTimedOutExecProbes',
  'ProbeReadinessOfEvictedPods',
  'RefreshVolumesOfEndingPods',
  'RegisterDeletedNode',
  'ShortenGraceAtSecondDelete',
] as const;
export type Wish = (typeof wishes)[number];

/** The names as wishes; a text is what is wrong with one. */
export function readWishes(names: readonly string[]): ReadonlySet<Wish> | string {
  for (const name of names) if (!wishes.some((wish) => wish === name)) return `unknown wish ${JSON.stringify(name)}: there are ${wishes.join(', ')}`;
  return new Set(names as readonly Wish[]);
}

/** A process as /proc/PID/stat and cmdline tell it. */
export interface SeenProcess {
  readonly pid: number;
  readonly parent: number;
  /** In clock ticks since the machine started: with the pid it names one process for good. */
  readonly startTicks: number;
  readonly cmdline: string;
}

/** One process out of /proc/PID/stat; null for what is none (it has ended). */
export function readProcess(pid: number, stat: string, cmdline: string): SeenProcess | null {
  // The name stands in parentheses and may hold some itself.
  const after = stat.slice(stat.lastIndexOf(')') + 2).split(' ');
  const [parent, startTicks] = [Number(after[1]), Number(after[19])];
  return Number.isInteger(parent) && Number.isInteger(startTicks) && stat.includes(')') ? { pid, parent, startTicks, cmdline } : null;
}

/**
 * The processes of an exec and all that it started. A command that was executed in a container is, as the container's
 * own first process, a child of what the runtime left behind to look after it; it began after `sinceTicks`.
 */
export function processesOfExec(all: readonly SeenProcess[], first: number, cmd: readonly string[], sinceTicks: number): SeenProcess[] {
  const keeper = all.find(({ pid }) => pid === first)?.parent;
  const wanted = cmd.join('\0');
  const found = all.filter(
    ({ pid, parent, startTicks, cmdline }) => pid !== first && parent === keeper && startTicks >= sinceTicks && cmdline.replace(/\0$/, '') === wanted,
  );
  for (const above of found) found.push(...all.filter((each) => each.parent === above.pid && !found.includes(each)));
  return found;
}
