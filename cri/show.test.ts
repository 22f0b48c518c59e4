import { FakeHost } from '../base/fake-host.ts';
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import type { RecordedEntry } from './core/recording.ts';
import { RecordingWriter } from './io/recording-write.ts';
import { show } from './show.ts';

const EVIL = 'a\u001b]0;x\u0007\u009b2J\u202e';
const at = { wall: '2026-11-30T00:00:00.000Z', monoMs: 1 };
// oxlint-disable-next-line no-control-regex
const OBEYED = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u202e]/;

test('somebody else’s recording is shown with nothing in it that a terminal would obey: header, calls and messages', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'show-'));
  try {
    const file = join(folder, 'evil.crirec');
    const writer = new RecordingWriter(file, { maxBytes: 1e9, append: false });
    const entries: RecordedEntry[] = [
      { type: 'recording', version: 1, recorder: EVIL, startedAt: at, listen: EVIL, upstream: EVIL, redacted: true },
      { type: 'connection', connection: 1, at, event: 'blind', reason: EVIL },
      {
        ...{ type: 'call', call: 1, connection: 1, stream: 1, service: 'runtime.v1.RuntimeService', method: EVIL, start: at, end: at },
        ...{ requests: [{ fields: { [EVIL]: EVIL }, sizeBytes: 1 }], responses: [], status: { code: 2, name: EVIL, message: EVIL } },
      },
    ];
    for (const entry of entries) writer.add(entry);
    writer[Symbol.dispose]();
    const host = new FakeHost();
    assert.equal(await show(host, file, { full: true, json: false }), 0);
    const out = host.out + host.err;
    assert.equal(out.trim().split('\n').length, 4, out);
    assert.doesNotMatch(out, OBEYED);
  } finally {
    await rm(folder, { recursive: true });
  }
});
