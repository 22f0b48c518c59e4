import { workerData } from 'node:worker_threads';

/** A bundle is one file, and starts as this thread when it is no main thread (node/main.ts). */
export function threadEntry(): URL {
  return import.meta.url.endsWith('.ts') ? new URL('thread-entry.ts', import.meta.url) : new URL(import.meta.url);
}

/** Runs as the thread that its starter wants: the decoder, or the one that serves the control socket. */
export async function thread(): Promise<void> {
  if ((workerData as { role: string }).role === 'feed') (await import('./feed-serve.ts')).feedThread();
  else (await import('./decode-thread.ts')).decodeThread();
}
