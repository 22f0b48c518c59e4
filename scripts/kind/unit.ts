/**
 * What systemd says of a node's kubelet, read without systemd: `systemctl show` and `systemctl cat` as text.
 * Unit files: systemd.syntax(7), systemd.service(5).
 */
export interface UnitFacts {
  readonly isLoaded: boolean;
  readonly isActive: boolean;
  readonly mainPid: number;
  /** The unit file and what adds to it, in the order in which they count. */
  readonly files: readonly string[];
}

/** Answer of `systemctl show UNIT --property=LoadState,ActiveState,MainPID,FragmentPath,DropInPaths`. */
export function readUnit(text: string): UnitFacts {
  const value = (name: string): string => new RegExp(`^${name}=(.*)$`, 'm').exec(text)?.[1]?.trim() ?? '';
  return {
    isLoaded: value('LoadState') === 'loaded',
    isActive: value('ActiveState') === 'active',
    mainPid: Number(value('MainPID')) || 0,
    files: [value('FragmentPath'), ...value('DropInPaths').split(' ')].filter((path) => path !== ''),
  };
}

/**
 * The command line that a unit starts, as it is written (with its $VARIABLES), from the text of all its files in order:
 * an empty `ExecStart=` takes back what stood before. Null where there is none, or more than one.
 */
export function execStartOf(files: string): string | null {
  let section = '';
  let found: string[] = [];
  for (const line of files.replaceAll(/\\\n/g, ' ').split('\n')) {
    const text = line.trim();
    const head = /^\[(\w+)\]$/.exec(text);
    if (head !== null) section = head[1] ?? '';
    const value = /^ExecStart\s*=\s*(.*)$/.exec(text)?.[1];
    if (section !== 'Service' || value === undefined) continue;
    if (value === '') found = [];
    else found.push(value);
  }
  return found.length === 1 ? (found[0] ?? null) : null;
}

/** That command line with another program in the place of its first word; prefixes such as `-` or `+` stay. */
export function withProgram(execStart: string, program: string): string {
  const prefix = /^[@\-:+!|]*/.exec(execStart)?.[0] ?? '';
  return `${prefix}${program}${execStart.slice(prefix.length).replace(/^\S+/, '')}`;
}

/** The program that a command line starts. */
export const programOf = (execStart: string): string => /^[@\-:+!|]*(\S+)/.exec(execStart)?.[1] ?? '';

/** A flag's value among a process's arguments: `--name=value` or `--name value`; the last one counts. */
export function flagOf(argv: readonly string[], name: string): string | null {
  let value: string | null = null;
  for (const [at, word] of argv.entries()) {
    if (word === `--${name}`) value = argv[at + 1] ?? null;
    else if (word.startsWith(`--${name}=`)) value = word.slice(name.length + 3);
  }
  return value;
}

/** The drop-in that puts `program` in the place of the unit's own. */
export const dropIn = (execStart: string, program: string): string =>
  `# Written by nodelet kind swap; nodelet kind restore removes it.\n[Service]\nExecStart=\nExecStart=${withProgram(execStart, program)}\n`;

const nameOf = (path: string): string => path.slice(path.lastIndexOf('/') + 1);

/** Drop-ins that count after the one at `path`: systemd sorts them by name, whatever folder they lie in (systemd.unit(5)). */
export const laterThan = (files: readonly string[], path: string): string[] => files.slice(1).filter((file) => file !== path && nameOf(file) > nameOf(path));
