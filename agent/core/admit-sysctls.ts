import type { Pod } from '../../proto/kube/types.ts';

/** Namespaced and without effect on other pods; every kernel that is served has them per pod. */
const safeSysctls: readonly string[] = [
  'kernel.shm_rmid_forced',
  'net.ipv4.ip_local_port_range',
  'net.ipv4.tcp_syncookies',
  'net.ipv4.ping_group_range',
  'net.ipv4.ip_unprivileged_port_start',
  'net.ipv4.ip_local_reserved_ports',
  'net.ipv4.tcp_keepalive_time',
  'net.ipv4.tcp_fin_timeout',
  'net.ipv4.tcp_keepalive_intvl',
  'net.ipv4.tcp_keepalive_probes',
  'net.ipv4.tcp_rmem',
  'net.ipv4.tcp_wmem',
  'net.ipv4.tcp_slow_start_after_idle',
  'net.ipv4.tcp_notsent_lowat',
];

/** `allowed`: unsafe ones that this node allows, with `*` at the end for a prefix. Null, or why the pod is refused. */
export function sysctlProblem(pod: Pod, allowed: readonly string[]): string | null {
  const patterns = [...safeSysctls, ...allowed].map(dotted);
  for (const sysctl of pod.spec.securityContext?.sysctls ?? []) {
    const name = dotted(sysctl.name);
    const matches = patterns.some((pattern) => (pattern.endsWith('*') ? name.startsWith(pattern.slice(0, -1)) : pattern === name));
    if (!matches) return `forbidden sysctl: "${name}" not allowlisted`;
    const shared = sharedNamespace(pod, name);
    if (shared !== null) return `forbidden sysctl: "${name}" not allowed with host ${shared} enabled`;
  }
  return null;
}

/** The namespace the sysctl belongs to, when the pod has the host's. */
function sharedNamespace(pod: Pod, name: string): string | null {
  const { hostNetwork, hostIPC, hostUsers } = pod.spec;
  if (name.startsWith('net.')) return hostNetwork === true ? 'Net' : null;
  if (/^kernel\.(sem$|shm|msg)/.test(name) || name.startsWith('fs.mqueue.')) return hostIPC === true ? 'IPC' : null;
  return name.startsWith('user.') && hostUsers !== false ? 'User' : null;
}

type SysctlNamespace = 'IPC' | 'Net' | 'User' | 'UTS';

/** The namespace that holds a sysctl; null: it is the machine's. */
function namespaceOf(name: string): SysctlNamespace | null {
  if (/^kernel\.(sem$|shm|msg)/.test(name) || name.startsWith('fs.mqueue.')) return 'IPC';
  if (name.startsWith('net.')) return 'Net';
  if (name.startsWith('user.')) return 'User';
  return name === 'kernel.domainname' ? 'UTS' : null;
}

/** `defaultPodSysctls` (alpha gate DefaultPodSysctls) that a pod gets: those of namespaces of its own. */
export function defaultSysctlsOf(pod: Pod, defaults: Readonly<Record<string, string>>): Record<string, string> {
  const { hostNetwork, hostIPC, hostUsers } = pod.spec;
  const own: Readonly<Record<SysctlNamespace, boolean>> = {
    IPC: hostIPC !== true,
    Net: hostNetwork !== true,
    UTS: hostNetwork !== true,
    User: hostUsers === false,
  };
  const named = Object.entries(defaults).map(([name, value]): [string, string] => [dotted(name), value]);
  return Object.fromEntries(
    named.filter(([name]) => {
      const namespace = namespaceOf(name);
      return namespace !== null && own[namespace];
    }),
  );
}

/** What is wrong with `defaultPodSysctls`, in upstream's words. */
export function defaultSysctlsProblems(defaults: Readonly<Record<string, string>>, isOn: boolean): string[] {
  const names = Object.keys(defaults);
  if (names.length === 0) return [];
  if (!isOn) return ['DefaultPodSysctls feature gate is required for Kubelet configuration option defaultPodSysctls'];
  const seen = new Set<string>();
  return names.flatMap((given) => {
    const name = dotted(given);
    const twice = seen.has(name);
    seen.add(name);
    if (!/^[a-z0-9]([-_a-z0-9]*[a-z0-9])?([./][a-z0-9]([-_a-z0-9]*[a-z0-9])?)*$/.test(given))
      return [`${JSON.stringify(given)} is not a valid sysctl name for defaultPodSysctls`];
    if (namespaceOf(name) === null) return [`${JSON.stringify(given)} is not known to be namespaced for defaultPodSysctls`];
    return twice ? [`duplicate sysctl ${JSON.stringify(name)} found in defaultPodSysctls`] : [];
  });
}

const segment = '[a-z0-9]([-_a-z0-9]*[a-z0-9])?';
const sysctlPattern = new RegExp(`^(${segment}[./])*([a-z0-9][-_a-z0-9]*)?[a-z0-9*]$`);

/** What is wrong with `allowedUnsafeSysctls`, in upstream's words: only what the kernel keeps for each namespace can be let to pods. */
export function allowedSysctlsProblems(allowed: readonly string[]): string[] {
  return allowed.flatMap((pattern) => {
    if (pattern.length > 253 || !sysctlPattern.test(pattern))
      return [`allowedUnsafeSysctls: sysctl ${JSON.stringify(pattern)} must have at most 253 characters and match regex ${sysctlPattern.source.slice(1, -1)}`];
    const name = dotted(pattern).replace(/\*$/, '');
    return hasNamespace(name) ? [] : [`allowedUnsafeSysctls: the sysctls ${JSON.stringify(name)} are not known to be namespaced`];
  });
}

const namespaced = new Set(
  ['domainname', 'sem', 'shm', 'shmall', 'shmmax', 'shmmni', 'shm_rmid_forced', 'msg', 'msgmax', 'msgmnb', 'msgmni'].map((name) => `kernel.${name}`),
);

/** Of a prefix, too, whole names count: `kernel.sh*` may be anything. */
function hasNamespace(name: string): boolean {
  return namespaced.has(name) || /^(net|fs\.mqueue|user)\./.test(name);
}

/** sysctl(8): with a slash before the first dot, slashes separate and dots belong to names. */
function dotted(name: string): string {
  const first = /[./]/.exec(name)?.[0];
  if (first !== '/') return name;
  return name.replaceAll(/[./]/g, (separator) => (separator === '/' ? '.' : '/'));
}
