import type { ClientHttp2Stream, ServerHttp2Stream } from 'node:http2';
import { once } from 'node:events';
import type { Clock } from '../../base/clock.ts';
import { faultWords, type ArmedRules, type FaultRule } from '../core/fault-rules.ts';
import type { SubjectBook } from '../core/fault-subjects.ts';
import { printRule } from '../core/fault-text.ts';
import { ByteBudget, MessageReader, type WireMessage } from '../core/grpc-messages.ts';
import { isStream } from '../core/methods.ts';
import { rpcStatuses, type RpcStatus } from '../core/status.ts';
import { withoutItems } from '../core/wire-items.ts';
import { answerOf, CODE, headerOf, respond, reset, whenWanted, type Answer, type RawHeaders } from './acting-relay.ts';
import { decodeMessage, inflate } from './messages.ts';

/** A call that a rule is done to. */
export interface ActedCall {
  readonly down: ServerHttp2Stream;
  readonly path: string;
  readonly method: string;
  readonly rule: FaultRule;
  readonly number: number;
  readonly armed: ArmedRules;
  readonly book: SubjectBook;
  readonly clock: Clock;
  /** Passes the call on to the runtime; null when it cannot. */
  open(): ClientHttp2Stream | null;
  /** Ends the caller's whole connection as a crash would. */
  cut(): void;
}

const PREFIX_BYTES = 5;
/** Of one answer that a rule must look at. */
const MAX_MESSAGE_BYTES = 256 * 1024 * 1024;

/** As gRPC writes messages: what is printable stands as it is, all else as percent-encoded UTF-8. */
function encoded(text: string): string {
  return text.replaceAll(/[^ -$&-~]+/gu, (part) => encodeURIComponent(part.toWellFormed()));
}

function framed(message: Uint8Array, compressed = false): Buffer {
  const prefix = Buffer.alloc(PREFIX_BYTES);
  prefix[0] = compressed ? 1 : 0;
  prefix.writeUInt32BE(message.length, 1);
  return Buffer.concat([prefix, message]);
}

class Acting {
  readonly #call: ActedCall;
  readonly #gone = new AbortController();
  #trailers: RawHeaders = [];
  #up: ClientHttp2Stream | null = null;

  constructor(call: ActedCall) {
    this.#call = call;
    const { down } = call;
    const gone = (): void => this.#gone.abort();
    down.on('aborted', gone);
    down.on('close', gone);
    whenWanted(down, () => [...this.#trailers, ...this.#mark()]);
  }

  /** Tells whoever looks at the call that its failure is not the runtime's. */
  #mark(): RawHeaders {
    return ['nodelet-fault', `${this.#call.number} ${encoded(printRule(this.#call.rule))}`];
  }

  async #wait(ms: number | undefined): Promise<void> {
    if (ms !== undefined && ms > 0) await this.#call.clock.sleep(ms, this.#gone.signal);
  }

  async #write(bytes: Buffer): Promise<void> {
    const { down } = this.#call;
    if (down.destroyed || down.writableEnded || down.write(bytes)) return;
    await once(down, 'drain', { signal: this.#gone.signal });
  }

  #finish(trailers: RawHeaders): void {
    this.#trailers = trailers;
    this.#call.down.end();
  }

  #fail(status: RpcStatus, words: string): void {
    const { down } = this.#call;
    const trailers = ['grpc-status', String(rpcStatuses.indexOf(status)), 'grpc-message', encoded(words)];
    if (down.headersSent) return this.#finish(trailers);
    // What the caller may still be sending is not wanted any more.
    down.resume();
    respond(down, [':status', '200', 'content-type', 'application/grpc', ...trailers, ...this.#mark()], true);
  }

  /** Ends the call as the rule says; false when it says nothing of an end. */
  #end(): boolean {
    const { rule, down } = this.#call;
    if (rule.error !== undefined) this.#fail(rule.error, faultWords(rule));
    else if (rule.drop === 'connection') this.#call.cut();
    else if (rule.drop === 'call') reset(down, CODE.internal);
    else if (rule.hang === true) down.resume();
    else return false;
    return true;
  }

