import type { IncomingMessage } from 'node:http';
import type { Clock } from '../../base/clock.ts';
import { verbosityAnswer, type DebugAnswer } from '../../base/debug-answer.ts';
import type { Profiles } from '../../base/profiles.ts';

/** What enableProfiling switches on: profiles of this process as `go tool pprof` reads them, and the verbosity. */

export interface DebugOptions {
  readonly clock: Clock;
  /** The program and its arguments. */
  readonly args: readonly string[];
  readonly setVerbosity: (level: number) => void;
}

/** Go's names, but for the execution trace and the command line. */
const PROFILES = ['allocs', 'block', 'goroutine', 'heap', 'mutex', 'profile', 'symbol', 'threadcreate'];
const PLAIN = 'text/plain; charset=utf-8';
const HTML = 'text/html; charset=utf-8';

export class DebugPages {
  readonly #options: DebugOptions;
  /** Loaded when somebody looks, which is rare. */
  #profiles: Promise<Profiles> | null = null;

  constructor(options: DebugOptions) {
    this.#options = options;
  }

  /** The page of a path; null for one that is none of these. */
  async answer(path: string, query: URLSearchParams, request: IncomingMessage, signal: AbortSignal): Promise<DebugAnswer | null> {
    if (path === '/debug/pprof') return { status: 302, type: HTML, headers: { location: '/debug/pprof/' }, body: '<a href="/debug/pprof/">Found</a>.\n\n' };
    if (path === '/debug/pprof/') return { status: 200, type: HTML, body: indexPage() };
    if (path === '/debug/flags' || path === '/debug/flags/') return { status: 200, type: HTML, body: '<html><body>/debug/flags/<br>flags: v</body></html>\n' };
    if (path === '/debug/flags/v') return { type: 'text/plain', ...(await verbosityAnswer(request, this.#options.setVerbosity)) };
    const [, name] = /^\/debug\/pprof\/([^/]+)$/.exec(path) ?? [];
    if (name === undefined) return null;
    if (!PROFILES.includes(name)) return { status: 404, type: PLAIN, headers: { 'x-go-pprof': '1' }, body: 'Unknown profile\n' };
    const { clock, args } = this.#options;
    this.#profiles ??= import('../../base/profiles.ts').then((loaded) => new loaded.Profiles(clock, args));
    return await (await this.#profiles).answer(name, query, signal);
  }
}

function indexPage(): string {
  const links = PROFILES.map((name) => `<li><a href='${name}?debug=1'>${name}</a>`).join('\n');
  return `<html>\n<head>\n<title>/debug/pprof/</title>\n</head>\n<body>\n/debug/pprof/\n<p>Set debug=1 as a query parameter to export in legacy text format</p>\n<ul>\n${links}\n</ul>\n</body>\n</html>\n`;
}
