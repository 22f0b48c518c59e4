import { reasonOf, resultOf, round, type Outcome } from './ginkgo-report.ts';
import type { Spec } from './suites.ts';

/** What Ginkgo's verbose output says, as it comes: its reports are written at the end only, and a killed run has none. */
export type LiveEvent =
  | { readonly kind: 'specs'; readonly count: number }
  | { readonly kind: 'spec'; readonly outcome: Outcome; readonly output: string }
  /** One that ended without a result: interrupted, aborted, or of a name that the list does not have. */
  | { readonly kind: 'other'; readonly name: string; readonly state: string; readonly output: string }
  /** A node of the suite itself, such as `SynchronizedBeforeSuite`. */
  | { readonly kind: 'suite'; readonly node: string; readonly failed: boolean; readonly reason: string; readonly output: string };

const DELIMITER = '-'.repeat(30);
const HEADER = /^(?:([•↺SP])|\[(\w+)\])(?: PASSED)?(?: \[([A-Z!]+)\])?(?: DURING REPETITION #\d+)? \[(\d+(?:\.\d+)?) seconds\]$/;
/** Where in a spec it failed is written between its texts. */
const NODE = /(^TOP-LEVEL)? ?\[(?:It|BeforeEach|AfterEach|JustBeforeEach|JustAfterEach|BeforeAll|AfterAll|DeferCleanup(?: \([A-Za-z]+\))?)\](?= |$)/;
/** A message may hold whole objects; what failed stands behind them. */
const MESSAGE_LINES = 5_000;
/** Of a longer output the beginning and the end are kept. */
const HEAD_CHARACTERS = 100_000;
const TAIL_CHARACTERS = 300_000;

/** Lines of one block, bounded. */
class Block {
  private readonly head: string[] = [];
  private headSize = 0;
  private tail: string[] = [];
  private tailSize = 0;
  private dropped = 0;
  header: RegExpExecArray | null = null;
  title: string | null = null;
  private readonly message: string[] = [];
  private inMessage = false;

  add(line: string): void {
    const header = HEADER.exec(line);
    if (header !== null) {
      this.header = header;
      this.message.length = 0;
      this.inMessage = false;
    } else if (this.title === null && line !== '' && !line.startsWith(' ') && !/^[SP]+$/.test(line)) this.title = line;
    this.readMessage(line);
    if (this.headSize < HEAD_CHARACTERS) {
      this.head.push(line);
      this.headSize += line.length + 1;
      return;
    }
    this.tail.push(line);
    this.tailSize += line.length + 1;
    if (this.tailSize > 2 * TAIL_CHARACTERS) this.shorten();
  }

  /** The message stands last, after `[FAILED]` (or another state), down to the line that says where. */
  private readMessage(line: string): void {
    const [, state, text = ''] = /^ {2}\[([A-Z!]+)\] (.*)$/.exec(line) ?? [];
    if (state !== undefined) {
      // A short form, without a message, stands in the timeline too.
      if (/^in \[\w.*\] - .* @ /.test(text)) return;
      this.message.length = 0;
      this.message.push(text);
      this.inMessage = true;
    } else if (/^ {2}In \[/.test(line) || /^ {2}There were additional failures/.test(line)) this.inMessage = false;
    else if (this.inMessage && this.message.length < MESSAGE_LINES) this.message.push(line);
  }

  private shorten(): void {
    while (this.tailSize > TAIL_CHARACTERS && this.tail.length > 1) {
      const drop = Math.max(1, this.tail.length >> 1);
      for (const line of this.tail.slice(0, drop)) this.tailSize -= line.length + 1;
      this.tail = this.tail.slice(drop);
      this.dropped += drop;
    }
  }

  get reason(): string {
    return reasonOf(this.message.join('\n'));
  }

  get output(): string {
    return [...this.head, ...(this.dropped === 0 ? [] : [`… ${this.dropped} lines are left out …`]), ...this.tail].join('\n');
  }
}

/** Reads Ginkgo's verbose output piece by piece, of parallel processes (blocks) and of one (a stream). */
export class GinkgoOutput {
  private readonly names: ReadonlySet<string>;
  private rest = '';
  private block = new Block();

  constructor(specs: readonly Spec[]) {
    this.names = new Set(specs.map((spec) => spec.name));
  }

  /** What the text, joined to what came before, makes known. */
  push(text: string): LiveEvent[] {
    const lines = (this.rest + text).split('\n');
    this.rest = lines.pop() ?? '';
    return lines.flatMap((line) => this.line(line.replace(/\r$/, '')));
  }

  /** The same at the output's end. */
  end(): LiveEvent[] {
    const events = this.rest === '' ? [] : this.push('\n');
    return [...events, ...this.close()];
  }

  private line(line: string): LiveEvent[] {
    if (line === DELIMITER) return this.close();
    const count = /^Will run (\d+) of \d+ specs$/.exec(line)?.[1];
    if (count !== undefined) return [{ kind: 'specs', count: Number(count) }];
    this.block.add(line);
    return [];
  }

  private close(): LiveEvent[] {
    const { block } = this;
    const { header } = block;
    this.block = new Block();
    if (header === null) return [];
    const [, mark, node, said, seconds] = header;
    const state = said ?? (mark === 'P' ? 'PENDING' : mark === 'S' ? 'SKIPPED' : 'PASSED');
    const { reason, output } = block;
    const result = resultOf(state.replace('!', ''), reason);
    if (node !== undefined) return [{ kind: 'suite', node, failed: result !== 'passed', reason, output }];
    const title = block.title ?? '';
    const name = this.nameIn(title);
    if (name === null || result === null) return [{ kind: 'other', name: name ?? title, state, output }];
    return [{ kind: 'spec', outcome: { name, result, reason: result === 'passed' ? '' : reason, seconds: round(Number(seconds)) }, output }];
  }

  private nameIn(title: string): string | null {
    // Texts that end or begin with a blank stand here with it, and in names without.
    for (let text = title.trim().replaceAll(/ +/g, ' '); ;) {
      // Labels and version constraints stand behind it, in brackets as parts of names do: the longest name counts.
      for (let name = text; name !== ''; name = name.slice(0, Math.max(0, name.lastIndexOf(' [')))) if (this.names.has(name)) return name;
      const shorter = text.replace(NODE, '').trim();
      if (shorter === text) return null;
      text = shorter;
    }
  }
}
