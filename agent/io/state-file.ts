import type { TextFile } from './allocation-file.ts';

/** A text on disk that follows what is in memory: many changes while a write is under way cost one more write. */
export class StateFile {
  readonly #file: TextFile;
  readonly #text: () => string;
  #version = 0;
  #savedVersion = 0;
  #savedText: string;
  #writing: Promise<void> | null = null;

  /** `text` is what is to stand there now, `saved` what does. */
  constructor(file: TextFile, text: () => string, saved = '') {
    this.#file = file;
    this.#text = text;
    this.#savedText = saved;
  }

  /** Something in memory has changed. */
  touch(): void {
    this.#version += 1;
  }

  /** Resolves when every change up to now is on disk; rejects when it cannot be written. */
  async saved(): Promise<void> {
    const version = this.#version;
    while (this.#savedVersion < version) await (this.#writing ??= this.#write().finally(() => (this.#writing = null)));
  }

  /** Resolves when all that was in memory at the call is on disk; rejects when it cannot be written. */
  async save(): Promise<void> {
    this.touch();
    await this.saved();
  }

  /** Resolves when no write is under way; never rejects. */
  async settled(): Promise<void> {
    while (this.#writing !== null) await this.#writing.catch(() => undefined);
  }

  async #write(): Promise<void> {
    const version = this.#version;
    const text = this.#text();
    if (text !== this.#savedText) await this.#file.write(text);
    this.#savedText = text;
    this.#savedVersion = version;
  }
}
