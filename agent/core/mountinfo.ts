/** A line of /proc/<pid>/mountinfo, what is used of it. */
export interface MountEntry {
  readonly target: string;
  readonly fstype: string;
  readonly source: string;
  readonly superOptions: string;
  /** `8:1`. */
  readonly device: string;
  /** Path of the mount's root inside its file system. */
  readonly root: string;
}

/** Parses /proc/<pid>/mountinfo (proc(5)); lines of another shape are left out. */
export function parseMountinfo(text: string): MountEntry[] {
  const entries: MountEntry[] = [];
  for (const line of text.split('\n')) {
    const dash = line.indexOf(' - ');
    if (dash === -1) continue;
    const left = line.slice(0, dash).split(' ');
    const [fstype = '', source = '', superOptions = ''] = line.slice(dash + 3).split(' ');
    entries.push({ root: unescape(left[3] ?? ''), target: unescape(left[4] ?? ''), fstype, source: unescape(source), superOptions, device: left[2] ?? '' });
  }
  return entries;
}

/** Mount points at or below `dir`, the last mounted and deepest first: the order in which they come off. */
export function mountsBelow(entries: readonly MountEntry[], dir: string): string[] {
  const below = entries.filter((entry) => entry.target === dir || entry.target.startsWith(`${dir}/`)).map((entry) => entry.target);
  return below.reverse().sort((left, right) => depth(right) - depth(left));
}

/** Where else the directory at `path` is mounted, in the order of the table. */
export function otherMounts(entries: readonly MountEntry[], path: string): string[] {
  const isAbove = ({ target }: MountEntry): boolean => target === '/' || target === path || path.startsWith(`${target}/`);
  let above: MountEntry | undefined;
  for (const entry of entries) if (isAbove(entry) && (above === undefined || entry.target.length >= above.target.length)) above = entry;
  if (above === undefined) return [];
  const inside = above.target === '/' ? path : path.slice(above.target.length);
  const root = `${above.root === '/' ? '' : above.root}${inside}` || '/';
  return entries.filter((entry) => entry.device === above.device && entry.root === root && entry.target !== path).map(({ target }) => target);
}

function depth(path: string): number {
  return path.split('/').length;
}

function unescape(text: string): string {
  return text.replaceAll(/\\([0-7]{3})/g, (_, octal: string) => String.fromCharCode(Number.parseInt(octal, 8)));
}
