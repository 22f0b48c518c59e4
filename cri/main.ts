import { Command, CommanderError, InvalidArgumentError, Option } from 'commander';
import { realClock } from '../base/clock.ts';
import type { Host } from '../base/host.ts';
import { version } from '../base/version.ts';
import { show, type ShowOptions } from './show.ts';
import { tap, type TapFlags } from './tap-command.ts';

export { decodeThread } from './io/decode-thread.ts';

/** `64MiB`, `1GiB`, `500k`, or bytes. */
function readSize(text: string): number {
  const found = /^(\d+)\s*(?:([kmg])(?:i?b)?|b)?$/i.exec(text);
  const size = Number(found?.[1] ?? 0) * 1024 ** ' kmg'.indexOf((found?.[2] ?? ' ').toLowerCase());
  if (size < 1 || !Number.isSafeInteger(size)) throw new InvalidArgumentError('write a size as 64MiB.');
  return size;
}

function commands(host: Host, done: (code: number) => void): Command {
  const program = new Command('nodelet cri')
    .description('see what a kubelet and its container runtime say to each other')
    .exitOverride()
    .enablePositionalOptions()
    .configureOutput({ writeOut: host.stdout, writeErr: host.stderr });
  const add = (usage: string, summary: string, examples: readonly string[]): Command =>
    program
      .command(usage)
      .description(summary)
      .addOption(new Option('--json', 'one JSON object a line').default(false))
      .addHelpText('after', `\nExamples:\n${examples.map((line) => `  ${line}`).join('\n')}`);
  add('tap', 'stand between callers and a runtime; pass everything on as it is, and tell of each call', [
    'sudo ./nodelet cri tap --listen unix:///run/tap.sock --upstream unix:///run/containerd/containerd.sock',
    'sudo ./nodelet cri tap --listen unix:///run/tap.sock --upstream unix:///run/containerd/containerd.sock --record boot.crirec',
    'then: kubelet --container-runtime-endpoint unix:///run/tap.sock, or crictl -r unix:///run/tap.sock ps',
  ])
    .requiredOption('--listen <socket>', 'where callers connect to')
    .requiredOption('--upstream <socket>', 'the runtime’s socket')
    .option('--record <file>', 'write whole calls to this file (docs/cri-recording.md), readable by its owner only')
    .option('--append', 'add to the file when it is there', false)
    .option('--max-size <size>', 'end the recording when the file is that large; traffic goes on', readSize, 256 * 1024 ** 2)
    .option('--buffer <size>', 'what may wait for the decoder', readSize, 16 * 1024 ** 2)
    .option('--with-secrets', 'record environment values, registry credentials and raw bytes too', false)
    .option('-q, --quiet', 'no line for each call', false)
    .action(async (flags: TapFlags) => done(await tap(host, flags, realClock, `nodelet ${version}`)));
  add('show <file>', 'the calls of a recording, one a line', [
    './nodelet cri show boot.crirec',
    './nodelet cri show boot.crirec --pod default/web --method CreateContainer --json',
  ])
    .option('--pod <namespace/name>', 'only calls about that pod’s sandboxes and containers')
    .option('--method <method>', 'only calls of that method')
    .option('--full', 'both messages below each line', false)
    .action(async (file: string, flags: ShowOptions) => done(await show(host, file, flags)));
  return program;
}

/** `nodelet cri …`. */
export async function main(host: Host): Promise<number> {
  let code = 0;
  try {
    await commands(host, (value) => {
      code = value;
    }).parseAsync([...host.args], { from: 'user' });
    return code;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    throw error;
  }
}
