import { realpath } from 'node:fs/promises';
import { OpError } from '../../base/errors.ts';
import type { Clock } from '../../base/clock.ts';
import { RECORDING_VERSION } from '../core/recording.ts';
import { recordedTime } from './call-log.ts';
import { startDecoder, type DecodeTotals } from './decoder.ts';
import { openSplice, type Splice } from './splice.ts';

export interface TapOptions {
  /** Paths or `unix://` URLs. */
  readonly listen: string;
  readonly upstream: string;
  readonly record?: { readonly path: string; readonly maxBytes: number; readonly append: boolean } | undefined;
  readonly withSecrets?: boolean;
  readonly output?: 'none' | 'lines' | 'json';
  /** What waits for the decoder at most. */
  readonly bufferBytes?: number;
  readonly recorder: string;
  readonly clock: Clock;
  /** Gets what the tap has to say of itself. */
  readonly say?: (text: string) => void;
}

export interface Tap {
  readonly counts: Splice['counts'];
  /** Closes everything; null when nothing was decoded. */
  stop(): Promise<DecodeTotals | null>;
}

const BUFFER_BYTES = 16 * 1024 * 1024;

/** `unix:///run/x.sock` or a path → a path. Throws OpError `invalid`. */
export function socketPath(text: string): string {
  const path = text.startsWith('unix:') ? text.slice('unix:'.length).replace(/^\/\/(?=\/)/, '') : text;
  if (!path.startsWith('/'))
    throw new OpError('invalid', 'reading a socket', `"${text}" is not a unix socket`, { advice: 'write unix:///run/containerd/containerd.sock' });
  return path;
}

/**
 * Puts itself between callers and a runtime: what they say passes as it is, and what it says is decoded beside that from
 * copies, in a thread of its own, when a recording or output is wanted. Throws OpError when it cannot listen or record.
 */
export async function openTap(options: TapOptions): Promise<Tap> {
  const { clock, record, output = 'none' } = options;
  const listen = socketPath(options.listen);
  const upstream = socketPath(options.upstream);
  const same = await Promise.all([realpath(listen), realpath(upstream)])
    .then(([a, b]) => a === b)
    .catch(() => listen === upstream);
  if (same) throw new OpError('invalid', 'starting the tap', 'it would listen where it connects to', { advice: 'name two different sockets' });
  const decodes = record !== undefined || output !== 'none';
  const startedAt = recordedTime({ wallMs: clock.nowMs(), monoMs: clock.monoMs() });
  const decoder = decodes
    ? await startDecoder(
        {
          record: record ?? null,
          header: {
            type: 'recording',
            version: RECORDING_VERSION,
            recorder: options.recorder,
            startedAt,
            listen,
            upstream,
            redacted: options.withSecrets !== true,
          },
          withSecrets: options.withSecrets === true,
          output,
        },
        { bufferBytes: options.bufferBytes ?? BUFFER_BYTES, clock, say: options.say ?? (() => {}) },
      )
    : null;
  let splice: Splice;
  try {
    splice = await openSplice({ listen, upstream, onlooker: decoder });
  } catch (error) {
    await decoder?.finish();
    throw error;
  }
  return {
    counts: splice.counts,
    stop: async () => {
      await splice[Symbol.asyncDispose]();
      return (await decoder?.finish()) ?? null;
    },
  };
}
