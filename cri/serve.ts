import { randomBytes } from 'node:crypto';
import { once } from 'node:events';
import { existsSync } from 'node:fs';
import { dirname } from 'node:path';
import type { Clock } from '../base/clock.ts';
import { OpError } from '../base/errors.ts';
import type { Host } from '../base/host.ts';
import { IdentityBook } from './core/identity.ts';
import { Playback } from './core/playback.ts';
import { summaryLine, type CallSummary } from './core/call-line.ts';
import { textAt, type Fields } from './core/playback-world.ts';
import { RpcError } from './errors.ts';
import type { FakeContainer } from './fake-state.ts';
import { ContainerLogs } from './io/container-log.ts';
import { readRecording } from './io/recording-read.ts';
import { serveRuntime } from './io/serve-grpc.ts';
import { clearSocket } from './io/splice.ts';
import { socketPath } from './io/socket-path.ts';
import { PlaybackRuntime, type Source } from './playback-runtime.ts';
import type { RuntimeCall } from './transport.ts';

export interface ServeFlags {
  readonly listen: string;
  readonly speed: number;
  readonly strict: boolean;
  readonly begin: 'start' | 'end' | 'empty';
  readonly anyImage: boolean;
  readonly logs: boolean;
  readonly quiet: boolean;
  readonly json: boolean;
}

const ID_END_BYTES = 26;

/** Reads a recording for playback. Throws OpError `invalid` for one without calls, and as `readRecording`. */
export async function readPlayback(file: string, signal: AbortSignal, onCut: (bytes: number) => void): Promise<Playback> {
  const playback = new Playback();
  for await (const entry of readRecording(file, onCut)) {
    if (signal.aborted) throw new OpError('aborted', `read the recording ${file}`, 'stopped by the caller');
    playback.take(entry);
  }
  playback.finish();
  if (playback.calls === 0) throw new OpError('invalid', `serve ${file}`, 'it has no calls', { advice: 'record with: nodelet cri record -o FILE' });
  return playback;
}

/** The nearest folder above that is here: a kubelet asks for the size of the file system it is on. */
function folderHere(recorded: string): string {
  let folder = recorded.startsWith('/') ? recorded : '/';
  while (!existsSync(folder) && folder !== '/') folder = dirname(folder);
  return folder;
}

function logLine(container: FakeContainer, file: string): string {
  const name = container.config.metadata?.name ?? '';
  const { status } = container;
  if (status.state === 'exited') return `${name} ended with ${status.exitCode}${status.reason === '' ? '' : ` (${status.reason})`}`;
  return `${name} runs only as ${file} has it: this is no process`;
}

/** Writes to the log file of each container that it starts, ends, or is rotated. */
function keepLogs(runtime: PlaybackRuntime, logs: ContainerLogs, file: string, clock: Clock): void {
  runtime.world.sinks.add({
    push: (event) => {
      const { containerId, containerEventType } = event as { containerId: string; containerEventType: string };
      const container = runtime.world.containers.get(containerId);
      if (container === undefined || !/STARTED|STOPPED/.test(containerEventType)) return;
      logs.write(container.logPath, logLine(container, file), clock.nowMs());
    },
    end: () => {},
  });
}

/** One call as `cri show` has it, with where its answer came from. */
function summary(
  call: RuntimeCall,
  number: number,
  book: IdentityBook,
  outcome: { answer: object } | { error: unknown },
  at: { startMs: number; tookMs: number },
): CallSummary {
  const request = call.request as Fields;
  if ('answer' in outcome) book.learn(call.method, request, outcome.answer as Fields);
  const { error } = outcome as { error?: unknown };
  return {
    call: number,
    connection: 0,
    stream: 0,
    service: `runtime.v1.${call.service}`,
    method: call.method,
    start: new Date(at.startMs).toISOString(),
    durationMs: Number(at.tookMs.toFixed(3)),
    ...book.subject(call.method, request),
    outcome: 'answer' in outcome ? 'OK' : error instanceof RpcError ? error.status : 'Unknown',
    message: 'answer' in outcome ? '' : error instanceof RpcError ? error.description : String(error),
  };
}

const words: Readonly<Record<Source, string>> = {
  recording: 'as recorded',
  world: '',
  fake: 'not in the recording: answered as a small runtime would',
  refused: 'refused',
};

/** `nodelet cri serve`: until it is told to end. Words about itself go to standard error, calls to standard output. */
export async function serve(host: Host, file: string, flags: ServeFlags, clock: Clock): Promise<number> {
  const say = (text: string): void => host.stderr(`nodelet cri serve: ${text}\n`);
  const listen = socketPath(flags.listen);
  const playback = await readPlayback(file, host.signal, (bytes) => say(`the last ${bytes} bytes are cut off: its recorder was killed`));
  await using runtime = new PlaybackRuntime(playback, {
    clock,
    speed: flags.speed,
    strict: flags.strict,
    begin: flags.begin,
    anyImage: flags.anyImage,
    idEnd: randomBytes(ID_END_BYTES).toString('hex'),
    imageFolder: folderHere,
  });
  const logs = new ContainerLogs(say);
  if (flags.logs) keepLogs(runtime, logs, file, clock);
  const counts: Record<Source, number> = { recording: 0, world: 0, fake: 0, refused: 0 };
  const book = new IdentityBook();
  const unknown = new Set<string>();
  let number = 0;
  runtime.onCall = (call, source, outcome, startedMs) => {
    counts[source] += 1;
    number += 1;
    if (flags.logs && call.method === 'ReopenContainerLog' && 'answer' in outcome) {
      const container = runtime.world.byId(runtime.world.containers, textAt(call.request, 'containerId'));
      if (container !== undefined) logs.write(container.logPath, '', clock.nowMs());
    }
    const tookMs = clock.monoMs() - startedMs;
    const line = summary(call, number, book, outcome, { startMs: clock.nowMs() - tookMs, tookMs });
    if (source === 'fake' && !unknown.has(call.method)) {
      unknown.add(call.method);
      if (!flags.json) say(`${call.method} ${line.sandbox.replace(/#\d+$/, '')}`.trim() + `: ${words.fake}; further ones are counted`);
    }
    if (flags.quiet) return;
    host.stdout(
      flags.json
        ? `${JSON.stringify({ ...line, source })}\n`
        : `${summaryLine(line)}${words[source] === '' ? '' : `  (${source === 'fake' ? 'not recorded' : words[source]})`}\n`,
    );
  };
  await clearSocket(listen);
  const served = await serveRuntime(runtime, listen);
  const { sandboxes, containers } = runtime.world;
  say(
    `${playback.calls} calls read; listening at ${flags.listen} with ${sandboxes.size} sandboxes, ${containers.size} containers and ${playback.images.size} images; Ctrl-C ends it`,
  );
  try {
    if (!host.signal.aborted) await once(host.signal, 'abort');
  } finally {
    await served[Symbol.asyncDispose]();
    await logs.flush();
  }
  say(
    `${number} calls: ${counts.recording} answered as recorded, ${counts.world} from what is there, ${counts.fake} not in the recording, ${counts.refused} refused`,
  );
  return 0;
}
