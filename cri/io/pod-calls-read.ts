import type { Host } from '../../base/host.ts';
import { PodCalls, type PodCall } from '../core/pod-calls.ts';
import type { RecordedEntry } from '../core/recording.ts';
import { readRecording } from './recording-read.ts';

/** A person is told how far it is each time so many calls were read. */
const TOLD_CALLS = 20_000;

/** What is wanted of a recording beside its calls. */
export interface PodCallsReading {
  /** Each entry, before the call that it makes. */
  readonly entry?: (entry: RecordedEntry) => void;
  /** The end of the file cannot be read; without it, that is told on standard error. */
  readonly cut?: (bytes: number) => void;
}

/** The calls of a recording with the pods that they are about, in the order in which they ended; one frame in memory at a time. */
export async function* readPodCalls(host: Host, command: string, file: string, reading: PodCallsReading = {}): AsyncGenerator<PodCall> {
  const calls = new PodCalls();
  const cut = reading.cut ?? ((bytes) => host.stderr(`nodelet cri ${command}: the last ${bytes} bytes of ${file} are cut off: its recorder was killed\n`));
  let count = 0;
  for await (const entry of readRecording(file, cut)) {
    host.signal.throwIfAborted();
    reading.entry?.(entry);
    const call = calls.take(entry);
    if (call === null) continue;
    yield call;
    count += 1;
    if (host.isTerminal && count % TOLD_CALLS === 0) host.stderr(`\r${file}: ${count} calls`);
  }
  yield* calls.rest();
  if (count >= TOLD_CALLS && host.isTerminal) host.stderr('\r\u001b[K');
}
