import { connect as connectHttp2, constants, type ClientHttp2Stream } from 'node:http2';
import { connect } from 'node:net';
import { messageOf } from '../../base/errors.ts';
import { durationText } from '../../base/duration.ts';
import { rpcStatuses } from '../../cri/mod.ts';

/** What one run of a probe said. `error` is no result: it does not count. */
export interface ProbeAnswer {
  readonly result: 'success' | 'warning' | 'failure' | 'error';
  readonly output: string;
}

const address = (host: string, port: number): string => (host.includes(':') && !host.startsWith('[') ? `[${host}]:${port}` : `${host}:${port}`);

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

const servingStatus = ['UNKNOWN', 'SERVING', 'NOT_SERVING', 'SERVICE_UNKNOWN'];

/** A gRPC probe (KEP-2727): one bare call of grpc.health.v1.Health/Check on a connection of its own, in clear text. */
export function probeGrpc(host: string, port: number, service: string, timeoutMs: number, signal: AbortSignal): Promise<ProbeAnswer> {
  const where = address(host, port);
  const within = durationText(timeoutMs);
  return new Promise((resolve, reject) => {
    const session = connectHttp2(`http://${where}`, { settings: { enablePush: false } });
    let connected = false;
    const end = (answer: ProbeAnswer): void => {
      clearTimeout(late);
      signal.removeEventListener('abort', stopped);
      session.destroy();
      resolve(answer);
    };
    const failure = (output: string): void => end({ result: 'failure', output });
    const stopped = (): void => {
      clearTimeout(late);
      session.destroy();
      reject(signal.reason as Error);
    };
    const late = setTimeout(
      () =>
        failure(
          connected
            ? `timeout: health rpc did not complete within ${within}`
            : `timeout: failed to connect service ${JSON.stringify(where)} within ${within}: context deadline exceeded`,
        ),
      timeoutMs,
    );
    if (signal.aborted) return stopped();
    signal.addEventListener('abort', stopped, { once: true });
    session.on('remoteSettings', () => (connected = true));
    session.on('error', (error) =>
      failure(
        connected
          ? `error: health rpc probe failed: ${messageOf(error)}`
          : `error: failed to connect service at ${JSON.stringify(where)}: ${dialText(error, host, port)}`,
      ),
    );
    const stream = session.request({
      ':method': 'POST',
      ':path': '/grpc.health.v1.Health/Check',
      'content-type': 'application/grpc',
      te: 'trailers',
      'user-agent': 'kube-probe/1.37 nodelet',
      'grpc-timeout': `${timeoutMs}m`,
    });
    readCall(
      stream,
      (code, message, body) => end(judge(code, message, body, within)),
      (error) => connected && failure(`error: health rpc probe failed: ${messageOf(error)}`),
    );
    stream.end(checkRequest(service));
    return undefined;
  });
}

/** HealthCheckRequest{service} in a gRPC frame. */
function checkRequest(service: string): Buffer {
  const name = Buffer.from(service);
  const length: number[] = [];
  for (let rest = name.length; ; rest >>>= 7) {
    if (rest < 0x80) {
      length.push(rest);
      break;
    }
    length.push((rest & 0x7f) | 0x80);
  }
  const message = name.length === 0 ? Buffer.alloc(0) : Buffer.concat([Buffer.from([0x0a, ...length]), name]);
  const frame = Buffer.alloc(5);
  frame.writeUInt32BE(message.length, 1);
  return Buffer.concat([frame, message]);
}

function readCall(stream: ClientHttp2Stream, done: (code: number, message: string, body: Buffer) => void, failed: (error: unknown) => void): void {
  const pieces: Buffer[] = [];
  let size = 0;
  let status: { code: number; message: string } | undefined;
  const take = (headers: Record<string, unknown>): void => {
    const code = headers['grpc-status'];
    const message = headers['grpc-message'];
    if (code !== undefined) status = { code: Number(code), message: typeof message === 'string' ? decode(message) : '' };
    else if (headers[constants.HTTP2_HEADER_STATUS] !== undefined && headers[constants.HTTP2_HEADER_STATUS] !== 200)
      status = { code: 2, message: `unexpected HTTP status code received from server: ${String(headers[constants.HTTP2_HEADER_STATUS])}` };
  };
  stream.on('response', (headers) => take(headers));
  stream.on('trailers', (headers) => take(headers));
  stream.on('data', (piece: Buffer) => {
    size += piece.length;
    if (size <= 64 * 1024) pieces.push(piece);
    else stream.close(constants.NGHTTP2_CANCEL);
  });
  stream.on('error', failed);
  stream.on('end', () => done(status?.code ?? 13, status?.message ?? 'server closed the stream without sending trailers', Buffer.concat(pieces)));
}

function decode(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

function judge(code: number, message: string, body: Buffer, within: string): ProbeAnswer {
  if (code === 12) return { result: 'failure', output: `error: this server does not implement the grpc health protocol (grpc.health.v1.Health): ${message}` };
  if (code === 4) return { result: 'failure', output: `timeout: health rpc did not complete within ${within}` };
  if (code !== 0)
    return { result: 'failure', output: `error: health rpc probe failed: rpc error: code = ${rpcStatuses[code] ?? `Code(${code})`} desc = ${message}` };
  // HealthCheckResponse{status = 1}: field 1, varint; absent is UNKNOWN.
  const status = body.length >= 7 && body[5] === 0x08 ? (body[6] ?? 0) : 0;
  if (status === 1) return { result: 'success', output: 'service healthy' };
  return { result: 'failure', output: `service unhealthy (responded with ${JSON.stringify(servingStatus[status] ?? String(status))})` };
}
