/** What is known of the plugin behind one socket. */
export interface PluginState {
  /** Which socket of this path it was. */
  readonly identity: string;
  readonly registered: boolean;
  /** Monotonic: when a failed registration is tried again. */
  readonly nextMs: number;
  readonly waitMs: number;
}

const firstWaitMs = 500;
const lastWaitMs = 122_000;

/**
 * What is to be done so that exactly the sockets that are there are registered: those that went away or are others
 * now first, then those that are new, or failed long enough ago.
 */
export function dueRegistrations(
  known: ReadonlyMap<string, PluginState>,
  sockets: ReadonlyMap<string, string>,
  nowMs: number,
): { gone: string[]; due: { path: string; identity: string }[] } {
  const gone: string[] = [];
  for (const [path, state] of known) if (sockets.get(path) !== state.identity) gone.push(path);
  const due: { path: string; identity: string }[] = [];
  for (const [path, identity] of sockets) {
    const state = known.get(path);
    if (state === undefined || state.identity !== identity || (!state.registered && nowMs >= state.nextMs)) due.push({ path, identity });
  }
  return { gone, due };
}

/** A registration that failed is tried again after 500 ms, then twice as long each time, at most 2 m 2 s; as upstream's. */
export function failed(before: PluginState | undefined, identity: string, nowMs: number): PluginState {
  const waitMs = before === undefined || before.waitMs === 0 ? firstWaitMs : Math.min(before.waitMs * 2, lastWaitMs);
  return { identity, registered: false, nextMs: nowMs + waitMs, waitMs };
}

/** A version such as `1.4.0` or `v1`, as a list of numbers; null when it is none. */
function versionNumbers(text: string): number[] | null {
  const match = /^v?(\d+(?:\.\d+)*)(?:[-+].*)?$/.exec(text);
  return match === null ? null : (match[1] ?? '').split('.').map(Number);
}

/** Whether `left` is an older version than `right`. */
export function isOlder(left: string, right: string): boolean {
  const [a, b] = [versionNumbers(left) ?? [], versionNumbers(right) ?? []];
  for (let at = 0; at < Math.max(a.length, b.length); at += 1) {
    const difference = (a[at] ?? 0) - (b[at] ?? 0);
    if (difference !== 0) return difference < 0;
  }
  return false;
}

/** The newest CSI version of a driver that this node speaks: 1.x; or why there is none. */
export function highestCsiVersion(versions: readonly string[]): { ok: true; version: string } | { ok: false; message: string } {
  if (versions.length === 0) return { ok: false, message: 'Plugin returned an empty list for supported versions' };
  let highest: string | null = null;
  for (const version of versions) {
    if (versionNumbers(version)?.[0] === 1 && (highest === null || isOlder(highest, version))) highest = version;
  }
  if (highest !== null) return { ok: true, version: highest };
  return { ok: false, message: `None of the versions specified ["${versions.join('" "')}"] are supported. err=could not find a supported version` };
}
