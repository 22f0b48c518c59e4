import type { ReportCall, ReportPod } from './report-calls.ts';
import { kindOf, toneOf, withoutAttempt } from './timeline.ts';

/** An event of the trace event format; times in microseconds. */
export interface TraceEvent {
  readonly name: string;
  readonly ph: 'X' | 'M';
  readonly pid: number;
  readonly tid: number;
  readonly ts?: number;
  readonly dur?: number;
  readonly cat?: string;
  readonly cname?: string;
  readonly args: Readonly<Record<string, unknown>>;
}

function threadOf(call: ReportCall, onNode: boolean): string {
  if (call.container !== '') return withoutAttempt(call.container);
  if (!onNode) return /Image/.test(call.method) ? 'images' : 'sandbox';
  return /Image/.test(call.method) ? 'images' : call.method;
}

/** Threads of a process; a call that overlaps another of its thread gets a lane of its own, because spans of a thread must nest. */
class Threads {
  readonly #lanes = new Map<string, { tid: number; freeAtMs: number }[]>();
  readonly made: { tid: number; name: string }[] = [];

  tidFor(name: string, startMs: number, endMs: number): number {
    const lanes = this.#lanes.get(name) ?? [];
    this.#lanes.set(name, lanes);
    let lane = lanes.find(({ freeAtMs }) => freeAtMs <= startMs);
    if (lane === undefined) {
      lane = { tid: this.made.length + 1, freeAtMs: 0 };
      lanes.push(lane);
      this.made.push({ tid: lane.tid, name: lanes.length === 1 ? name : `${name} (${lanes.length})` });
    }
    lane.freeAtMs = endMs;
    return lane.tid;
  }
}

/**
 * Events of one pod (a process; its sandbox and containers are threads), or of the node.
 *
 * @param zeroMs what times are counted from
 * @param lastMs where calls end that were open
 */
export function* traceEvents({ pod, calls }: ReportPod, pid: number, zeroMs: number, lastMs: number): Generator<TraceEvent> {
  const micros = (ms: number): number => Math.round((ms - zeroMs) * 1000);
  yield { name: 'process_name', ph: 'M', pid, tid: 0, args: { name: pod?.key ?? 'node' } };
  yield { name: 'process_sort_index', ph: 'M', pid, tid: 0, args: { sort_index: pid } };
  if (pod !== null && pod.uid !== '') yield { name: 'process_labels', ph: 'M', pid, tid: 0, args: { labels: pod.uid } };
  const threads = new Threads();
  for (const call of calls) {
    const endMs = call.endMs ?? Math.max(lastMs, call.startMs);
    const tid = threads.tidFor(threadOf(call, pod === null), call.startMs, endMs);
    const { method, container, detail, other, outcome, message, service } = call;
    const tone = toneOf({ ...call, id: 0, sandbox: '', connection: 0, sizeBytes: 0, answers: 0 });
    yield {
      name: method,
      ph: 'X',
      pid,
      tid,
      ts: micros(call.startMs),
      dur: Math.max(0, micros(endMs) - micros(call.startMs)),
      cat: kindOf(method),
      ...(tone === 'failed' ? { cname: 'terrible' } : {}),
      args: {
        outcome,
        ...(message === '' ? {} : { message }),
        ...(container === '' ? {} : { container }),
        ...(detail === '' ? {} : { detail }),
        ...(other === '' || other === detail ? {} : { about: other }),
        service,
      },
    };
  }
  for (const { tid, name } of threads.made) {
    yield { name: 'thread_name', ph: 'M', pid, tid, args: { name } };
    yield { name: 'thread_sort_index', ph: 'M', pid, tid, args: { sort_index: tid } };
  }
}
