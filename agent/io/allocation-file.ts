import { readFile } from 'node:fs/promises';
import { replaceFile } from '../../base/replace-file.ts';
import { decodeCheckpoint, encodeCheckpoint } from '../core/resize/checkpoint.ts';
import type { PodAllocation } from '../core/resize/allocation.ts';
import { StateFile } from './state-file.ts';

/** A small text that outlives the process. */
export interface TextFile {
  /** Empty when there is none yet. */
  read(): Promise<string>;
  /** All of it or nothing; resolves when it would survive the machine. */
  write(text: string): Promise<void>;
}

/** A file on the node's own disk. */
export function textFile(path: string): TextFile {
  return {
    async read() {
      try {
        return await readFile(path, 'utf8');
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code === 'ENOENT') return '';
        throw error;
      }
    },
    write: (text) => replaceFile(path, text),
  };
}

/** Allocations by pod UID, in memory and in a checkpoint. Changes count at once; who acts on one waits for `saved`. */
export class AllocationFile {
  readonly #pods: Map<string, PodAllocation>;
  readonly #file: StateFile;

  private constructor(file: TextFile, pods: Map<string, PodAllocation>, text: string) {
    this.#pods = pods;
    this.#file = new StateFile(file, () => encodeCheckpoint(pods), text);
  }

  /** Throws OpError `invalid` when the checkpoint is damaged: what pods were given cannot be guessed. */
  static async open(file: TextFile, name: string): Promise<AllocationFile> {
    const text = await file.read();
    return new AllocationFile(file, decodeCheckpoint(text, name), text);
  }

  get(uid: string): PodAllocation | undefined {
    return this.#pods.get(uid);
  }

  set(uid: string, allocation: PodAllocation): void {
    this.#pods.set(uid, allocation);
    this.#file.touch();
  }

  /** Written with the next change: a record too many does no harm. */
  delete(uid: string): void {
    this.#pods.delete(uid);
  }

  /** Forgets pods that nobody knows. */
  retain(isKnown: (uid: string) => boolean): void {
    for (const uid of this.#pods.keys()) if (!isKnown(uid)) this.#pods.delete(uid);
  }

  /** Resolves when every change up to now is on disk; rejects when it cannot be written. */
  async saved(): Promise<void> {
    await this.#file.saved();
  }
}
