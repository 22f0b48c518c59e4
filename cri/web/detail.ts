import { kindOf, toneOf, type TimelineCall } from '../core/timeline.ts';
import type { RecordedMessage } from '../core/recording.ts';
import type { WebCallBodies } from '../core/web-wire.ts';
import { button, byId, say } from './elements.ts';
import { showJson } from './json-text.ts';
import { callDuration, countText, sizeText, subjectText, timeText } from './words.ts';

interface Side {
  readonly text: HTMLElement;
  readonly title: HTMLElement;
  readonly copy: HTMLButtonElement;
}

function side(name: 'request' | 'response'): Side {
  return { text: byId(name), title: byId(`${name}-title`), copy: button(`${name}-copy`) };
}

function messageText(message: RecordedMessage): string {
  if ('fields' in message) return JSON.stringify(message.fields, null, 2);
  if (message.skipped === true) return `// ${sizeText(message.sizeBytes)}: more than the decoder may hold`;
  if (message.raw !== undefined) return `// ${sizeText(message.sizeBytes)}, base64:\n"${message.raw}"`;
  return `// ${sizeText(message.sizeBytes)} that are not known here`;
}

function textOf(messages: readonly RecordedMessage[], more: number): string {
  const texts = messages.map((message, at) => (messages.length > 1 ? `// ${at + 1}\n${messageText(message)}` : messageText(message)));
  if (more > 0) texts.push(`// ${countText(more, 'more message')}`);
  return texts.join('\n\n');
}

/** The panel with both sides of a call. */
export class Detail {
  readonly #panel = byId('detail');
  readonly #request = side('request');
  readonly #response = side('response');
  #shown: TimelineCall | null = null;
  #fetching: AbortController | null = null;

  constructor() {
    for (const { copy, text, title } of [this.#request, this.#response])
      copy.addEventListener('click', () => {
        navigator.clipboard.writeText(text.dataset['whole'] ?? '').then(
          () => say(`${title.textContent} copied`),
          () => getSelection()?.selectAllChildren(text),
        );
      });
  }

  get isOpen(): boolean {
    return !this.#panel.hidden;
  }

  /** The call whose messages are shown. */
  get call(): TimelineCall | null {
    return this.isOpen ? this.#shown : null;
  }

  close(): void {
    this.#fetching?.abort();
    this.#panel.hidden = true;
    this.#shown = null;
  }

  focus(): void {
    this.#panel.focus();
  }

  /** Shows what is known of a call at once, its messages when they have come. */
  async show(call: TimelineCall): Promise<void> {
    this.#fetching?.abort();
    const fetching = new AbortController();
    this.#fetching = fetching;
    this.#shown = call;
    this.#panel.hidden = false;
    this.head(call);
    this.#put(this.#request, 'Request', '…');
    this.#put(this.#response, 'Answer', '…');
    try {
      const response = await fetch(`call/${call.id}`, { signal: fetching.signal });
      if (!response.ok) throw new Error((await response.text()).trim());
      this.#bodies(call, (await response.json()) as WebCallBodies);
    } catch (error) {
      if (fetching.signal.aborted) return;
      this.#put(this.#request, 'Request', `// ${error instanceof Error ? error.message : String(error)}`);
      this.#put(this.#response, 'Answer', '');
    }
  }

  /** What is known without the messages; again when the call has ended. */
  head(call: TimelineCall): void {
    byId('detail-method').textContent = call.method;
    byId('detail-subject').textContent = subjectText(call);
    const outcome = byId('detail-outcome');
    const tone = toneOf(call);
    outcome.textContent = call.outcome;
    outcome.dataset['state'] = tone === 'failed' || tone === 'cut' || tone === 'open' ? tone : 'ok';
    byId('detail-facts').textContent = `${timeText(call.startMs)} UTC, ${callDuration(call)}, ${sizeText(call.sizeBytes)}, connection ${call.connection}`;
    const error = byId('detail-error');
    error.hidden = call.message === '';
    error.textContent = call.message;
    button('detail-break').textContent = kindOf(call.method) === 'watch' ? 'Break streams like this…' : 'Break calls like this…';
  }

  #bodies(call: TimelineCall, bodies: WebCallBodies): void {
    const { requests, responses, moreResponses, requestMetadata, trailers } = bodies;
    const agent = requestMetadata['user-agent'];
    const facts = byId('detail-facts');
    facts.textContent = `${facts.textContent}, stream ${bodies.stream}, call ${bodies.call}${agent === undefined ? '' : `, by ${agent}`}`;
    const bytes = (messages: readonly RecordedMessage[]): string => sizeText(messages.reduce((sum, { sizeBytes }) => sum + sizeBytes, 0));
    this.#put(this.#request, requests.length === 1 ? `Request, ${bytes(requests)}` : `Request, ${countText(requests.length, 'message')}`, textOf(requests, 0));
    const count = responses.length + moreResponses;
    const title = count === 0 ? 'No answer' : count === 1 ? `Answer, ${bytes(responses)}` : `Answer, ${countText(count, 'message')}`;
    const rest = Object.keys(trailers).length === 0 ? '' : `\n\n// trailers\n${JSON.stringify(trailers, null, 2)}`;
    const nothing = call.endMs === null ? '// nothing yet' : `// ${call.outcome}${call.message === '' ? '' : `: ${call.message}`}`;
    this.#put(this.#response, title, (count === 0 ? nothing : textOf(responses, moreResponses)) + rest);
  }

  #put({ text, title }: Side, heading: string, content: string): void {
    title.textContent = heading;
    // The text itself is kept apart, because a long one is drawn in parts.
    text.dataset['whole'] = content;
    showJson(text, content);
  }
}
