import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm, stat } from 'node:fs/promises';
import { connect, constants, createServer, type ClientHttp2Session, type Http2Server, type ServerHttp2Stream } from 'node:http2';
import { connect as connectSocket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { gzipSync } from 'node:zlib';
import { realClock } from '../../base/clock.ts';
import { ArmedRules } from '../../cri/core/fault-rules.ts';
import { parseRule } from '../../cri/core/fault-text.ts';
import { openActing, type Fired } from '../../cri/io/acting.ts';

const LARGE_BYTES = 40 * 1024 * 1024;
const VERSION = '/runtime.v1.RuntimeService/Version';
const EVENTS = '/runtime.v1.RuntimeService/GetContainerEvents';

let folder: string;
let upstream: Http2Server;
let made = 0;
/** What the runtime saw of each call. */
let seen: object[] = [];
/** Bytes that the runtime could write before it had to wait. */
let flooded = 0;
const opened = new Set<import('node:http2').ServerHttp2Session>();

function framed(text: string | Buffer, flag = 0): Buffer {
  const body = Buffer.from(text);
  const prefix = Buffer.alloc(5);
  prefix[0] = flag;
  prefix.writeUInt32BE(body.length, 1);
  return Buffer.concat([prefix, body]);
}

function hash(bytes: readonly Buffer[]): string {
  return createHash('sha256').update(Buffer.concat(bytes)).digest('hex').slice(0, 16);
}

const OK = { 'grpc-status': '0', 'grpc-message': 'fine' };

/** A runtime that answers as the call's `x-case` says. */
function answer(stream: ServerHttp2Stream, wanted: string): void {
  const respond = (more: object = {}): void => {
    stream.respond({ ':status': 200, 'content-type': 'application/grpc', ...more }, { waitForTrailers: true });
    stream.once('wantTrailers', () => stream.sendTrailers({ ...OK, 'x-bin': ['AAE=', 'AgM='] }));
  };
  if (wanted === 'bare')
    stream.respond({ ':status': 200, 'content-type': 'application/grpc', 'grpc-status': '5', 'grpc-message': 'not found' }, { endStream: true });
  else if (wanted === 'large') {
    respond();
    stream.end(framed(Buffer.alloc(LARGE_BYTES, 7)));
  } else if (wanted === 'three') {
    respond({ 'grpc-encoding': 'gzip', 'x-many': ['1', '2'] });
    stream.write(framed('one'));
    stream.write(framed(gzipSync('two'), 1));
    stream.end(framed('three'));
  } else if (wanted.startsWith('reset')) {
    respond();
    stream.write(framed('one'), () => setTimeout(() => stream.close(Number(wanted.slice(5))), 20));
  } else if (wanted.startsWith('refuse')) stream.close(Number(wanted.slice(6)));
  else if (wanted === 'early') {
    respond();
    stream.end(framed('enough'));
  } else if (wanted === 'info') {
    stream.additionalHeaders({ ':status': 103, 'x-hint': 'a' });
    respond();
    stream.end(framed('x'));
  } else if (wanted === 'flood') {
    respond();
    const pour = (): void => {
      while (!stream.destroyed && flooded < 256 * 1024 * 1024) {
        flooded += 65_536;
        if (!stream.write(Buffer.alloc(65_536))) return void stream.once('drain', pour);
      }
    };
    pour();
  } else if (wanted !== 'never') {
    respond();
    stream.end(framed('x'));
  }
}

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'acting-'));
  upstream = createServer({
    streamResetBurst: 1e9,
    streamResetRate: 1e9,
    maxHeaderListPairs: 5000,
    maxSessionMemory: 4000,
    settings: { maxHeaderListSize: 16 * 1024 * 1024, initialWindowSize: 1024 * 1024 },
  });
  upstream.on('session', (session) => {
    opened.add(session);
    session.once('close', () => opened.delete(session));
    session.on('error', () => {});
  });
  upstream.on('stream', (stream: ServerHttp2Stream, headers, flags: number, raw: readonly string[]) => {
    const body: Buffer[] = [];
    const entry: Record<string, unknown> = { raw, ends: (flags & 1) === 1 };
    seen.push(entry);
    const wanted = String(headers['x-case'] ?? '');
    stream.on('error', () => {});
    stream.on('trailers', (_h, _f, found) => (entry['trailers'] = found as unknown));
    if (wanted === 'held') stream.once('data', () => void (stream.pause(), setTimeout(() => stream.resume(), 400)));
    stream.on('data', (bytes: Buffer) => {
      body.push(bytes);
      if (wanted === 'early' && body.length === 1) answer(stream, wanted);
    });
    stream.on('aborted', () => (entry['aborted'] = true));
    stream.on('end', () => {
      if (stream.rstCode === 0 && wanted === 'held') entry['whole'] = true;
      else if (stream.rstCode === 0 && wanted !== 'early') answer(stream, wanted);
    });
    stream.on('close', () => {
      entry['rst'] = stream.rstCode;
      entry['body'] = hash(body);
    });
  });
  await new Promise<void>((resolve) => upstream.listen(join(folder, 'runtime'), resolve));
});

