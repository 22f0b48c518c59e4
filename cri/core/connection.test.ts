import assert from 'node:assert/strict';
import { connect, constants, createServer, type ClientHttp2Session, type Http2Server } from 'node:http2';
import { duplexPair, type Duplex } from 'node:stream';
import { test } from 'node:test';
import { ConnectionDecoder, type ConnectionEvent, type Side } from './connection.ts';
import { ByteBudget } from './grpc-messages.ts';
import { HpackDecoder } from './hpack.ts';

/*
 * Two kinds of input: what nghttp2 (Node's HTTP/2) sent between a client and a server in one process, captured byte
 * for byte, and frames written by hand for what no library does on purpose.
 */

function grpcMessage(body: Uint8Array, compressed = false): Buffer {
  const head = Buffer.alloc(5);
  head[0] = compressed ? 1 : 0;
  head.writeUInt32BE(body.length, 1);
  return Buffer.concat([head, body]);
}

/** Both directions in one list, in the order in which they were sent. */
type Capture = [Side, Buffer][];

function tapped(from: Duplex, side: Side, capture: Capture): Duplex {
  const write = from.write.bind(from);
  from.write = ((chunk: Buffer, ...rest: []) => {
    capture.push([side, Buffer.from(chunk)]);
    return write(chunk, ...rest);
  }) as typeof from.write;
  return from;
}

async function captured(
  serve: (server: Http2Server) => void,
  use: (session: ClientHttp2Session) => Promise<void>,
  padding = constants.PADDING_STRATEGY_NONE,
  headerTableSize = 4096,
): Promise<Capture> {
  const capture: Capture = [];
  const [here, there] = duplexPair();
  const server = createServer({ paddingStrategy: padding, maxSendHeaderBlockLength: 1 << 20, settings: { headerTableSize } });
  serve(server);
  server.emit('connection', tapped(there, 'server', capture));
  const session = connect('http://localhost', {
    createConnection: () => tapped(here, 'client', capture),
    paddingStrategy: padding,
    maxSendHeaderBlockLength: 1 << 20,
    settings: { headerTableSize },
  });
  await use(session);
  await new Promise<void>((resolve) => session.close(resolve));
  return capture;
}

function call(session: ClientHttp2Session, path: string, bodies: readonly Buffer[], headers: Record<string, string> = {}): Promise<void> {
  return new Promise((resolve, reject) => {
    const request = session.request({ ':method': 'POST', ':path': path, 'content-type': 'application/grpc', te: 'trailers', ...headers });
    for (const body of bodies) request.write(body);
    request.end();
    request
      .on('error', reject)
      .on('close', () => resolve())
      .resume();
  });
}

