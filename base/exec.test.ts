import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hasCode, OpError } from './errors.ts';
import { exec, tryExec } from './exec.ts';

test('output, input and exit codes', async () => {
  const result = await exec(['sh', '-c', 'cat; echo "$X" >&2'], { input: 'in', env: { PATH: '/usr/bin:/bin', X: 'y' } });
  assert.deepEqual(result, { stdout: 'in', stderr: 'y\n', code: 0 });
  assert.equal((await tryExec(['sh', '-c', 'exit 3'])).code, 3);
  assert.equal((await tryExec(['sh', '-c', 'kill -9 $$'])).code, 137);
});

test('a failure carries the last lines of standard error and the advice', async () => {
  await assert.rejects(exec(['sh', '-c', 'echo one >&2; echo two >&2; exit 1'], { doing: 'build', advice: 'Look again.' }), (error) => {
    assert.ok(error instanceof OpError);
    assert.deepEqual([error.code, error.message, error.advice], ['failed', 'build: one | two', 'Look again.']);
    return true;
  });
});

test('what is missing, late or stopped has its own code', async () => {
  await assert.rejects(exec(['/nonexistent/program']), (error) => hasCode(error, 'not-found'));
  await assert.rejects(exec(['sleep', '30'], { timeoutMs: 50 }), (error) => hasCode(error, 'deadline'));
  await assert.rejects(exec(['sleep', '30'], { signal: AbortSignal.timeout(50) }), (error) => hasCode(error, 'aborted'));
});

test('lines of standard error arrive as progress', async () => {
  const lines: string[] = [];
  await exec(['sh', '-c', 'echo a >&2; echo b >&2'], { onLine: (line) => lines.push(line) });
  assert.deepEqual(lines, ['a', 'b']);
});
