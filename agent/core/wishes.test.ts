import assert from 'node:assert/strict';
import { test } from 'node:test';
import { processesOfExec, readProcess, readWishes } from './wishes.ts';

test('names of wishes', () => {
  assert.deepEqual(readWishes([]), new Set());
  assert.deepEqual(readWishes(['RegisterDeletedNode']), new Set(['RegisterDeletedNode']));
  const unknown = readWishes(['Peace']);
  assert.ok(typeof unknown === 'string' && unknown.startsWith('unknown wish "Peace"'));
});

test('a process from its stat, whatever its name', () => {
  const rest = `S 7 ${'0 '.repeat(17)}4711 0`;
  assert.deepEqual(readProcess(9, `9 (a) b) ${rest}`, 'x\u0000'), { pid: 9, parent: 7, startTicks: 4711, cmdline: 'x\u0000' });
  assert.equal(readProcess(9, '', ''), null);
});

test('what an exec started, and nothing of anybody else', () => {
  const at = (pid: number, parent: number, startTicks: number, cmdline: string) => ({ pid, parent, startTicks, cmdline });
  const all = [
    at(100, 50, 10, 'app\u0000'),
    at(110, 100, 12, 'worker\u0000'),
    at(200, 50, 500, 'sh\u0000-c\u0000sleep 100\u0000'),
    at(201, 200, 501, 'sleep\u0000100\u0000'),
    at(202, 201, 502, 'deep\u0000'),
    // The same command by somebody else before, and another one now.
    at(300, 50, 90, 'sh\u0000-c\u0000sleep 100\u0000'),
    at(400, 50, 600, 'sh\u0000'),
  ];
  const pids = (since: number): number[] => processesOfExec(all, 100, ['sh', '-c', 'sleep 100'], since).map(({ pid }) => pid);
  assert.deepEqual(pids(100), [200, 201, 202]);
  assert.deepEqual(pids(501), []);
});
