import { spawn } from 'node:child_process';
import { OpError } from '../../base/errors.ts';
import { kubectlIsRecent, kubectlWords } from '../io/machine.ts';
import { firstProcess } from '../io/running.ts';
import { lookAtMachine, requireNode, requireRoot, requireSet, type Context } from './context.ts';

/** Runs a program in the foreground with our own standard streams; resolves to its exit code as a shell counts. */
function foreground(argv: readonly string[], env: Readonly<Record<string, string | undefined>>): Promise<number> {
  return new Promise((resolve, reject) => {
    const child = spawn(argv[0] ?? '', argv.slice(1), { stdio: 'inherit', env });
    const forward = (signal: NodeJS.Signals): void => void child.kill(signal);
    const signals: NodeJS.Signals[] = ['SIGINT', 'SIGTERM', 'SIGHUP', 'SIGWINCH'];
    for (const signal of signals) process.on(signal, forward);
    const done = (): void => {
      for (const signal of signals) process.off(signal, forward);
    };
    child.on('error', (cause) => {
      done();
      reject(new OpError('not-found', `running ${argv[0]}`, cause.message, { cause }));
    });
    child.on('close', (code, signal) => {
      done();
      resolve(code ?? (signal === 'SIGKILL' ? 137 : 143));
    });
  });
}

/** `nodelet kubectl …`: the kubectl of PATH with the set's kubeconfig. */
export async function kubectl(context: Context, args: readonly string[]): Promise<number> {
  const { saved, plan } = await requireSet(context);
  const own = saved.programs?.kubectl;
  const machine = own === undefined ? await lookAtMachine(context, undefined) : null;
  const program = own ?? machine?.programs.kubectl;
  if (program === undefined || (machine !== null && !kubectlIsRecent(machine.kubectlVersion))) {
    throw new OpError('not-found', 'looking for kubectl', machine === null ? 'there is none' : kubectlWords(machine), {
      advice: `put kubectl 1.30 or later on PATH; the kubeconfig is ${plan.state}/admin.kubeconfig`,
    });
  }
  return foreground([program, ...args], { ...context.host.env, KUBECONFIG: `${plan.state}/admin.kubeconfig` });
}

/** `nodelet exec [--node N] -- CMD`: a command in all namespaces of a node. */
export async function execInNode(context: Context, options: { node?: string }, command: readonly string[]): Promise<number> {
  requireRoot();
  const { plan } = await requireSet(context);
  const isHub = options.node === 'hub';
  const dir = isHub ? plan.hub.dir : requireNode(plan, options.node).dir;
  const first = await firstProcess(dir);
  if (first === null)
    throw new OpError('unavailable', 'entering the node', `${options.node ?? plan.nodes[0]?.name} does not run`, { advice: 'start it with: nodelet up' });
  const argv = command.length === 0 ? ['/bin/sh'] : command;
  return foreground([`${context.root}/dist/sys`, 'exec', '--pid', String(first.pid), '--', ...argv], {
    ...context.host.env,
    CONTAINER_RUNTIME_ENDPOINT: 'unix:///run/containerd/containerd.sock',
  });
}

const LOGS = {
  agent: 'node',
  netfilter: 'node',
  containerd: 'node',
  kubelet: 'node',
  'kube-proxy': 'node',
  control: 'hub',
  egress: 'hub',
  dns: 'hub',
  etcd: 'hub',
  'kube-apiserver': 'hub',
  'kube-controller-manager': 'hub',
  'kube-scheduler': 'hub',
  audit: 'hub',
} as const;
export const LOG_NAMES = Object.keys(LOGS) as (keyof typeof LOGS)[];

/** `nodelet logs NAME [-f]`. */
export async function logs(context: Context, which: string, options: { node?: string; follow?: boolean; tail: string }): Promise<number> {
  const { plan } = await requireSet(context);
  if (!Object.hasOwn(LOGS, which))
    throw new OpError('invalid', 'choosing a log', `there is no log "${which}"`, { advice: `use one of: ${LOG_NAMES.join(', ')}` });
  if (!/^(\+?\d+|all)$/.test(options.tail)) throw new OpError('invalid', 'reading --tail', `"${options.tail}" is not a number of lines`);
  const dir = LOGS[which as keyof typeof LOGS] === 'hub' ? plan.hub.dir : requireNode(plan, options.node).dir;
  const lines = options.tail === 'all' ? '+1' : options.tail;
  return foreground(['tail', '-n', lines, ...(options.follow === true ? ['-F'] : []), `${dir}/log/${which}.log`], context.host.env);
}
