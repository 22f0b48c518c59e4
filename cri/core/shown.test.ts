import assert from 'node:assert/strict';
import { test } from 'node:test';
import { summarize, summaryLine } from './call-line.ts';
import { IdentityBook } from './identity.ts';
import type { RecordedCall } from './recording.ts';
import { partsOf, plainCall, SeenCalls } from './seen-calls.ts';
import { callLine, differenceLines, type ComparedCall } from './replay-text.ts';
import { tableText } from './table.ts';
import { shown } from './shown.ts';

const EVIL = 'a\u001b]0;x\u0007\nb\u009b2J\u202e';
const at = { wall: '2026-01-02T03:04:05.000Z', monoMs: 1 };
const call: RecordedCall = {
  ...{ type: 'call', call: 1, connection: 1, stream: 1, service: 'runtime.v1.RuntimeService', method: 'CreateContainer', start: at, end: at },
  requests: [
    {
      fields: {
        podSandboxId: EVIL,
        config: { metadata: { name: EVIL }, image: { image: EVIL } },
        sandboxConfig: { metadata: { name: EVIL, namespace: EVIL } },
      },
      sizeBytes: 1,
    },
  ],
  responses: [],
  status: { code: 2, name: 'Unknown', message: EVIL },
};
// oxlint-disable-next-line no-control-regex
const OBEYED = /[\u0000-\u001f\u007f-\u009f\u202e]/;

test('what a terminal would obey is shown, in one line; other words stay as they are', () => {
  assert.equal(shown(EVIL), 'a␛]0;x␇ b\\u009b2J\\u202e');
  assert.equal(shown('Größe 名 🙂 – ok'), 'Größe 名 🙂 – ok');
});

test('no line about a call has in it what a terminal would obey', () => {
  assert.doesNotMatch(summaryLine(summarize(call, new IdentityBook())), OBEYED);
  const seen = new SeenCalls().take(call);
  assert.ok(seen !== null);
  for (const text of [seen.pod, seen.group, seen.container, seen.other, seen.message, seen.method, ...partsOf(seen)]) assert.doesNotMatch(text, OBEYED);
  assert.ok(JSON.stringify(plainCall(seen)).length > 0);
});

test('nor has a table, or a line of a replay', () => {
  assert.doesNotMatch(tableText(['NAME'], [[EVIL]]).replaceAll('\n', ''), OBEYED);
  const compared: ComparedCall = {
    ...{ method: EVIL, subject: EVIL, recorded: { status: 'OK', durationMs: 1 }, seen: { status: 'Unknown', message: EVIL, durationMs: 1 } },
    ...{ differences: [{ path: EVIL, a: EVIL, b: 1 }], matched: false },
  };
  assert.doesNotMatch(callLine(compared), OBEYED);
  assert.doesNotMatch(differenceLines(compared).join('').replaceAll('\n', ''), OBEYED);
});
