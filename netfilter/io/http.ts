import { createServer, type RequestListener, type Server } from 'node:http';
import { OpError } from '../../base/errors.ts';

/** An HTTP server on one address; disposed by closing it with all its connections. */
export async function serve(
  host: string,
  port: number,
  listener: RequestListener,
  options: { ipv6Only?: boolean; bothFamilies?: boolean } = {},
): Promise<AsyncDisposable & { port: number }> {
  const server: Server = createServer(listener);
  await new Promise<void>((resolve, reject) => {
    server.once('error', (cause: NodeJS.ErrnoException) =>
      reject(new OpError(cause.code === 'EADDRINUSE' ? 'exists' : 'failed', `listen on ${host}:${port}`, cause.code ?? cause.message, { cause })),
    );
    // Without a host Node listens on both families where there are both, as Go does for 0.0.0.0.
    server.listen(
      { port, ...(host === '0.0.0.0' && options.bothFamilies === true ? {} : { host }), ...(options.ipv6Only === true ? { ipv6Only: true } : {}) },
      resolve,
    );
  });
  const address = server.address();
  return {
    port: typeof address === 'object' && address !== null ? address.port : port,
    async [Symbol.asyncDispose]() {
      // In this order: no connection comes in between, to be waited for.
      const closed = new Promise<void>((resolve) => server.close(() => resolve()));
      server.closeAllConnections();
      await closed;
    },
  };
}

/** "host:port" or "[host]:port". */
export function splitHostPort(text: string): { host: string; port: number } {
  const at = text.lastIndexOf(':');
  return { host: text.slice(0, at).replace(/^\[(.*)\]$/, '$1'), port: Number(text.slice(at + 1)) };
}