  /** Does it. Resolves when it is done or the caller has gone. */
  async run(): Promise<void> {
    try {
      await this.#run();
    } catch {
      // The caller gave up, or the runtime reset it: nothing of the call is left to tell but its end.
      reset(this.#call.down, (this.#up?.rstCode ?? 0) || CODE.cancel);
    }
  }

  async #run(): Promise<void> {
    const { rule, down } = this.#call;
    if (rule.after !== true) {
      await this.#wait(rule.delayMs);
      if (rule.truncate === undefined && this.#end()) return;
    }
    const up = this.#call.open();
    if (up === null) return;
    this.#up = up;
    const answer = await answerOf(down, up);
    if (answer?.bare === true) respond(down, [...answer.head, ...this.#mark()], true);
    else if (answer === null) reset(down, up.rstCode === 0 ? CODE.internal : up.rstCode);
    else if (rule.after === true) await this.#after(answer, up);
    else await this.#edit(answer, up);
  }

  /** Lets the runtime do it, and spoils what it answers well. */
  async #after(answer: Answer, up: ClientHttp2Stream): Promise<void> {
    const { down, rule, method } = this.#call;
    const held: Buffer[] = [];
    // Messages of a stream cannot wait for its end.
    if (isStream(method)) respond(down, answer.head, false);
    for await (const bytes of answer.body) {
      if (down.headersSent) await this.#write(bytes);
      else held.push(bytes);
    }
    const trailers = answer.trailers();
    if (trailers === null) return reset(down, up.rstCode);
    if (headerOf(trailers, 'grpc-status') === '0') {
      await this.#wait(rule.delayMs);
      if (this.#end()) return;
    }
    respond(down, answer.head, false);
    for (const bytes of held) await this.#write(bytes);
    this.#finish(trailers);
  }

  async #edit(answer: Answer, up: ClientHttp2Stream): Promise<void> {
    const { down, rule, armed } = this.#call;
    const budget = new ByteBudget(MAX_MESSAGE_BYTES);
    const reader = new MessageReader(budget);
    const encoding = headerOf(answer.head, 'grpc-encoding') ?? '';
    const fate = armed.eventsOf(rule);
    const reads = rule.hide !== undefined || rule.events !== undefined || rule.truncate !== undefined;
    let passed = 0;
    respond(down, answer.head, false);
    const isCut = (): boolean => {
      if (rule.truncate === undefined || passed < rule.truncate) return false;
      if (rule.end === true) this.#finish(['grpc-status', '0']);
      else if (rule.error !== undefined) this.#fail(rule.error, faultWords(rule));
      else reset(down, CODE.internal);
      up.close(CODE.cancel);
      return true;
    };
    if (isCut()) return;
    for await (const bytes of answer.body) {
      if (!reads) {
        await this.#write(bytes);
        continue;
      }
      for (const message of reader.feed(bytes)) {
        if (message.bytes === null) {
          this.#fail('ResourceExhausted', `a message of ${message.sizeBytes} bytes is more than a fault rule can look at`);
          return up.close(CODE.cancel);
        }
        for (const part of await this.#edited(message, message.bytes, encoding, fate)) await this.#write(part);
        budget.give(message.sizeBytes);
        passed += 1;
        if (isCut()) return;
      }
    }
    const trailers = answer.trailers();
    if (trailers === null) reset(down, up.rstCode);
    else this.#finish(trailers);
  }

  /** What goes on in place of a message. */
  async #edited(message: WireMessage, bytes: Uint8Array, encoding: string, fate: ReturnType<ArmedRules['eventsOf']>): Promise<Buffer[]> {
    const { path, method, rule, armed, book } = this.#call;
    const whole = framed(bytes, message.compressed);
    if (rule.hide === undefined && rule.events === undefined) return [whole];
    const plain = message.compressed ? inflate(bytes, encoding) : bytes;
    const { json } = plain === null ? {} : decodeMessage(path, 'server', plain);
    if (json === undefined || plain === null) return [whole];
    if (rule.events !== undefined) {
      const { copies, delayMs } = fate(book.event(json));
      await this.#wait(delayMs);
      return Array.from({ length: copies }, () => whole);
    }
    const hidden = new Set<number>();
    for (const [index, item] of book.items(method, json).entries()) if (armed.hides(rule, item)) hidden.add(index);
    const left = hidden.size === 0 ? null : withoutItems(plain, hidden);
    return [left === null ? whole : framed(left)];
  }
}

/** Does to a call what its rule says. Resolves when that is done or the caller has gone. */
export function actOn(call: ActedCall): Promise<void> {
  return new Acting(call).run();
}
