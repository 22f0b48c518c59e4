import { execa } from 'execa';
import { OpError } from '../../base/errors.ts';

export interface CompilerRun {
  readonly cwd: string;
  readonly env: Readonly<Record<string, string>>;
  readonly signal: AbortSignal;
  readonly doing: string;
  /** Each line of standard error as it comes. */
  readonly onLine: (line: string) => void;
}

/**
 * Runs `go` with its compilers and linkers as one group, and ends them all when asked to stop: Go itself would leave a
 * linker running, with gigabytes, for minutes. Resolves to its exit status; OpError `aborted`, or `failed` when it cannot be started.
 */
export async function runCompiler(argv: readonly [string, ...string[]], run: CompilerRun): Promise<number> {
  const stopped = (): OpError => new OpError('aborted', run.doing, 'stopped by the caller', { cause: run.signal.reason });
  if (run.signal.aborted) throw stopped();
  const child = execa(argv[0], argv.slice(1), {
    cwd: run.cwd,
    env: run.env,
    extendEnv: false,
    reject: false,
    detached: true,
    buffer: false,
    stdin: 'ignore',
    stdout: 'ignore',
  });
  const end = (): void => {
    try {
      if (child.pid !== undefined) process.kill(-child.pid, 'SIGKILL');
    } catch {
      // It ended meanwhile.
    }
  };
  run.signal.addEventListener('abort', end, { once: true });
  try {
    for await (const line of child.iterable({ from: 'stderr' })) run.onLine(line);
    const result = await child;
    if (run.signal.aborted) throw stopped();
    if (result.exitCode === undefined && result.signal === undefined)
      throw new OpError('failed', run.doing, `${argv[0]} could not be started`, { cause: result.cause });
    return result.exitCode ?? 128;
  } finally {
    run.signal.removeEventListener('abort', end);
  }
}
