import { constants, createReadStream, createWriteStream } from 'node:fs';
import { pipeline } from 'node:stream/promises';
import { createGzip } from 'node:zlib';
import type { Clock } from '../../base/clock.ts';
import { hasCode, messageOf, OpError } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import { errnoError } from '../../base/sys/errno.ts';
import type { FileOp, FileOpResult, Sys } from '../../base/sys/types.ts';
import { logsOf, planRotation, splitLogPath } from '../core/logs-rotate.ts';
import type { PodFacts } from '../core/types.ts';
import { isNotFound } from './cri.ts';
import type { Cri } from './cri.ts';

export interface LogRotationOptions {
  readonly cri: { readonly runtime: Pick<Cri['runtime'], 'containerStatus' | 'reopenContainerLog'> };
  readonly sys: Sys;
  readonly clock: Clock;
  readonly log: Log;
  readonly podLogsDir: string;
  /** containerLogMaxSize; negative: never rotated. */
  readonly maxBytes: number;
  /** containerLogMaxFiles, at least 2. */
  readonly maxFiles: number;
  /** containerLogMonitorInterval. */
  readonly periodMs: number;
  /** containerLogMaxWorkers: how many are looked at at once. */
  readonly workers?: number;
  readonly facts: () => readonly PodFacts[];
  /** Compresses one file of a log directory to another; the real one streams. */
  readonly compress?: (from: string, to: string, mode: number, signal: AbortSignal) => Promise<void>;
}

const timeoutMs = 30_000;

/** Keeps the logs of running containers within their size: looks at all of them each period, as many at once as there are workers. */
export class LogRotation {
  readonly #options: LogRotationOptions;
  /** A container's log path never changes: it is asked for once. */
  readonly #paths = new Map<string, string>();

  constructor(options: LogRotationOptions) {
    this.#options = options;
  }

  /** Runs until `signal` is aborted. */
  async run(signal: AbortSignal): Promise<void> {
    if (this.#options.maxBytes < 0) return;
    try {
      for (;;) {
        await this.#options.clock.sleep(this.#options.periodMs, signal);
        await this.pass(signal);
      }
    } catch (error) {
      if (!signal.aborted) throw error;
    }
  }

  /** One look at all running containers. */
  async pass(signal: AbortSignal): Promise<void> {
    const running = this.#options.facts().flatMap((pod) => pod.containers.filter((container) => container.state === 'running'));
    const ids = new Set(running.map((container) => container.id));
    for (const id of this.#paths.keys()) if (!ids.has(id)) this.#paths.delete(id);
    const open = running[Symbol.iterator]();
    const work = async (): Promise<void> => {
      for (const { id, logPath } of open) {
        if (signal.aborted) return;
        try {
          await this.#look(id, logPath, signal);
        } catch (error) {
          if (hasCode(error, 'aborted')) throw error;
          if (!isNotFound(error)) this.#options.log.warn('Failed to rotate log for container', { containerID: id, err: messageOf(error) });
        }
      }
    };
    await Promise.all(Array.from({ length: Math.max(1, this.#options.workers ?? 1) }, work));
  }

  /** Removes the logs of a container, the rotated ones too. */
  async remove(logPath: string): Promise<void> {
    const place = splitLogPath(this.#options.podLogsDir, logPath);
    if (place === null) return;
    const listed = await this.#try({ op: 'list', path: place.dir });
    const names = logsOf(listed.names ?? [], place.name);
    if (names.length > 0) await this.#must(names.map((name) => ({ op: 'unlink', path: `${place.dir}/${name}` })));
  }

  async #look(id: string, knownPath: string, signal: AbortSignal): Promise<void> {
    const { cri, log, maxBytes, podLogsDir } = this.#options;
    let path = knownPath === '' ? this.#paths.get(id) : knownPath;
    if (path === undefined) {
      path = (await cri.runtime.containerStatus({ containerId: id }, { timeoutMs, signal })).status?.logPath ?? '';
      this.#paths.set(id, path);
    }
    const place = splitLogPath(podLogsDir, path);
    if (place === null) return;
    let found = await this.#try({ op: 'stat', path: `${place.dir}/${place.name}` });
    if (found.errno === 'ENOENT') {
      log.info('Container log does not exist, the runtime is told to open it again', { containerID: id, path });
      await cri.runtime.reopenContainerLog({ containerId: id }, { timeoutMs, signal });
      found = await this.#try({ op: 'stat', path: `${place.dir}/${place.name}` });
    }
    if (found.errno !== '') throw errnoError('look at a container log', found.errno, path);
    if (found.stat?.type === 'file' && found.stat.size >= maxBytes) await this.#rotate(id, place, found.stat.mode, signal);
  }

  async #rotate(id: string, place: { dir: string; name: string }, mode: number, signal: AbortSignal): Promise<void> {
    const { clock, cri, maxFiles, podLogsDir } = this.#options;
    const listed = await this.#try({ op: 'list', path: place.dir });
    const plan = planRotation(listed.names ?? [], place.name, maxFiles, clock.nowMs());
    const at = (name: string): string => `${place.dir}/${name}`;
    await this.#must(plan.unlink.map((name) => ({ op: 'unlink', path: at(name) })));
    const compress = this.#options.compress ?? gzipFile;
    for (const name of plan.compress) {
      await compress(`${podLogsDir}/${at(name)}`, `${podLogsDir}/${at(name)}.tmp`, mode, signal);
      await this.#must([
        { op: 'rename', path: at(`${name}.tmp`), to: at(`${name}.gz`) },
        { op: 'unlink', path: at(name) },
      ]);
    }
    await this.#must([{ op: 'rename', path: at(place.name), to: at(plan.rotated) }]);
    try {
      await cri.runtime.reopenContainerLog({ containerId: id }, { timeoutMs, signal });
    } catch (error) {
      // The runtime writes on into the renamed file: it gets its name back.
      await this.#must([{ op: 'rename', path: at(plan.rotated), to: at(place.name) }]);
      throw error;
    }
  }

  async #try(op: FileOp): Promise<FileOpResult> {
    const [result] = await this.#options.sys.fileOps({ root: this.#options.podLogsDir, ops: [op], timeoutMs });
    return result ?? { errno: 'EIO' };
  }

  async #must(ops: readonly FileOp[]): Promise<void> {
    if (ops.length === 0) return;
    const results = await this.#options.sys.fileOps({ root: this.#options.podLogsDir, ops, timeoutMs });
    const last = results.at(-1);
    if (results.length < ops.length || last?.errno !== '')
      throw errnoError(`${ops[results.length - 1]?.op ?? 'change'} a container log`, last?.errno ?? 'EIO', ops[results.length - 1]?.path ?? '');
  }
}

/** Compresses in small pieces on the pool, so that the loop never waits for a whole log. */
export async function gzipFile(from: string, to: string, mode: number, signal: AbortSignal): Promise<void> {
  try {
    // Pods may write where logs are: what they put there is not followed.
    const flags = (of: number) => ({ flags: of | constants.O_NOFOLLOW | constants.O_NONBLOCK }) as unknown as { flags: string };
    const read = createReadStream(from, flags(constants.O_RDONLY));
    const write = createWriteStream(to, { mode: mode & 0o777, ...flags(constants.O_WRONLY | constants.O_CREAT | constants.O_TRUNC) });
    await pipeline(read, createGzip(), write, { signal });
  } catch (cause) {
    if (signal.aborted) throw new OpError('aborted', 'compress a log', 'stopped by the caller', { cause });
    throw new OpError('failed', 'compress a log', messageOf(cause), { cause });
  }
}
