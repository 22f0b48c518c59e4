/** A terminal's whole window, drawn anew each time; what stood there before is back when it is disposed. */
export class Screen implements Disposable {
  readonly #write: (text: string) => void;
  #last = '';

  constructor(write: (text: string) => void) {
    this.#write = write;
    write('\u001b[?1049h\u001b[?25l\u001b[H\u001b[2J');
  }

  get columns(): number {
    return process.stdout.columns || 80;
  }

  get rows(): number {
    return process.stdout.rows || 24;
  }

  draw(lines: readonly string[]): void {
    const text = `\u001b[H${lines.map((line) => `${line}\u001b[K`).join('\r\n')}\u001b[J`;
    if (text === this.#last) return;
    this.#last = text;
    this.#write(text);
  }

  [Symbol.dispose](): void {
    this.#write('\u001b[?25h\u001b[?1049l');
  }
}
