import { Worker } from 'node:worker_threads';
import { messageOf, OpError } from '../../base/errors.ts';
import type { Clock } from '../../base/clock.ts';
import type { Side, Stamp } from '../core/connection.ts';
import type { DecodeOrder, DecodeReport } from './decode-thread.ts';
import { createRingMemory, RingWriter, type NoteKind } from './ring.ts';
import type { Onlooker } from './splice.ts';
import { threadEntry } from './threads.ts';

export interface DecodeTotals {
  readonly calls: number;
  readonly blindConnections: number;
  readonly linesLost: number;
  readonly fileBytes: number;
}

export interface Decoder extends Onlooker {
  /** The ring's words: a thread that notifies them wakes the decoder. */
  readonly ringControl: SharedArrayBuffer;
  /** Ends the thread after what it has yet to read, and says what came of it; null when it broke. */
  finish(): Promise<DecodeTotals | null>;
}

/** How long the thread sleeps on while bytes come: passing them on comes first. */
const WAKE_MS = 2;
/** The thread's own heap; messages lie outside it, under a bound of their own. */
const HEAP_MIB = 192;

/**
 * Starts the thread that decodes what `Onlooker` is shown. At most `bufferBytes` wait for it; of a connection that
 * brings more it says so, and follows it no longer. `say` gets its notes. Throws OpError when the recording cannot be made.
 */
export async function startDecoder(
  order: Omit<DecodeOrder, 'memory' | 'role'>,
  options: { bufferBytes: number; clock: Clock; say: (text: string) => void },
): Promise<Decoder> {
  const { clock, say } = options;
  const memory = createRingMemory(options.bufferBytes);
  const ring = new RingWriter(memory);
  const worker = new Worker(threadEntry(), {
    workerData: { role: 'decoder', ...order, memory } satisfies DecodeOrder,
    transferList: order.feed === null ? [] : [order.feed.port],
    resourceLimits: { maxOldGenerationSizeMb: HEAP_MIB },
  });
  let totals: DecodeTotals | null = null;
  let broken = false;
  const exited = new Promise<void>((resolve) => worker.once('exit', () => resolve()));
  await new Promise<void>((resolve, reject) => {
    worker.on('message', (report: DecodeReport) => {
      if (report.kind === 'ready') resolve();
      else if (report.kind === 'failed') reject(new OpError(report.code, report.doing, report.detail, { advice: report.advice }));
      else if (report.kind === 'note') say(report.text);
      else totals = report;
    });
    worker.on('error', (error) => {
      broken = true;
      say(`the decoder has ended, traffic goes on undecoded: ${messageOf(error)}`);
      reject(error);
    });
  });

  /** Connections of which bytes are missing; true while the thread is yet to be told. */
  const lost = new Map<number, boolean>();
  let wake: Disposable | undefined;
  const stamp = (): Stamp => ({ wallMs: clock.nowMs(), monoMs: clock.monoMs() });
  const write = (kind: NoteKind, connection: number, side: Side, at: Stamp = stamp(), bytes?: Uint8Array): void => {
    if (broken) return;
    for (const [number, untold] of lost) if (untold && ring.write('skip', number, 'client', at)) lost.set(number, false);
    const isLost = lost.has(connection);
    if (kind === 'close') lost.delete(connection);
    else if (isLost) return;
    if (!ring.write(kind, connection, side, at, bytes) && kind !== 'close') lost.set(connection, true);
    wake ??= clock.after(WAKE_MS, () => {
      wake = undefined;
      ring.wake();
    });
  };
  return {
    ringControl: memory.control,
    open: (connection, at) => write('open', connection, 'client', at),
    data: (connection, side, bytes, at) => write('data', connection, side, at, bytes),
    lost: (connection) => void lost.set(connection, true),
    end: (connection, side, at) => write('end', connection, side, at),
    close: (connection, at) => write('close', connection, 'client', at),
    finish: async () => {
      wake?.[Symbol.dispose]();
      ring.stop();
      await exited;
      return totals;
    },
  };
}
