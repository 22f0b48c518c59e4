import { OpError } from '../../base/errors.ts';
import type { Host } from '../../base/host.ts';
import { containerItems, findNamed } from '../core/named.ts';
import { connectEndpoints, type RuntimeConnection } from '../io/endpoint.ts';
import { execOver } from '../io/exec-stream.ts';
import { isTyped, pour, rawInput, terminalSizes } from '../io/terminal.ts';
import { callOptions } from './list-run.ts';
import type { RuntimeFlags } from './runtime-options.ts';

export interface ExecFlags extends RuntimeFlags {
  readonly stdin: boolean;
  readonly tty: boolean;
  readonly sync: boolean;
  readonly transport: 'spdy' | 'websocket';
}

async function runningContainer(host: Host, runtime: RuntimeConnection, word: string, flags: ExecFlags): Promise<string> {
  const filter = { state: { state: 'CONTAINER_RUNNING' as const } };
  const { containers } = await runtime.client.runtime.listContainers({ filter }, callOptions(host, flags));
  return findNamed(containerItems(containers, true), word, 'looking for a running container').id;
}

/** One call, which answers when the command has ended. `timeout` ends the command. */
async function execSync(host: Host, runtime: RuntimeConnection, containerId: string, cmd: readonly string[], flags: ExecFlags): Promise<number> {
  const seconds = flags.timeout === undefined ? 0 : Math.max(1, Math.ceil(flags.timeout / 1000));
  const { stdout, stderr, exitCode } = await runtime.client.runtime.execSync({ containerId, cmd: [...cmd], timeout: seconds }, { signal: host.signal });
  if (flags.json) host.stdout(`${JSON.stringify({ exitCode, stdout: stdout.toString(), stderr: stderr.toString() })}\n`);
  else {
    await pour(process.stdout, stdout);
    await pour(process.stderr, stderr);
  }
  return exitCode;
}

/** `nodelet cri exec`: the command's exit code. */
export async function exec(host: Host, word: string, given: readonly string[], flags: ExecFlags): Promise<number> {
  const command = given[0] === '--' ? given.slice(1) : given;
  if (command.length === 0) throw new OpError('invalid', 'exec', 'no command is given', { advice: 'write it after the container: nodelet cri exec ID -- ls' });
  if (flags.sync && (flags.stdin || flags.tty))
    throw new OpError('invalid', 'exec', '--sync has neither input nor a terminal', { advice: 'leave --sync away' });
  if (flags.json && !flags.sync) throw new OpError('invalid', 'exec', '--json goes with --sync', { advice: 'add --sync, or leave --json away' });
  await using runtime = await connectEndpoints(flags, host.env);
  const containerId = await runningContainer(host, runtime, word, flags);
  if (flags.sync) return await execSync(host, runtime, containerId, command, flags);
  const request = { containerId, cmd: [...command], tty: flags.tty, stdin: flags.stdin, stdout: true, stderr: !flags.tty };
  const { url } = await runtime.client.runtime.exec(request, callOptions(host, flags));
  const say = (text: string): void => host.stderr(`nodelet cri exec: ${text}\n`);
  if (flags.tty && !isTyped()) say('standard input is no terminal: keys pass line by line');
  const ended = new AbortController();
  using _raw = flags.tty && flags.stdin ? rawInput() : { [Symbol.dispose]: () => {} };
  try {
    return await execOver(
      new URL(url),
      {
        stdin: flags.stdin ? process.stdin : null,
        stdout: process.stdout,
        stderr: flags.tty ? null : process.stderr,
        sizes: flags.tty ? terminalSizes(ended.signal) : null,
      },
      { transport: flags.transport, signal: host.signal, say },
    );
  } finally {
    ended.abort();
  }
}
