import { spawn, type ChildProcess } from 'node:child_process';
import { text } from 'node:stream/consumers';
import { OpError } from '../../base/errors.ts';

/** What clients of one URL saw. */
export interface Served {
  readonly requests: number;
  readonly failures: readonly string[];
  /** Requests by the pod that answered. */
  readonly byPod: Readonly<Record<string, number>>;
  readonly slowestMs: number;
}

/** A place from which clients ask, and what they ask there. */
export interface Viewpoint {
  readonly name: string;
  /** File of the network namespace; null is this process's own. */
  readonly netns: string | null;
  /** URLs by what they are. */
  readonly urls: Readonly<Record<string, string>>;
}

const PROGRAM = new URL('ask.ts', import.meta.url).pathname;

interface Running {
  readonly viewpoint: Viewpoint;
  readonly child: ChildProcess;
  readonly out: Promise<string>;
  readonly err: Promise<string>;
}

/** Clients at several places that ask until they are stopped. */
export class Clients implements AsyncDisposable {
  readonly #running: readonly Running[];

  constructor(viewpoints: readonly Viewpoint[]) {
    this.#running = viewpoints.map((viewpoint) => {
      const { netns, urls } = viewpoint;
      const argv = [...(netns === null ? [] : ['nsenter', `--net=${netns}`]), process.execPath, PROGRAM, ...Object.values(urls)];
      const child = spawn(argv[0] ?? '', argv.slice(1), { stdio: ['pipe', 'pipe', 'pipe'] });
      child.stdin.on('error', () => undefined);
      child.on('error', () => undefined);
      return { viewpoint, child, out: text(child.stdout), err: text(child.stderr) };
    });
  }

  /** Stops them. What each saw, by its place and what it asked. */
  async end(): Promise<Record<string, Served>> {
    for (const { child } of this.#running) child.stdin?.end();
    const all: Record<string, Served> = {};
    for (const { viewpoint, out, err } of this.#running) {
      const said = await out;
      if (said === '') throw new OpError('failed', `asking from ${viewpoint.name}`, (await err).trim().split('\n').at(-1) ?? 'nothing was told');
      const byUrl = JSON.parse(said) as Record<string, Served>;
      for (const [what, url] of Object.entries(viewpoint.urls)) {
        const served = byUrl[url];
        if (served !== undefined) all[`${viewpoint.name}: ${what}`] = served;
      }
    }
    return all;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { child } of this.#running) child.stdin?.end();
    await Promise.all(this.#running.map(({ out }) => out));
  }
}

/** All clients together; failures name theirs. */
export function together(all: Readonly<Record<string, Served>>): Served {
  const byPod: Record<string, number> = {};
  for (const { byPod: own } of Object.values(all)) for (const [pod, count] of Object.entries(own)) byPod[pod] = (byPod[pod] ?? 0) + count;
  return {
    requests: Object.values(all).reduce((sum, { requests }) => sum + requests, 0),
    failures: Object.entries(all).flatMap(([name, { failures }]) => failures.map((failure) => `${name}: ${failure}`)),
    byPod,
    slowestMs: Math.max(0, ...Object.values(all).map(({ slowestMs }) => slowestMs)),
  };
}
