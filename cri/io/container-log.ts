import { appendFile, mkdir } from 'node:fs/promises';
import { dirname } from 'node:path';
import { messageOf } from '../../base/errors.ts';

/** RFC 3339 with nanoseconds, as runtimes write in log files. */
function logTime(wallMs: number): string {
  const text = new Date(wallMs).toISOString();
  return `${text.slice(0, -1)}000000Z`;
}

/**
 * Log files in the CRI's format, one line of text at a time, each file opened for its line alone: a rotated file is left
 * by itself. What cannot be written is told once.
 */
export class ContainerLogs {
  readonly #say: (text: string) => void;
  #last: Promise<void> = Promise.resolve();
  #failed = false;

  constructor(say: (text: string) => void) {
    this.#say = say;
  }

  /** Writes a line; an empty one only makes the file. */
  write(path: string, text: string, wallMs: number): void {
    if (path === '') return;
    this.#last = this.#last.then(() => this.#append(path, text === '' ? '' : `${logTime(wallMs)} stdout F ${text}\n`));
  }

  async #append(path: string, line: string): Promise<void> {
    try {
      await mkdir(dirname(path), { recursive: true });
      await appendFile(path, line, { mode: 0o640 });
    } catch (error) {
      if (!this.#failed) this.#say(`container logs cannot be written: ${messageOf(error)}`);
      this.#failed = true;
    }
  }

  /** Resolves when all is written. */
  async flush(): Promise<void> {
    await this.#last;
  }
}
