import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OpError } from './errors.ts';
import { createLog, type LogOptions } from './log.ts';

function lines(format: LogOptions['format']): string[] {
  const all: string[] = [];
  const log = createLog({ name: 'agent', verbosity: 2, nowMs: () => Date.UTC(2026, 0, 2, 3, 4, 5, 678), pid: 7, write: (line) => all.push(line), format });
  log.child('pod').info('Plan', { pod: 'ns/p', n: 1 });
  log.error('Broken', { err: new Error('no luck') });
  log.error('Refused', { error: new OpError('denied', 'write', 'EPERM', { advice: 'run it as root' }), retryMs: 5 });
  log.debug(3, 'Unseen');
  return all;
}

test('klog’s text form', () => {
  assert.deepEqual(lines('text'), [
    'I0102 03:04:05.678000       7 pod] "Plan" pod="ns/p" n=1\n',
    'E0102 03:04:05.678000       7 agent] "Broken" err="no luck"\n',
    'E0102 03:04:05.678000       7 agent] "Refused" error="write: EPERM" advice="run it as root" retryMs=5\n',
  ]);
});

test('one JSON object a line', () => {
  const ts = Date.UTC(2026, 0, 2, 3, 4, 5, 678);
  assert.deepEqual(
    lines('json').map((line) => JSON.parse(line) as unknown),
    [
      { ts, caller: 'pod', msg: 'Plan', v: 0, pod: 'ns/p', n: 1 },
      { ts, caller: 'agent', msg: 'Broken', err: 'no luck' },
      { ts, caller: 'agent', msg: 'Refused', error: 'write: EPERM', advice: 'run it as root', retryMs: 5 },
    ],
  );
});
