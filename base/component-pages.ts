import { Counter } from './metrics-text.ts';

/** Pages that each component of Kubernetes serves, in upstream's form. */

/** Who serves them, as it calls itself on them. */
export type Component = 'kubelet' | 'kube-proxy';

export interface HealthCheck {
  readonly name: string;
  /** Null: healthy. */
  readonly trouble: string | null;
}

/** `/healthz` over all checks: what failed is named, why is not (it is a public page). */
function healthText(
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

/** `/healthz` with what it counts for `/metrics/slis`. */
export class HealthPage {
  readonly #now = new Counter('kubernetes_healthcheck', '[STABLE] This metric records the result of a single healthcheck.', 'gauge');
  readonly #total = new Counter('kubernetes_healthchecks_total', '[STABLE] This metric records the results of all healthcheck.');

  /** Over all checks; one that the query leaves out is not counted. */
  answer(checks: readonly HealthCheck[], query: URLSearchParams): { status: number; text: string } {
    const exclude = query.getAll('exclude');
    for (const { name, trouble } of checks) {
      if (exclude.includes(name)) continue;
      this.#now.set({ name, type: 'healthz' }, trouble === null ? 1 : 0);
      this.#total.add({ name, status: trouble === null ? 'success' : 'error', type: 'healthz' });
    }
    return healthText(checks, { verbose: query.has('verbose'), exclude });
  }

  /** The metrics. */
  text(): string {
    return this.#now.text() + this.#total.text();
  }

  reset(): void {
    this.#now.clear();
    this.#total.clear();
  }
}

const pageHead = (component: Component, page: string): string =>
  `\n${component} ${page}\nWarning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for debugging purposes only.\n`;

export interface StatuszFacts {
  readonly component: Component;
  readonly startedMs: number;
  readonly nowMs: number;
  /** What runs the program. */
  readonly engine: string;
  readonly version: string;
  readonly paths: readonly string[];
}

export function statuszText({ component, startedMs, nowMs, engine, version, paths }: StatuszFacts): string {
  const seconds = Math.max(0, Math.floor((nowMs - startedMs) / 1000));
  const hours = Math.floor(seconds / 3600);
  const up = `${hours} hr ${String(Math.floor(seconds / 60) % 60).padStart(2, '0')} min ${String(seconds % 60).padStart(2, '0')} sec`;
  const { binary, emulation } = versionsOf(version);
  return `${pageHead(component, 'statusz')}\nStarted: ${unixDate(startedMs)}\nUp: ${up}\nGo version: ${engine}\nBinary version: ${binary}\nEmulation version: ${emulation}\nPaths: ${paths.join(' ')}\n`;
}

/** As Go's time.UnixDate prints, in UTC. */
function unixDate(ms: number): string {
  const [day = '', date = '', month = '', year = '', time = ''] = new Date(ms).toUTCString().replace(',', '').split(' ');
  return `${day} ${month} ${String(Number(date)).padStart(2)} ${time} UTC ${year}`;
}

/** A version as numbers, and the release whose behaviour is meant by it. */
function versionsOf(version: string): { binary: string; emulation: string } {
  const binary = version.replace(/^v/, '');
  return { binary, emulation: binary.split('.').slice(0, 2).join('.') };
}

/** The structured form (config.k8s.io/v1beta1). */
export function statuszObject({ component, startedMs, nowMs, engine, version, paths }: StatuszFacts): object {
  return {
    kind: 'Statusz',
    apiVersion: 'config.k8s.io/v1beta1',
    metadata: { name: component },
    startTime: `${new Date(startedMs).toISOString().slice(0, 19)}Z`,
    uptimeSeconds: Math.max(0, Math.floor((nowMs - startedMs) / 1000)),
    goVersion: engine,
    binaryVersion: versionsOf(version).binary,
    emulationVersion: versionsOf(version).emulation,
    paths,
  };
}

export function flagzText(component: Component, flags: Readonly<Record<string, string>>): string {
  const lines = Object.keys(flags)
    .toSorted()
    .map((name) => `${name}=${flags[name]}\n`);
  return pageHead(component, 'flagz') + lines.join('');
}

export function flagzObject(component: Component, flags: Readonly<Record<string, string>>): object {
  return { kind: 'Flagz', apiVersion: 'config.k8s.io/v1beta1', metadata: { name: component }, flags };
}

/**
 * Flags with their values as /flagz shows them.
 * @param fields for each flag the path of the configuration's field that it stands for; null: there is none
 */
export function flagTexts(fields: Iterable<readonly [string, string | null]>, config: object, given: ReadonlyMap<string, unknown>): Record<string, string> {
  return Object.fromEntries([...fields].map(([name, field]) => [name, printed(field === null ? given.get(name) : valueAt(config, field.split('.')))]));
}

function valueAt(value: unknown, path: readonly string[]): unknown {
  return path.reduce((at: unknown, key) => (typeof at === 'object' && at !== null ? (at as Record<string, unknown>)[key] : undefined), value);
}

function printed(value: unknown): string {
  if (value === undefined || value === null) return '';
  if (Array.isArray(value)) return `[${value.map((each) => (typeof each === 'object' ? JSON.stringify(each) : String(each))).join(',')}]`;
  if (typeof value === 'object')
    return Object.entries(value)
      .toSorted(([a], [b]) => (a < b ? -1 : 1))
      .map(([key, each]) => `${key}=${String(each)}`)
      .join(',');
  return typeof value === 'string' ? value : JSON.stringify(value);
}
