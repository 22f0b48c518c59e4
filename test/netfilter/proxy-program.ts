import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { sysPath } from './lab.ts';
import type { Told } from './zoo.ts';

type Object = Told | { resource: string; object: object; gone?: boolean };

/** Longer than any write that a proxy is in the middle of, even on a busy machine. */
const END_MS = 30_000;
const READY_MS = 60_000;

/** Our proxy as a program, from the sources. */
export const OURS: readonly string[] = [
  process.execPath,
  '--disable-warning=ExperimentalWarning',
  join(import.meta.dirname, '../../node/main.ts'),
  'netfilter',
];

/** A kube-proxy as a program, upstream's or ours, in a network namespace, with an API server of its own there. */
export class ProxyProgram implements AsyncDisposable {
  readonly #netns: string;
  readonly #program: readonly string[];
  readonly #children = new Set<ChildProcess>();
  #folder = '';
  #api: ChildProcess | undefined;
  #proxy: ChildProcess | undefined;

  /** @param netns path of the namespace */
  constructor(netns: string, program: readonly string[]) {
    this.#netns = netns;
    this.#program = program;
  }

  /** Starts the API server, tells it `objects`, and starts the proxy, which may still be writing. */
  async start(options: { config: Record<string, unknown>; objects: readonly Object[] }): Promise<void> {
    this.#folder = await mkdtemp(join(tmpdir(), 'netfilter-program-'));
    this.#api = this.#spawn([process.execPath, join(import.meta.dirname, 'apiserver.ts')], 'pipe');
    await bounded(once(this.#api.stdout!, 'data'), this.#api, READY_MS, 'the API server says nothing');
    for (const told of options.objects) this.tell(told);
    await this.restart(options.config);
  }

  /** Starts the proxy, after it was ended where it ran, with these words more than the usual ones. */
  async restart(config: Record<string, unknown>, words: readonly string[] = []): Promise<void> {
    await this.end();
    const file = join(this.#folder, 'config.json');
    const whole = {
      apiVersion: 'kubeproxy.config.k8s.io/v1alpha1',
      kind: 'KubeProxyConfiguration',
      hostnameOverride: 'node-a',
      clientConnection: { contentType: 'application/json', acceptContentTypes: 'application/json', qps: 1000, burst: 1000 },
      healthzBindAddress: '127.0.0.1:10256',
      conntrack: { maxPerCore: 0, min: 0, tcpEstablishedTimeout: '0s', tcpCloseWaitTimeout: '0s' },
      ...config,
    };
    await writeFile(file, JSON.stringify(whole));
    this.#proxy = this.#spawn([...this.#program, '--config', file, '--master', 'http://127.0.0.1:8001', ...words], 'ignore');
  }

  /** Ends the proxy as a supervisor does; its exit code. */
  async end(): Promise<number | null> {
    const proxy = this.#proxy;
    this.#proxy = undefined;
    return proxy === undefined ? null : await this.#end(proxy);
  }

  /** Runs the program with these words until it ends by itself; its exit code. */
  async run(words: readonly string[]): Promise<number | null> {
    const child = this.#spawn([...this.#program, ...words], 'ignore');
    await bounded(once(child, 'exit'), child, READY_MS, `${words.join(' ')} does not end`);
    return child.exitCode;
  }

  #spawn(argv: readonly string[], stdio: 'pipe' | 'ignore'): ChildProcess {
    const words = process.env['NETFILTER_PROGRAM_LOG'] === undefined ? 'ignore' : 'inherit';
    const env = { ...process.env, NODELET_SYS: sysPath };
    const child = spawn('nsenter', [`--net=${this.#netns}`, ...argv], { stdio: [stdio, stdio, words], env });
    this.#children.add(child);
    return child;
  }

  async #end(child: ChildProcess): Promise<number | null> {
    const ended = once(child, 'exit');
    this.#children.delete(child);
    if (child.exitCode === null && child.signalCode === null && child.kill()) await bounded(ended, child, END_MS, 'it goes on after SIGTERM');
    return child.exitCode;
  }

  tell(told: Object): void {
    this.#api!.stdin!.write(`${JSON.stringify(told)}\n`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const child of [...this.#children].toReversed()) await this.#end(child);
    if (this.#folder !== '') await rm(this.#folder, { recursive: true });
  }
}

/** Waits for an event of a program; kills it and throws when that takes longer than `ms`. */
async function bounded(event: Promise<unknown>, child: ChildProcess, ms: number, what: string): Promise<void> {
  const over = new AbortController();
  const late = delay(ms, undefined, { signal: over.signal }).then(() => {
    child.kill('SIGKILL');
    throw new Error(`${child.spawnargs.join(' ')}: ${what} within ${ms} ms`);
  });
  try {
    await Promise.race([event, late]);
  } finally {
    over.abort();
    await Promise.allSettled([late]);
  }
}
