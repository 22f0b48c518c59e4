import { inside } from './files.ts';
import type { NodePlan, SetPlan } from './plan.ts';

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
  readonly sys: string;
  readonly containerd: string;
  /** Folders of containerd's and the CNI's programs, joined for PATH. */
  readonly path: string;
  readonly images: string;
}

/** Components of a real control plane. */
export interface RealControlPlane {
  readonly etcd: string;
  readonly apiserver: string;
  readonly controllerManager: string;
  readonly scheduler: string;
}

/** Probes, Leases and watches are due at their time, also while thirty containers start: what starts them goes first. */
export const AHEAD = -10;

/** How daemons of ours are started: a cleared environment and a bounded heap (a large machine makes Node greedy). */
function daemon(paths: ProgramPaths, command: string, args: readonly string[], heapMiB: number, logFile: string): ServiceSpec {
  return {
    name: command,
    argv: [paths.node, '--max-semi-space-size=2', `--max-old-space-size=${heapMiB}`, '--disable-warning=ExperimentalWarning', paths.bundle, command, ...args],
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
export function hubServices(set: SetPlan, paths: ProgramPaths, hostNetns: string, real: RealControlPlane | null): ServiceSpec[] {
  const log = (name: string): string => `${set.hub.dir}/log/${name}.log`;
  const pki = `${set.state}/pki`;
  const egress = daemon(paths, 'egress', ['--listen', set.hub.hostIp, '--from', set.hub.subnet, '--images', paths.images], 64, log('egress'));
  const outside: ServiceSpec = { ...egress, nice: 0, argv: ['nsenter', `--net=${hostNetns}`, ...egress.argv] };
  const control = [
    ...['--data-dir', `${set.hub.dir}/data`, '--pki-dir', pki],
    ...['--bind-address', set.hub.ip, '--secure-port', '6443', '--advertise-address', set.hub.ip],
    ...['--kubelet-certificate-authority', `${pki}/ca.crt`],
    ...['--service-cluster-ip-range', set.serviceCidr, '--cluster-cidr', set.podCidr],
    ...['--dns-listen', `${set.hub.ip}:53`, '--dns-upstream', set.hub.hostIp],
  ];
  if (real === null) return [outside, daemon(paths, 'control', control, 512, log('control'))];
  const plain = (name: string, argv: readonly string[]): ServiceSpec => ({ name, argv, env: { PATH: paths.path, HOME: '/root' }, logFile: log(name) });
  return [
    outside,
    plain('etcd', [
      real.etcd,
      ...['--data-dir', `${set.hub.dir}/etcd`, '--listen-client-urls', 'http://127.0.0.1:2379', '--advertise-client-urls', 'http://127.0.0.1:2379'],
      ...['--listen-peer-urls', 'http://127.0.0.1:2380', '--unsafe-no-fsync'],
    ]),
    plain('kube-apiserver', [
      real.apiserver,
      '--etcd-servers=http://127.0.0.1:2379',
      `--bind-address=${set.hub.ip}`,
      `--advertise-address=${set.hub.ip}`,
      '--secure-port=6443',
      `--tls-cert-file=${pki}/apiserver.crt`,
      `--tls-private-key-file=${pki}/apiserver.key`,
      `--client-ca-file=${pki}/ca.crt`,
      `--kubelet-client-certificate=${pki}/apiserver-kubelet-client.crt`,
      `--kubelet-client-key=${pki}/apiserver-kubelet-client.key`,
      `--kubelet-certificate-authority=${pki}/ca.crt`,
      '--kubelet-preferred-address-types=InternalIP,Hostname',
      '--service-account-issuer=https://kubernetes.default.svc.cluster.local',
      `--service-account-key-file=${pki}/sa.pub`,
      `--service-account-signing-key-file=${pki}/sa.key`,
      `--service-cluster-ip-range=${set.serviceCidr}`,
      '--authorization-mode=Node,RBAC',
      '--enable-admission-plugins=NodeRestriction',
      '--allow-privileged=true',
    ]),
    plain('kube-controller-manager', [
      real.controllerManager,
      `--kubeconfig=${set.state}/controller-manager.kubeconfig`,
      `--service-account-private-key-file=${pki}/sa.key`,
      `--root-ca-file=${pki}/ca.crt`,
      `--cluster-signing-cert-file=${pki}/ca.crt`,
      `--cluster-signing-key-file=${pki}/ca.key`,
      '--use-service-account-credentials=true',
      '--allocate-node-cidrs=false',
      `--service-cluster-ip-range=${set.serviceCidr}`,
      '--leader-elect=false',
    ]),
    plain('kube-scheduler', [real.scheduler, `--kubeconfig=${set.state}/scheduler.kubeconfig`, '--leader-elect=false']),
    daemon(
      paths,
      'dns',
      [
        '--kubeconfig',
        `${set.state}/admin.kubeconfig`,
        '--listen',
        `${set.hub.ip}:53`,
        '--upstream',
        set.hub.hostIp,
        '--service-cluster-ip-range',
        set.serviceCidr,
      ],
      128,
      log('dns'),
    ),
  ];
}

/** A node's programs, in the order in which they start. */
export function nodeServices(set: SetPlan, node: NodePlan, paths: ProgramPaths, ports: { proxy: number }): ServiceSpec[] {
  const log = (name: string): string => `${node.dir}/log/${name}.log`;
  const proxy = `http://${set.hub.hostIp}:${ports.proxy}`;
  const direct = [set.hub.subnet, set.serviceCidr, set.podCidr, 'localhost', '127.0.0.1'].join(',');
  return [
    {
      name: 'containerd',
      argv: [paths.containerd, '--config', `${node.dir}/containerd.toml`],
      env: { PATH: paths.path, HOME: '/root', HTTP_PROXY: proxy, HTTPS_PROXY: proxy, NO_PROXY: direct },
      logFile: log('containerd'),
    },
    daemon(
      paths,
      'agent',
      [
        ...['--kubeconfig', `${node.dir}/agent.kubeconfig`, '--config', `${node.dir}/agent.json`],
        ...['--hostname-override', node.name, '--node-ip', node.ip, '--root-dir', inside.kubeletRoot, '--cert-dir', `${inside.kubeletRoot}/pki`],
      ],
      256,
      log('agent'),
    ),
    daemon(paths, 'netfilter', ['--config', `${node.dir}/proxy.json`], 256, log('netfilter')),
  ];
}
