import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Told } from './zoo.ts';

/** Upstream's kube-proxy in a network namespace, with an API server of its own there. */
export class UpstreamProxy implements AsyncDisposable {
  readonly #children: ChildProcess[] = [];
  #folder = '';
  #api: ChildProcess | undefined;

  /** Starts both and tells the API server `objects` first; the proxy may still be writing. */
  async start(options: {
    netns: string;
    kubeProxy: string;
    config: Record<string, unknown>;
    objects: readonly (Told | { resource: string; object: object })[];
  }): Promise<void> {
    this.#folder = await mkdtemp(join(tmpdir(), 'netfilter-upstream-'));
    const file = join(this.#folder, 'config.json');
    const config = {
      apiVersion: 'kubeproxy.config.k8s.io/v1alpha1',
      kind: 'KubeProxyConfiguration',
      hostnameOverride: 'node-a',
      clientConnection: { contentType: 'application/json', acceptContentTypes: 'application/json', qps: 1000, burst: 1000 },
      healthzBindAddress: '127.0.0.1:10256',
      conntrack: { maxPerCore: 0, min: 0, tcpEstablishedTimeout: '0s', tcpCloseWaitTimeout: '0s' },
      ...options.config,
    };
    await writeFile(file, JSON.stringify(config));
    this.#api = this.#spawn(options.netns, [process.execPath, join(import.meta.dirname, 'apiserver.ts')], 'pipe');
    await once(this.#api.stdout!, 'data');
    for (const told of options.objects) this.tell(told);
    this.#spawn(options.netns, [options.kubeProxy, '--config', file, '--master', 'http://127.0.0.1:8001'], 'ignore');
  }

  #spawn(netns: string, argv: readonly string[], stdio: 'pipe' | 'ignore'): ChildProcess {
    const words = process.env['NETFILTER_UPSTREAM_LOG'] === undefined ? 'ignore' : 'inherit';
    const child = spawn('nsenter', [`--net=${netns}`, ...argv], { stdio: [stdio, stdio, words] });
    this.#children.push(child);
    return child;
  }

  tell(told: { resource: string; object: object; gone?: boolean }): void {
    this.#api!.stdin!.write(`${JSON.stringify(told)}\n`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const child of this.#children.toReversed()) {
      const ended = once(child, 'exit');
      if (child.exitCode === null && child.signalCode === null && child.kill()) await ended;
    }
    if (this.#folder !== '') await rm(this.#folder, { recursive: true });
  }
}
