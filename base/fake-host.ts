import type { Host } from './host.ts';

/** A program's outside world in a test: what it writes is kept. */
export class FakeHost implements Host {
  readonly args: readonly string[];
  readonly env: Host['env'] = {};
  readonly pid = 1;
  readonly signal: Host['signal'];
  readonly isTerminal = false;
  out = '';
  err = '';

  constructor(args: readonly string[] = [], signal: Host['signal'] = new AbortController().signal) {
    this.args = args;
    this.signal = signal;
  }

  readonly stdout = (text: string): void => void (this.out += text);
  readonly stderr = (text: string): void => void (this.err += text);
}
