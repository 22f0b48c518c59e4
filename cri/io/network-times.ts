import { get } from 'node:http';
import { messageOf, OpError } from '../../base/errors.ts';
import { networkSetup, type NetworkSetup } from '../core/network-setup.ts';

const ANSWER_MS = 2_000;
const MAX_BYTES = 16 * 1024 * 1024;

function read(url: string, signal: AbortSignal): Promise<string> {
  return new Promise((resolve, reject) => {
    const asked = get(url, { signal: AbortSignal.any([signal, AbortSignal.timeout(ANSWER_MS)]) }, (answer) => {
      let text = '';
      answer.setEncoding('utf8');
      answer.on('data', (chunk: string) => {
        text += chunk;
        if (text.length > MAX_BYTES) asked.destroy(new Error('more than 16 MiB'));
      });
      answer.on('error', reject);
      answer.on('end', () => (answer.statusCode === 200 ? resolve(text) : reject(new Error(`HTTP ${answer.statusCode}`))));
    });
    asked.on('error', reject);
  });
}

/**
 * How long the network plugin took within a RunPodSandbox, from the runtime's own metrics: they count set-ups and sum
 * their times, so that one set-up between two looks is known, and of several none.
 */
export class NetworkTimes {
  readonly #url: string;
  readonly #say: (text: string) => void;
  #last: NetworkSetup | null = null;

  constructor(url: string, say: (text: string) => void) {
    this.#url = url;
    this.#say = say;
  }

  /** Throws OpError when there is nothing to be read. */
  async begin(signal: AbortSignal): Promise<void> {
    let text: string;
    try {
      text = await read(this.#url, signal);
    } catch (cause) {
      throw new OpError('unavailable', `read ${this.#url}`, messageOf(cause), {
        cause,
        advice: 'containerd serves metrics where its configuration says [metrics] address = "127.0.0.1:1338", at /v1/metrics',
      });
    }
    this.#last = networkSetup(text);
  }

  /** Milliseconds of the one set-up since it was asked last; null when there was not exactly one. */
  async since(signal: AbortSignal): Promise<number | null> {
    try {
      const now = networkSetup(await read(this.#url, signal));
      const last = this.#last;
      this.#last = now;
      if (now === null || now.count - (last?.count ?? 0) !== 1) return null;
      return (now.sumSeconds - (last?.sumSeconds ?? 0)) * 1_000;
    } catch (error) {
      if (!signal.aborted) this.#say(`the runtime’s metrics: ${messageOf(error)}`);
      return null;
    }
  }
}
