import { withoutAttempt, type TimelineCall } from '../core/timeline.ts';

/** `312 ms`, `1.4 s`, `3 min 2 s`. */
export function durationText(ms: number): string {
  if (ms < 10) return `${ms.toFixed(1)} ms`;
  if (ms < 1_000) return `${ms.toFixed(0)} ms`;
  if (ms < 10_000) return `${(ms / 1_000).toFixed(2)} s`;
  if (ms < 60_000) return `${(ms / 1_000).toFixed(1)} s`;
  const minutes = Math.floor(ms / 60_000);
  return minutes < 60 ? `${minutes} min ${Math.round((ms % 60_000) / 1_000)} s` : `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
}

export function callDuration(call: TimelineCall): string {
  return call.endMs === null ? 'open' : durationText(call.endMs - call.startMs);
}

/** `12:04:01.118`, in UTC as everywhere else in nodelet cri. */
export function timeText(ms: number): string {
  return Number.isFinite(ms) ? new Date(ms).toISOString().slice(11, 23) : '';
}

export function dateText(ms: number): string {
  return Number.isFinite(ms) ? new Date(ms).toISOString().slice(0, 10) : '';
}

export function sizeText(bytes: number): string {
  if (bytes < 1_024) return `${bytes} B`;
  return bytes < 1_048_576 ? `${(bytes / 1_024).toFixed(1)} KiB` : `${(bytes / 1_048_576).toFixed(1)} MiB`;
}

export function countText(count: number, one: string, many = `${one}s`): string {
  return `${count.toLocaleString('en')} ${count === 1 ? one : many}`;
}

/** `default/web · app#1`, or what else the call is about. */
export function subjectText(call: TimelineCall): string {
  const pod = call.sandbox.endsWith('#0') ? withoutAttempt(call.sandbox) : call.sandbox;
  return [pod, call.container, call.other].filter((part) => part !== '').join(' · ');
}

const STEPS_MS = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 15_000, 30_000, 60_000];
const LARGER_MS = [120_000, 300_000, 600_000, 900_000, 1_800_000, 3_600_000, 7_200_000, 21_600_000, 43_200_000, 86_400_000];

/** The distance between two marks of an axis that are at least so many milliseconds from each other. */
export function stepFor(leastMs: number): number {
  if (leastMs < 1) return 10 ** Math.ceil(Math.log10(leastMs));
  return [...STEPS_MS, ...LARGER_MS].find((step) => step >= leastMs) ?? Math.ceil(leastMs / 86_400_000) * 86_400_000;
}

/** What stands at a mark of an axis. */
export function markText(ms: number, stepMs: number): string {
  const text = new Date(ms).toISOString();
  if (stepMs < 1) return `${text.slice(17, 23)}${(ms % 1).toFixed(3).slice(2)}`;
  if (stepMs < 1_000) return text.slice(11, 23);
  return stepMs < 60_000 ? text.slice(11, 19) : text.slice(11, 16);
}
