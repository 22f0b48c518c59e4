import { InvalidArgumentError, Option, type Command } from 'commander';
import { tryDurationMs } from '../../base/duration.ts';
import type { EndpointFlags } from '../io/endpoint.ts';

export interface RuntimeFlags extends EndpointFlags {
  readonly json: boolean;
  /** In place of the kubelet's own deadlines. */
  readonly timeout?: number;
}

/** `5s`, `1m30s`, or seconds, as milliseconds. */
export function readDuration(text: string): number {
  const ms = /^\d+(\.\d+)?$/.test(text) ? Number(text) * 1000 : tryDurationMs(text);
  if (ms === null || ms < 0) throw new InvalidArgumentError('write a duration as 30s or 5m.');
  return ms;
}

/** An option that takes a duration, whose default is told as it would be written. */
export function durationOption(flags: string, words: string, duration: string): Option {
  return new Option(flags, words).argParser(readDuration).default(readDuration(duration), duration);
}

export function readCount(text: string): number {
  if (!/^\d+$/.test(text) || !Number.isSafeInteger(Number(text))) throw new InvalidArgumentError('write a number.');
  return Number(text);
}

/** `key=value`, once for each. */
export function collectLabel(text: string, before: Readonly<Record<string, string>>): Readonly<Record<string, string>> {
  const at = text.indexOf('=');
  if (at < 1) throw new InvalidArgumentError('write a label as key=value.');
  return { ...before, [text.slice(0, at)]: text.slice(at + 1) };
}

/** What every command that asks a runtime takes. */
export function withRuntime(command: Command): Command {
  return command
    .option('-r, --runtime-endpoint <socket>', 'the runtime; else CONTAINER_RUNTIME_ENDPOINT, /etc/crictl.yaml, or where runtimes usually listen')
    .option('--image-endpoint <socket>', 'the image service, when it is another')
    .option('--timeout <duration>', 'how long a call may take; the kubelet’s own deadlines when left out', readDuration);
}
