import { spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { messageOf, OpError } from '../../base/errors.ts';

export interface Guard {
  readonly pid: number;
  /** Lets it go without doing anything; resolves when it has ended. */
  release(): Promise<void>;
}

export interface GuardOptions {
  /** The program `sys`. */
  readonly sys: string;
  readonly folder: string;
  readonly name: string;
  /** Files that it removes, too, when it has put the socket back. */
  readonly remove: readonly string[];
  /** Called when it has ended without being let go: somebody killed it. */
  readonly lost: () => void;
}

async function ready(child: ChildProcess): Promise<void> {
  const doing = 'starting the guard';
  await new Promise<void>((resolve, reject) => {
    let words = '';
    child.stderr?.on('data', (bytes: Buffer) => (words += bytes.toString()));
    child.stdout?.once('data', () => resolve());
    child.once('error', (cause: NodeJS.ErrnoException) =>
      reject(
        new OpError(cause.code === 'ENOENT' ? 'not-found' : 'failed', doing, messageOf(cause), {
          cause,
          advice: 'build the C program: sh sys/build.sh dist/sys (it needs gcc and libc6-dev)',
        }),
      ),
    );
    child.once('close', (code) => reject(new OpError('failed', doing, words.trim() || `it ended with ${code}`)));
  });
  child.stdout?.destroy();
  child.stderr?.destroy();
}

/**
 * Starts the process that puts the runtime's socket back when this one dies, however it dies: it is in a session of its
 * own and waits for the end of a pipe that only we hold. Throws OpError.
 */
export async function startGuard(options: GuardOptions): Promise<Guard> {
  const child = spawn(options.sys, ['guard', options.folder, options.name, ...options.remove], { detached: true, stdio: ['pipe', 'pipe', 'pipe'], cwd: '/' });
  await ready(child);
  let released = false;
  child.once('exit', () => {
    if (!released) options.lost();
  });
  // Writing to one that was killed is no failure of ours.
  child.stdin?.on('error', () => {});
  return {
    pid: child.pid ?? 0,
    release: async () => {
      released = true;
      if (child.exitCode !== null || child.signalCode !== null) return;
      const ended = once(child, 'exit');
      child.stdin?.end('.');
      await ended;
    },
  };
}
