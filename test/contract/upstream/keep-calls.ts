import { PodCalls } from '../../../cri/core/pod-calls.ts';
import { redact, type RecordedMessage } from '../../../cri/core/recording.ts';
import { readRecording } from '../../../cri/io/recording-read.ts';
import { RecordingWriter } from '../../../cri/io/recording-write.ts';
import { IMAGE, NAMESPACE } from './pods.ts';

const MAX_BYTES = 64 * 1024 ** 2;

/** A message as a recording without secrets has it. */
function withoutSecrets(messages: readonly RecordedMessage[]): RecordedMessage[] {
  return messages.map((message) => {
    const { sizeBytes } = message;
    return 'fields' in message ? { fields: redact(message.fields), sizeBytes } : { sizeBytes, withheld: true };
  });
}

/** Writes the part of a recording that is about the six pods and their image, without secrets; gives the number of calls. */
export async function keepCalls(from: string, to: string): Promise<number> {
  const calls = new PodCalls();
  using writer = new RecordingWriter(to, { maxBytes: MAX_BYTES, append: false });
  let kept = 0;
  for await (const entry of readRecording(from)) {
    if (entry.type === 'recording') writer.add({ ...entry, redacted: true });
    if (entry.type === 'stop') writer.add({ ...entry, calls: kept });
    const call = calls.take(entry);
    if (call === null || entry.type !== 'call') continue;
    const wanted = call.pod === null ? call.other === IMAGE : call.pod.namespace === NAMESPACE;
    if (!wanted) continue;
    kept += 1;
    const { requestMetadata: _metadata, trailers: _trailers, ...rest } = entry;
    writer.add({ ...rest, requests: withoutSecrets(entry.requests), responses: withoutSecrets(entry.responses) });
  }
  return kept;
}
