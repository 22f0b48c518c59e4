import assert from 'node:assert/strict';
import { test } from 'node:test';
import { logsOf, planRotation, rotationStamp, splitLogPath } from './logs-rotate.ts';

const now = Date.UTC(2026, 0, 31, 23, 59, 5);

test("a rotation keeps the policy's number of files", () => {
  const cases: [string, string[], number, string[], string[]][] = [
    ['the first', ['0.log'], 5, [], []],
    ['the second compresses the first', ['0.log', '0.log.20260131-100000'], 5, [], ['0.log.20260131-100000']],
    ['the oldest goes', ['0.log', '0.log.1.gz', '0.log.2.gz', '0.log.3.gz', '0.log.4'], 5, ['0.log.1.gz'], ['0.log.4']],
    ['three files: one rotated one stays compressed', ['0.log', '0.log.1.gz', '0.log.2'], 3, ['0.log.1.gz'], ['0.log.2']],
    ['two files: none stays beside the two', ['0.log', '0.log.1'], 2, ['0.log.1'], []],
    ['left half made', ['0.log', '0.log.1.tmp', '0.log.2', '0.log.2.gz', '1.log.9'], 5, ['0.log.1.tmp', '0.log.2'], []],
  ];
  for (const [name, names, maxFiles, unlink, compress] of cases) {
    const plan = planRotation(names, '0.log', maxFiles, now);
    assert.deepEqual([plan.unlink, plan.compress, plan.rotated], [unlink, compress, '0.log.20260131-235905'], name);
  }
});

test('stamps, siblings and paths', () => {
  assert.equal(rotationStamp(now), '20260131-235905');
  assert.deepEqual(logsOf(['0.log', '0.log.1.gz', '10.log', '0.logx'], '0.log'), ['0.log', '0.log.1.gz']);
  assert.deepEqual(splitLogPath('/var/log/pods', '/var/log/pods/n_p_u/m/0.log'), { dir: 'n_p_u/m', name: '0.log' });
  assert.equal(splitLogPath('/var/log/pods', '/etc/passwd'), null);
  assert.equal(splitLogPath('/var/log/pods', '/var/log/pods/../x'), null);
});
