import type { Pod } from '../../proto/kube/types.ts';
import { durationMs } from '../../base/duration.ts';
import type { KubeletConfiguration } from './config.ts';
import { specContainers } from './containers.ts';
import { gateEnabled } from '../../base/feature-gates.ts';
import { backOffKey } from './hash.ts';
import type { PodFacts } from './types.ts';

/**
 * Crash-loop and image-pull delays as numbers: 10 s, doubling, up to a cap, forgotten when the last growth is twice
 * the default cap ago. The delay counts from the event (a container's end, a failed pull), not from the decision.
 */
export interface Backoff {
  readonly delayMs: number;
  /** When the delay last grew. */
  readonly grownAtMs: number;
}

export interface BackoffRules {
  readonly firstMs: number;
  readonly maxMs: number;
}

export const defaultBackoffMaxMs = 300_000;
const firstMs = 10_000;
const reducedFirstMs = 1_000;
const reducedMaxMs = 60_000;
const clockSlackMs = 1000;

/** A smaller cap (`crashLoopBackOff.maxContainerRestartPeriod`) also bounds the first delay, which `ReduceDefaultCrashLoopBackOffDecay` makes one second. */
export function backoffRules(maxMs: number = defaultBackoffMaxMs, isReduced = false): BackoffRules {
  return { firstMs: Math.min(isReduced ? reducedFirstMs : firstMs, maxMs), maxMs };
}

/** The cap that a configuration asks for: its own where `KubeletCrashLoopBackOffMax` lets it have one, else by `ReduceDefaultCrashLoopBackOffDecay`. */
export function crashLoopMaxMs({ crashLoopBackOff, featureGates }: Pick<KubeletConfiguration, 'crashLoopBackOff' | 'featureGates'>): number {
  const own = crashLoopBackOff.maxContainerRestartPeriod;
  if (own !== null && gateEnabled(featureGates, 'KubeletCrashLoopBackOffMax')) return durationMs(own);
  return gateEnabled(featureGates, 'ReduceDefaultCrashLoopBackOffDecay') ? reducedMaxMs : defaultBackoffMaxMs;
}

/** The state after one more failure at `eventMs`. */
export function grow(before: Backoff | undefined, rules: BackoffRules, eventMs: number, nowMs: number): Backoff {
  if (before === undefined || isStale(before, rules, eventMs)) return { delayMs: rules.firstMs, grownAtMs: nowMs };
  return { delayMs: Math.min(before.delayMs * 2, rules.maxMs), grownAtMs: nowMs };
}

/** When the next try is allowed; null when at once. */
export function heldUntilMs(state: Backoff | undefined, rules: BackoffRules, eventMs: number, nowMs: number): number | null {
  if (state === undefined || isStale(state, rules, eventMs)) return null;
  // An event in the future: the clock was set back, and waiting for it to catch up could take for ever.
  if (eventMs > nowMs + clockSlackMs) return null;
  const untilMs = eventMs + state.delayMs;
  return nowMs < untilMs ? untilMs : null;
}

/**
 * What the state must have been, from what a runtime still knows after the agent's own restart: a container that has
 * been started `attempt` times after the first and whose newest run began at `createdAtMs`.
 */
export function rebuilt(attempt: number, rules: BackoffRules, createdAtMs: number): Backoff | undefined {
  if (attempt <= 0) return undefined;
  return { delayMs: Math.min(rules.firstMs * 2 ** Math.min(attempt - 1, 20), rules.maxMs), grownAtMs: createdAtMs };
}

/** The same for all containers of a pod, by the keys of their back-offs. */
export function rebuiltOf(pod: Pod, facts: PodFacts, rules: BackoffRules): Record<string, Backoff | undefined> {
  const states: [string, Backoff | undefined][] = [];
  for (const { container } of specContainers(pod.spec)) {
    const newest = facts.containers.find((each) => each.name === container.name);
    if (newest !== undefined) states.push([backOffKey(container), rebuilt(newest.attempt, rules, newest.createdAtMs)]);
  }
  return Object.fromEntries(states);
}

/** A run of ten minutes wipes the slate, whatever the cap is. */
function isStale(state: Backoff, rules: BackoffRules, eventMs: number): boolean {
  return eventMs - state.grownAtMs > 2 * Math.max(rules.maxMs, defaultBackoffMaxMs);
}
