import { connect as connectHttp2, constants, type ClientHttp2Stream } from 'node:http2';
import { setTimeout } from 'node:timers/promises';
import { durationText } from '../../base/duration.ts';
import { messageOf } from '../../base/errors.ts';
import { rpcStatuses } from '../../cri/mod.ts';
import { address, type ProbeAnswer } from './probes-net.ts';

const servingStatus = ['UNKNOWN', 'SERVING', 'NOT_SERVING', 'SERVICE_UNKNOWN'];

/** What a gRPC probe asks for. */
export interface GrpcTarget {
  readonly host: string;
  readonly port: number;
  /** Empty: the server as a whole. */
  readonly service: string;
  /** Certificates are not judged (KEP-4939). */
  readonly tls: boolean;
}

/** Upstream's client tries again after so long, and 1.6 times as long each time: connections that fail are no answer. */
const firstRedialMs = 1000;
const redialGrowth = 1.6;

/**
 * A gRPC probe (KEP-2727): one bare call of grpc.health.v1.Health/Check on a connection of its own. What refuses the
 * connection is asked again until the time is up, as upstream's client does; so only the time limit is told.
 */
export async function probeGrpc(target: GrpcTarget, timeoutMs: number, signal: AbortSignal): Promise<ProbeAnswer> {
  const late = AbortSignal.timeout(timeoutMs);
  for (let redialMs = firstRedialMs; ; redialMs *= redialGrowth) {
    const answer = await callOnce(target, timeoutMs, late, signal);
    if (answer !== null) return answer;
    await setTimeout(redialMs, undefined, { signal: AbortSignal.any([late, signal]) }).catch(() => signal.throwIfAborted());
  }
}

/** One connection and its call; null: there was no connection, and time is left. */
function callOnce({ host, port, service, tls }: GrpcTarget, timeoutMs: number, late: AbortSignal, signal: AbortSignal): Promise<ProbeAnswer | null> {
  const where = address(host, port);
  const within = durationText(timeoutMs);
  const tooLate = (): string => `timeout: failed to connect service ${JSON.stringify(where)} within ${within}: context deadline exceeded`;
  return new Promise((resolve, reject) => {
    if (signal.aborted) return reject(signal.reason as Error);
    if (late.aborted) return resolve({ result: 'failure', output: tooLate() });
    const session = connectHttp2(`${tls ? 'https' : 'http'}://${where}`, { settings: { enablePush: false }, ...(tls ? { rejectUnauthorized: false } : {}) });
    let connected = false;
    const end = (answer: ProbeAnswer | null): void => {
      signal.removeEventListener('abort', stopped);
      late.removeEventListener('abort', timedOut);
      session.destroy();
      resolve(answer);
    };
    const failure = (output: string): void => end({ result: 'failure', output });
    const stopped = (): void => {
      late.removeEventListener('abort', timedOut);
      session.destroy();
      reject(signal.reason as Error);
    };
    const timedOut = (): void => failure(connected ? `timeout: health rpc did not complete within ${within}` : tooLate());
    signal.addEventListener('abort', stopped, { once: true });
    late.addEventListener('abort', timedOut, { once: true });
    session.on('remoteSettings', () => (connected = true));
    session.on('error', (error) => (connected ? failure(`error: health rpc probe failed: ${messageOf(error)}`) : end(null)));
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
      (code, message, body) => end(connected ? judge(code, message, body, within) : null),
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
