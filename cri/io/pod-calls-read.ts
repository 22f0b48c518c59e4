import type { Host } from '../../base/host.ts';
import { PodCalls, type PodCall } from '../core/pod-calls.ts';
import { readRecording } from './recording-read.ts';

/** The calls of a recording with the pods that they are about, in the order in which they ended; one frame in memory at a time. */
export async function* readPodCalls(host: Host, command: string, file: string): AsyncGenerator<PodCall> {
  const calls = new PodCalls();
  const onCut = (bytes: number): void => host.stderr(`nodelet cri ${command}: the last ${bytes} bytes of ${file} are cut off: its recorder was killed\n`);
  for await (const entry of readRecording(file, onCut)) {
    const call = calls.take(entry);
    if (call !== null) yield call;
    host.signal.throwIfAborted();
  }
  yield* calls.rest();
}
