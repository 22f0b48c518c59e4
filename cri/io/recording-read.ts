import { open, type FileHandle } from 'node:fs/promises';
import { promisify } from 'node:util';
import { zstdDecompress } from 'node:zlib';
import { OpError } from '../../base/errors.ts';
import { isEntry, RECORDING_VERSION, type RecordedEntry } from '../core/recording.ts';
import { SIZE_HEAD_BYTES, SIZE_MAGIC } from './recording-write.ts';

const decompress = promisify(zstdDecompress);
/** No frame of ours comes near. */
const MAX_FRAME_BYTES = 512 * 1024 * 1024;
/** Of a line that is wrong. */
const SHOWN_CHARS = 80;
const WHOLE = { maxOutputLength: MAX_FRAME_BYTES };
/** What every recording begins with. */
const BEGINNING = '{"type":"recording",';

async function readAt(file: FileHandle, at: number, length: number): Promise<Buffer> {
  const bytes = Buffer.alloc(length);
  let got = 0;
  while (got < length) {
    const { bytesRead } = await file.read(bytes, got, length - got, at + got);
    if (bytesRead === 0) break;
    got += bytesRead;
  }
  return bytes.subarray(0, got);
}

interface RecordingFrame {
  /** Where it begins in the file: what `readFrameAt` takes. */
  readonly at: number;
  /** JSON lines. */
  readonly text: string;
}

/** One frame of a recording that was read before. Throws OpError `invalid` where there is none any more. */
export async function readFrameAt(file: FileHandle, at: number): Promise<string> {
  const head = await readAt(file, at, SIZE_HEAD_BYTES);
  const isFrame = head.length === SIZE_HEAD_BYTES && head.readUInt32LE(0) === SIZE_MAGIC && head.readUInt32LE(8) <= MAX_FRAME_BYTES;
  const frame = isFrame ? await readAt(file, at + SIZE_HEAD_BYTES, head.readUInt32LE(8)) : Buffer.alloc(0);
  try {
    return (await decompress(frame, WHOLE)).toString();
  } catch (cause) {
    throw new OpError('invalid', 'read a recording again', `at byte ${at} is not what was there`, { cause, advice: 'the file was changed; open it anew' });
  }
}

/** The frames of a recording, one in memory at a time; the rest is as with `readRecording`. */
export async function* readFrames(path: string, onCut: (bytes: number) => void = () => {}): AsyncGenerator<RecordingFrame> {
  const doing = `read the recording ${path}`;
  const foreign = (detail: string, cause?: unknown): OpError =>
    new OpError('invalid', doing, detail, { cause, advice: 'recordings are made by: nodelet cri tap --record FILE' });
  let file: FileHandle;
  try {
    file = await open(path, 'r');
  } catch (cause) {
    const { code, message } = cause as NodeJS.ErrnoException;
    throw new OpError(code === 'ENOENT' ? 'not-found' : code === 'EACCES' ? 'denied' : 'failed', doing, message, { cause });
  }
  try {
    if (!(await file.stat()).isFile()) throw foreign('it is no file that can be read from any place');
    for (let at = 0; ;) {
      const head = await readAt(file, at, SIZE_HEAD_BYTES);
      if (head.length === 0 && at > 0) return;
      if (head.length < SIZE_HEAD_BYTES) {
        if (at === 0) throw foreign('it is no recording');
        onCut(head.length);
        return;
      }
      const size = head.readUInt32LE(8);
      if (head.readUInt32LE(0) !== SIZE_MAGIC || head.readUInt32LE(4) !== 4 || size > MAX_FRAME_BYTES)
        throw foreign(at === 0 ? 'it is no recording' : `it is damaged at byte ${at}`);
      const frame = await readAt(file, at + SIZE_HEAD_BYTES, size);
      if (frame.length < size) {
        onCut(frame.length + SIZE_HEAD_BYTES);
        return;
      }
      let text: string;
      try {
        text = (await decompress(frame, WHOLE)).toString();
      } catch (cause) {
        throw foreign(`it is damaged at byte ${at}`, cause);
      }
      if (at === 0 && !text.startsWith(BEGINNING)) throw foreign('it has no header');
      yield { at, text };
      at += SIZE_HEAD_BYTES + size;
    }
  } finally {
    await file.close();
  }
}

/** The entries of a frame. Throws OpError `unsupported` for a recording that is newer than this program, `invalid` for what is no entry. */
export function* entriesOf(text: string, doing = 'read a recording'): Generator<RecordedEntry> {
  for (const line of text.split('\n')) {
    if (line === '') continue;
    let entry: unknown;
    try {
      entry = JSON.parse(line);
    } catch (cause) {
      throw new OpError('invalid', doing, 'it is damaged: a line is no JSON', { cause });
    }
    if (!isEntry(entry)) throw new OpError('invalid', doing, `it is damaged: a line is no entry: ${line.slice(0, SHOWN_CHARS)}`);
    if (entry.type === 'recording' && entry.version > RECORDING_VERSION)
      throw new OpError('unsupported', doing, `its format is version ${entry.version}, and this program reads up to ${RECORDING_VERSION}`);
    yield entry;
  }
}

/**
 * The records of a recording in order, one frame in memory at a time. A file whose last frame is cut off (its recorder
 * was killed) ends with what came before, and `onCut` is told how many bytes were left. Throws OpError `not-found`,
 * `invalid` for what is no recording, `unsupported` for one that is newer.
 */
export async function* readRecording(path: string, onCut: (bytes: number) => void = () => {}): AsyncGenerator<RecordedEntry> {
  for await (const frame of readFrames(path, onCut)) yield* entriesOf(frame.text, `read the recording ${path}`);
}
