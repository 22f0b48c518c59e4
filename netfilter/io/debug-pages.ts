import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Clock } from '../../base/clock.ts';

/** What enableProfiling switches on: profiles of this process as `go tool pprof` reads them, and the verbosity. */

export interface DebugOptions {
  readonly clock: Clock;
  /** The program and its arguments. */
  readonly args: readonly string[];
  readonly setVerbosity: (level: number) => void;
}

export interface DebugAnswer {
  readonly status: number;
  readonly type: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body: string | Uint8Array;
}

/** Go's names, but for the execution trace and the command line. */
const PROFILES = ['allocs', 'block', 'goroutine', 'heap', 'mutex', 'profile', 'symbol', 'threadcreate'];
const PLAIN = 'text/plain; charset=utf-8';
const HTML = 'text/html; charset=utf-8';
const MAX_VERBOSITY_BYTES = 1024;

export class DebugPages {
  readonly #options: DebugOptions;
  /** Loaded when somebody looks, which is rare. */
  #profiles: Promise<{ answer(name: string, query: URLSearchParams, signal: AbortSignal): Promise<DebugAnswer> }> | null = null;

  constructor(options: DebugOptions) {
    this.#options = options;
  }

  /** The page of a path; null for one that is none of these. */
  async answer(path: string, query: URLSearchParams, request: IncomingMessage, signal: AbortSignal): Promise<DebugAnswer | null> {
    if (path === '/debug/pprof') return { status: 302, type: HTML, headers: { location: '/debug/pprof/' }, body: '<a href="/debug/pprof/">Found</a>.\n\n' };
    if (path === '/debug/pprof/') return { status: 200, type: HTML, body: indexPage() };
    if (path === '/debug/flags' || path === '/debug/flags/') return { status: 200, type: HTML, body: '<html><body>/debug/flags/<br>flags: v</body></html>\n' };
    if (path === '/debug/flags/v') return await this.#verbosity(request);
    const [, name] = /^\/debug\/pprof\/([^/]+)$/.exec(path) ?? [];
    if (name === undefined) return null;
    if (!PROFILES.includes(name)) return { status: 404, type: PLAIN, headers: { 'x-go-pprof': '1' }, body: 'Unknown profile\n' };
    const { clock, args } = this.#options;
    this.#profiles ??= import('../../base/profiles.ts').then(({ Profiles }) => new Profiles(clock, args));
    return await (await this.#profiles).answer(name, query, signal);
  }

  async #verbosity(request: IncomingMessage): Promise<DebugAnswer> {
    if (request.method !== 'PUT') return { status: 406, type: 'text/plain', body: 'unsupported http method\n' };
    let text = '';
    for await (const piece of request) {
      text += String(piece);
      if (text.length > MAX_VERBOSITY_BYTES) break;
    }
    if (!/^\d{1,9}$/.test(text)) return { status: 400, type: 'text/plain', body: `strconv.ParseUint: parsing ${JSON.stringify(text)}: invalid syntax\n` };
    this.#options.setVerbosity(Number(text));
    return { status: 200, type: 'text/plain', body: `successfully set klog.logging.verbosity to ${text}\n` };
  }
}

function indexPage(): string {
  const links = PROFILES.map((name) => `<li><a href='${name}?debug=1'>${name}</a>`).join('\n');
  return `<html>\n<head>\n<title>/debug/pprof/</title>\n</head>\n<body>\n/debug/pprof/\n<p>Set debug=1 as a query parameter to export in legacy text format</p>\n<ul>\n${links}\n</ul>\n</body>\n</html>\n`;
}

/** Sends a page. */
export function sendPage(response: ServerResponse, { status, type, headers, body }: DebugAnswer): void {
  response.writeHead(status, { 'content-type': type, 'x-content-type-options': 'nosniff', ...headers }).end(body);
}
