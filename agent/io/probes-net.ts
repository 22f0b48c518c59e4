import { connect } from 'node:net';
import { messageOf } from '../../base/errors.ts';

/** What one run of a probe said. `error` is no result: it does not count. */
export interface ProbeAnswer {
  readonly result: 'success' | 'warning' | 'failure' | 'error';
  readonly output: string;
}

/** Host and port as one text; an IPv6 address in brackets. */
export const address = (host: string, port: number): string => (host.includes(':') && !host.startsWith('[') ? `[${host}]:${port}` : `${host}:${port}`);

/** A connection's failure in the words of Go's net package. */
export function dialText(error: unknown, host: string, port: number): string {
  const { code, syscall } = error as NodeJS.ErrnoException;
  const words: Record<string, string> = {
    ECONNREFUSED: 'connect: connection refused',
    EHOSTUNREACH: 'connect: no route to host',
    ENETUNREACH: 'connect: network is unreachable',
    ETIMEDOUT: 'connect: connection timed out',
    ECONNRESET: 'read: connection reset by peer',
  };
  const said = words[code ?? ''];
  if (said !== undefined) return `dial tcp ${address(host, port)}: ${said}`;
  if (syscall === 'getaddrinfo') return `dial tcp: lookup ${host}: no such host`;
  return messageOf(error);
}

/** A TCP probe: the connection is made and reset at once, which leaves no TIME_WAIT behind. */
export function probeTcp(host: string, port: number, timeoutMs: number, signal: AbortSignal): Promise<ProbeAnswer> {
  return new Promise((resolve, reject) => {
    const socket = connect({ host, port });
    const late = setTimeout(() => end({ result: 'failure', output: `dial tcp ${address(host, port)}: i/o timeout` }), timeoutMs);
    const stopped = (): void => {
      clearTimeout(late);
      socket.destroy();
      reject(signal.reason as Error);
    };
    const end = (answer: ProbeAnswer): void => {
      clearTimeout(late);
      signal.removeEventListener('abort', stopped);
      socket.resetAndDestroy();
      resolve(answer);
    };
    if (signal.aborted) return stopped();
    signal.addEventListener('abort', stopped, { once: true });
    socket.on('connect', () => end({ result: 'success', output: '' }));
    socket.on('error', (error) => end({ result: 'failure', output: dialText(error, host, port) }));
    return undefined;
  });
}
