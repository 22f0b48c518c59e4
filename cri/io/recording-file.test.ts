import assert from 'node:assert/strict';
import { appendFile, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { zstdCompressSync } from 'node:zlib';
import { hasCode, type OpCode } from '../../base/errors.ts';
import type { RecordedEntry, RecordingHeader } from '../core/recording.ts';
import { readRecording } from './recording-read.ts';
import { RecordingWriter, SIZE_HEAD_BYTES, SIZE_MAGIC } from './recording-write.ts';

let folder: string;
let made = 0;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'recording-'));
});

after(async () => {
  await rm(folder, { recursive: true });
});

const path = (name: string): string => join(folder, `${name}-${++made}`);
const at = { wall: '2026-01-02T03:04:05.000Z', monoMs: 1 };
const header: RecordingHeader = { type: 'recording', version: 1, recorder: 'a test', startedAt: at, listen: '/a', upstream: '/b', redacted: true };

/** A file as a recorder makes it, of lines that need not be entries. */
function framed(...lines: readonly unknown[]): Buffer {
  const frame = zstdCompressSync(lines.map((line) => (typeof line === 'string' ? line : JSON.stringify(line))).join('\n'));
  const head = Buffer.alloc(SIZE_HEAD_BYTES);
  head.writeUInt32LE(SIZE_MAGIC, 0);
  head.writeUInt32LE(4, 4);
  head.writeUInt32LE(frame.length, 8);
  return Buffer.concat([head, frame]);
}

function write(file: string, entries: readonly RecordedEntry[], append = false): void {
  using writer = new RecordingWriter(file, { maxBytes: 1e9, append });
  for (const entry of entries) writer.add(entry);
}

async function typesIn(file: string): Promise<string[]> {
  const types: string[] = [];
  for await (const entry of readRecording(file, (bytes) => assert.fail(`${bytes} bytes are cut off`))) types.push(entry.type);
  return types;
}

test('what is no recording, or a damaged one, is refused in words', async () => {
  const cases: readonly [string, Buffer, OpCode][] = [
    ['nothing in it', Buffer.alloc(0), 'invalid'],
    ['no header', framed({ type: 'connection', connection: 1, at, event: 'open' }), 'invalid'],
    ['a newer version', framed({ ...header, version: 9 }), 'unsupported'],
    ['a version that is no number', framed({ ...header, version: 'nine' }), 'invalid'],
    ['a header without its start', framed({ ...header, startedAt: undefined }), 'invalid'],
    ['half a line', framed(header, '{"type":"call",'), 'invalid'],
    ['a line that is no object', framed(header, 'null'), 'invalid'],
    ['a call without its messages', framed(header, { type: 'call', call: 1, method: 'Version', service: '', start: at, end: null }), 'invalid'],
    ['a connection without a time', framed(header, { type: 'connection', connection: 1, event: 'open' }), 'invalid'],
  ];
  for (const [what, bytes, code] of cases) {
    const file = path('damaged');
    await writeFile(file, bytes);
    await assert.rejects(typesIn(file), (error) => hasCode(error, code), what);
  }
  await assert.rejects(typesIn(folder), (error) => hasCode(error, 'invalid'), 'a folder');
});

test('entries of a kind that a later minor version may add are passed on', async () => {
  const file = path('later');
  await writeFile(file, framed(header, { type: 'remark', text: 'later' }));
  assert.deepEqual(await typesIn(file), ['recording', 'remark']);
});

test('a bit that has changed on the disk is noticed', async () => {
  const file = path('flipped');
  write(file, [header, ...Array.from({ length: 200 }, (_, connection) => ({ type: 'connection', connection, at, event: 'open' }) as const)]);
  const whole = await readFile(file);
  const types = await typesIn(file);
  const entries = async (): Promise<string> => {
    let text = '';
    for await (const entry of readRecording(file)) text += JSON.stringify(entry);
    return text;
  };
  const right = await entries();
  let noticed = 0;
  for (let index = SIZE_HEAD_BYTES; index < whole.length; index += 1) {
    const bytes = Buffer.from(whole);
    bytes[index] = (bytes[index] ?? 0) ^ 0x10;
    await writeFile(file, bytes);
    // Some bits of zstd mean nothing: then all is as it was.
    const read = await entries().catch((error: unknown) => (hasCode(error, 'invalid') ? null : assert.fail(String(error))));
    if (read === null) noticed += 1;
    else assert.equal(read, right, `byte ${index}`);
  }
  assert.ok(types.length === 201 && noticed > 100, `${noticed} of ${whole.length} were noticed`);
});

test('adding to a recording whose recorder was killed leaves out its cut end, and can be read', async () => {
  const file = path('killed');
  write(file, [header, { type: 'connection', connection: 1, at, event: 'open' }]);
  await appendFile(file, framed(header).subarray(0, 30));
  write(file, [header, { type: 'stop', at, reason: 'ended', calls: 0, blindConnections: 0 }], true);
  assert.deepEqual(await typesIn(file), ['recording', 'connection', 'recording', 'stop']);
});

test('adding to a file that is no recording is refused, and changes nothing', async () => {
  const file = path('notes');
  await writeFile(file, 'what somebody wrote down and wants to keep\n');
  assert.throws(
    () => write(file, [header], true),
    (error) => hasCode(error, 'invalid'),
  );
  assert.equal(await readFile(file, 'utf8'), 'what somebody wrote down and wants to keep\n');
});

test('what finds no room on the disk is told once, and is not written later into the middle', () => {
  const writer = new RecordingWriter('/dev/full', { maxBytes: 1e9, append: true });
  writer.add(header);
  assert.throws(() => writer.flush(), /ENOSPC/);
  writer.flush();
  writer[Symbol.dispose]();
});
