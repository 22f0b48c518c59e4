import { access, readdir, readFile } from 'node:fs/promises';
import { fileContextOf } from '../core/selinux.ts';

/** `2MB` for each size the kernel has, as the runtime's limits are named. */
export async function hugePageSizes(): Promise<string[]> {
  const names = await readdir('/sys/kernel/mm/hugepages').catch(() => [] as string[]);
  return names.flatMap((name) => {
    const kib = Number(/^hugepages-(\d+)kB$/.exec(name)?.[1] ?? 0);
    if (kib === 0) return [];
    return kib % 1_048_576 === 0 ? [`${kib / 1_048_576}GB`] : kib % 1024 === 0 ? [`${kib / 1024}MB`] : [`${kib}KB`];
  });
}

const isThere = (path: string): Promise<boolean> =>
  access(path).then(
    () => true,
    () => false,
  );

/** Whether a cgroup can limit swap, be there any or not: the file stands in each but the topmost. */
export async function hasSwapController(version: 1 | 2): Promise<boolean> {
  if (version === 1) return isThere('/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes');
  const own = /^0::(.+)$/m.exec(await readFile('/proc/self/cgroup', 'utf8'))?.[1] ?? '/';
  return isThere(`/sys/fs/cgroup${own}/memory.swap.max`);
}

/** What tells of the machine's heat, and by it of other pods' work; hidden where the kernel has it. */
export async function thermalPaths(): Promise<string[]> {
  const root = '/sys/devices/system/cpu';
  const names = await readdir(root).catch(() => [] as string[]);
  const paths = names.filter((name) => /^cpu\d+$/.test(name)).map((name) => `${root}/${name}/thermal_throttle`);
  const there = await Promise.all(paths.map(isThere));
  return paths.filter((_, index) => there[index]);
}

/** Whether the kernel labels files by SELinux. */
export const hasSelinux = (): Promise<boolean> => isThere('/sys/fs/selinux/enforce');

/** The context of files in containers by the machine's policy; '' where it has none. As libselinux finds it. */
export async function selinuxFileContext(): Promise<string> {
  const config = await readFile('/etc/selinux/config', 'utf8').catch(() => '');
  const [, policy = 'targeted'] = /^\s*SELINUXTYPE\s*=\s*(\S+)/m.exec(config) ?? [];
  const contexts = [`/usr/share/containers/selinux/contexts`, `/etc/selinux/${policy}/contexts/lxc_contexts`];
  for (const path of contexts) {
    const text = await readFile(path, 'utf8').catch(() => null);
    if (text !== null) return fileContextOf(text);
  }
  return '';
}

/** Whether the kernel confines by AppArmor. */
export async function hasApparmor(): Promise<boolean> {
  const enabled = await readFile('/sys/module/apparmor/parameters/enabled', 'utf8').catch(() => '');
  return enabled.startsWith('Y') && (await isThere('/sys/kernel/security/apparmor'));
}
