import type { Host } from '../base/host.ts';
import { choosing, type Choice } from './core/choose-calls.ts';
import { momentOf } from './core/time-range.ts';
import { fieldsOf, summarize, summaryLine } from './core/call-line.ts';
import { IdentityBook } from './core/identity.ts';
import type { RecordedCall, RecordedEntry } from './core/recording.ts';
import { shown } from './core/shown.ts';
import { readRecording } from './io/recording-read.ts';

export interface ShowOptions extends Choice {
  /** As `momentOf` reads them. */
  readonly since?: string;
  readonly until?: string;
  readonly full: boolean;
  readonly json: boolean;
}

/** Streams with messages in records of their own that are remembered until they end. */
const MAX_OPEN = 1_000;

/** `nodelet cri show`: calls in the order in which they ended; in memory is one frame and what ids stand for. */
export async function show(host: Host, file: string, options: ShowOptions): Promise<number> {
  const wanted = choosing(options);
  const isChoosing = [options.pod, options.container, options.method, options.outcome, options.slowerThan, options.since, options.until].some(
    (said) => said !== undefined,
  );
  let shiftMs = 0;
  let sinceMs = -Infinity;
  let untilMs = Infinity;
  const book = new IdentityBook();
  const open = new Map<number, Extract<RecordedEntry, { type: 'opening' }>>();
  const print = (call: RecordedCall, note = ''): void => {
    const summary = summarize(call, book);
    const startMs = shiftMs + call.start.monoMs;
    const endMs = call.end === null ? null : shiftMs + call.end.monoMs;
    if (startMs > untilMs || (endMs ?? Infinity) < sinceMs) return;
    const hasFailed = call.status === null ? call.end !== null : call.status.code !== 0;
    if (!wanted({ ...summary, pod: summary.sandbox.replace(/#\d+$/, ''), startMs, endMs, hasFailed })) return;
    if (options.json) host.stdout(`${JSON.stringify({ ...summary, requests: call.requests, responses: call.responses })}\n`);
    else {
      host.stdout(`${summaryLine(summary)}${note}\n`);
      if (options.full)
        for (const [mark, messages] of [
          ['>', call.requests],
          ['<', call.responses],
        ] as const)
          for (const message of messages) host.stdout(`  ${mark} ${shown(JSON.stringify(fieldsOf(message)))}\n`);
    }
  };
  const words = (text: string): void => {
    if (!options.json && !isChoosing) host.stdout(`${shown(text)}\n`);
  };
  for await (const entry of readRecording(file, (bytes) => host.stderr(`nodelet cri show: the last ${bytes} bytes are cut off: its recorder was killed\n`))) {
    switch (entry.type) {
      case 'recording': {
        const startedMs = Date.parse(entry.startedAt.wall);
        shiftMs = startedMs - entry.startedAt.monoMs;
        sinceMs = options.since === undefined ? -Infinity : momentOf(options.since, startedMs);
        untilMs = options.until === undefined ? Infinity : momentOf(options.until, startedMs);
        words(`recorded by ${entry.recorder} from ${entry.startedAt.wall}, ${entry.upstream}${entry.redacted ? '' : ', with secrets'}`);
        break;
      }
      case 'connection':
        if (entry.event === 'blind') words(`${entry.at.wall.slice(11, 23)} connection ${entry.connection} is not followed from here on: ${entry.reason ?? ''}`);
        break;
      case 'opening':
        if (open.size < MAX_OPEN) open.set(entry.call, entry);
        break;
      case 'message': {
        const opening = open.get(entry.call);
        if (opening === undefined) break;
        // A piece of a stream reads as a call of its own, from the stream's start to this message.
        print({ ...opening, type: 'call', end: entry.at, responses: [entry.message], status: { code: 0, name: 'message', message: '' } });
        break;
      }
      case 'call': {
        const opening = open.get(entry.call);
        open.delete(entry.call);
        print(
          opening === undefined ? entry : { ...entry, requests: opening.requests },
          entry.responsesBefore === undefined ? '' : ` after ${entry.responsesBefore} messages`,
        );
        break;
      }
      case 'stop':
        words(
          `${entry.at.wall.slice(11, 23)} ${entry.reason === 'full' ? 'the file was full' : 'recording ended'} after ${entry.calls} calls${entry.blindConnections === 0 ? '' : `; ${entry.blindConnections} connections were not followed to their end`}`,
        );
        break;
      default:
    }
  }
  return 0;
}
