import { setTimeout as delay } from 'node:timers/promises';
import { execa } from 'execa';
import { OpError } from '../../../base/errors.ts';
import { requireSet, type Context } from '../../../node/commands/context.ts';
import { firstProcess, servicesOf, type ServiceState } from '../../../node/io/running.ts';
import type { AgentKind, NodePlan, SetPlan } from '../../../node/core/plan.ts';
import { eventually } from '../../eventually.ts';
import type { Assets } from '../../assets/find.ts';
import { readAudit, type AuditEvent } from './audit.ts';

const COMMAND_MS = 120_000;
const POWER_MS = 300_000;

interface Answer {
  readonly code: number;
  readonly out: string;
  readonly err: string;
}

/** A running cluster of three nodes: two workers of the agent that is walked through, and one of the other make that takes no pod. */
export class Lab {
  readonly plan: SetPlan;
  readonly signal: AbortSignal;
  readonly #context: Context;
  readonly #kubectl: string;
  readonly #crictl: string;

  constructor(context: Context, plan: SetPlan, programs: { kubectl: string; crictl: string }) {
    this.plan = plan;
    this.signal = context.host.signal;
    this.#context = context;
    this.#kubectl = programs.kubectl;
    this.#crictl = programs.crictl;
  }

  static async open(context: Context, assets: Assets): Promise<Lab> {
    const { plan, saved } = await requireSet(context);
    return new Lab(context, plan, {
      kubectl: saved.programs?.kubectl ?? assets.require('kubectl', 'walking through'),
      crictl: assets.require('crictl', 'looking for containers'),
    });
  }

  get workers(): readonly NodePlan[] {
    return this.plan.nodes.slice(0, 2);
  }

  /** The node with the control plane's taint, of the other make. */
  get aside(): NodePlan {
    return this.node('node-3');
  }

  get agent(): AgentKind {
    return this.node('node-1').agent;
  }

  node(name: string): NodePlan {
    const found = this.plan.nodes.find((node) => node.name === name);
    if (found === undefined) throw new OpError('not-found', 'looking for a node', `the cluster has no ${name}`);
    return found;
  }

  async run(argv: readonly string[], options: { input?: string; timeoutMs?: number; env?: Record<string, string> } = {}): Promise<Answer> {
    const result = await execa(argv[0] ?? '', argv.slice(1), {
      reject: false,
      cancelSignal: this.signal,
      timeout: options.timeoutMs ?? COMMAND_MS,
      ...(options.input === undefined ? { stdin: 'ignore' as const } : { input: options.input }),
      ...(options.env === undefined ? {} : { env: options.env }),
    });
    if (this.signal.aborted) throw new OpError('aborted', 'walking through', 'stopped by a signal');
    return { code: result.exitCode ?? -1, out: result.stdout, err: result.stderr };
  }

  /** Stock kubectl as the cluster's administrator. */
  kubectl(args: readonly string[], input?: string): Promise<Answer> {
    return this.run([this.#kubectl, `--kubeconfig=${this.plan.state}/admin.kubeconfig`, ...args], input === undefined ? {} : { input });
  }

  /** kubectl that must succeed; its trimmed output. */
  async k(args: readonly string[], input?: string): Promise<string> {
    const answer = await this.kubectl(args, input);
    if (answer.code !== 0) throw new Error(`kubectl ${args.join(' ')} ended with ${answer.code}: ${answer.err.trim()}`);
    return answer.out.trim();
  }

  async get<T>(args: readonly string[]): Promise<T> {
    return JSON.parse(await this.k(['get', '-o', 'json', ...args])) as T;
  }

  /** kubectl with the credentials of a node's own kubelet. */
  asKubelet(node: NodePlan, args: readonly string[]): Promise<Answer> {
    return this.inside(node, [this.#kubectl, '--kubeconfig=/var/lib/kubelet/kubeconfig', ...args]);
  }

  /** A command in all namespaces of a node, or of the hub where the control plane is. */
  async inside(place: NodePlan | 'hub', argv: readonly string[], input?: string): Promise<Answer> {
    const first = await firstProcess(place === 'hub' ? this.plan.hub.dir : place.dir);
    if (first === null) throw new OpError('unavailable', 'entering a node', `${place === 'hub' ? place : place.name} does not run`);
    return this.run([`${this.#context.root}/dist/sys`, 'exec', '--pid', String(first.pid), '--', ...argv], input === undefined ? {} : { input });
  }

  /** Pods that have a running container on a node, by UID, as the runtime says. */
  async podsRunning(node: NodePlan): Promise<Set<string>> {
    const { code, out, err } = await this.inside(node, [this.#crictl, '-r', 'unix:///run/containerd/containerd.sock', 'ps', '-o', 'json']);
    if (code !== 0) throw new Error(`crictl ps: ${err}`);
    const { containers } = JSON.parse(out) as { containers: { labels: Record<string, string> }[] };
    return new Set(containers.map((one) => one.labels['io.kubernetes.pod.uid'] ?? ''));
  }

  /** A call of etcd's JSON gateway: there is no etcdctl among the components, and this asks for the same. */
  async etcd<T>(path: string, body: unknown): Promise<T> {
    const { code, out, err } = await this.inside('hub', ['curl', '-sS', '--fail-with-body', `http://127.0.0.1:2379/v3/${path}`, '-d', JSON.stringify(body)]);
    if (code !== 0) throw new Error(`etcd ${path}: ${err}${out}`);
    return JSON.parse(out) as T;
  }

  async hubService(name: string): Promise<ServiceState> {
    const first = await firstProcess(this.plan.hub.dir);
    const found = first === null ? undefined : (await servicesOf(this.plan.hub.dir, first)).find((service) => service.name === name);
    if (found === undefined) throw new OpError('not-found', 'looking at the control plane', `no ${name} runs`);
    return found;
  }

  /** What the API server has logged since a moment. */
  audit(sinceMs = 0): Promise<AuditEvent[]> {
    return readAudit(`${this.plan.hub.dir}/log`, sinceMs);
  }

  /** Every process of a node ends at once, as by power loss; or the node starts. */
  async power(action: 'stop' | 'start', name: string): Promise<void> {
    const { code, err } = await this.run([`${this.#context.root}/nodelet`, 'node', '--name', this.plan.name, action, name], { timeoutMs: POWER_MS });
    if (code !== 0) throw new Error(`nodelet node ${action} ${name}: ${err}`);
  }

  /** `eventually`, for as long as the walk goes on. */
  eventually<T>(what: string, timeoutMs: number, look: () => Promise<T | null>, everyMs = 500): Promise<T> {
    return eventually(what, timeoutMs, look, { everyMs, signal: this.signal });
  }

  pause(ms: number): Promise<void> {
    return delay(ms, undefined, { signal: this.signal });
  }
}
