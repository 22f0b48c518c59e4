/**
 * Lives in one network namespace of the lab and opens sockets there on request: one JSON line in, one out.
 * Listeners answer with "<name> <address the client has here>".
 */
import { createSocket, type Socket as Datagrams } from 'node:dgram';
import { connect, createServer, type Socket } from 'node:net';
import { createInterface } from 'node:readline';

interface Request {
  id: number;
  do: 'listen-tcp' | 'listen-udp' | 'connect' | 'handshakes' | 'http' | 'udp-open' | 'udp-send' | 'udp-close' | 'udp-error' | 'received' | 'hold' | 'say';
  host?: string;
  port?: number;
  from?: string;
  localPort?: number;
  timeoutMs?: number;
  handle?: string;
  connected?: boolean;
  /** Of `http`; default /. */
  path?: string;
  times?: number;
}

/** Longer than the second after which a lost first packet is sent again: a neighbour may not be known yet. */
const PATIENCE_MS = 1_600;

const name = process.argv[2] ?? 'peer';
const received = new Map<number, number>();
const sockets = new Map<string, Datagrams>();
const udpErrors = new Map<string, string>();
const held = new Map<string, Socket>();

function plain(address: string | undefined): string {
  return (address ?? '').replace('::ffff:', '');
}

function listenTcp(port: number, host: string): Promise<object> {
  return new Promise((resolve) => {
    const server = createServer((socket) => {
      socket.on('error', () => {});
      const answer = (): void => void socket.write(`${name} ${plain(socket.remoteAddress)}\n`);
      answer();
      socket.on('data', answer);
    });
    server.on('error', (error: NodeJS.ErrnoException) => resolve({ error: error.code }));
    server.listen({ port, host }, () => resolve({}));
  });
}

function listenUdp(port: number, host: string): Promise<object> {
  return new Promise((resolve) => {
    const socket = createSocket({ type: host.includes(':') ? 'udp6' : 'udp4', ...(host === '::' ? { ipv6Only: true } : {}) });
    socket.on('message', () => received.set(port, (received.get(port) ?? 0) + 1));
    socket.bind(port, host, () => resolve({}));
  });
}

function firstLine(request: Request, keep: boolean): Promise<object> {
  const startMs = performance.now();
  return new Promise((resolve) => {
    const socket = connect({ host: request.host!, port: request.port!, ...(request.from === undefined ? {} : { localAddress: request.from }) });
    const done = (result: object): void => {
      clearTimeout(timer);
      if (!keep) socket.destroy();
      resolve({ ...result, ms: performance.now() - startMs });
    };
    const timer = setTimeout(() => done({ error: 'TIMEOUT' }), request.timeoutMs ?? PATIENCE_MS);
    socket.on('error', (error: NodeJS.ErrnoException) => done({ error: error.code }));
    socket.once('data', (data) => {
      const [server = '', client = ''] = data.toString().trim().split(' ');
      if (keep) held.set(request.handle!, socket);
      done({ server, client });
    });
  });
}

function handshake(host: string, port: number): Promise<number> {
  return new Promise((resolve, reject) => {
    const startMs = performance.now();
    const socket = connect({ host, port });
    socket.on('error', reject);
    socket.once('connect', () => {
      const ms = performance.now() - startMs;
      socket.resetAndDestroy();
      resolve(ms);
    });
  });
}

/** One connection after the other: how long each handshake took, in milliseconds. The first packet of each meets all rules. */
async function handshakes(request: Request): Promise<object> {
  const times: number[] = [];
  for (let done = 0; done < (request.times ?? 1); done++) times.push(await handshake(request.host!, request.port!));
  return { times };
}

/** Sends on a connection that is held open and waits for the answer. */
function say(request: Request): Promise<object> {
  const socket = held.get(request.handle!)!;
  return new Promise((resolve) => {
    const timer = setTimeout(() => resolve({ error: 'TIMEOUT' }), request.timeoutMs ?? PATIENCE_MS);
    socket.once('data', (data) => {
      clearTimeout(timer);
      resolve({ server: data.toString().split(' ')[0] });
    });
    socket.write('?\n');
  });
}

async function http(request: Request): Promise<object> {
  try {
    const host = request.host!.includes(':') ? `[${request.host}]` : request.host;
    const response = await fetch(`http://${host}:${request.port}${request.path ?? '/'}`, { signal: AbortSignal.timeout(request.timeoutMs ?? PATIENCE_MS) });
    return { status: response.status, body: await response.text(), weight: response.headers.get('x-load-balancing-endpoint-weight') };
  } catch (error) {
    return { error: String((error as Error).cause ?? error) };
  }
}

function udpOpen(request: Request): Promise<object> {
  const socket = createSocket(request.host!.includes(':') ? 'udp6' : 'udp4');
  sockets.set(request.handle!, socket);
  socket.on('error', (error: NodeJS.ErrnoException) => udpErrors.set(request.handle!, error.code ?? ''));
  return new Promise((resolve) => {
    socket.bind(request.localPort ?? 0, () => {
      if (request.connected !== true) return resolve({});
      socket.connect(request.port!, request.host, () => resolve({}));
    });
  });
}

function udpSend(request: Request): Promise<object> {
  const socket = sockets.get(request.handle!)!;
  return new Promise((resolve) => {
    const done = (error: Error | null): void => resolve(error === null ? {} : { error: (error as NodeJS.ErrnoException).code });
    if (request.connected === true) socket.send('x', done);
    else socket.send('x', request.port, request.host, done);
  });
}

function answer(request: Request): Promise<object> | object {
  switch (request.do) {
    case 'listen-tcp':
      return listenTcp(request.port!, request.host ?? '::');
    case 'listen-udp':
      return listenUdp(request.port!, request.host ?? '0.0.0.0');
    case 'connect':
      return firstLine(request, false);
    case 'handshakes':
      return handshakes(request);
    case 'hold':
      return firstLine(request, true);
    case 'say':
      return say(request);
    case 'http':
      return http(request);
    case 'udp-open':
      return udpOpen(request);
    case 'udp-send':
      return udpSend(request);
    case 'udp-close':
      sockets.get(request.handle!)?.close();
      return {};
    case 'udp-error':
      return { error: udpErrors.get(request.handle!) };
    case 'received':
      return { count: received.get(request.port!) ?? 0 };
  }
}

for await (const line of createInterface({ input: process.stdin })) {
  const request = JSON.parse(line) as Request;
  const failed = (error: NodeJS.ErrnoException): object => ({ error: error.code ?? error.message });
  void Promise.resolve(answer(request))
    .catch(failed)
    .then((result) => process.stdout.write(`${JSON.stringify({ id: request.id, ...result })}\n`));
}
process.exit(0);
