/**
 * `nodelet bench loop`: 30 small pods on a running set, one deleted at random every 500 ms. How late the event loops of
 * agent, netfilter and control were meanwhile, how long pods took to start, and what the daemons cost.
 * Exit 1 when the agent's loop broke its budget.
 */
import { execFile } from 'node:child_process';
import { readFile } from 'node:fs/promises';
import { cpus, loadavg } from 'node:os';
import { setTimeout as delay } from 'node:timers/promises';
import { parseArgs, promisify } from 'node:util';
import { realClock } from '../base/clock.ts';
import { createKubeApi } from '../base/kubeapi/client.ts';
import { readKubeConfig } from '../base/kubeapi/config.ts';
import { isApiError } from '../base/kubeapi/errors.ts';
import type { KubeApi, KubeObject, ResourceRef } from '../base/kubeapi/types.ts';
import { silentLog } from '../base/log.ts';
import { realRng } from '../base/rng.ts';
import type { Pod } from '../proto/kube/types.ts';
import { costOf as costOfAll, family, loopDelayMs, type Cost as ProcessCost } from './cost.ts';

const run = promisify(execFile);
const P99_MS = 10;
const MAX_MS = 50;
const DELETE_EVERY_MS = 500;
const IMAGE = 'busybox:1.37';
const NAMESPACE = 'bench-loop';

interface Delay {
  readonly p50Ms: number;
  readonly p99Ms: number;
  readonly maxMs: number;
}

interface Cost extends ProcessCost {
  /** Time in which a thread of it was runnable and had no CPU: the machine's doing, and part of every delay. */
  readonly waitedSeconds: number;
}

interface Daemon {
  readonly name: string;
  readonly pid: number;
  scrape(): Promise<string>;
}

interface SetStatus {
  readonly kubeconfig: string;
  readonly nodes: readonly { readonly name: string }[];
  readonly processes: readonly { readonly place: string; readonly name: string; readonly pid: number | null }[];
}

const { values } = parseArgs({
  options: {
    name: { type: 'string', default: 'default' },
    json: { type: 'boolean', default: false },
    pods: { type: 'string', default: '30' },
    seconds: { type: 'string', default: '60' },
  },
});
const pods = positive('--pods', values.pods);
const seconds = positive('--seconds', values.seconds);
const nodelet = new URL('../nodelet', import.meta.url).pathname;

function positive(flag: string, text: string): number {
  const value = Number(text);
  if (Number.isInteger(value) && value > 0) return value;
  process.stderr.write(`nodelet bench loop: ${flag} "${text}" is not a whole number above 0\n`);
  process.exit(2);
}

const say = (text: string): void => void process.stderr.write(`  ${text}\n`);

async function command(args: readonly string[]): Promise<string> {
  const { stdout } = await run(nodelet, [...args], { maxBuffer: 2 ** 26 });
  return stdout;
}

async function costOf(pid: number): Promise<Cost> {
  const schedstat = await readFile(`/proc/${pid}/schedstat`, 'utf8').catch(() => '');
  return { ...(await costOfAll(await family(pid))), waitedSeconds: Number(schedstat.split(' ')[1] ?? 0) / 1e9 };
}

function delayOf(page: string): Delay {
  const at = (quantile: string): number => {
    const found = loopDelayMs(page, quantile);
    if (found === null) throw new Error('there is no nodelet_event_loop_delay_recent_seconds among the metrics: is the set of this version?');
    return found;
  };
  return { p50Ms: at('0.5'), p99Ms: at('0.99'), maxMs: at('1') };
}

async function findDaemons(api: KubeApi, status: SetStatus): Promise<Daemon[]> {
  const page = async (path: string): Promise<string> => {
    const answer = await api.raw('GET', path, { timeoutMs: 10_000 });
    const text = Buffer.from(answer.body).toString();
    if (answer.status !== 200) throw new Error(`${path} says ${answer.status}: ${text}`);
    return text;
  };
  const fetcher = "fetch('http://127.0.0.1:10249/metrics').then((answer) => answer.text()).then((text) => process.stdout.write(text))";
  const daemons: Daemon[] = [];
  for (const { place, name, pid } of status.processes) {
    if (pid === null) continue;
    const where = status.nodes.length > 1 ? `${name} of ${place}` : name;
    if (name === 'agent') daemons.push({ name: where, pid, scrape: () => page(`/api/v1/nodes/${place}/proxy/metrics`) });
    if (name === 'netfilter') {
      const enter = ['--target', String(pid), '--net', process.execPath, '-e', fetcher];
      daemons.push({ name: where, pid, scrape: async () => (await run('nsenter', enter)).stdout });
    }
    if (name === 'control') daemons.push({ name: where, pid, scrape: () => page('/metrics') });
  }
  return daemons;
}

const namespaceRef: ResourceRef = { group: '', version: 'v1', resource: 'namespaces', name: NAMESPACE };
const inside = (group: string, resource: string, name?: string): ResourceRef => ({
  group,
  version: 'v1',
  resource,
  namespace: NAMESPACE,
  ...(name === undefined ? {} : { name }),
});

