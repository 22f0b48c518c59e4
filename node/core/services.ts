import { containerdCommand } from './containerd.ts';
import { hasCoreDns } from './coredns.ts';
import { kubeletArguments, kubeletService, kubeProxyService } from './kubelet.ts';
import type { NodePlan, SetPlan } from './plan.ts';
import { realControlPlane, type RealPrograms } from './real.ts';

/** One program that PID 1 of a hub or node starts and starts again. */
export interface ServiceSpec {
  readonly name: string;
  readonly argv: readonly string[];
  /** The whole environment. */
  readonly env: Readonly<Record<string, string>>;
  readonly logFile: string;
  /** Its share of the CPUs against others, as `nice` counts; absent: everybody's. */
  readonly nice?: number;
}

export interface ProgramPaths {
  readonly node: string;
  readonly bundle: string;
  /** The service proxy alone, beside the bundle. */
  readonly proxy: string;
  readonly sys: string;
  readonly containerd: string;
  /** Folders of containerd's and the CNI's programs, joined for PATH. */
  readonly path: string;
  readonly images: string;
}

/** Probes, Leases and watches are due at their time, also while thirty containers start: what starts them goes first. */
export const AHEAD = -10;

/** How Node runs the service proxy; the rest it sees to itself (`frugal.ts`), since flags here keep code from being taken that is kept. */
export const PROXY_FLAGS: readonly string[] = ['--max-semi-space-size=1'];

/** How daemons of ours are started: a cleared environment and a bounded heap (a large machine makes Node greedy). */
function daemon(paths: ProgramPaths, command: string, args: readonly string[], heapMiB: number, logFile: string): ServiceSpec {
  const [program, flags] = command === 'netfilter' ? [paths.proxy, PROXY_FLAGS] : [paths.bundle, ['--max-semi-space-size=2']];
  return {
    name: command,
    argv: [...[paths.node, ...flags, `--max-old-space-size=${heapMiB}`, '--disable-warning=ExperimentalWarning'], ...[program, command, ...args]],
    env: {
      PATH: paths.path,
      HOME: '/root',
      NODELET_SYS: paths.sys,
      UV_THREADPOOL_SIZE: '8',
      MALLOC_ARENA_MAX: '2',
      // Beside the bundle and one for each command: what is kept is the code that the first start of that command ran.
      NODE_COMPILE_CACHE: `${paths.bundle.slice(0, paths.bundle.lastIndexOf('/'))}/cache/${command}`,
    },
    logFile,
    nice: AHEAD,
  };
}

/** The hub's programs. `hostNetns` is a file that stands for the host's network namespace. */
export function hubServices(set: SetPlan, paths: ProgramPaths, hostNetns: string, real: RealPrograms | null): ServiceSpec[] {
  const log = (name: string): string => `${set.hub.dir}/log/${name}.log`;
  const pki = `${set.state}/pki`;
  const egress = daemon(paths, 'egress', ['--listen', set.hub.hostIp, '--from', set.hub.subnet, '--images', paths.images], 64, log('egress'));
  const outside: ServiceSpec = { ...egress, nice: 0, argv: ['nsenter', `--net=${hostNetns}`, ...egress.argv] };
  const control = [
    ...['--data-dir', `${set.hub.dir}/data`, '--pki-dir', pki],
    ...['--bind-address', set.hub.ip, '--secure-port', '6443', '--advertise-address', set.hub.ip],
    ...['--kubelet-certificate-authority', `${pki}/ca.crt`],
    // A node's range follows from its number and is in its files before it registers; `up` writes it into the Node.
    ...['--service-cluster-ip-range', set.serviceCidr, '--cluster-cidr', set.podCidr, '--allocate-node-cidrs=false'],
    ...['--dns-listen', `${set.hub.ip}:53`, '--dns-upstream', set.hub.hostIp],
  ];
  if (real === null) return [outside, daemon(paths, 'control', control, 512, log('control'))];
  const dns = ['--kubeconfig', `${set.state}/admin.kubeconfig`, '--listen', `${set.hub.ip}:53`, '--upstream', set.hub.hostIp];
  return [
    outside,
    ...realControlPlane(set, real, { path: paths.path, nice: AHEAD }),
    ...(hasCoreDns(set, real) ? [] : [daemon(paths, 'dns', [...dns, '--service-cluster-ip-range', set.serviceCidr], 128, log('dns'))]),
  ];
}

/** A node's programs, in the order in which they start. */
export function nodeServices(set: SetPlan, node: NodePlan, paths: ProgramPaths, ports: { proxy: number }, real: RealPrograms | null): ServiceSpec[] {
  const log = (name: string): string => `${node.dir}/log/${name}.log`;
  const proxy = `http://${set.hub.hostIp}:${ports.proxy}`;
  const direct = [set.hub.subnet, set.serviceCidr, set.podCidr, 'localhost', '127.0.0.1'].join(',');
  const upstream = { path: paths.path, nice: AHEAD };
  return [
    {
      name: 'containerd',
      argv: containerdCommand([paths.containerd, '--config', `${node.dir}/containerd.toml`]),
      env: { PATH: paths.path, HOME: '/root', HTTP_PROXY: proxy, HTTPS_PROXY: proxy, NO_PROXY: direct },
      logFile: log('containerd'),
    },
    node.agent === 'upstream' ? kubeletService(set, node, { ...upstream, program: real?.kubelet ?? 'kubelet' }) : agentService(set, node, paths, log('agent')),
    ...networkServices(set, node, paths, log, { ...upstream, program: real?.kubeProxy ?? 'kube-proxy' }),
  ];
}

/** Our kubelet. A set stands on a machine that is for other things too, whose kernel's parameters stay as they are. */
function agentService(set: SetPlan, node: NodePlan, paths: ProgramPaths, logFile: string): ServiceSpec {
  const agent = daemon(paths, 'agent', kubeletArguments(set, node), 256, logFile);
  return { ...agent, env: { ...agent.env, NODELET_SHARED_KERNEL: '1' } };
}

/** The service proxy, and our pod network's daemon: in our proxy's process, beside upstream's in one of its own. */
function networkServices(
  set: SetPlan,
  node: NodePlan,
  paths: ProgramPaths,
  log: (name: string) => string,
  upstream: Parameters<typeof kubeProxyService>[1],
): ServiceSpec[] {
  const config = `${node.dir}/cni.json`;
  const isOurs = set.cni === 'nodelet';
  if (node.proxy === 'upstream-nftables' || node.proxy === 'upstream-iptables')
    return [kubeProxyService(node, upstream), ...(isOurs ? [daemon(paths, 'cni', ['daemon', '--config', config], 128, log('cni'))] : [])];
  return [daemon(paths, 'netfilter', [...(isOurs ? ['--cni-config', config] : []), '--config', `${node.dir}/proxy.json`], 256, log('netfilter'))];
}
