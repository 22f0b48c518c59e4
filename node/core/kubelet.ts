import { inside } from './files.ts';
import { nodeIpsOf, type NodePlan, type SetPlan } from './plan.ts';
import type { ServiceSpec } from './services.ts';

/**
 * Settings of the kernel that upstream's kubelet makes as it wants them at every start (`setupKernelTunables`). They are the
 * whole machine's, so the kubelet sees files that say what it wants to read and leaves the machine's own alone.
 */
export const KERNEL_WANTED: Readonly<Record<string, string>> = {
  'vm/overcommit_memory': '1',
  'vm/panic_on_oom': '0',
  'kernel/panic': '10',
  'kernel/panic_on_oops': '1',
  'kernel/keys/root_maxkeys': '1000000',
  'kernel/keys/root_maxbytes': '25000000',
};

/** Below the node's folder: one file a setting, the slashes of its path as dots. */
export const kernelFile = (node: NodePlan, setting: string): string => `${node.dir}/kernel/${setting.replaceAll('/', '.')}`;

/**
 * Mounts that a kubelet makes must reach the containers, so its view shares all with the node but /proc. A view of its own for
 * the one program, because a masked /proc of the whole node would keep the runtime from making user namespaces.
 */
function withKernelFiles(node: NodePlan, argv: readonly string[]): string[] {
  const binds = Object.keys(KERNEL_WANTED).map((setting) => `mount --bind '${kernelFile(node, setting)}' /proc/sys/${setting}`);
  // It ends when there is no runtime yet, and would be started again only after a while.
  const runtime = `until [ -S ${inside.containerdSocket} ]; do sleep 0.05; done`;
  const script = ['set -e', 'mount --make-rprivate /proc', ...binds, runtime, 'exec "$@"'].join('; ');
  return ['unshare', '--mount', '--propagation', 'unchanged', '/bin/sh', '-c', script, 'kubelet', ...argv];
}

export interface KubeletOptions {
  readonly program: string;
  readonly path: string;
  readonly nice: number;
}

/** The command line of any kubelet. Where nodes join by token it keeps the credentials that it gets in its own folder. */
export function kubeletArguments(set: SetPlan, node: NodePlan): string[] {
  const credentials =
    set.join === 'token'
      ? ['--kubeconfig', `${inside.kubeletRoot}/kubeconfig`, '--bootstrap-kubeconfig', `${node.dir}/bootstrap.kubeconfig`]
      : ['--kubeconfig', `${node.dir}/agent.kubeconfig`];
  return [
    ...credentials,
    ...['--config', `${node.dir}/agent.json`, '--hostname-override', node.name, '--node-ip', nodeIpsOf(node).join(',')],
    ...['--root-dir', inside.kubeletRoot, '--cert-dir', `${inside.kubeletRoot}/pki`],
  ];
}

/** Upstream's kubelet. */
export function kubeletService(set: SetPlan, node: NodePlan, options: KubeletOptions): ServiceSpec {
  return {
    name: 'kubelet',
    argv: withKernelFiles(node, [options.program, ...kubeletArguments(set, node), ...['--v', '2']]),
    env: { PATH: options.path, HOME: '/root' },
    logFile: `${node.dir}/log/kubelet.log`,
    nice: options.nice,
  };
}

/** Upstream's kube-proxy, in the mode that the node's configuration file says. */
export function kubeProxyService(node: NodePlan, options: KubeletOptions): ServiceSpec {
  return {
    name: 'kube-proxy',
    argv: [options.program, '--config', `${node.dir}/proxy.json`, '--v', '2'],
    env: { PATH: options.path, HOME: '/root' },
    logFile: `${node.dir}/log/kube-proxy.log`,
    nice: options.nice,
  };
}
