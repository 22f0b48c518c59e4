import { dirname } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import { tryDurationMs } from '../../base/duration.ts';
import { hasCode, OpError } from '../../base/errors.ts';
import type { Host } from '../../base/host.ts';
import type { Container } from '../../proto/cri/types.ts';
import { microsOf } from '../core/log-lines.ts';
import { containerItems, findNamed } from '../core/named.ts';
import { connectEndpoints, type RuntimeConnection } from '../io/endpoint.ts';
import { readLog } from '../io/log-read.ts';
import { pour } from '../io/terminal.ts';
import { callOptions } from './list-run.ts';
import type { RuntimeFlags } from './runtime-options.ts';

export interface LogsFlags extends RuntimeFlags {
  readonly follow: boolean;
  readonly tail?: number;
  readonly previous: boolean;
  readonly since?: string;
  readonly timestamps: boolean;
  readonly limitBytes?: number;
  readonly stream: string;
}

const STREAMS = { all: 'All', stdout: 'Stdout', stderr: 'Stderr' } as const;
/** How often the runtime is asked whether the container goes on. */
const ASK_MS = 1_000;

function sinceMicros(text: string | undefined, clock: Clock): number | null {
  if (text === undefined) return null;
  const agoMs = tryDurationMs(text);
  if (agoMs !== null) return (clock.nowMs() - agoMs) * 1000;
  const micros = microsOf(text);
  if (!Number.isNaN(micros)) return micros;
  throw new OpError('invalid', 'reading --since', `"${text}" is no time`, { advice: 'write 10m, or 2026-01-31T12:00:00Z' });
}

/** The attempt before: of the same pod and name, with the next lower number. */
function before(containers: readonly Container[], id: string): string {
  const own = containers.find((each) => each.id === id);
  const uid = 'io.kubernetes.pod.uid';
  const isSame = (each: Container): boolean =>
    each.metadata?.name === own?.metadata?.name &&
    (own?.labels[uid] === undefined ? each.podSandboxId === own?.podSandboxId : each.labels[uid] === own.labels[uid]);
  const attempt = own?.metadata?.attempt ?? 0;
  const earlier = containers
    .filter((each) => isSame(each) && (each.metadata?.attempt ?? 0) < attempt)
    .toSorted((a, b) => (b.metadata?.attempt ?? 0) - (a.metadata?.attempt ?? 0))[0];
  if (earlier === undefined) throw new OpError('not-found', 'looking for the attempt before', `${own?.metadata?.name ?? id} #${attempt} has none`);
  return earlier.id;
}

/** Asks every second whether the container still runs. */
function watchRunning(
  host: Host,
  clock: Clock,
  runtime: RuntimeConnection,
  containerId: string,
  flags: LogsFlags,
): Disposable & { readonly isRunning: () => boolean } {
  let running = true;
  let timer: Disposable | undefined;
  let over = false;
  const ask = async (): Promise<void> => {
    try {
      const { status } = await runtime.client.runtime.containerStatus({ containerId }, callOptions(host, flags));
      running = status?.state === 'CONTAINER_RUNNING' || status?.state === 'CONTAINER_CREATED';
    } catch (error) {
      // While the runtime is away, the container goes on.
      if (hasCode(error, 'not-found')) running = false;
    }
    if (running && !over) timer = clock.after(ASK_MS, () => void ask());
  };
  void ask();
  return {
    isRunning: () => running,
    [Symbol.dispose]: () => {
      over = true;
      timer?.[Symbol.dispose]();
    },
  };
}

/** `nodelet cri logs`. */
export async function logs(host: Host, clock: Clock, word: string, flags: LogsFlags): Promise<number> {
  if (flags.json) throw new OpError('invalid', 'logs', 'a log is text, not JSON', { advice: 'leave --json away' });
  if (!Object.hasOwn(STREAMS, flags.stream))
    throw new OpError('invalid', 'logs', `there is no stream "${flags.stream}"`, { advice: 'use stdout, stderr or all' });
  const since = sinceMicros(flags.since, clock);
  await using runtime = await connectEndpoints(flags, host.env);
  const { containers } = await runtime.client.runtime.listContainers({}, callOptions(host, flags));
  const found = findNamed(containerItems(containers, true), word, 'looking for a container').id;
  const containerId = flags.previous ? before(containers, found) : found;
  const { status } = await runtime.client.runtime.containerStatus({ containerId }, callOptions(host, flags));
  const path = status?.logPath ?? '';
  if (path === '') throw new OpError('unsupported', 'logs', 'the runtime keeps no log of this container');
  using watched = watchRunning(host, clock, runtime, containerId, flags);
  try {
    await readLog(
      {
        clock,
        path,
        // A pod may write into its own folder: a link that it planted there is not followed.
        root: dirname(path),
        follow: flags.follow,
        tailLines: flags.tail ?? null,
        limitBytes: flags.limitBytes ?? null,
        sinceMicros: since,
        timestamps: flags.timestamps,
        stream: STREAMS[flags.stream as keyof typeof STREAMS],
        isRunning: watched.isRunning,
      },
      (piece) => pour(process.stdout, piece),
      host.signal,
    );
  } catch (error) {
    if (!hasCode(error, 'not-found')) throw error;
    throw new OpError('not-found', 'logs', `${path} is not on this machine`, {
      cause: error,
      advice: 'run it where the runtime runs, or after it was rotated away',
    });
  }
  return 0;
}
