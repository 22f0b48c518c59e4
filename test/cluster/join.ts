import { createHash, X509Certificate } from 'node:crypto';
import { cp, mkdir, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { execa } from 'execa';
import { OpError } from '../../base/errors.ts';
import { requireNode, requireRoot, requireSet, type Context } from '../../node/commands/context.ts';
import type { NodePlan, SetPlan } from '../../node/core/plan.ts';
import { firstProcess, servicesOf } from '../../node/io/running.ts';
import type { Assets } from '../assets/find.ts';

/**
 * Checks of kubeadm that cannot pass on every machine, and why. They are the machine's, whatever kubelet joins:
 * with cgroup v1 kubeadm 1.37 refuses until it is told to go on.
 */
export const IGNORED_CHECKS: Readonly<Record<string, string>> = {
  SystemVerification: 'kubeadm refuses cgroup v1, and asks the kernel for modules that a machine may lack',
};

export interface Joined {
  readonly node: string;
  readonly code: number;
  /** What kubeadm printed. */
  readonly output: string;
  readonly ignored: Readonly<Record<string, string>>;
  readonly seconds: number;
  readonly kubeletVersion: string;
}

const SERVICE = 'kubelet';
const STOP_MS = 30_000;
const READY_MS = 60_000;
const DRAIN_MS = 50_000;
const JOIN_MS = 300_000;

/**
 * `nodelet cluster join`: a node of ours is taken out of the cluster and made bare (a runtime, the launcher `kubelet`
 * that starts again and again as a unit would, an /etc of its own), and then the real `kubeadm join` brings it back.
 */
export async function join(context: Context, assets: Assets, options: { node?: string | undefined }): Promise<number> {
  requireRoot();
  const { plan, saved } = await requireSet(context);
  const node = requireNode(plan, options.node);
  if (plan.join !== 'token' || node.agent !== 'ours')
    throw new OpError('unsupported', 'choosing a node', `${node.name} of "${plan.name}" is no node of ours in a real cluster`, {
      advice: 'start one with: nodelet cluster up --agent ours',
    });
  const kubeadm = assets.require('kubeadm', 'joining a node');
  const kubectl = saved.programs?.kubectl ?? assets.require('kubectl', 'taking a node out of its cluster');
  const place = await openPlace(context, plan, node, kubectl);
  await context.progress.step(`${node.name} made bare`, () => makeBare(place, kubeadm));
  const begunAt = performance.now();
  const { code, output } = await context.progress.step('kubeadm join', () => kubeadmJoin(place));
  const seconds = (performance.now() - begunAt) / 1000;
  const version = code === 0 ? await context.progress.step(`${node.name} ready`, () => ready(place)) : '';
  const joined: Joined = { node: node.name, code, output, ignored: IGNORED_CHECKS, seconds, kubeletVersion: version };
  context.answer(joined, [
    output.trimEnd(),
    '',
    `kubeadm join ended with ${code} after ${seconds.toFixed(1)} s${version === '' ? '' : `; ${node.name} is Ready with ${version}`}`,
    ...Object.entries(IGNORED_CHECKS).map(([check, why]) => `ignored: ${check} (${why})`),
  ]);
  return code;
}

interface Place {
  readonly root: string;
  readonly plan: SetPlan;
  readonly node: NodePlan;
  readonly pid: number;
  readonly kubectl: (...words: string[]) => Promise<string>;
  /** A command in the node's namespaces. */
  readonly inside: (argv: readonly string[], timeoutMs?: number) => Promise<{ code: number; output: string }>;
}

async function openPlace(context: Context, plan: SetPlan, node: NodePlan, kubectl: string): Promise<Place> {
  const first = await firstProcess(node.dir);
  if (first === null) throw new OpError('unavailable', 'entering the node', `${node.name} does not run`, { advice: 'start it with: nodelet node start' });
  return {
    root: context.root,
    plan,
    node,
    pid: first.pid,
    async kubectl(...words) {
      const result = await execa(kubectl, [`--kubeconfig=${plan.state}/admin.kubeconfig`, ...words], { reject: false, timeout: READY_MS });
      if (result.exitCode !== 0) throw new OpError('failed', `kubectl ${words.join(' ')}`, result.stderr.trim());
      return result.stdout;
    },
    async inside(argv, timeoutMs = STOP_MS) {
      const env = { PATH: pathOf(node), HOME: '/root', KUBECONFIG: '' };
      const result = await execa(`${context.root}/dist/sys`, ['exec', '--pid', String(first.pid), '--', ...argv], {
        reject: false,
        all: true,
        timeout: timeoutMs,
        env,
        extendEnv: false,
      });
      return { code: result.exitCode ?? 1, output: result.all };
    },
  };
}

const pathOf = (node: NodePlan): string => `${node.dir}/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin`;

/**
 * What kubeadm's unit file and its drop-in say, for a machine without systemd. The extra argument, which a machine's owner
 * gives in /etc/default/kubelet, keeps the pods below the node's own cgroup, so that they end with it.
 */
const unit = (node: NodePlan): string => `KUBELET_KUBEADM_ARGS=
KUBELET_EXTRA_ARGS=--cgroup-root=${node.cgroup}
[ ! -f /var/lib/kubelet/kubeadm-flags.env ] || . /var/lib/kubelet/kubeadm-flags.env
exec kubelet --bootstrap-kubeconfig=/etc/kubernetes/bootstrap-kubelet.conf --kubeconfig=/etc/kubernetes/kubelet.conf --config=/var/lib/kubelet/config.yaml $KUBELET_KUBEADM_ARGS $KUBELET_EXTRA_ARGS
`;

async function makeBare(place: Place, kubeadm: string): Promise<void> {
  const { node, root, kubectl, inside } = place;
  await emptied(place);
  await programsOf(place, kubeadm, `${root}/scripts/kubelet`);
  await ownEtc(place);
  const stanzas = (await readFile(`${node.dir}/init.spec`, 'utf8')).split('\n\n').map((stanza) => stanza.trim());
  const isKubelet = (stanza: string): boolean => /^service (agent|kubelet)$/m.test(stanza);
  const services = async (wanted: readonly string[]): Promise<void> => {
    await writeFile(`${node.dir}/init.spec`, `${wanted.join('\n\n')}\n`, { mode: 0o600 });
    process.kill(place.pid, 'SIGHUP');
  };
  const others = stanzas.filter((stanza) => !isKubelet(stanza));
  await services(others);
  await until(`the agent of ${node.name} has stopped`, STOP_MS, async () => {
    const running = await servicesOf(node.dir, { pid: place.pid, startTicks: '' });
    return running.length === others.filter((stanza) => stanza.startsWith('service ')).length;
  });
  await kubectl('delete', 'node', node.name, '--ignore-not-found');
  const removed = await inside(['/bin/sh', '-c', 'rm -rf /var/lib/kubelet/* /etc/kubernetes']);
  if (removed.code !== 0) throw new OpError('failed', `emptying ${node.name}`, removed.output.trim());
  await services([...others, launcherStanza(node, stanzas.find(isKubelet) ?? '')]);
}

/** Its pods go as an administrator lets them go; those that nobody would make again are not ended here. */
async function emptied({ kubectl, node }: Place): Promise<void> {
  try {
    await kubectl('drain', node.name, '--ignore-daemonsets', '--delete-emptydir-data', `--timeout=${DRAIN_MS / 1000}s`);
  } catch (error) {
    await kubectl('uncordon', node.name).catch(() => '');
    throw error;
  }
}

async function programsOf({ node }: Place, kubeadm: string, launcher: string): Promise<void> {
  await mkdir(`${node.dir}/bin`, { recursive: true });
  for (const [name, target] of [
    ['kubelet', launcher],
    ['kubeadm', kubeadm],
  ] as const) {
    await rm(`${node.dir}/bin/${name}`, { force: true });
    await symlink(target, `${node.dir}/bin/${name}`);
  }
  await writeFile(`${node.dir}/kubelet.sh`, unit(node));
}

/** kubeadm writes below /etc, which is the machine's: the node gets a copy, whose resolver it can reach. */
async function ownEtc({ inside, node }: Place): Promise<void> {
  const etc = `${node.dir}/etc`;
  const bound = await inside(['/bin/sh', '-c', "grep -q ' /etc ' /proc/self/mountinfo"]);
  if (bound.code === 0) return;
  await cp('/etc', etc, { recursive: true, verbatimSymlinks: true, force: true });
  await rm(`${etc}/resolv.conf`, { force: true });
  await cp(`${node.dir}/resolv.conf`, `${etc}/resolv.conf`);
  const hosts = await readFile(`${etc}/hosts`, 'utf8').catch(() => '');
  await writeFile(`${etc}/hosts`, `${hosts.trimEnd()}\n${node.ip} ${node.name}\n`);
  const result = await inside(['mount', '--bind', etc, '/etc']);
  if (result.code !== 0) throw new OpError('failed', `giving ${node.name} an /etc of its own`, result.output.trim());
}

/** The launcher where the agent was, with the same tools on its PATH. */
function launcherStanza(node: NodePlan, before: string): string {
  const path = (/^env PATH=(.*)$/m.exec(before)?.[1] ?? pathOf(node)).replace(`${node.dir}/bin:`, '');
  return [
    `service ${SERVICE}`,
    ...['argv /bin/sh', `argv ${node.dir}/kubelet.sh`],
    ...[`env PATH=${node.dir}/bin:${path}`, 'env HOME=/root'],
    `log ${node.dir}/log/${SERVICE}.log`,
    ...['delay 500', 'cap 1000'],
  ].join('\n');
}

async function kubeadmJoin({ inside, plan }: Place): Promise<{ code: number; output: string }> {
  const token = (await readFile(`${plan.state}/bootstrap-token`, 'utf8')).trim();
  const spki = new X509Certificate(await readFile(`${plan.state}/pki/ca.crt`)).publicKey.export({ type: 'spki', format: 'der' });
  return inside(
    [
      'kubeadm',
      'join',
      new URL(plan.server).host,
      ...['--token', token, '--discovery-token-ca-cert-hash', `sha256:${createHash('sha256').update(spki).digest('hex')}`],
      `--ignore-preflight-errors=${Object.keys(IGNORED_CHECKS).join(',')}`,
    ],
    JOIN_MS,
  );
}

/** Waits until the node is Ready again; its kubelet's version. */
async function ready({ kubectl, node }: Place): Promise<string> {
  const look = '{.status.nodeInfo.kubeletVersion} {.status.conditions[?(@.type=="Ready")].status}';
  let version = '';
  await until(`${node.name} is Ready`, READY_MS, async () => {
    const answer = await kubectl('get', 'node', node.name, '--ignore-not-found', '-o', `jsonpath=${look}`);
    version = answer.split(' ')[0] ?? '';
    return answer.endsWith(' True');
  });
  return version;
}

async function until(what: string, timeoutMs: number, look: () => Promise<boolean>): Promise<void> {
  for (const deadline = performance.now() + timeoutMs; !(await look()); await delay(200))
    if (performance.now() > deadline) throw new OpError('deadline', 'waiting', `${what}: not within ${timeoutMs / 1000} s`);
}
