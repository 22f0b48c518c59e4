import { access, constants, readdir, readFile } from 'node:fs/promises';
import { delimiter, resolve } from 'node:path';
import { execa } from 'execa';

/** What this machine has, read once per command. */
export interface Machine {
  readonly isRoot: boolean;
  readonly kernel: string;
  readonly cgroup: { readonly version: 1 | 2; readonly root: string; readonly hierarchies: readonly string[] } | null;
  /** Full paths of the programs that were found. */
  readonly programs: Readonly<Partial<Record<Program, string>>>;
  readonly cniBinDir: string | null;
  readonly containerdMajor: number | null;
  readonly containerdVersion: string | null;
  readonly kubectlVersion: string | null;
  readonly mayLowerOomScore: boolean;
  /** fs.inotify.max_user_instances: what all of a user's programs together may have. */
  readonly inotifyInstances: number;
}

export type Program =
  | 'containerd'
  | 'runc'
  | 'ip'
  | 'nft'
  | 'iptables'
  | 'nsenter'
  | 'cc'
  | 'busybox'
  | 'catatonit'
  | 'apt-get'
  | 'kubectl'
  | 'conntrack'
  | 'openssl'
  | 'pgrep'
  | 'git'
  | 'chromium'
  | 'containerd-shim-runc-v2';

const PROGRAMS: readonly Program[] = [
  'containerd',
  'runc',
  'ip',
  'nft',
  'iptables',
  'nsenter',
  'cc',
  'busybox',
  'catatonit',
  'apt-get',
  'kubectl',
  'conntrack',
  'openssl',
  'pgrep',
  'git',
  'chromium',
  'containerd-shim-runc-v2',
];
const SYSTEM_PATH = ['/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin'];
const CNI_DIRS = ['/opt/cni/bin', '/usr/lib/cni', '/usr/libexec/cni'];
const CNI_PLUGINS = ['ptp', 'host-local', 'portmap', 'loopback'];
const CAP_SYS_RESOURCE = 24n;
/** A large program's first start from a cold disk of a slow machine. */
const VERSION_MS = 60_000;

async function isExecutable(path: string): Promise<boolean> {
  return access(path, constants.X_OK).then(
    () => true,
    () => false,
  );
}

/** The first executable of that name: the folder of `--containerd`, the caller's PATH, then the system's folders. */
async function find(name: string, folders: readonly string[]): Promise<string | undefined> {
  for (const folder of folders) {
    if (folder.startsWith('/') && (await isExecutable(`${folder}/${name}`))) return `${folder}/${name}`;
  }
  return undefined;
}

async function cgroups(): Promise<Machine['cgroup']> {
  const mounts = (await readFile('/proc/self/mounts', 'utf8')).split('\n').map((line) => line.split(' '));
  const v2 = mounts.find((mount) => mount[2] === 'cgroup2');
  if (v2 !== undefined) {
    const controllers = (await readFile(`${v2[1]}/cgroup.controllers`, 'utf8').catch(() => '')).split(/\s+/);
    if (['cpu', 'memory', 'pids'].every((name) => controllers.includes(name))) return { version: 2, root: v2[1] ?? '', hierarchies: [v2[1] ?? ''] };
  }
  const v1 = mounts.filter((mount) => mount[2] === 'cgroup').map((mount) => mount[1] ?? '');
  const unified = v2?.[1];
  const has = (controller: string): boolean => mounts.some((mount) => mount[2] === 'cgroup' && (mount[3] ?? '').split(',').includes(controller));
  if (!has('memory') || !has('cpu')) return null;
  const hierarchies = [...new Set([...v1, ...(unified === undefined ? [] : [unified])])];
  return { version: 1, root: '/sys/fs/cgroup', hierarchies };
}

async function versionOf(command: string, args: readonly string[], pattern: RegExp): Promise<string | null> {
  const result = await execa(command, [...args], { reject: false, timeout: VERSION_MS });
  return pattern.exec(result.stdout)?.[1] ?? null;
}

async function hasCapability(bit: bigint): Promise<boolean> {
  const status = await readFile('/proc/self/status', 'utf8');
  const effective = BigInt(`0x${/^CapEff:\s*([0-9a-f]+)/m.exec(status)?.[1] ?? '0'}`);
  return ((effective >> bit) & 1n) === 1n;
}

/**
 * Looks at the machine. `containerd` is a binary or folder that goes first; `path` the caller's PATH.
 */
export async function inspectMachine(options: { containerd?: string | undefined; path: string }): Promise<Machine> {
  const preferred =
    options.containerd === undefined
      ? []
      : [resolve(options.containerd.endsWith('/containerd') ? options.containerd.slice(0, -'/containerd'.length) : options.containerd)];
  const system = [...SYSTEM_PATH, ...options.path.split(delimiter)];
  const foldersOf = (name: Program): readonly string[] => {
    if (name === 'kubectl') return [...options.path.split(delimiter), ...SYSTEM_PATH];
    // A containerd that was asked for is taken from there or not at all.
    return name === 'containerd' && preferred.length > 0 ? preferred : [...preferred, ...system];
  };
  const found = await Promise.all(PROGRAMS.map(async (name) => [name, await find(name, foldersOf(name))] as const));
  const programs: Partial<Record<Program, string>> = Object.fromEntries(found.filter(([, path]) => path !== undefined));
  let cniBinDir: string | null = null;
  for (const dir of CNI_DIRS) {
    const names = await readdir(dir).catch(() => [] as string[]);
    if (cniBinDir === null && CNI_PLUGINS.every((plugin) => names.includes(plugin))) cniBinDir = dir;
  }
  const [containerdVersion, kubectlVersion] = await Promise.all([
    programs.containerd === undefined ? null : versionOf(programs.containerd, ['--version'], /\sv?(\d+\.\d+\.\d+\S*)/),
    programs.kubectl === undefined ? null : versionOf(programs.kubectl, ['version', '--client', '--output=json'], /"gitVersion":\s*"v([^"]+)"/),
  ]);
  return {
    isRoot: process.geteuid?.() === 0,
    kernel: (await readFile('/proc/sys/kernel/osrelease', 'utf8')).trim(),
    cgroup: await cgroups(),
    programs,
    cniBinDir,
    containerdVersion,
    containerdMajor: containerdVersion === null ? null : Number(containerdVersion.split('.')[0]),
    kubectlVersion,
    mayLowerOomScore: await hasCapability(CAP_SYS_RESOURCE),
    inotifyInstances: Number(await readFile('/proc/sys/fs/inotify/max_user_instances', 'utf8').catch(() => '0')),
  };
}

/** Whether a kubectl version is one that this project is used with (1.30 or later). */
export function kubectlIsRecent(version: string | null): boolean {
  const [major = 0, minor = 0] = (version ?? '').split('.').map((part) => Number.parseInt(part, 10));
  return major > 1 || (major === 1 && minor >= 30);
}

/** What is known of the kubectl that was found, for a sentence. */
export function kubectlWords({ programs, kubectlVersion }: Machine): string {
  if (programs.kubectl === undefined) return 'there is none on PATH';
  return kubectlVersion === null ? `${programs.kubectl} does not tell its version` : `${programs.kubectl} is v${kubectlVersion}`;
}
