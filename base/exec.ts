import { execa } from 'execa';
import { messageOf, OpError } from './errors.ts';

export interface ExecOptions {
  /** What it is for, as an error's first words; default is the program's name. */
  doing?: string;
  input?: string | Uint8Array;
  cwd?: string;
  /** The whole environment; default is the caller's own. */
  env?: Readonly<Record<string, string>>;
  timeoutMs?: number;
  signal?: AbortSignal;
  /** Called with each line of standard error as it comes; for progress. */
  onLine?: (line: string) => void;
  /** What a person can do when it fails. */
  advice?: string;
}

export interface ExecResult {
  stdout: string;
  stderr: string;
  code: number;
}

const lastLines = 5;

function detailOf(stderr: string, fallback: string): string {
  const lines = stderr.split('\n').filter((line) => line.trim() !== '');
  return lines.length === 0 ? fallback : lines.slice(-lastLines).join(' | ');
}

/**
 * Runs a program for commands and tests, where a stopped event loop hurts nobody; daemons use `Sys.run`. Throws OpError
 * with the last lines of its standard error: `not-found`, `denied`, `deadline`, `aborted`, or `failed` when it ended non-zero.
 */
export async function exec(argv: readonly [string, ...string[]], options: ExecOptions = {}): Promise<ExecResult> {
  const result = await tryExec(argv, options);
  if (result.code === 0) return result;
  throw new OpError('failed', options.doing ?? argv[0], detailOf(result.stderr, `ended with ${result.code}`), adviceOf(options));
}

function adviceOf(options: ExecOptions): { advice?: string } {
  return options.advice === undefined ? {} : { advice: options.advice };
}

/** As `exec`, but ending non-zero is an ordinary result; a signal counts as 128 + its number, as shells say it. */
export async function tryExec(argv: readonly [string, ...string[]], options: ExecOptions = {}): Promise<ExecResult> {
  const doing = options.doing ?? argv[0];
  const child = execa(argv[0], argv.slice(1), {
    reject: false,
    stripFinalNewline: false,
    maxBuffer: 64 * 1024 * 1024,
    ...(options.input === undefined ? { stdin: 'ignore' as const } : { input: options.input }),
    ...(options.cwd === undefined ? {} : { cwd: options.cwd }),
    ...(options.env === undefined ? {} : { env: options.env, extendEnv: false }),
    ...(options.timeoutMs === undefined ? {} : { timeout: options.timeoutMs, killSignal: 'SIGKILL' as const }),
    ...(options.signal === undefined ? {} : { cancelSignal: options.signal }),
  });
  if (options.onLine !== undefined) {
    const { onLine } = options;
    void (async () => {
      for await (const line of child.iterable({ from: 'stderr' })) onLine(line);
    })().catch(() => {});
  }
  const result = await child;
  const { stderr } = result;
  if (result.timedOut) throw new OpError('deadline', doing, detailOf(stderr, `not done within ${options.timeoutMs} ms`), adviceOf(options));
  if (result.isCanceled) throw new OpError('aborted', doing, 'stopped by the caller', { cause: options.signal?.reason });
  if (result.exitCode !== undefined) return { stdout: result.stdout, stderr, code: result.exitCode };
  if (result.signal !== undefined) return { stdout: result.stdout, stderr, code: 128 + signalNumber(result.signal) };
  const code = result.code === 'ENOENT' ? 'not-found' : result.code === 'EACCES' ? 'denied' : 'failed';
  throw new OpError(code, doing, code === 'not-found' ? `${argv[0]} is not installed` : messageOf(result.cause ?? result), adviceOf(options));
}

function signalNumber(name: string): number {
  const numbers: Readonly<Record<string, number>> = { SIGHUP: 1, SIGINT: 2, SIGQUIT: 3, SIGABRT: 6, SIGKILL: 9, SIGSEGV: 11, SIGPIPE: 13, SIGTERM: 15 };
  return numbers[name] ?? 0;
}