const workload = {
  apiVersion: 'apps/v1',
  kind: 'Deployment',
  metadata: { name: 'small' },
  spec: {
    replicas: pods,
    selector: { matchLabels: { app: 'small' } },
    strategy: { rollingUpdate: { maxUnavailable: '100%' } },
    template: {
      metadata: { labels: { app: 'small' } },
      spec: {
        terminationGracePeriodSeconds: 5,
        containers: [
          {
            name: 'small',
            image: IMAGE,
            command: ['sh', '-c', "trap 'exit 0' TERM; httpd -f -p 8080 -h /settings & wait"],
            ports: [{ containerPort: 8080 }],
            resources: { requests: { cpu: '1m', memory: '4Mi' } },
            readinessProbe: { httpGet: { path: '/page', port: 8080 }, periodSeconds: 5 },
            livenessProbe: { exec: { command: ['true'] }, periodSeconds: 10 },
            volumeMounts: [{ name: 'settings', mountPath: '/settings' }],
          },
        ],
        volumes: [{ name: 'settings', configMap: { name: 'settings' } }],
      },
    },
  },
};

/** Follows the pods: which are ready, and how long each took from its creation. */
class Pods {
  readonly ready = new Map<string, string>();
  readonly #since = new Map<string, number>();
  started = 0;
  startMs: number[] = [];

  seen(type: 'ADDED' | 'MODIFIED' | 'DELETED', pod: Pod): void {
    const { uid = '', name = '', deletionTimestamp } = pod.metadata;
    if (type === 'DELETED' || deletionTimestamp !== undefined) {
      this.ready.delete(uid);
      this.#since.delete(uid);
      return;
    }
    if (type === 'ADDED' && !this.#since.has(uid)) this.#since.set(uid, performance.now());
    const isReady = pod.status?.conditions?.some((condition) => condition.type === 'Ready' && condition.status === 'True') === true;
    if (!isReady) return void this.ready.delete(uid);
    const since = this.#since.get(uid);
    if (since !== undefined && !this.ready.has(uid)) {
      this.#since.delete(uid);
      this.started++;
      this.startMs.push(performance.now() - since);
    }
    this.ready.set(uid, name);
  }
}

const quantile = (numbers: readonly number[], share: number): number =>
  numbers.toSorted((a, b) => a - b)[Math.min(numbers.length - 1, Math.floor(numbers.length * share))] ?? Number.NaN;

async function until(what: string, timeoutMs: number, signal: AbortSignal, good: () => boolean | Promise<boolean>): Promise<void> {
  const deadline = performance.now() + timeoutMs;
  while (!(await good())) {
    if (performance.now() > deadline) throw new Error(`${what} took more than ${timeoutMs / 1000} s`);
    await delay(100, undefined, { signal });
  }
}

async function gone(api: KubeApi, ref: ResourceRef): Promise<boolean> {
  try {
    await api.get(ref);
    return false;
  } catch (error) {
    if (isApiError(error, 404)) return true;
    throw error;
  }
}

async function remove(api: KubeApi): Promise<void> {
  if (await gone(api, namespaceRef)) return;
  await api.delete(namespaceRef).catch(() => undefined);
  await until('removing the namespace', 120_000, new AbortController().signal, () => gone(api, namespaceRef));
}

/** What all daemons did while `work` ran. */
async function window(daemons: readonly Daemon[], work: () => Promise<void>): Promise<Map<string, Delay & Cost>> {
  const before = new Map<string, Cost>();
  for (const daemon of daemons) before.set(daemon.name, await costOf(daemon.pid));
  for (const daemon of daemons) await daemon.scrape();
  await work();
  const result = new Map<string, Delay & Cost>();
  for (const daemon of daemons) {
    const seen = delayOf(await daemon.scrape());
    const now = await costOf(daemon.pid);
    const { cpuSeconds = 0, waitedSeconds = 0 } = before.get(daemon.name) ?? {};
    result.set(daemon.name, { ...seen, ...now, cpuSeconds: now.cpuSeconds - cpuSeconds, waitedSeconds: now.waitedSeconds - waitedSeconds });
  }
  return result;
}

async function main(): Promise<number> {
  const stop = new AbortController();
  for (const signal of ['SIGINT', 'SIGTERM'] as const) process.once(signal, () => stop.abort());
  const status = JSON.parse(await command(['status', '--json', '--name', values.name])) as SetStatus;
  const made = JSON.parse(await command(['image', 'list', '--json'])) as { images: readonly { name: string }[] };
  if (!made.images.some(({ name }) => name.endsWith(`/${IMAGE}`))) await command(['image', 'make', IMAGE]);
  await using api = createKubeApi({
    config: await readKubeConfig(status.kubeconfig),
    log: silentLog,
    clock: realClock,
    rng: realRng,
    userAgent: 'nodelet-bench',
  });
  const daemons = await findDaemons(api, status);
  const seen = new Pods();
  const watching = new AbortController();
  try {
    await remove(api);
    await api.create({ group: '', version: 'v1', resource: 'namespaces' }, { apiVersion: 'v1', kind: 'Namespace', metadata: { name: NAMESPACE } });
    const settings = { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'settings' }, data: { page: 'ready\n' } };
    await api.create<KubeObject, unknown>(inside('', 'configmaps'), settings);
    const handler = { replaced: (items: readonly Pod[]) => items.forEach((pod) => seen.seen('ADDED', pod)), changed: seen.seen.bind(seen) };
    const watch = api.reflect<Pod>(inside('', 'pods'), {}, handler, watching.signal);
    const burst = await window(daemons, async () => {
      await api.create<KubeObject, unknown>(inside('apps', 'deployments'), workload);
      await until(`starting ${pods} pods`, 180_000, stop.signal, () => seen.ready.size >= pods);
    });
    const burstStart = { pods: seen.started, p50Ms: quantile(seen.startMs, 0.5), p99Ms: quantile(seen.startMs, 0.99) };
    say(`${pods} pods ready, half of them within ${(burstStart.p50Ms / 1000).toFixed(1)} s; now one is deleted every ${DELETE_EVERY_MS} ms for ${seconds} s`);
    seen.started = 0;
    seen.startMs = [];
    let deleted = 0;
    const churn = await window(daemons, async () => {
      for (let at = 0; at < (seconds * 1000) / DELETE_EVERY_MS; at++) {
        const names = [...seen.ready.values()];
        const name = names[Math.floor(Math.random() * names.length)];
        if (name !== undefined) {
          await api.delete(inside('', 'pods', name)).catch((error: unknown) => {
            if (!isApiError(error, 404)) throw error;
          });
          deleted++;
        }
        await delay(DELETE_EVERY_MS, undefined, { signal: stop.signal });
      }
    });
    const load = loadavg()[0] ?? 0;
    const start = { pods: seen.started, p50Ms: quantile(seen.startMs, 0.5), p99Ms: quantile(seen.startMs, 0.99) };
    watching.abort();
    await watch;
    const kept = [...churn].every(([name, { p99Ms, maxMs }]) => !name.startsWith('agent') || (p99Ms < P99_MS && maxMs <= MAX_MS));
    print({ burst, churn, burstStart, start, deleted, load, kept });
    return kept ? 0 : 1;
  } finally {
    watching.abort();
    await remove(api);
  }
}

