import type { Clock } from '../../base/clock.ts';
import type { Log } from '../../base/log.ts';
import { splitHostPort } from './http.ts';

/** As upstream: an address that somebody else has is tried again. */
const RETRY_MS = 5000;

export interface ListenOptions {
  /** What is served, for messages. */
  readonly what: string;
  /** host:port; empty: nothing is served. */
  readonly address: string;
  /** Throws at the first failure; without it the proxy works on, and the server comes when its address is free. */
  readonly hardFail: boolean;
  readonly clock: Clock;
  readonly log: Log;
  readonly open: (at: { host: string; port: number }) => Promise<AsyncDisposable>;
}

/** Starts one of the HTTP servers; disposed by ending it, or the attempts to start it. */
export async function listen({ what, address, hardFail, clock, log, open }: ListenOptions): Promise<AsyncDisposable> {
  const at = splitHostPort(address);
  if (address === '' || at.port === 0) return { async [Symbol.asyncDispose]() {} };
  const ending = new AbortController();
  const attempt = async (): Promise<AsyncDisposable | null> => {
    try {
      return await open(at);
    } catch (error) {
      if (hardFail) throw error;
      log.error(`Failed to start the ${what} server`, { address, error });
      return null;
    }
  };
  const first = await attempt();
  const server = (async () => {
    for (let opened = first; ; opened = await attempt()) {
      if (opened !== null || ending.signal.aborted) return opened;
      await clock.sleep(RETRY_MS, ending.signal).catch(() => {});
    }
  })();
  return {
    async [Symbol.asyncDispose]() {
      ending.abort();
      await (await server)?.[Symbol.asyncDispose]();
    },
  };
}
