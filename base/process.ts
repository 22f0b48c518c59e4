import type { Host } from './host.ts';
import { messageOf, OpError } from './errors.ts';

const IMPATIENT_MS = 1_000;

/** What a program may know of its process: read here once, so that everything else can be given another. */
export function hostOf(args: readonly string[]): Host {
  const stop = new AbortController();
  // A full disk below a daemon's log must not end the daemon, and there is nobody to tell.
  process.stderr.on('error', () => undefined);
  process.stdout.on('error', (error: NodeJS.ErrnoException) => {
    // A reader that has seen enough (`nodelet status | head`) is no failure; half an answer in a file is one.
    if (error.code === 'EPIPE') return;
    process.stderr.write(`nodelet: writing the answer: ${error.message}\n`);
    process.exit(1);
  });
  let askedAt = 0;
  for (const signal of ['SIGTERM', 'SIGINT'] as const) {
    process.on(signal, () => {
      // A terminal and a program around this one may both pass the same Ctrl-C on; a later one ends it at once.
      if (stop.signal.aborted && performance.now() - askedAt > IMPATIENT_MS) process.exit(130);
      askedAt = performance.now();
      stop.abort();
    });
  }
  return {
    args,
    env: process.env,
    pid: process.pid,
    stdout: (text) => void process.stdout.write(text),
    stderr: (text) => void process.stderr.write(text),
    signal: stop.signal,
    isTerminal: process.stderr.isTTY === true,
  };
}

/** What the operating system refused, with what to do about it; null when it is no such thing. */
function refusal(error: unknown): string | null {
  if (!(error instanceof Error) || !('code' in error) || !('syscall' in error)) return null;
  const where = 'path' in error && typeof error.path === 'string' ? ` ${error.path}` : ' a file';
  if (error.syscall === 'watch' && (error.code === 'ENOSPC' || error.code === 'EMFILE'))
    return `watching${where}: this user watches as many files as it may\n  raise fs.inotify.max_user_watches and fs.inotify.max_user_instances (sysctl)`;
  switch (error.code) {
    case 'ENOSPC':
    case 'EDQUOT':
      return `writing${where}: no space is left\n  make room there, or name a folder on another disk: NODELET_STATE for sets, XDG_CACHE_HOME for what is built`;
    case 'EROFS':
      return `writing${where}: this file system is read-only\n  mount it writable, or name another folder with NODELET_STATE`;
    case 'EACCES':
    case 'EPERM':
      return `${String(error.syscall)}${where}: permission denied\n  run it with sudo`;
    case 'ENOTDIR':
      return `${String(error.syscall)}${where}: a part of that path is no folder`;
    default:
      return null;
  }
}

/** Prints an expected failure as one message and turns it into an exit status; anything else is a defect and shows its stack. */
export function failure(host: Host, error: unknown): number {
  if (error instanceof SuppressedError) {
    // Of two the first is the cause; what was disposed of afterwards failed too.
    const code = failure(host, error.suppressed);
    host.stderr(`nodelet: and then ${messageOf(error.error)}\n`);
    return code;
  }
  if (error instanceof OpError) {
    host.stderr(`nodelet: ${messageOf(error)}\n${error.advice === '' ? '' : `  ${error.advice}\n`}`);
    if (error.code === 'aborted') return 130;
    return error.code === 'invalid' ? 2 : 1;
  }
  if (error instanceof Error && 'code' in error && String(error.code).startsWith('ERR_PARSE_ARGS')) {
    host.stderr(`nodelet: reading the command line: ${messageOf(error)}\n`);
    return 2;
  }
  // What waits with the signal fails with it: that is how a program stops, not what is wrong with it.
  if (host.signal.aborted && error instanceof Error && error.name === 'AbortError') {
    host.stderr('nodelet: stopped\n');
    return 130;
  }
  const outside = refusal(error);
  if (outside !== null) {
    host.stderr(`nodelet: ${outside}\n`);
    return 1;
  }
  host.stderr(`nodelet: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}\n`);
  return 70;
}
