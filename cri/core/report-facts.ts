import { ReportCalls, startedInMs, type FailureRow, type MethodRow, type ReportPod } from './report-calls.ts';
import type { PodCall } from './pod-calls.ts';
import type { RecordedEntry } from './recording.ts';

export interface RecordingFacts {
  readonly recorder: string;
  readonly startedAt: string;
  readonly listen: string;
  readonly upstream: string;
}

/** All that a report tells. */
export interface ReportFacts {
  /** The file's. */
  readonly name: string;
  readonly recordings: readonly RecordingFacts[];
  readonly calls: number;
  readonly failed: number;
  /** Milliseconds since 1970; both 0 when there are no calls. */
  readonly firstMs: number;
  readonly lastMs: number;
  readonly methods: readonly MethodRow[];
  readonly failures: readonly FailureRow[];
  readonly pods: readonly ReportPod[];
  /** What is missing, and why. */
  readonly notes: readonly string[];
}

/** Gathers a report from a recording's entries and the calls that they make. */
export class ReportMaker {
  readonly #calls = new ReportCalls();
  readonly #recordings: RecordingFacts[] = [];
  readonly #notes: string[] = [];

  entry(entry: RecordedEntry): void {
    if (entry.type === 'recording') {
      const { recorder, listen, upstream } = entry;
      this.#recordings.push({ recorder, startedAt: entry.startedAt.wall, listen, upstream });
    } else if (entry.type === 'stop') {
      if (entry.reason === 'full') this.#notes.push('The recording was full before it was ended.');
      if (entry.blindConnections > 0) this.#notes.push(`${entry.blindConnections} connections were not followed to their end: calls are missing.`);
    }
  }

  call(call: PodCall): void {
    this.#calls.take(call);
  }

  /** @param cutBytes how much of the file's end cannot be read */
  facts(name: string, cutBytes: number): ReportFacts {
    const { calls, failed, firstMs, lastMs, methods, failures, pods, left } = this.#calls;
    return {
      name,
      recordings: this.#recordings,
      calls,
      failed,
      firstMs: calls === 0 ? 0 : firstMs,
      lastMs: calls === 0 ? 0 : lastMs,
      methods,
      failures,
      pods,
      notes: [
        ...this.#notes,
        ...(cutBytes > 0 ? [`The last ${cutBytes} bytes of the file are cut off: its recorder was killed.`] : []),
        ...(left > 0 ? [`${left} calls are counted and not told one by one.`] : []),
      ],
    };
  }
}

/** A report as one object, for programs. */
export function summaryOf(facts: ReportFacts): object {
  const { pods, firstMs, lastMs, ...rest } = facts;
  return {
    ...rest,
    first: new Date(firstMs).toISOString(),
    lastsMs: rounded(lastMs - firstMs),
    methods: facts.methods.map((row) => ({
      ...row,
      p50Ms: rounded(row.p50Ms),
      p99Ms: rounded(row.p99Ms),
      longestMs: rounded(row.longestMs),
      totalMs: rounded(row.totalMs),
    })),
    failures: facts.failures.map(({ startMs, ...row }) => ({ ...row, first: new Date(startMs).toISOString() })),
    pods: pods.flatMap((each) => {
      const { pod, calls, failed } = each;
      if (pod === null) return [];
      const started = startedInMs(each);
      const containers = [...new Set(calls.flatMap(({ container }) => (container === '' ? [] : [container])))];
      return [
        {
          namespace: pod.namespace,
          name: pod.name,
          uid: pod.uid,
          calls: calls.length,
          failed,
          first: new Date(calls[0]?.startMs ?? 0).toISOString(),
          startedInMs: started === null ? null : rounded(started),
          containers,
        },
      ];
    }),
  };
}

function rounded(ms: number): number {
  return Math.round(ms * 1000) / 1000;
}
