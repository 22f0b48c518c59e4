/** What the API server is asked to authorize: `verb` on `nodes/<subresource>`. */
export interface NodeAttributes {
  readonly verb: string;
  readonly subresource: string;
}

const verbs: Readonly<Record<string, string>> = { POST: 'create', GET: 'get', PUT: 'update', PATCH: 'patch', DELETE: 'delete' };

/** Paths that have a finer permission of their own, with `proxy` as the older, wider one behind it. */
const finer: readonly (readonly [path: string, subresource: string])[] = [
  ['/allocatedPods', 'pods'],
  ['/pods', 'pods'],
  ['/healthz', 'healthz'],
  ['/configz', 'configz'],
  ['/runningpods', 'pods'],
];

const own: readonly (readonly [path: string, subresource: string])[] = [
  ['/stats', 'stats'],
  ['/metrics', 'metrics'],
  ['/logs', 'log'],
  ['/checkpoint', 'checkpoint'],
  ['/statusz', 'statusz'],
  ['/flagz', 'configz'],
];

/** The attributes of a request to the agent's API; allowed when one of them is (KEP-2862). */
export function nodeAttributes(method: string, path: string): NodeAttributes[] {
  const verb = verbs[method] ?? '';
  const mine = own.find(([prefix]) => isBelow(path, prefix));
  if (mine !== undefined) return [{ verb, subresource: mine[1] }];
  const fine = finer.find(([prefix]) => isBelow(path, prefix));
  const proxy = { verb, subresource: 'proxy' };
  return fine === undefined ? [proxy] : [{ verb, subresource: fine[1] }, proxy];
}

function isBelow(path: string, prefix: string): boolean {
  return path === prefix || path.startsWith(`${prefix}/`);
}

export type ServerRoute =
  | { kind: 'healthz'; check: string }
  | { kind: 'pods' }
  | { kind: 'runningpods' }
  | { kind: 'configz' }
  | { kind: 'metrics'; what: '' | 'cadvisor' | 'resource' | 'probes' | 'slis' }
  | { kind: 'stats' }
  | { kind: 'logs'; namespace: string; pod: string; container: string }
  | { kind: 'exec' | 'attach'; namespace: string; pod: string; uid: string | null; container: string }
  | { kind: 'portForward'; namespace: string; pod: string; uid: string | null }
  | { kind: 'run'; namespace: string; pod: string; uid: string | null; container: string }
  | { kind: 'checkpoint'; namespace: string; pod: string; container: string }
  /** The machine's logs; `path` is what follows `/logs/`. */
  | { kind: 'systemLogs'; path: string }
  /** As pods were given what they have; one of them, or all. */
  | { kind: 'allocatedPods'; pod: { namespace: string; name: string; uid: string } | null }
  | { kind: 'pprof'; name: string }
  | { kind: 'flagz' | 'statusz' | 'verbosity' };

/** The methods a route takes; null is any. */
export function methodsOf(kind: ServerRoute['kind']): readonly string[] | null {
  switch (kind) {
    case 'exec':
    case 'attach':
    case 'portForward':
    case 'stats':
      return ['GET', 'POST'];
    case 'run':
    case 'checkpoint':
      return ['POST'];
    case 'pods':
    case 'runningpods':
    case 'allocatedPods':
    case 'logs':
    case 'systemLogs':
      return ['GET'];
    default:
      return null;
  }
}

/** Paths that stand for themselves, with nothing below them. */
const exact = [
  ...['/healthz', '/healthz/ping', '/healthz/log', '/healthz/syncloop', '/healthz/device-plugin', '/configz', '/flagz', '/statusz', '/debug/flags/v'],
  ...['/metrics', '/metrics/cadvisor', '/metrics/resource', '/metrics/probes', '/metrics/slis'],
];
/** Paths with everything below them; without the slash they are redirected to it, or (`both`) served too. */
const trees: Readonly<Record<string, 'slash' | 'both'>> = {
  pods: 'both',
  run: 'both',
  exec: 'both',
  attach: 'both',
  portForward: 'both',
  containerLogs: 'both',
  stats: 'slash',
  runningpods: 'slash',
  checkpoint: 'slash',
  logs: 'slash',
};

export type Place =
  /** A path that is none of ours is told so whoever asks: nothing is behind it that could be asked for. */
  | { readonly kind: 'nowhere' }
  /** As Go's multiplexer says it, before anybody is asked who he is. */
  | { readonly kind: 'elsewhere'; readonly path: string }
  /** `path` is what authorization judges: decoded, its first part the one that is routed. */
  | { readonly kind: 'here'; readonly path: string; readonly route: ServerRoute | null };

/** Where a request's path leads; `escaped` as it came, without the query. */
export function placeOf(escaped: string, allocatedPods = false): Place {
  const clean = cleaned(escaped);
  if (clean !== escaped) return { kind: 'elsewhere', path: clean };
  let parts: string[];
  try {
    parts = escaped.split('/').slice(1).map(decodeURIComponent);
  } catch {
    return { kind: 'nowhere' };
  }
  const [first = '', second = '', ...rest] = parts;
  const path = `/${parts.join('/')}`;
  const tree = Object.hasOwn(trees, first) ? trees[first] : first === 'allocatedPods' && allocatedPods ? 'both' : undefined;
  const isPprof = first === 'debug' && second === 'pprof';
  if (tree === 'slash' && parts.length === 1) return { kind: 'elsewhere', path: `${escaped}/` };
  if (isPprof && parts.length === 2) return { kind: 'elsewhere', path: `${escaped}/` };
  // A slash that was written in another way must not make two parts of one.
  const isOurs = tree !== undefined || (isPprof && rest.length > 0) || (exact.includes(path) && !parts.some((part) => part.includes('/')));
  return isOurs ? { kind: 'here', path, route: routeOf(parts) } : { kind: 'nowhere' };
}