after(async () => {
  for (const session of opened) session.destroy();
  await new Promise((resolve) => upstream.close(resolve));
  await rm(folder, { recursive: true });
});

interface Armed extends AsyncDisposable {
  readonly path: string;
  readonly fired: readonly Fired[];
}

async function open(...lines: readonly string[]): Promise<Armed> {
  const path = join(folder, `acting-${++made}`);
  const fired: Fired[] = [];
  const armed = new ArmedRules(lines.map(parseRule), () => 0);
  const acting = await openActing({ path, upstream: join(folder, 'runtime'), clock: realClock, armed: () => armed, onFired: (one) => fired.push(one) });
  return {
    path,
    fired,
    [Symbol.asyncDispose]: () => acting[Symbol.asyncDispose](),
  };
}

function session(path: string): ClientHttp2Session & AsyncDisposable {
  const made_ = connect('http://localhost', {
    createConnection: () => connectSocket(path),
    maxHeaderListPairs: 5000,
    maxSendHeaderBlockLength: 1024 * 1024,
    peerMaxConcurrentStreams: 10_000,
    settings: { initialWindowSize: 1024 * 1024 },
  });
  made_.on('error', () => {});
  return Object.assign(made_, {
    [Symbol.asyncDispose]: async () => {
      made_.destroy();
    },
  });
}

function closed(one: ClientHttp2Session): Promise<void> {
  return new Promise((resolve) => (one.destroyed ? resolve() : one.once('close', () => resolve())));
}

interface Ask {
  readonly path?: string;
  readonly headers?: Record<string, string | string[]>;
  readonly body?: readonly Buffer[];
  readonly trailers?: Record<string, string>;
  /** Cancels when that has come. */
  readonly cancelOn?: 'response' | 'data';
  /** Keeps its side open until the answer is there. */
  readonly open?: boolean;
}

interface Told {
  head?: readonly string[];
  info?: readonly string[];
  body: string;
  bytes: number;
  trailers?: readonly string[];
  rst: number;
}

