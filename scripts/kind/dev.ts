import { watch } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { tryExec } from '../../base/exec.ts';
import { messageOf, OpError } from '../../base/errors.ts';
import { openBundler, type Bundler } from './bundle.ts';
import type { Place } from './place.ts';
import { until } from './until.ts';

const ROOMS = ['agent', 'base', 'cri', 'netfilter', 'proto'];
/** An editor writes a file in several steps. */
const CALM_MS = 60;
const RESTART_MS = 60_000;
const HEALTHY_MS = 30_000;
const ASK_MS = 50;

/** One turn: what was saved, and how long it took until the node's agent ran with it. */
export interface Turn {
  readonly files: readonly string[];
  readonly seconds: number;
  /** Why the node still runs what it ran; null when it runs the new code. */
  readonly problem: string | null;
}

/** The folder of the release that the node's kubelet runs from. Throws OpError `unsupported` when it is not ours. */
async function releaseOf(place: Place): Promise<string> {
  const line = 'readlink "/proc/$(systemctl show kubelet --property=MainPID --value)/exe"';
  const { stdout } = await place.ask(['sh', '-c', line]);
  const root = /^(\/.*\/releases\/[0-9a-f]{64})\/bin\/node$/.exec(stdout.trim())?.[1];
  if (root === undefined)
    throw new OpError('unsupported', `developing on ${place.node}`, 'its kubelet is not ours', { advice: `first: nodelet kind swap ${place.node}` });
  return root;
}

/** Brings each saved change of the sources into the node and restarts its kubelet, until the signal. */
export async function* develop(place: Place, options: { root: string; signal: AbortSignal }): AsyncGenerator<Turn> {
  const { root, signal } = options;
  const release = await releaseOf(place);
  await using bundler = await openBundler(root);
  // The first build reads everything; a person waits for those that come after a change.
  await bundler.build().catch(() => undefined);
  await using changes = new Changes(root, signal);
  for (;;) {
    const files = await changes.next();
    if (files.length === 0) return;
    const begunAt = performance.now();
    const problem = await bring(place, bundler, release).then(
      () => null,
      (error: unknown) => messageOf(error),
    );
    if (signal.aborted) return;
    yield { files, seconds: (performance.now() - begunAt) / 1000, problem };
  }
}

/** Names of source files that were written, gathered until nothing is written for a moment. */
class Changes implements AsyncDisposable {
  readonly #names = new Set<string>();
  readonly #stop = new AbortController();
  readonly #work: Promise<unknown>;
  #woken = Promise.withResolvers<void>();

  constructor(root: string, signal: AbortSignal) {
    const all = AbortSignal.any([signal, this.#stop.signal]);
    all.addEventListener('abort', () => this.#woken.resolve(), { once: true });
    this.#work = Promise.allSettled(ROOMS.map((room) => this.#watch(`${root}/${room}`, room, all)));
  }

  async #watch(folder: string, room: string, signal: AbortSignal): Promise<void> {
    for await (const { filename } of watch(folder, { recursive: true, signal })) {
      if (filename === null || !/\.(ts|json)$/.test(filename) || filename.endsWith('.test.ts')) continue;
      this.#names.add(`${room}/${filename}`);
      this.#woken.resolve();
    }
  }

  /** Empty when the watch is over. */
  async next(): Promise<string[]> {
    await this.#woken.promise;
    this.#woken = Promise.withResolvers<void>();
    for (let count = -1; count !== this.#names.size;) {
      count = this.#names.size;
      await delay(CALM_MS);
    }
    const names = [...this.#names].toSorted();
    this.#names.clear();
    return names;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#work;
  }
}

async function bring(place: Place, bundler: Bundler, release: string): Promise<void> {
  const { signal, env } = place.engine;
  const file = await bundler.build();
  const line = `docker exec -i "$0" sh -ec 'cat >"$0.new"; mv "$0.new" "$0"; systemctl restart kubelet' "$2/dist/nodelet.mjs" <"$1"`;
  const brought = await tryExec(['sh', '-c', line, place.node, file, release], { signal, env, timeoutMs: RESTART_MS, doing: 'restarting' });
  if (brought.code !== 0) throw new OpError('failed', `restarting the kubelet of ${place.node}`, brought.stderr.trim().split('\n').at(-1) ?? '');
  const advice = `see: docker exec ${place.node} journalctl --unit=kubelet`;
  await until(place, `the kubelet of ${place.node} is healthy`, { timeoutMs: HEALTHY_MS, pauseMs: ASK_MS, advice }, async () => {
    const { code } = await place.ask(['curl', '-fsS', '-m', '1', '-o', '/dev/null', 'http://127.0.0.1:10248/healthz']);
    return code === 0;
  });
}
