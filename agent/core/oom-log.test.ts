import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OomLog } from './oom-log.ts';

const read = (lines: readonly string[]): object[] => {
  const log = new OomLog();
  return lines.flatMap((line, at) => log.read(line.startsWith('<') ? line.slice(1).replace('>', `,${at},1,-;`) : `6,${at},1,-;${line}\n SUBSYSTEM=x`) ?? []);
};

test('a process that ends for want of the machine’s memory is told, one that ends at the limit of a cgroup is not', () => {
  const system = [
    'stress invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0',
    'oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,mems_allowed=0,global_oom,task_memcg=/user.slice,task=stress,pid=4711,uid=0',
    'Out of memory: Killed process 4711 (stress ng) total-vm:8392kB, anon-rss:1kB, UID:0 pgtables:60kB oom_score_adj:0',
  ];
  const cgroup = [
    'dd invoked oom-killer: gfp_mask=0xcc0(GFP_KERNEL), order=0, oom_score_adj=1000',
    'oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,mems_allowed=0,oom_memcg=/kubepods/pod1,task_memcg=/kubepods/pod1/c,task=dd,pid=12,uid=0',
    'Memory cgroup out of memory: Killed process 12 (dd) total-vm:8392kB',
  ];
  const old = ['dd invoked oom-killer: x', 'Task in /kubepods/pod1/c killed as a result of limit of /kubepods/pod1', 'Killed process 13 (dd), UID 0'];
  assert.deepEqual(read([...cgroup, ...system, 'Killed process 1 (init)', ...old]), [{ pid: 4711, process: 'stress ng' }]);
});

test('only the kernel tells of it: what programs write into its log, in whole or in between, is none of its reports', () => {
  const report = ['a invoked oom-killer: x', 'Out of memory: Killed process 5 (a) total-vm:1kB'];
  // 12 is a warning (4) of a user's program (1 << 3); 6 and 4 are the kernel's own.
  assert.deepEqual(read(report.map((line) => `<12>${line}`)), []);
  assert.deepEqual(read([`<4>${report[0]}`, '<14>Killed process 1 (init)', `<6>${report[1]}`]), [{ pid: 5, process: 'a' }]);
});

test('a name may have brackets, and the limit that was reached says whose want it was', () => {
  const begins = 'x invoked oom-killer: x';
  assert.deepEqual(read([begins, 'Out of memory: Killed process 5 (a) b) total-vm:1kB, UID:0']), [{ pid: 5, process: 'a) b' }]);
  assert.deepEqual(read([begins, 'Task in / killed as a result of limit of /kubepods', 'Killed process 6 (a)']), []);
});
