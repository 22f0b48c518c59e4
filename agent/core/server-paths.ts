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
  | { kind: 'flagz' | 'statusz' | 'verbosity' | 'pprof' };

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
    case 'logs':
    case 'systemLogs':
      return ['GET'];
    default:
      return null;
  }
}

/** The route a path stands for; null is 404. */
export function routeOf(path: string): ServerRoute | null {
  let parts: string[];
  try {
    parts = path.split('/').slice(1).map(decodeURIComponent);
  } catch {
    return null;
  }
  if (parts.at(-1) === '') parts.pop();
  const [first, ...rest] = parts;
  const [a = '', b = '', c = '', d = ''] = rest;
  switch (first) {
    case 'healthz':
      return rest.length <= 1 ? { kind: 'healthz', check: a } : null;
    case 'pods':
    case 'runningpods':
    case 'configz':
      return rest.length === 0 ? { kind: first } : null;
    case 'metrics':
      return rest.length <= 1 && (a === '' || a === 'cadvisor' || a === 'resource' || a === 'probes' || a === 'slis') ? { kind: 'metrics', what: a } : null;
    case 'stats':
      return rest.length === 1 && a === 'summary' ? { kind: 'stats' } : null;
    case 'containerLogs':
      return rest.length === 3 ? { kind: 'logs', namespace: a, pod: b, container: c } : null;
    case 'logs':
      return { kind: 'systemLogs', path: rest.join('/') };
    case 'flagz':
    case 'statusz':
      return rest.length === 0 ? { kind: first } : null;
    case 'debug':
      if (a === 'pprof') return { kind: 'pprof' };
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

/** Reads and checks the query of a log request by PodLogOptions' rules; a string is what is wrong with it. */
export function readLogQuery(query: (key: string) => string | null): LogQuery | string {
  const flag = (key: string): boolean => ['true', '1', 't', 'T', 'TRUE', 'True'].includes(query(key) ?? '');
  const number = (key: string): number | null | string => {
    const text = query(key);
    if (text === null || text === '') return null;
    return /^-?\d{1,15}$/.test(text) ? Number(text) : `Unable to decode the request as container log options: ${key} must be a number`;
  };
  const tailLines = number('tailLines');
  const limitBytes = number('limitBytes');
  const sinceSeconds = number('sinceSeconds');
  for (const each of [tailLines, limitBytes, sinceSeconds]) if (typeof each === 'string') return each;
  const sinceTime = query('sinceTime');
  const stream = query('stream') ?? 'All';
  const problems: string[] = [];
  if (typeof tailLines === 'number' && tailLines < 0) problems.push(`tailLines: Invalid value: ${tailLines}: must be greater than or equal to 0`);
  if (typeof limitBytes === 'number' && limitBytes < 1) problems.push(`limitBytes: Invalid value: ${limitBytes}: must be greater than 0`);
  if (typeof sinceSeconds === 'number' && sinceTime !== null)
    problems.push('sinceSeconds: Forbidden: at most one of `sinceTime` or `sinceSeconds` may be specified');
  if (typeof sinceSeconds === 'number' && sinceSeconds < 1) problems.push(`sinceSeconds: Invalid value: ${sinceSeconds}: must be greater than 0`);
  if (stream !== 'All' && stream !== 'Stdout' && stream !== 'Stderr')
    problems.push(`stream: Unsupported value: "${stream}": supported values: "All", "Stderr", "Stdout"`);
  else if (stream !== 'All' && tailLines !== null) problems.push('stream: Forbidden: `tailLines` and specific `stream` are mutually exclusive for now');
  if (problems.length > 0) return problems.length === 1 ? (problems[0] ?? '') : `[${problems.join(', ')}]`;
  return {
    follow: flag('follow'),
    previous: flag('previous'),
    timestamps: flag('timestamps'),
    tailLines: tailLines as number | null,
    limitBytes: limitBytes as number | null,
    sinceAgoMs: sinceSeconds === null ? null : (sinceSeconds as number) * 1000,
    sinceTime,
    stream: stream as LogQuery['stream'],
  };
}
