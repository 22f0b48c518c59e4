import { styleText } from 'node:util';
import type { Host } from '../../base/host.ts';

/** Progress for a person on standard error: one line a step, with its time; a running step shows on a terminal. */
export interface Progress {
  step<T>(title: string, work: () => Promise<T>): Promise<T>;
  /** A line of its own. */
  note(text: string): void;
  /** Seconds of each step so far, for `--json`. */
  readonly times: { step: string; seconds: number }[];
}

export function createProgress(host: Host, options: { quiet: boolean; terminal: boolean }): Progress {
  const times: { step: string; seconds: number }[] = [];
  const colour = (style: 'green' | 'red' | 'dim', text: string): string => (options.terminal ? styleText(style, text) : text);
  return {
    times,
    note(text) {
      if (!options.quiet) host.stderr(`${text}\n`);
    },
    async step(title, work) {
      const started = performance.now();
      if (options.terminal && !options.quiet) host.stderr(`  … ${title}`);
      const finish = (mark: string): void => {
        const seconds = (performance.now() - started) / 1000;
        times.push({ step: title, seconds: Math.round(seconds * 1000) / 1000 });
        if (!options.quiet) host.stderr(`${options.terminal ? '\r' : ''}  ${mark} ${title} ${colour('dim', `(${seconds.toFixed(1)} s)`)}\n`);
      };
      try {
        const result = await work();
        finish(colour('green', 'ok'));
        return result;
      } catch (error) {
        finish(colour('red', 'failed'));
        throw error;
      }
    },
  };
}