async function ask(
  from: ClientHttp2Session,
  wanted: string,
  { path = VERSION, headers = {}, body = [framed('')], trailers, cancelOn, open: keepsOpen }: Ask = {},
): Promise<Told> {
  const stream = from.request(
    { ':method': 'POST', ':path': path, ':authority': 'localhost', 'content-type': 'application/grpc', te: 'trailers', 'x-case': wanted, ...headers },
    { endStream: body.length === 0, waitForTrailers: trailers !== undefined },
  );
  const told: Told = { body: '', bytes: 0, rst: 0 };
  const pieces: Buffer[] = [];
  stream.on('error', () => {});
  stream.on('headers', (_h, _f, raw: readonly string[]) => (told.info = raw));
  stream.on('response', (_h, _f, raw: readonly string[]) => {
    told.head = raw.filter((_value, at) => raw[at - (at % 2)] !== 'date');
    if (cancelOn === 'response') stream.close(constants.NGHTTP2_CANCEL);
  });
  stream.on('trailers', (_h, _f, raw: readonly string[]) => {
    told.trailers = raw;
    if (keepsOpen === true) stream.end(framed('late'));
  });
  stream.on('data', (bytes: Buffer) => {
    pieces.push(bytes);
    if (cancelOn === 'data') stream.close(constants.NGHTTP2_CANCEL);
  });
  if (trailers !== undefined) stream.on('wantTrailers', () => stream.sendTrailers(trailers));
  for (const piece of body) stream.write(piece);
  if (body.length > 0 && keepsOpen !== true) stream.end();
  await new Promise((resolve) => stream.once('close', resolve));
  told.bytes = pieces.reduce((sum, { length }) => sum + length, 0);
  told.body = hash(pieces);
  told.rst = stream.rstCode;
  return told;
}

async function settled(count: number): Promise<readonly object[]> {
  for (let tries = 0; seen.length < count || seen.some((entry) => !('rst' in entry)); tries++) {
    assert.ok(tries < 200, JSON.stringify(seen));
    await delay(10);
  }
  return seen;
}

for (const way of ['straight', 'acting'] as const)
  test(`a large request that is cancelled half-way is cancelled for the runtime, and never whole to it: ${way}`, async () => {
    seen = [];
    await using acting = await open('RunPodSandbox delay 1ms');
    await using from = session(way === 'acting' ? acting.path : join(folder, 'runtime'));
    const stream = from.request({ ':method': 'POST', ':path': VERSION, 'content-type': 'application/grpc', te: 'trailers', 'x-case': 'held' });
    stream.on('error', () => {});
    const large = Buffer.alloc(8 * 1024 * 1024, 1);
    const frame = framed(large);
    stream.write(frame);
    await delay(200);
    stream.close(constants.NGHTTP2_CANCEL);
    const [entry] = (await settled(1)) as { rst: number; whole?: true; aborted?: true; body: string }[];
    assert.deepEqual([entry?.rst, entry?.whole, entry?.aborted], [constants.NGHTTP2_CANCEL, undefined, true]);
    assert.notEqual(entry?.body, hash([frame]));
    // The connection lives on.
    assert.equal((await ask(from, 'plain')).rst, 0);
  });

const cases: Readonly<Record<string, [wanted: string, ask?: Ask]>> = {
  'a call and its answer': ['plain'],
  'headers that come twice, and of all kinds': [
    'plain',
    { headers: { 'x-a-bin': ['AA==', 'AQ=='], 'grpc-timeout': '5S', 'user-agent': 'grpc-go/1.80', 'x-long': 'v'.repeat(60_000) } },
  ],
  'hundreds of headers': ['plain', { headers: Object.fromEntries(Array.from({ length: 900 }, (_, at) => [`x-${at}`, String(at)])) }],
  'an answer of trailers only': ['bare'],
  'a message of 40 MB in the answer': ['large'],
  'a message of 40 MB in the question': ['plain', { body: [framed(Buffer.alloc(LARGE_BYTES, 3))] }],
  'messages of which some are compressed': ['three', { path: EVENTS }],
  'an unknown method': ['plain', { path: '/runtime.v1.RuntimeService/NotYetInvented' }],
  'an unknown service': ['plain', { path: '/of.Somebody/Else' }],
  'a question without a message': ['plain', { body: [] }],
  'trailers of a question': ['plain', { trailers: { 'x-after': 'all' } }],
  'a reset in mid-answer': ['reset2', { path: EVENTS }],
  'a cancellation by the runtime': ['reset8', { path: EVENTS }],
  'a refusal': ['refuse7'],
  calm: ['refuse11'],
  'informational headers': ['info'],
  'a caller that cancels at the first header': ['three', { path: EVENTS, cancelOn: 'response' }],
  'an answer before the question has ended': ['early', { open: true }],
  'many messages in a question': ['plain', { body: Array.from({ length: 50 }, (_, at) => framed(`piece ${at}`)) }],
};

