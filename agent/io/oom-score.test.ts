import assert from 'node:assert/strict';
import { readFileSync } from 'node:fs';
import { test } from 'node:test';
import { createLog } from '../../base/log.ts';
import { setOomScore } from './oom-score.ts';

test('what the kernel refuses is said once, and what can be had is known', async () => {
  const lines: string[] = [];
  const log = createLog({ name: 'test', verbosity: 0, nowMs: () => 0, pid: 1, write: (line) => lines.push(line) });
  const before = Number(readFileSync('/proc/self/oom_score_adj', 'utf8'));
  assert.equal(await setOomScore(before, log), null);
  const least = await setOomScore(-999, log);
  const now = Number(readFileSync('/proc/self/oom_score_adj', 'utf8'));
  if (least === null) {
    assert.equal(now, -999);
    assert.equal(await setOomScore(before, log), null);
  } else assert.deepEqual([least, now, lines.length], [before, before, 1]);
  await assert.rejects(setOomScore(0, log, '/nonexistent/oom_score_adj'));
});
