import { settleEnvironment } from './by-nature.ts';
import { CHANGES } from './changes.ts';
import type { PodCall, PodLife } from './pod-calls.ts';
import { textOfBase64, withoutDefaults } from './without-defaults.ts';

/** A call as it is kept to be compared; of calls that only look, those that say the same are one. */
export interface KeptCall {
  readonly method: string;
  /** `main#0`, `#1` for a sandbox's second attempt, an image; empty when the method says enough. */
  readonly about: string;
  readonly startMs: number;
  readonly endMs: number | null;
  outcome: string;
  message: string;
  /** Its request as JSON, without defaults and without ids of what it is about. */
  readonly request: string;
  count: number;
  /** Of all of them. */
  totalMs: number;
}

/** What one kubelet did with a pod. */
export interface KeptLife {
  /** Null for calls about the node as a whole. */
  readonly pod: PodLife | null;
  readonly changes: KeptCall[];
  readonly looks: Map<string, KeptCall>;
}

/** More calls that change something are not kept of one recording. */
const MAX_CHANGES = 500_000;
/** Different calls that only look, of one pod. */
const MAX_LOOKS = 500;
/** A probe runs a command again and again: it is one call, made many times. */
const FOLDED = new Set(['ExecSync']);
const REPEATED = '(as in RunPodSandbox)';

/** A request without ids of what it is about (its place says that), in a form that any client's is the same in. */
export function requestForm(method: string, request: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const form = withoutDefaults(`${method}Request`, request) as Record<string, unknown>;
  delete form['containerId'];
  delete form['podSandboxId'];
  // Whole in each CreateContainer.
  if (form['sandboxConfig'] !== undefined) form['sandboxConfig'] = REPEATED;
  // A pod's annotations go with each look at its image.
  const image = form['image'] as Record<string, unknown> | undefined;
  if (method === 'ImageStatus' && image?.['annotations'] !== undefined) image['annotations'] = REPEATED;
  const filter = form['filter'] as Record<string, unknown> | undefined;
  if (filter !== undefined) {
    if (typeof filter['id'] === 'string') filter['id'] = '<id>';
    if (typeof filter['podSandboxId'] === 'string') filter['podSandboxId'] = '<id>';
  }
  // Values are bytes on the wire.
  const config = form['config'] as { envs?: { key?: string; value?: string }[] } | undefined;
  if (Array.isArray(config?.envs)) {
    for (const env of config.envs) if (env.value !== undefined) env.value = textOfBase64(env.value);
    config.envs = settleEnvironment(config.envs, ({ key = '' }) => key);
  }
  return form;
}

/** Calls of one recording by pod. Holds requests of what changes something, and one of each kind of what looks. */
export class KeptCalls {
  readonly #lives = new Map<PodLife | null, KeptLife>();
  #changes = 0;
  calls = 0;
  firstMs = Infinity;
  lastMs = -Infinity;
  /** Calls that found no room; a comparison is not whole then. */
  left = 0;

  /** The node's first, pods in the order in which they were first spoken of. */
  get lives(): readonly KeptLife[] {
    const node = this.#lives.get(null);
    return [...(node === undefined ? [] : [node]), ...[...this.#lives.values()].filter(({ pod }) => pod !== null)];
  }

  take(call: PodCall): void {
    this.calls += 1;
    this.firstMs = Math.min(this.firstMs, call.startMs);
    this.lastMs = Math.max(this.lastMs, call.endMs ?? call.startMs);
    let life = this.#lives.get(call.pod);
    if (life === undefined) this.#lives.set(call.pod, (life = { pod: call.pod, changes: [], looks: new Map() }));
    const { method } = call;
    const looks = !CHANGES.has(method) || FOLDED.has(method);
    const sandbox = call.sandboxAttempt === null || call.sandboxAttempt === 0 ? '' : `#${call.sandboxAttempt}`;
    const about = looks ? call.container.replace(/#\d+$/, '') || call.other : call.container || sandbox || call.other;
    const text = JSON.stringify(requestForm(method, call.request));
    const kept: KeptCall = {
      method,
      about,
      startMs: call.startMs,
      endMs: call.endMs,
      outcome: call.outcome,
      message: call.message,
      request: text,
      count: 1,
      totalMs: (call.endMs ?? call.startMs) - call.startMs,
    };
    if (!looks) {
      if (this.#changes >= MAX_CHANGES) this.left += 1;
      else life.changes.push(kept);
      this.#changes += 1;
      return;
    }
    const key = `${method} ${about} ${text}`;
    const known = life.looks.get(key);
    if (known === undefined) {
      if (life.looks.size < MAX_LOOKS) life.looks.set(key, kept);
      else this.left += 1;
      return;
    }
    known.count += 1;
    known.totalMs += kept.totalMs;
  }
}