for (const rule of ['StopContainer hang', '* pod=nobody/nothing hang']) {
  for (const [name, [wanted, asked]] of Object.entries(cases)) {
    test(`${rule}: carries ${name} as it is`, async () => {
      seen = [];
      await using straight = session(join(folder, 'runtime'));
      const direct = { told: await ask(straight, wanted, asked), seen: await settled(1) };
      seen = [];
      await using armed = await open(rule);
      await using through = session(armed.path);
      const acted = { told: await ask(through, wanted, asked), seen: await settled(1) };
      if (asked?.cancelOn !== undefined) for (const { told } of [direct, acted]) Object.assign(told, { bytes: 0, body: '', trailers: undefined });
      assert.deepEqual(acted, direct);
      assert.deepEqual(armed.fired, []);
    });
  }
}

test('five thousand cancelled calls in a row, and a thousand at a time', async () => {
  await using armed = await open('StopContainer pod=x hang');
  await using client = session(armed.path);
  for (let count = 0; count < 5000; count++) {
    const stream = client.request({ ':method': 'POST', ':path': VERSION, 'x-case': 'never' });
    stream.on('error', () => {});
    stream.close(constants.NGHTTP2_CANCEL);
    if (count % 100 === 0) await once(stream, 'close');
  }
  const all = await Promise.all(Array.from({ length: 1000 }, () => ask(client, 'plain')));
  assert.equal(all.filter(({ trailers }) => trailers?.[1] === '0').length, 1000);
  assert.equal(client.destroyed, false);
});

test('a caller that does not read is not read for', async () => {
  flooded = 0;
  await using armed = await open('StopContainer hang');
  await using client = session(armed.path);
  const stream = client.request({ ':method': 'POST', ':path': EVENTS, 'x-case': 'flood' });
  stream.on('error', () => {});
  stream.end();
  const seenBytes = [-1, flooded];
  for (let tries = 0; seenBytes.at(-1) === 0 || seenBytes.at(-1) !== seenBytes.at(-2); tries++) {
    assert.ok(tries < 100);
    await delay(50);
    seenBytes.push(flooded);
  }
  assert.ok(flooded < 32 * 1024 * 1024, `${flooded} bytes`);
  stream.close(constants.NGHTTP2_CANCEL);
});

test('its socket is its owner’s alone', async () => {
  await using armed = await open();
  assert.equal((await stat(armed.path)).mode & 0o777, 0o600);
});

test('a runtime that is away, or goes, ends the connection', async () => {
  const path = join(folder, `away-${++made}`);
  const acting = await openActing({ path, upstream: join(folder, 'nothing'), clock: realClock, armed: () => new ArmedRules([], () => 0), onFired: () => {} });
  await using client = session(path);
  await closed(client);
  await acting[Symbol.asyncDispose]();
  await using armed = await open();
  await using other = session(armed.path);
  await ask(other, 'plain');
  for (const one of opened) one.destroy();
  await closed(other);
});

test('a runtime’s own farewell reaches the caller, and the calls that are open end well', async () => {
  await using armed = await open('GetContainerEvents delay 200ms');
  await using client = session(armed.path);
  await ask(client, 'plain');
  const slow = ask(client, 'three', { path: EVENTS });
  const own = [...opened].at(-1);
  const goaway = once(client, 'goaway');
  own?.goaway(0, 2 ** 31 - 1);
  const [code] = (await goaway) as [number];
  assert.equal(code, 0);
  // It was not begun when the farewell came: it is refused, and may be tried again on another connection.
  assert.equal((await slow).rst, constants.NGHTTP2_REFUSED_STREAM);
});