interface Result {
  readonly burst: Map<string, Delay & Cost>;
  readonly churn: Map<string, Delay & Cost>;
  readonly burstStart: { pods: number; p50Ms: number; p99Ms: number };
  readonly start: { pods: number; p50Ms: number; p99Ms: number };
  readonly deleted: number;
  readonly load: number;
  readonly kept: boolean;
}

function print(result: Result): void {
  const { burst, churn, burstStart, start, deleted, load, kept } = result;
  if (values.json) {
    const rows = (window: Map<string, Delay & Cost>): object => Object.fromEntries(window);
    process.stdout.write(
      `${JSON.stringify({ pods, seconds, deleted, load, cpus: cpus().length, kept, burst: rows(burst), churn: rows(churn), burstStart, start }, null, 2)}\n`,
    );
    return;
  }
  const cell = (text: string | number, width: number): string => (typeof text === 'number' ? text.toFixed(1) : text).padStart(width);
  const table = (title: string, window: Map<string, Delay & Cost>): string[] => [
    title.padEnd(22) + ['p50 ms', 'p99 ms', 'max ms', 'CPU s', 'waited s', 'anon MiB', 'file MiB'].map((head) => cell(head, 9)).join(''),
    ...[...window].map(
      ([name, row]) =>
        `  ${name}`.padEnd(22) +
        [row.p50Ms, row.p99Ms, row.maxMs, row.cpuSeconds, row.waitedSeconds, row.anonMiB, row.fileMiB].map((value) => cell(value, 9)).join(''),
    ),
    '',
  ];
  const secs = (ms: number): string => (ms / 1000).toFixed(2);
  const lines = [
    ...table(`${pods} pods at once`, burst),
    ...table(`churn of ${seconds} s`, churn),
    `pods started    ${burstStart.pods} at once: ready after ${secs(burstStart.p50Ms)} s (p50), ${secs(burstStart.p99Ms)} s (p99)`,
    `                ${start.pods} under churn (${deleted} deleted): ${secs(start.p50Ms)} s (p50), ${secs(start.p99Ms)} s (p99)`,
    `machine         ${cpus().length} CPUs, load ${load.toFixed(1)}; "waited" is time in which the main thread was due and had no CPU`,
    `budget          agent p99 under ${P99_MS} ms and none above ${MAX_MS} ms under churn: ${kept ? 'kept' : 'BROKEN'}`,
  ];
  process.stdout.write(lines.map((line) => `${line}\n`).join(''));
}

try {
  process.exitCode = await main();
} catch (error) {
  process.stderr.write(`nodelet bench loop: ${error instanceof Error ? error.message : String(error)}\n`);
  process.exitCode = 1;
}
