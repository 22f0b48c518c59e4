import { readdir } from 'node:fs/promises';
import { Session } from 'node:inspector/promises';
import { promisify } from 'node:util';
import { gzip } from 'node:zlib';
import type { Clock } from './clock.ts';
import type { DebugAnswer } from './debug-answer.ts';
import { countProfile, countText, cpuProfile, encodeProfile, heapProfile, type CpuProfile, type HeapNode, type ProfileInput } from './pprof.ts';

const plain = 'text/plain; charset=utf-8';
const defaultSeconds: Readonly<Record<string, number>> = { profile: 30, heap: 1, allocs: 1 };
/** Longer than anybody waits; a profile of an hour would not fit into memory. */
const maxSeconds = 300;
const heapIntervalBytes = 32 * 1024;
const zip = promisify(gzip);

/**
 * Profiles of this process in the form that `go tool pprof` reads, under the names of Go's net/http/pprof. What Go has
 * goroutines for are here the resources that keep the event loop alive; V8 keeps no blocking and mutex profiles, which
 * are empty as Go's are by default. Profiles of one kind are taken one after another.
 */
export class Profiles {
  readonly #clock: Clock;
  readonly #args: readonly string[];
  #last: Promise<unknown> = Promise.resolve();

  constructor(clock: Clock, args: readonly string[]) {
    this.#clock = clock;
    this.#args = args;
  }

  /** What /debug/pprof/NAME answers. */
  async answer(name: string, query: URLSearchParams, signal: AbortSignal): Promise<DebugAnswer> {
    const debug = Number(query.get('debug') ?? 0) > 0;
    const count = async (counts: Readonly<Record<string, number>>): Promise<DebugAnswer> =>
      debug ? { status: 200, type: plain, body: countText(name, counts) } : this.#file(name, countProfile(name, counts, this.#clock.nowMs()));
    switch (name) {
      case 'cmdline':
        return { status: 200, type: plain, body: this.#args.join('\0') };
      case 'symbol':
        return { status: 200, type: plain, body: 'num_symbols: 0\n' };
      case 'goroutine':
        return count(resources());
      case 'threadcreate':
        return count({ thread: (await readdir('/proc/self/task').catch(() => [])).length });
      case 'block':
      case 'mutex':
        return count({});
      case 'profile':
      case 'heap':
      case 'allocs': {
        const seconds = Number(query.get('seconds') ?? defaultSeconds[name]);
        if (!Number.isFinite(seconds) || seconds < 0) return { status: 400, type: plain, body: 'seconds must be a number\n' };
        const ms = Math.min(seconds || (defaultSeconds[name] ?? 1), maxSeconds) * 1000;
        const mine = this.#last.then(() => (name === 'profile' ? this.#cpu(ms, signal) : this.#heap(ms, signal)));
        this.#last = mine.catch(() => undefined);
        return this.#file(name, await mine);
      }
      default:
        return { status: 404, type: plain, headers: { 'x-go-pprof': '1' }, body: 'Unknown profile\n' };
    }
  }

  async #file(name: string, profile: ProfileInput): Promise<DebugAnswer> {
    const headers = { 'content-disposition': `attachment; filename="${name}"` };
    return { status: 200, type: 'application/octet-stream', headers, body: await zip(encodeProfile(profile)) };
  }

  async #cpu(ms: number, signal: AbortSignal): Promise<ProfileInput> {
    const atMs = this.#clock.nowMs();
    return this.#inspected(async (session) => {
      await session.post('Profiler.enable');
      await session.post('Profiler.setSamplingInterval', { interval: 10_000 });
      await session.post('Profiler.start');
      await this.#clock.sleep(ms, signal).catch(() => undefined);
      const { profile } = (await session.post('Profiler.stop')) as { profile: CpuProfile };
      return cpuProfile(profile, atMs);
    });
  }

  async #heap(ms: number, signal: AbortSignal): Promise<ProfileInput> {
    const atMs = this.#clock.nowMs();
    return this.#inspected(async (session) => {
      await session.post('HeapProfiler.enable');
      await session.post('HeapProfiler.startSampling', { samplingInterval: heapIntervalBytes });
      await this.#clock.sleep(ms, signal).catch(() => undefined);
      const { profile } = (await session.post('HeapProfiler.stopSampling')) as { profile: { head: HeapNode } };
      return heapProfile(profile.head, heapIntervalBytes, atMs, ms);
    });
  }

  async #inspected<T>(work: (session: Session) => Promise<T>): Promise<T> {
    const session = new Session();
    session.connect();
    try {
      return await work(session);
    } finally {
      session.disconnect();
    }
  }
}

/** What keeps the event loop alive, by kind. */
function resources(): Record<string, number> {
  const counts: Record<string, number> = {};
  for (const type of process.getActiveResourcesInfo()) counts[type] = (counts[type] ?? 0) + 1;
  return counts;
}
