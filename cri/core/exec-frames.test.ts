import assert from 'node:assert/strict';
import { test } from 'node:test';
import { constants, createInflate } from 'node:zlib';
import { OpError } from '../../base/errors.ts';
import { exitOf } from './exec-status.ts';
import { SpdyReader, SpdyWriter, type SpdyEvent } from './spdy.ts';
import { webSocketClose, webSocketMessage, WebSocketReader } from './websocket.ts';

const frame = (head: readonly number[], body: readonly number[]): Uint8Array => Uint8Array.from([...head, ...body]);

test('SPDY: header blocks of a connection are one zlib stream that an inflater reads block by block', async () => {
  const writer = new SpdyWriter();
  const inflate = createInflate({ finishFlush: constants.Z_SYNC_FLUSH });
  const read: Buffer[] = [];
  inflate.on('data', (chunk: Buffer) => read.push(chunk));
  for (const [stream, name] of [
    [1, 'error'],
    [3, 'stdin'],
  ] as const) {
    const opened = writer.open(stream, 'streamtype', name);
    const view = new DataView(opened.buffer);
    assert.deepEqual([view.getUint16(0), view.getUint16(2), view.getUint32(4), view.getUint32(8)], [0x8003, 1, opened.length - 8, stream]);
    read.length = 0;
    await new Promise<void>((resolve) => inflate.write(opened.subarray(18), () => resolve()));
    const block = Buffer.concat(read);
    assert.deepEqual([block.readUInt32BE(0), block.subarray(8, 18).toString(), block.subarray(22).toString()], [1, 'streamtype', name]);
  }
  inflate.destroy();
});

test('SPDY: data in pieces, its end, resets and pings', () => {
  const writer = new SpdyWriter();
  const large = new Uint8Array(70_000).fill(7);
  const sent = [...writer.data(3, large), ...writer.data(3, new Uint8Array(0), true)];
  const reader = new SpdyReader();
  const events: SpdyEvent[] = [];
  for (const piece of sent) for (let at = 0; at < piece.length; at += 999) events.push(...reader.push(piece.subarray(at, at + 999)));
  assert.deepEqual(
    events.map((event) => (event.type === 'data' ? [event.stream, event.bytes.length, event.isLast] : event.type)),
    [
      [3, 32_768, false],
      [3, 32_768, false],
      [3, 4_464, false],
      [3, 0, true],
    ],
  );
  assert.deepEqual(reader.push(frame([0x80, 3, 0, 6, 0, 0, 0, 4], [0, 0, 0, 2])), [{ type: 'ping', id: 2 }]);
  assert.deepEqual(reader.push(frame([0x80, 3, 0, 3, 0, 0, 0, 8], [0, 0, 0, 5, 0, 0, 0, 1])), [{ type: 'ended', stream: 5, refused: true }]);
  assert.deepEqual(reader.push(frame([0x80, 3, 0, 2, 1, 0, 0, 4], [0, 0, 0, 5])), [{ type: 'ended', stream: 5, refused: false }]);
  assert.deepEqual(reader.push(frame([0x80, 3, 0, 7, 0, 0, 0, 8], [0, 0, 0, 0, 0, 0, 0, 0])), [{ type: 'goaway' }]);
});

test('websocket: what is sent is masked, what comes is read in pieces and parts', () => {
  for (const size of [0, 125, 126, 70_000]) {
    const sent = webSocketMessage(new Uint8Array(size).fill(9), Uint8Array.of(1, 2, 3, 4));
    const start = size < 126 ? 2 : size < 65_536 ? 4 : 10;
    assert.equal(sent[0], 0x82);
    assert.equal((sent[1] ?? 0) & 0x80, 0x80);
    assert.equal(sent.length, start + 4 + size);
    if (size > 0) assert.equal((sent[start + 4] ?? 0) ^ 1, 9);
  }
  assert.equal(webSocketClose(new Uint8Array(4)).length, 8);
  const reader = new WebSocketReader();
  assert.deepEqual(reader.push(frame([0x02, 2], [1, 104])), []);
  assert.deepEqual(reader.push(frame([0x89, 1], [5])), [{ type: 'ping', bytes: Uint8Array.of(5) }]);
  assert.deepEqual(reader.push(frame([0x80, 1], [105])), [{ type: 'message', bytes: Uint8Array.of(1, 104, 105) }]);
  const long = frame(
    [0x82, 126, 1, 0],
    Array.from({ length: 256 }, () => 3),
  );
  assert.deepEqual(reader.push(long.subarray(0, 3)), []);
  assert.equal(reader.push(long.subarray(3))[0]?.type, 'message');
  assert.deepEqual(reader.push(frame([0x88, 5], [3, 232, 98, 121, 101])), [{ type: 'close', reason: 'bye' }]);
  assert.throws(() => new WebSocketReader().push(Uint8Array.of(0x82, 0x81, 0, 0, 0, 0, 1)), OpError);
  assert.throws(() => new WebSocketReader().push(Uint8Array.of(0x82, 127, 1, 0, 0, 0, 0, 0, 0, 0)), OpError);
});

test('the exit code that the error channel tells', () => {
  const failed = { status: 'Failure', reason: 'NonZeroExitCode', message: 'it ended', details: { causes: [{ reason: 'ExitCode', message: '7' }] } };
  assert.equal(exitOf(JSON.stringify(failed)), 7);
  assert.equal(exitOf('{"status":"Success"}'), 0);
  assert.throws(() => exitOf('{"status":"Failure","message":"no such file"}'), /no such file/);
  assert.throws(() => exitOf('boom'), /boom/);
});

test('websocket: the server’s side sends plainly and takes only what is masked', () => {
  for (const size of [0, 1, 126, 70_000]) {
    const body = new Uint8Array(size).fill(9);
    assert.deepEqual(new WebSocketReader('client').push(webSocketMessage(body, Uint8Array.of(1, 2, 3, 4))), [{ type: 'message', bytes: body }]);
    assert.deepEqual(new WebSocketReader().push(webSocketMessage(body, null)), [{ type: 'message', bytes: body }]);
  }
  assert.throws(() => new WebSocketReader('client').push(webSocketMessage(Uint8Array.of(1), null)), OpError);
});
