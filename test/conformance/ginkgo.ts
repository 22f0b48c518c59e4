import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { readdir, readFile } from 'node:fs/promises';
import { StringDecoder } from 'node:string_decoder';
import { setTimeout as delay } from 'node:timers/promises';
import { constants, createGzip } from 'node:zlib';
import { OpError } from '../../base/errors.ts';
import { GinkgoOutput, type LiveEvent } from './ginkgo-output.ts';
import type { Spec } from './suites.ts';

/** How much of the log a kill of this process may cost. */
const FLUSH_MS = 20_000;
/** How long specs have to clean up after themselves when the run is stopped. */
const GRACE_MS = 60_000;

export interface GinkgoPass {
  readonly argv: readonly [string, ...string[]];
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  /** All output, compressed. */
  readonly log: string;
  readonly specs: readonly Spec[];
  readonly onEvent: (event: LiveEvent) => void;
  readonly signal: AbortSignal;
}

/**
 * Runs Ginkgo, telling what it says as it says it; resolves to its exit status. It has a process group of its own, so
 * that all its processes can be stopped; when this one is killed, its broken pipe ends it. A log that cannot be written
 * stops it, and what the system said is thrown.
 */
export async function runGinkgo(pass: GinkgoPass): Promise<number> {
  const child = spawn(pass.argv[0], pass.argv.slice(1), { cwd: pass.cwd, env: pass.env, stdio: ['ignore', 'pipe', 'pipe'], detached: true });
  const failed = new Promise<never>((_, reject) => {
    child.on('error', (cause) => reject(new OpError('not-found', `starting ${pass.argv[0]}`, cause.message, { cause })));
  });
  const closed = new Promise<number>((resolve) => {
    child.on('close', (code, signal) => resolve(code ?? (signal === 'SIGKILL' ? 137 : 143)));
  });
  const log = createGzip({ level: constants.Z_BEST_SPEED });
  const file = createWriteStream(pass.log);
  log.pipe(file);
  const flush = setInterval(() => log.flush(constants.Z_SYNC_FLUSH), FLUSH_MS);
  const reader = new GinkgoOutput(pass.specs);
  const tell = (events: readonly LiveEvent[]): void => {
    for (const event of events) pass.onEvent(event);
  };
  for (const stream of [child.stdout, child.stderr]) {
    const decoder = new StringDecoder('utf8');
    stream.on('data', (chunk: Buffer) => {
      log.write(chunk);
      tell(reader.push(decoder.write(chunk)));
    });
  }
  const stop = (): void => void end(child.pid ?? 0, closed);
  pass.signal.addEventListener('abort', stop);
  const broken: Error[] = [];
  file.on('error', (error) => {
    broken.push(error);
    stop();
  });
  try {
    const code = await Promise.race([closed, failed]);
    const [first] = broken;
    if (first !== undefined) throw first;
    tell(reader.end());
    return code;
  } finally {
    pass.signal.removeEventListener('abort', stop);
    clearInterval(flush);
    log.end();
    if (!file.closed) await once(file, 'close').catch(() => undefined);
  }
}

async function end(pid: number, closed: Promise<number>): Promise<void> {
  const group = (signal: NodeJS.Signals): void => {
    try {
      if (pid > 0) process.kill(-pid, signal);
    } catch {
      // It has ended.
    }
  };
  group('SIGINT');
  const done = await Promise.race([closed.then(() => true), delay(GRACE_MS, false, { ref: false })]);
  if (!done) group('SIGKILL');
}

/** Ends what a killed runner has left of a run: processes whose arguments name its folder. */
export async function endLeftovers(dir: string): Promise<number> {
  let ended = 0;
  for (const name of await readdir('/proc')) {
    if (!/^\d+$/.test(name) || Number(name) === process.pid) continue;
    const words = (await readFile(`/proc/${name}/cmdline`, 'utf8').catch(() => '')).split('\0');
    if (!/(^|\/)(ginkgo|[a-z0-9_]+\.test|critest)$/.test(words[0] ?? '') || !words.some((word) => word.includes(dir))) continue;
    try {
      process.kill(Number(name), 'SIGKILL');
      ended += 1;
    } catch {
      // It has ended.
    }
  }
  return ended;
}
