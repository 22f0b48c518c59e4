import { mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { createServer } from 'node:net';
import { join } from 'node:path';
import { OpError } from '../../base/errors.ts';
import { replaceFile } from '../../base/replace-file.ts';
import type { Clock } from '../../base/clock.ts';
import { isAlive, processOf, type ProcessName } from './processes.ts';

const SUFFIX = '.attach';

/** What `detach` and the next `attach` must know of one that stands, or stood, at a runtime's socket. */
export interface AttachState {
  readonly version: 1;
  readonly key: string;
  readonly process: ProcessName;
  readonly guard: number;
  /** The socket's folder as this process reaches it, and its name there. */
  readonly folder: string;
  readonly name: string;
  /** For a person: the path as the node sees it, and which node. */
  readonly socket: string;
  readonly place: string;
  readonly control: string;
  /** Where its words are when nobody hears them; of no use once it was killed and all is back. */
  readonly log?: string | undefined;
  /** RFC 3339. */
  readonly since: string;
  /** Whether the tap stands in its place and the kubelet was told. */
  readonly settled: boolean;
}

export function statePath(registry: string, key: string): string {
  return join(registry, key + SUFFIX);
}

export async function writeState(registry: string, state: AttachState): Promise<void> {
  await mkdir(registry, { recursive: true, mode: 0o755 });
  await replaceFile(statePath(registry, state.key), `${JSON.stringify(state)}\n`, 0o644);
}

export async function readState(registry: string, key: string): Promise<AttachState | null> {
  try {
    const state = JSON.parse(await readFile(statePath(registry, key), 'utf8')) as AttachState;
    return state.version === 1 ? state : null;
  } catch {
    return null;
  }
}

export async function removeState(registry: string, key: string): Promise<void> {
  await rm(statePath(registry, key), { force: true });
}

/** All that stand, and those that were killed and left something. */
export async function attachStates(registry: string): Promise<{ state: AttachState; alive: boolean }[]> {
  const names = (await readdir(registry).catch(() => [] as string[])).filter((name) => name.endsWith(SUFFIX)).toSorted();
  const found: { state: AttachState; alive: boolean }[] = [];
  for (const name of names) {
    const state = await readState(registry, name.slice(0, -SUFFIX.length));
    if (state !== null) found.push({ state, alive: await isAlive(state.process) });
  }
  return found;
}

/**
 * One tap at a time at one socket: a name that the kernel gives to one process and takes back when that dies.
 * Throws OpError `conflict` with who has it.
 */
export async function claim(registry: string, key: string, socket: string): Promise<AsyncDisposable> {
  const server = createServer((connection) => connection.destroy());
  const taken = async (cause: unknown): Promise<OpError> => {
    const state = await readState(registry, key);
    const who = state === null ? 'another process' : `process ${state.process.pid} (since ${state.since})`;
    return new OpError('conflict', `attaching to ${socket}`, `${who} is attached there already`, {
      cause,
      advice: 'look through that one (nodelet cri watch), or end it: nodelet cri detach',
    });
  };
  await new Promise<void>((resolve, reject) => {
    server.once('error', (cause: NodeJS.ErrnoException) => {
      if (cause.code !== 'EADDRINUSE') reject(new OpError('failed', `attaching to ${socket}`, cause.message, { cause }));
      else void taken(cause).then(reject);
    });
    server.listen({ path: `\0nodelet-cri-attach/${key}` }, resolve);
  });
  const dispose = (): Promise<void> => new Promise((resolve) => void server.close(() => resolve()));
  const before = await readState(registry, key);
  if (before === null || !(await isAlive(before.process))) return { [Symbol.asyncDispose]: dispose };
  // It lives in another network namespace, where the name is another one.
  await dispose();
  throw await taken(undefined);
}

const GUARD_TRIES = 40;
const GUARD_LOOK_MS = 50;

/** Waits for the guard of a process that was killed: it may be putting things back this moment. Two seconds at most. */
export async function untilGuardDone(registry: string, state: AttachState, options: { clock: Clock; signal: AbortSignal }): Promise<void> {
  for (let tries = 0; tries < GUARD_TRIES && (await processOf(state.guard)) !== null; tries++) {
    if ((await readState(registry, state.key))?.since !== state.since) return;
    await options.clock.sleep(GUARD_LOOK_MS, options.signal);
  }
}
