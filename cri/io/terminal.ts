import { on } from 'node:events';
import type { ReadStream } from 'node:tty';
import { drained } from './drained.ts';
import type { TerminalSize } from './exec-stream.ts';

/** Whether somebody types: standard input is a terminal. */
export function isTyped(): boolean {
  return process.stdin.isTTY === true;
}

/** Lets keys pass as they are, Ctrl-C too, until disposed. Nothing when standard input is no terminal. */
export function rawInput(): Disposable {
  const input: Partial<ReadStream> = process.stdin;
  if (input.isTTY !== true) return { [Symbol.dispose]: () => {} };
  process.stdin.setRawMode(true);
  return { [Symbol.dispose]: () => void process.stdin.setRawMode(false) };
}

/** The size of the terminal at standard output now and whenever it changes; nothing when it is none. */
export async function* terminalSizes(signal: AbortSignal): AsyncGenerator<TerminalSize> {
  const size = (): TerminalSize => ({ columns: process.stdout.columns, rows: process.stdout.rows });
  if (process.stdout.isTTY !== true) return;
  yield size();
  try {
    for await (const _ of on(process.stdout, 'resize', { signal })) yield size();
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}

/** Writes to a standard stream, and waits until it has room for more. */
export async function pour(stream: NodeJS.WriteStream, bytes: Uint8Array): Promise<void> {
  if (!stream.destroyed && !stream.write(bytes)) await drained(stream);
}
