/** Runs `end` once: when disposed, or as soon as `signal` is aborted; disposing waits for it either way. */
export function endWith(signal: AbortSignal, end: () => Promise<void>): AsyncDisposable {
  let ended: Promise<void> | undefined;
  const run = (): Promise<void> => (ended ??= end());
  const onAbort = (): void => void run();
  if (signal.aborted) onAbort();
  else signal.addEventListener('abort', onAbort, { once: true });
  return {
    [Symbol.asyncDispose]() {
      signal.removeEventListener('abort', onAbort);
      return run();
    },
  };
}
