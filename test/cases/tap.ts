import { execa } from 'execa';

const ROOT = new URL('../..', import.meta.url).pathname;

const cri = async (...args: string[]): Promise<string> => (await execa(`${ROOT}nodelet`, ['cri', ...args], { stdin: 'ignore' })).stdout;

/** Stands between the kubelet of a set's node and its runtime, so that calls can be broken. */
export class Tap implements AsyncDisposable {
  readonly #there: readonly string[];
  readonly #control: string;

  private constructor(there: readonly string[], control: string) {
    this.#there = there;
    this.#control = control;
  }

  static async attach(set: string, record: string): Promise<Tap> {
    const there = ['--node', 'node-1', '--name', set];
    const told = await cri('attach', '--background', '--json', '--record', record, ...there);
    return new Tap(there, (JSON.parse(told) as { control: string }).control);
  }

  /** Arms these rules in place of all others. */
  async fault(...rules: string[]): Promise<void> {
    await cri('fault', ...rules, '--tap', this.#control);
  }

  async clear(): Promise<void> {
    await cri('fault', '--clear', '--tap', this.#control);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await cri('detach', ...this.#there);
  }
}
