/** Texts of the agent's smaller pages, in upstream's form. */

export interface HealthCheck {
  readonly name: string;
  /** Null: healthy. */
  readonly trouble: string | null;
}

/** `/healthz` over all checks: what failed is named, why is not (it is a public page). */
export function healthText(
  checks: readonly HealthCheck[],
  query: { readonly verbose: boolean; readonly exclude: readonly string[] },
): { status: number; text: string } {
  const lines: string[] = [];
  const unknown = new Set(query.exclude);
  let failed = false;
  for (const { name, trouble } of checks) {
    if (query.exclude.includes(name)) {
      unknown.delete(name);
      lines.push(`[+]${name} excluded: ok`);
    } else if (trouble === null) lines.push(`[+]${name} ok`);
    else {
      failed = true;
      lines.push(`[-]${name} failed: reason withheld`);
    }
  }
  if (unknown.size > 0)
    lines.push(
      `warn: some health checks cannot be excluded: no matches for ${[...unknown]
        .toSorted()
        .map((name) => JSON.stringify(name))
        .join(',')}`,
    );
  const all = lines.map((line) => `${line}\n`).join('');
  if (failed) return { status: 500, text: `${all}healthz check failed\n` };
  return { status: 200, text: query.verbose ? `${all}healthz check passed\n` : 'ok' };
}

const pageHead = (page: string): string =>
  `\nkubelet ${page}\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.\n`;

export interface StatuszFacts {
  readonly startedMs: number;
  readonly nowMs: number;
  /** What runs the program. */
  readonly engine: string;
  readonly version: string;
  readonly paths: readonly string[];
}

/** What a client's Accept header asks a z-page for; null is none that is served (406). */
export function zPageForm(accept: string): 'text' | 'json' | null {
  if (accept.trim() === '') return 'text';
  for (const range of accept.split(',')) {
    const [type = '', ...parameters] = range.split(';').map((each) => each.trim().toLowerCase());
    const asked = new Map(parameters.map((each): [string, string] => [each.slice(0, each.indexOf('=')), each.slice(each.indexOf('=') + 1)]));
    if ((type === 'text/plain' || type === '*/*' || type === 'text/*') && !asked.has('as')) return 'text';
    if (type === 'application/json' && asked.get('g') === 'config.k8s.io' && (asked.get('v') === 'v1beta1' || asked.get('v') === 'v1alpha1')) return 'json';
  }
  return null;
}

export function statuszText({ startedMs, nowMs, engine, version, paths }: StatuszFacts): string {
  const seconds = Math.max(0, Math.floor((nowMs - startedMs) / 1000));
  const hours = Math.floor(seconds / 3600);
  const up = `${hours} hr ${String(Math.floor(seconds / 60) % 60).padStart(2, '0')} min ${String(seconds % 60).padStart(2, '0')} sec`;
  return `${pageHead('statusz')}\nStarted: ${new Date(startedMs).toUTCString()}\nUp: ${up}\nGo version: ${engine}\nBinary version: ${version}\n\nPaths: ${paths.join(' ')}\n`;
}

/** The structured form (config.k8s.io/v1beta1). */
export function statuszObject({ startedMs, nowMs, engine, version, paths }: StatuszFacts): unknown {
  return {
    kind: 'Statusz',
    apiVersion: 'config.k8s.io/v1beta1',
    metadata: { name: 'kubelet' },
    startTime: `${new Date(startedMs).toISOString().slice(0, 19)}Z`,
    uptimeSeconds: Math.max(0, Math.floor((nowMs - startedMs) / 1000)),
    goVersion: engine,
    binaryVersion: version,
    paths,
  };
}

export function flagzText(flags: Readonly<Record<string, string>>): string {
  const lines = Object.keys(flags)
    .toSorted()
    .map((name) => `${name}=${flags[name]}\n`);
  return pageHead('flagz') + lines.join('');
}

export function flagzObject(flags: Readonly<Record<string, string>>): unknown {
  return { kind: 'Flagz', apiVersion: 'config.k8s.io/v1beta1', metadata: { name: 'kubelet' }, flags };
}

/** A directory as Go's file server lists it: names as links, in order, directories with a slash. */
export function directoryPage(names: readonly string[]): string {
  const links = names
    .toSorted()
    .map((name) => `<a href="${encodeURI(name.replaceAll('%', '%25')).replaceAll('?', '%3F').replaceAll('#', '%23')}">${escaped(name)}</a>\n`);
  return `<!doctype html>\n<meta name="viewport" content="width=device-width">\n<pre>\n${links.join('')}</pre>\n`;
}

function escaped(text: string): string {
  return text.replace(/[&<>"']/g, (sign) => `&#${sign.charCodeAt(0)};`);
}