/** Answers with what came, once, and with a status. */
function echo(server: Http2Server): void {
  server.on('stream', (stream, headers) => {
    const chunks: Buffer[] = [];
    stream.on('data', (chunk: Buffer) => chunks.push(chunk));
    stream.on('end', () => {
      stream.respond({ ':status': 200, 'content-type': 'application/grpc', 'x-echo': String(headers['x-note'] ?? '') }, { waitForTrailers: true });
      stream.on('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }));
      stream.end(Buffer.concat(chunks));
    });
  });
}

function decode(capture: Capture, pieceBytes = Infinity, budget = new ByteBudget(1 << 30)): ConnectionEvent[] {
  const events: ConnectionEvent[] = [];
  const decoder = new ConnectionDecoder(budget, (event) => events.push(event));
  for (const [side, bytes] of capture) {
    for (let at = 0; at < bytes.length; at += pieceBytes) decoder.feed(side, bytes.subarray(at, at + pieceBytes));
  }
  decoder.close();
  return events;
}

/** A call as text: `/path name=value… > message < message = status`. */
function told(events: readonly ConnectionEvent[]): string[] {
  const calls = new Map<number, string[]>();
  const add = (stream: number, text: string): void => void calls.set(stream, [...(calls.get(stream) ?? []), text]);
  const out: string[] = [];
  for (const event of events) {
    if (event.kind === 'blind') out.push(`blind: ${event.reason}`);
    else if (event.kind === 'begin') add(event.stream, event.headers.find(([name]) => name === ':path')?.[1] ?? '');
    else if (event.kind === 'answer') add(event.stream, `[${event.headers.find(([name]) => name === ':status')?.[1]}]`);
    else if (event.kind === 'message') {
      const { bytes, compressed, sizeBytes } = event.message;
      const body = bytes === null ? `(${sizeBytes} bytes)` : bytes.length > 40 ? `${bytes.length}` : Buffer.from(bytes).toString();
      add(event.stream, `${event.from === 'client' ? '>' : '<'}${compressed ? 'z' : ''}${body}`);
    } else
      add(event.stream, event.cut === null ? `=${event.trailers.find(([name]) => name === 'grpc-status')?.[1] ?? ''}` : `cut ${JSON.stringify(event.cut)}`);
  }
  return [...[...calls.values()].map((parts) => parts.join(' ')), ...out];
}

const text = (body: string): Buffer => grpcMessage(Buffer.from(body));

test('calls of a real connection, in one piece or byte by byte', async () => {
  const capture = await captured(echo, async (session) => {
    await Promise.all([call(session, '/s/One', [text('a')]), call(session, '/s/Two', [text('b'), text('c')]), call(session, '/s/Three', [text('')])]);
    await call(session, '/s/Four', [grpcMessage(Buffer.from('zip'), true)]);
  });
  const expected = ['/s/One >a [200] <a =0', '/s/Two >b >c [200] <b <c =0', '/s/Three > [200] < =0', '/s/Four >zzip [200] <zzip =0'];
  assert.deepEqual(told(decode(capture)), expected);
  assert.deepEqual(told(decode(capture, 1)), expected);
  assert.deepEqual(told(decode(capture, 7)), expected);
});

test('padding as large as it may be', async () => {
  const capture = await captured(echo, (session) => call(session, '/s/Padded', [text('padded'), text('more')]), constants.PADDING_STRATEGY_MAX);
  assert.ok(capture.reduce((sum, [, bytes]) => sum + bytes.length, 0) > 800, 'it is padded');
  for (const piece of [Infinity, 1, 3]) assert.deepEqual(told(decode(capture, piece)), ['/s/Padded >padded >more [200] <padded <more =0']);
});

test('header blocks that need CONTINUATION, and every byte in Huffman code', async () => {
  const long = Array.from({ length: 40_000 }, (_, at) => String.fromCharCode(33 + ((at * 31) % 94))).join('');
  const odd = Array.from({ length: 95 }, (_, at) => String.fromCharCode(32 + at))
    .join('')
    .trim();
  const capture = await captured(echo, async (session) => {
    await call(session, '/s/Long', [text('x')], { 'x-long': long, 'x-note': odd });
    await call(session, '/s/After', [text('y')], { 'x-note': odd });
  });
  const types = new Set<number>();
  for (const [side, bytes] of capture)
    for (let at = side === 'client' && bytes.subarray(0, 3).toString() === 'PRI' ? 24 : 0; at + 9 <= bytes.length; at += 9 + bytes.readUIntBE(at, 3))
      types.add(bytes[at + 3] ?? 0);
  assert.ok(types.has(9), 'CONTINUATION was sent');
  const events = decode(capture, 1000);
  const begin = events.find((event) => event.kind === 'begin');
  assert.equal(begin?.kind === 'begin' && begin.headers.find(([name]) => name === 'x-long')?.[1], long);
  const answers = events.filter((event) => event.kind === 'answer').map(({ headers }) => headers.find(([name]) => name === 'x-echo')?.[1]);
  assert.deepEqual(answers, [odd, odd]);
});

test('the examples of RFC 7541, with Huffman code, and a table out of which entries fall', () => {
  // RFC 7541, C.4.1 to C.4.3: three requests on one connection, with Huffman code and a table that fills.
  const decoder = new HpackDecoder();
  const request = (hex: string): string =>
    decoder
      .read(Buffer.from(hex, 'hex'))
      .map(([name, value]) => `${name} ${value}`)
      .join(', ');
  const head = ':method GET, :scheme http, :path /, :authority www.example.com';
  assert.equal(request('828684418cf1e3c2e5f23a6ba0ab90f4ff'), head);
  assert.equal(request('828684be5886a8eb10649cbf'), `${head}, cache-control no-cache`);
  assert.equal(
    request('828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf'),
    ':method GET, :scheme https, :path /index.html, :authority www.example.com, custom-key custom-value',
  );
  // C.6.1 to C.6.3: answers through a table of 256 bytes, out of which entries fall.
  const small = new HpackDecoder();
  small.read(Buffer.from('3fe101', 'hex'));
  const answer = (hex: string): string =>
    small
      .read(Buffer.from(hex, 'hex'))
      .map(([name, value]) => `${name} ${value}`)
      .join(', ');
  assert.match(
    answer('488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3'),
    /^:status 302, cache-control private, date .*, location https:\/\/www\.example\.com$/,
  );
  assert.match(answer('4883640effc1c0bf'), /^:status 307, cache-control private, date/);
  assert.match(
    answer(
      '88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007',
    ),
    /content-encoding gzip, set-cookie foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1$/,
  );
});

test('a table that is made small, large again, and runs over', async () => {
  for (const size of [0, 100, 4096, 65_536]) {
    const capture = await captured(
      echo,
      async (session) => {
        for (let round = 0; round < 60; round++) await call(session, '/s/Same', [text('x')], { 'x-note': `${round % 7}`.repeat(200), [`x-${round}`]: 'once' });
      },
      constants.PADDING_STRATEGY_NONE,
      size,
    );
    const events = decode(capture);
    const notes = events.filter((event) => event.kind === 'answer').map(({ headers }) => headers.find(([name]) => name === 'x-echo')?.[1]);
    assert.deepEqual(
      notes,
      Array.from({ length: 60 }, (_, round) => `${round % 7}`.repeat(200)),
      `table of ${size}`,
    );
  }
});

test('a message of 16 MB, and one that is too large to keep', async () => {
  const large = grpcMessage(Buffer.alloc(16_000_000, 'x'));
  const capture = await captured(echo, (session) => call(session, '/s/Large', [large]));
  assert.deepEqual(told(decode(capture)), ['/s/Large >16000000 [200] <16000000 =0']);
  const budget = new ByteBudget(1000);
  assert.deepEqual(told(decode(capture, Infinity, budget)), ['/s/Large >(16000000 bytes) [200] <(16000000 bytes) =0']);
  assert.equal(budget.usedBytes, 0);
});

// ---- by hand ------------------------------------------------------------------------------------------------------

function frame(type: number, flags: number, stream: number, payload: Uint8Array = Buffer.alloc(0)): Buffer {
  const head = Buffer.alloc(9);
  head.writeUIntBE(payload.length, 0, 3);
  head[3] = type;
  head[4] = flags;
  head.writeUInt32BE(stream, 5);
  return Buffer.concat([head, payload]);
}

const preface = Buffer.from('PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n');
const literal = (name: string, value: string): Buffer =>
  Buffer.concat([Buffer.from([0, name.length]), Buffer.from(name), Buffer.from([value.length]), Buffer.from(value)]);
const settings = frame(4, 0, 0);
const path = literal(':path', '/s/M');
const status = literal('grpc-status', '0');
const opened: Capture = [
  ['client', Buffer.concat([preface, settings])],
  ['server', settings],
];

test('priority, padding and CONTINUATION in one block; frames of other streams between DATA', () => {
  const block = path;
  const padded = Buffer.concat([Buffer.from([3]), Buffer.alloc(5), block.subarray(0, 4), Buffer.alloc(3)]);
  const events = decode([
    ...opened,
    ['client', Buffer.concat([frame(1, 0x8 | 0x20, 1, padded), frame(9, 0, 1, block.subarray(4, 6)), frame(9, 0x4, 1, block.subarray(6))])],
    [
      'client',
      Buffer.concat([frame(1, 0x4, 3, path), frame(2, 0, 3, Buffer.alloc(5)), frame(8, 0, 0, Buffer.from([0, 0, 1, 0])), frame(250, 7, 9, Buffer.alloc(20))]),
    ],
    ['client', Buffer.concat([frame(0, 0, 1, text('hello').subarray(0, 7)), frame(0, 1, 3, text('other')), frame(0, 1, 1, text('hello').subarray(7))])],
    ['server', Buffer.concat([frame(1, 0x5, 3, status), frame(6, 0, 0, Buffer.alloc(8)), frame(1, 0x5, 1, status)])],
  ]);
  assert.deepEqual(told(events), ['/s/M >hello =0', '/s/M >other =0']);
});

test('a call that either side resets, and one that the connection takes with it', () => {
  const code = (value: number): Buffer => Buffer.from([0, 0, 0, value]);
  const events = decode([
    ...opened,
    ['client', Buffer.concat([1, 3, 5].map((stream) => frame(1, 0x4, stream, path)))],
    ['client', frame(3, 0, 1, code(8))],
    ['server', frame(3, 0, 3, code(2))],
  ]);
  assert.deepEqual(told(events), ['/s/M cut {"by":"client","code":8}', '/s/M cut {"by":"server","code":2}', '/s/M cut {"by":"close"}']);
});

for (const [what, capture, reason] of [
  ['a connection that was there before', [['client', frame(1, 0x5, 77, path)]], /does not begin as HTTP\/2 does/],
  ['an answer without a beginning', [['server', frame(0, 0, 1, text('x'))]], /first frame is not SETTINGS/],
  ['garbage after a good beginning', [...opened, ['client', Buffer.alloc(400, 0xff)]], /a frame of type 255/],
  ['an index that stands for nothing', [...opened, ['client', frame(1, 0x5, 1, Buffer.from([0xff, 0x20]))]], /stands for nothing/],
  ['a number without an end', [...opened, ['client', frame(1, 0x5, 1, Buffer.from([0xff, 0xff, 0xff]))]], /ends within a number/],
  ['a text without an end', [...opened, ['client', frame(1, 0x5, 1, Buffer.from([0, 100, 1]))]], /ends within a text/],
  ['a table without bounds', [...opened, ['client', frame(1, 0x5, 1, Buffer.from([0x3f, 0xff, 0xff, 0xff, 0x07]))]], /a header table of/],
  ['a frame within a header block', [...opened, ['client', Buffer.concat([frame(1, 0, 1, path), frame(0, 0, 1, text('x'))])]], /within a header block/],
  ['a CONTINUATION of nothing', [...opened, ['client', frame(9, 0x4, 1, path)]], /continues nothing/],
  ['more padding than bytes', [...opened, ['client', Buffer.concat([frame(1, 0x4, 1, path), frame(0, 0x8, 1, Buffer.from([9, 1]))])]], /more padding/],
] as [string, Capture, RegExp][]) {
  test(`not followed, with the reason: ${what}`, () => {
    const events = decode(capture);
    assert.equal(events.filter((event) => event.kind === 'blind').length, 1);
    assert.match(told(events).at(-1) ?? '', reason);
  });
}

test('header blocks cannot fill memory', () => {
  const endless: Capture = [...opened, ['client', frame(1, 0, 1, path)]];
  for (let round = 0; round < 80; round++) endless.push(['client', frame(9, 0, 1, Buffer.alloc(16_384))]);
  assert.match(told(decode(endless)).at(-1) ?? '', /a header block of more than/);
  // One entry of 4 KB, named ten thousand times.
  const entry = Buffer.concat([Buffer.from([0x40, 1, 0x78, 0x7f, 0xa1, 0x1e]), Buffer.alloc(4000, 'y')]);
  const bomb = Buffer.concat([entry, Buffer.alloc(10_000, 0xbe)]);
  assert.match(told(decode([...opened, ['client', frame(1, 0x4, 1, bomb)]])).at(-1) ?? '', /a header list of more than/);
});

test('whatever bytes come, the decoder ends in a state of its own', () => {
  let seed = 1;
  const random = (): number => (seed = (Math.imul(seed, 1_103_515_245) + 12_345) >>> 0) >>> 8;
  const good = Buffer.concat([frame(1, 0x4, 1, path), frame(0, 1, 1, text('hello'))]);
  for (let round = 0; round < 500; round++) {
    const bytes = Buffer.from(good);
    for (let flips = 0; flips < 1 + (random() % 6); flips++) bytes[random() % bytes.length] = random() & 255;
    const budget = new ByteBudget(1 << 30);
    const events: ConnectionEvent[] = [];
    const decoder = new ConnectionDecoder(budget, (event) => events.push(event));
    for (const [side, piece] of opened) decoder.feed(side, piece);
    decoder.feed('client', bytes);
    decoder.close();
    for (const event of events) if (event.kind === 'message' && event.message.bytes !== null) budget.give(event.message.sizeBytes);
    assert.equal(budget.usedBytes, 0);
  }
});
