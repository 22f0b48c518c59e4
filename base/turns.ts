/** One thing at a time for each key, in the order in which it was asked for. */
export class Turns {
  readonly #last = new Map<string, Promise<unknown>>();

  /** Whether something is done for the key, or waits. */
  isTaken(key: string): boolean {
    return this.#last.has(key);
  }

  async take<T>(key: string, work: () => Promise<T>): Promise<T> {
    const before = this.#last.get(key) ?? Promise.resolve();
    const mine = before.then(work, work);
    const settled = mine.then(
      () => undefined,
      () => undefined,
    );
    this.#last.set(key, settled);
    try {
      return await mine;
    } finally {
      if (this.#last.get(key) === settled) this.#last.delete(key);
    }
  }
}