/** Without empty parts, `.` and `..`; a slash at the end stays. */
function cleaned(path: string): string {
  const out: string[] = [];
  for (const part of path.split('/')) {
    if (part === '..') out.pop();
    else if (part !== '' && part !== '.') out.push(part);
  }
  const whole = `/${out.join('/')}`;
  return path.endsWith('/') && whole !== '/' ? `${whole}/` : whole;
}

/** The route of decoded parts; null is 404 for whoever may ask. */
function routeOf(given: readonly string[]): ServerRoute | null {
  const parts = given.at(-1) === '' ? given.slice(0, -1) : given;
  const [first, ...rest] = parts;
  const [a = '', b = '', c = '', d = ''] = rest;
  switch (first) {
    case 'healthz':
      return rest.length <= 1 ? { kind: 'healthz', check: a } : null;
    case 'pods':
    case 'runningpods':
    case 'configz':
      return rest.length === 0 ? { kind: first } : null;
    case 'allocatedPods':
      if (rest.length === 0) return { kind: first, pod: null };
      return rest.length === 2 || rest.length === 3 ? { kind: first, pod: { namespace: a, name: b, uid: c } } : null;
    case 'metrics':
      return rest.length <= 1 && (a === '' || a === 'cadvisor' || a === 'resource' || a === 'probes' || a === 'slis') ? { kind: 'metrics', what: a } : null;
    case 'stats':
      return rest.length === 1 && a === 'summary' ? { kind: 'stats' } : null;
    case 'containerLogs':
      return rest.length === 3 ? { kind: 'logs', namespace: a, pod: b, container: c } : null;
    case 'logs':
      return { kind: 'systemLogs', path: given.slice(1).join('/') };
    case 'flagz':
    case 'statusz':
      return rest.length === 0 ? { kind: first } : null;
    case 'debug':
      if (a === 'pprof') return b === '' ? null : { kind: 'pprof', name: given.slice(2).join('/') };
      return a === 'flags' && b === 'v' && rest.length === 2 ? { kind: 'verbosity' } : null;
    case 'checkpoint':
      return rest.length === 3 ? { kind: 'checkpoint', namespace: a, pod: b, container: c } : null;
    case 'run':
      if (rest.length === 3) return { kind: first, namespace: a, pod: b, uid: null, container: c };
      return rest.length === 4 ? { kind: first, namespace: a, pod: b, uid: c, container: d } : null;
    case 'exec':
    case 'attach':
      if (rest.length === 3) return { kind: first, namespace: a, pod: b, uid: null, container: c };
      return rest.length === 4 ? { kind: first, namespace: a, pod: b, uid: c, container: d } : null;
    case 'portForward':
      if (rest.length === 2) return { kind: first, namespace: a, pod: b, uid: null };
      return rest.length === 3 ? { kind: first, namespace: a, pod: b, uid: c } : null;
    default:
      return null;
  }
}

export interface LogQuery {
  readonly follow: boolean;
  readonly previous: boolean;
  readonly timestamps: boolean;
  readonly tailLines: number | null;
  readonly limitBytes: number | null;
  /** Milliseconds before now. */
  readonly sinceAgoMs: number | null;
  /** RFC 3339. */
  readonly sinceTime: string | null;
  readonly stream: 'All' | 'Stdout' | 'Stderr';
}

/** Reads and checks the query of a log request by PodLogOptions' rules. */
export function readLogQuery(query: (key: string) => string | null): LogQuery | 'undecodable' | 'invalid' {
  const flag = (key: string): boolean => ['true', '1', 't', 'T', 'TRUE', 'True'].includes(query(key) ?? '');
  const number = (key: string): number | null | undefined => {
    const text = query(key);
    if (text === null || text === '') return null;
    return /^-?\d{1,15}$/.test(text) ? Number(text) : undefined;
  };
  const tailLines = number('tailLines');
  const limitBytes = number('limitBytes');
  const sinceSeconds = number('sinceSeconds');
  if (tailLines === undefined || limitBytes === undefined || sinceSeconds === undefined) return 'undecodable';
  const sinceTime = query('sinceTime');
  const stream = query('stream') ?? 'All';
  const isStream = stream === 'All' || stream === 'Stdout' || stream === 'Stderr';
  const wrong =
    (tailLines !== null && tailLines < 0) ||
    (limitBytes !== null && limitBytes < 1) ||
    (sinceSeconds !== null && (sinceTime !== null || sinceSeconds < 1)) ||
    !isStream ||
    (stream !== 'All' && tailLines !== null);
  if (wrong) return 'invalid';
  return {
    follow: flag('follow'),
    previous: flag('previous'),
    timestamps: flag('timestamps'),
    tailLines,
    limitBytes,
    sinceAgoMs: sinceSeconds === null ? null : sinceSeconds * 1000,
    sinceTime,
    stream,
  };
}
