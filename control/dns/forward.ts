import { createSocket } from 'node:dgram';
import { connect } from 'node:net';
import type { Clock } from '../../base/clock.ts';
import type { Rng } from '../../base/rng.ts';

const ATTEMPT_MS = 2000;
const DNS_PORT = 53;

export interface Upstream {
  host: string;
  port: number;
}

/** `192.0.2.1`, `192.0.2.1:5353`, `2001:db8::1`, `[2001:db8::1]:53`. */
export function parseUpstream(text: string): Upstream {
  const bracketed = /^\[(.+)\](?::(\d+))?$/.exec(text);
  if (bracketed !== null) return { host: bracketed[1] ?? '', port: Number(bracketed[2] ?? DNS_PORT) };
  const parts = text.split(':');
  return parts.length === 2 ? { host: parts[0] ?? '', port: Number(parts[1]) } : { host: text, port: DNS_PORT };
}

/** Asks the upstreams one after the other; undefined when none answers in time. The answer carries the question's id. */
export async function forward(
  query: Uint8Array,
  transport: 'udp' | 'tcp',
  upstreams: readonly Upstream[],
  deps: { clock: Clock; rng: Rng },
  signal: AbortSignal,
): Promise<Uint8Array | undefined> {
  // Our own id on the way up: a guessed answer must hit it and the port.
  const id = deps.rng.int(65536);
  const asked = Uint8Array.from(query);
  new DataView(asked.buffer).setUint16(0, id);
  for (const upstream of upstreams) {
    if (signal.aborted) return undefined;
    const attempt = new AbortController();
    using _timer = deps.clock.after(ATTEMPT_MS, () => attempt.abort());
    const answer = await (transport === 'udp' ? overUdp : overTcp)(asked, id, upstream, AbortSignal.any([attempt.signal, signal]));
    if (answer === undefined) continue;
    const copy = Uint8Array.from(answer);
    copy.set(query.subarray(0, 2));
    return copy;
  }
  return undefined;
}

function isAnswerTo(id: number, bytes: Uint8Array): boolean {
  return bytes.length >= 12 && (((bytes[0] ?? 0) << 8) | (bytes[1] ?? 0)) === id && ((bytes[2] ?? 0) & 0x80) !== 0;
}

function overUdp(query: Uint8Array, id: number, { host, port }: Upstream, signal: AbortSignal): Promise<Uint8Array | undefined> {
  return new Promise((resolve) => {
    const socket = createSocket(host.includes(':') ? 'udp6' : 'udp4');
    let isOpen = true;
    const done = (answer: Uint8Array | undefined): void => {
      if (!isOpen) return;
      isOpen = false;
      signal.removeEventListener('abort', stopped);
      socket.close();
      resolve(answer);
    };
    const stopped = (): void => done(undefined);
    signal.addEventListener('abort', stopped, { once: true });
    socket.on('error', stopped);
    socket.on('message', (bytes) => {
      if (isAnswerTo(id, bytes)) done(bytes);
    });
    // Connected: the kernel drops what others send, and tells when nobody listens there.
    socket.connect(port, host, () => {
      if (isOpen) socket.send(query);
    });
    if (signal.aborted) stopped();
  });
}

function overTcp(query: Uint8Array, id: number, { host, port }: Upstream, signal: AbortSignal): Promise<Uint8Array | undefined> {
  return new Promise((resolve) => {
    const socket = connect({ host, port, signal });
    let received = Buffer.alloc(0);
    const done = (answer: Uint8Array | undefined): void => {
      resolve(answer);
      socket.destroy();
    };
    socket.on('error', () => done(undefined));
    socket.on('close', () => done(undefined));
    socket.on('connect', () => socket.write(framed(query)));
    socket.on('data', (chunk) => {
      received = Buffer.concat([received, chunk]);
      if (received.length < 2 || received.length < 2 + received.readUInt16BE(0)) return;
      const answer = received.subarray(2, 2 + received.readUInt16BE(0));
      done(isAnswerTo(id, answer) ? answer : undefined);
    });
  });
}

/** Over TCP each message is preceded by its length. */
export function framed(message: Uint8Array): Uint8Array {
  const frame = new Uint8Array(message.length + 2);
  new DataView(frame.buffer).setUint16(0, message.length);
  frame.set(message, 2);
  return frame;
}
