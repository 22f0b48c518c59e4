import { statSync } from 'node:fs';
import { constants } from 'node:os';
import { execa } from 'execa';
import { OpError } from '../errors.ts';
import { errnoError } from './errno.ts';
import { isInParts, writeParts } from './input.ts';
import type { RunRequest, RunResult } from './types.ts';

/** Collects a stream up to a limit and lets the rest pass. */
function collect(stream: NodeJS.ReadableStream, limit: number): { bytes(): Buffer; truncated(): boolean } {
  const pieces: Buffer[] = [];
  let length = 0;
  let truncated = false;
  stream.on('data', (chunk: Buffer) => {
    if (length + chunk.length > limit) truncated = true;
    const kept = chunk.subarray(0, Math.max(0, limit - length));
    length += kept.length;
    pieces.push(kept);
  });
  stream.on('error', () => {});
  return { bytes: () => Buffer.concat(pieces), truncated: () => truncated };
}

function hasEnded(signal: AbortSignal | undefined): boolean {
  return signal?.aborted === true;
}

/** What a program printed last may take so long to be read. */
const partingMs = 500;

/** `Sys.run` by execa; namespaces by nsenter(1). */
export async function runGroup(request: RunRequest, signal?: AbortSignal): Promise<RunResult> {
  const doing = `run ${request.argv[0] ?? ''}`;
  if (hasEnded(signal)) throw new OpError('aborted', doing, 'stopped by the caller', { cause: signal?.reason });
  // A missing directory and a missing program look alike later on.
  if (request.cwd !== undefined && statSync(request.cwd, { throwIfNoEntry: false }) === undefined) throw errnoError(doing, 'ENOENT', 'working directory');
  const argv = [...request.argv];
  if (request.netns !== undefined || request.mntns !== undefined) {
    argv.unshift(
      'nsenter',
      ...(request.netns === undefined ? [] : [`--net=${request.netns}`]),
      ...(request.mntns === undefined ? [] : [`--mount=${request.mntns}`]),
      '--',
    );
  }
  const child = execa(argv[0] ?? '', argv.slice(1), {
    detached: true,
    reject: false,
    buffer: false,
    extendEnv: false,
    env: request.env ?? { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin' },
    stdio: ['pipe', 'pipe', 'pipe'],
    ...(request.cwd === undefined ? {} : { cwd: request.cwd }),
  });
  const limit = request.maxOutputBytes ?? 1024 * 1024;
  const stdout = collect(child.stdout, limit);
  const stderr = collect(child.stderr, limit);
  child.stdin.on('error', () => {});
  const { stdin } = request;
  const written = isInParts(stdin) ? writeParts(stdin, child.stdin) : Promise.resolve(void child.stdin.end(stdin ?? ''));
  // Heard of below.
  written.catch(() => {});
  const killGroup = (): void => {
    if (child.pid === undefined) return;
    try {
      process.kill(-child.pid, 'SIGKILL');
    } catch {
      // All of it has ended already.
    }
  };
  let timedOut = false;
  const timer = setTimeout(() => {
    timedOut = true;
    killGroup();
  }, request.timeoutMs);
  signal?.addEventListener('abort', killGroup, { once: true });
  // Whatever it left in the background would hold its output open, and what has left the group is out of reach.
  let parting: NodeJS.Timeout | undefined;
  child.nodeChildProcess.once('exit', () => {
    killGroup();
    parting = setTimeout(() => {
      child.stdout.destroy();
      child.stderr.destroy();
    }, partingMs);
  });
  try {
    const result = await child;
    if (hasEnded(signal)) throw new OpError('aborted', doing, 'stopped by the caller', { cause: signal?.reason });
    if (child.pid === undefined) throw errnoError(doing, result.code ?? 'EIO');
    child.stdin.destroy();
    await written;
    const number = result.signal === undefined ? null : constants.signals[result.signal];
    return {
      code: number === null ? (result.exitCode ?? null) : null,
      signal: number,
      stdout: stdout.bytes(),
      stderr: stderr.bytes(),
      truncated: stdout.truncated() || stderr.truncated(),
      timedOut,
    };
  } finally {
    clearTimeout(timer);
    clearTimeout(parting);
    signal?.removeEventListener('abort', killGroup);
  }
}
