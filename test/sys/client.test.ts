import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { copyFileSync, mkdirSync, readdirSync, readFileSync, readlinkSync, rmSync, statSync, writeFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { hasCode } from '../../base/errors.ts';
import { exec } from '../../base/exec.ts';
import { silentLog } from '../../base/log.ts';
import { createSysClient } from '../../base/sys/client.ts';
import type { Sys } from '../../base/sys/types.ts';
import { maxFrameBytes } from '../../base/sys/wire.ts';
import { watchLeaks } from '../leaks.ts';
import { buildProgram, type Program, sysProblem } from './program.ts';

const skip = sysProblem();
if (skip !== false) console.log(`sys client: skipped, ${skip}`);

async function until(condition: () => boolean, what: string): Promise<void> {
  for (let waitedMs = 0; !condition(); waitedMs += 10) {
    assert.ok(waitedMs < 3000, `not in time: ${what}`);
    await delay(10);
  }
}

/** The process that holds the lock of a file, as the kernel lists it. */
function holderOf(path: string): string | undefined {
  return new RegExp(`FLOCK .* (\\d+) \\S+:${statSync(path).ino} `).exec(readFileSync('/proc/locks', 'utf8'))?.[1];
}

/** The netlink sockets that a process has open: bytes that wait in each, by its inode. */
function socketsOf(pid: number | undefined): Map<string, number> {
  const links = readdirSync(`/proc/${pid}/fd`).map((fd) => {
    try {
      return readlinkSync(`/proc/${pid}/fd/${fd}`);
    } catch {
      return '';
    }
  });
  const all = readFileSync(`/proc/${pid}/net/netlink`, 'utf8').trim().split('\n').slice(1);
  const rows = all.map((line) => line.trim().split(/\s+/)).map((fields): [string, number] => [fields[9]!, Number(fields[4])]);
  return new Map(rows.filter(([inode]) => links.includes(`socket:[${inode}]`)));
}

describe('sys client', { skip }, () => {
  let program: Program;
  before(() => {
    program = buildProgram();
  });
  after(() => program[Symbol.dispose]());

  test('when sys is killed, what was asked fails, its programs die, and the next request works', async () => {
    await using _ = watchLeaks({ owns: program.dir });
    await using sys = createSysClient({ path: program.path, log: silentLog });
    const pidFile = `${program.dir}/pid`;
    const failing = assert.rejects(sys.run({ argv: ['sh', '-c', `echo $$ > ${pidFile}; sleep 61 & sleep 62`], timeoutMs: 60_000 }), (error) =>
      hasCode(error, 'unavailable'),
    );
    const programPid = (): string => {
      try {
        return readFileSync(pidFile, 'utf8').trim();
      } catch {
        return '';
      }
    };
    await until(() => programPid() !== '', 'the program runs');
    process.kill(sys.pid ?? 0, 'SIGKILL');
    await failing;
    await until(() => !isAlive(programPid()), 'the program dies with sys');
    assert.equal((await sys.run({ argv: ['true'], timeoutMs: 5000 })).code, 0);
  });

  test('a lock is taken again after sys was killed', async () => {
    await using sys = createSysClient({ path: program.path, log: silentLog });
    await using other = createSysClient({ path: program.path, log: silentLog });
    const path = `${program.dir}/lock`;
    const lost: unknown[] = [];
    await using _lock = await sys.lock(path, (error) => lost.push(error));
    const first = holderOf(path);
    assert.notEqual(first, undefined);
    process.kill(sys.pid ?? 0, 'SIGKILL');
    await until(() => ![undefined, first].includes(holderOf(path)), 'the lock is taken again');
    await assert.rejects(other.lock(path), (error) => hasCode(error, 'conflict'));
    assert.deepEqual(lost, []);
  });

  test('a lock is taken again when sys is killed once more before it is held', async () => {
    await using sys = createSysClient({ path: program.path, log: silentLog });
    const path = `${program.dir}/twice`;
    const lost: unknown[] = [];
    await using _lock = await sys.lock(path, (error) => lost.push(error));
    const first = holderOf(path);
    const killed = new Set<number | undefined>();
    for (let kills = 0; kills < 3; kills++) {
      await until(() => sys.pid !== undefined && !killed.has(sys.pid), 'sys runs again');
      killed.add(sys.pid);
      process.kill(sys.pid ?? 0, 'SIGKILL');
    }
    await until(() => ![undefined, first].includes(holderOf(path)), 'the lock is taken again');
    assert.deepEqual(lost, []);
  });

  test('a lock whose sys cannot be started any more is lost, without hundreds of tries', async () => {
    const path = `${program.dir}/gone`;
    copyFileSync(program.path, `${path}-sys`);
    let warnings = 0;
    await using sys = createSysClient({ path: `${path}-sys`, log: { ...silentLog, warn: () => void warnings++ } });
    const lost: unknown[] = [];
    await using _lock = await sys.lock(path, (error) => lost.push(error));
    const { pid } = sys;
    rmSync(`${path}-sys`);
    process.kill(pid ?? 0, 'SIGKILL');
    for (let waitedMs = 0; lost.length === 0; waitedMs += 50) {
      assert.ok(waitedMs < 20_000, 'not in time: the loss is told');
      await delay(50);
    }
    assert.ok(hasCode(lost[0], 'unavailable'));
    assert.ok(warnings < 30, `${warnings} warnings`);
  });

  test('a lock that somebody else took meanwhile is lost, and said to be', async () => {
    await using sys = createSysClient({ path: program.path, log: silentLog });
    const path = `${program.dir}/taken`;
    const lost: unknown[] = [];
    await using _lock = await sys.lock(path, (error) => lost.push(error));
    // Whoever waits in the kernel has it before anybody who asks again.
    using waiter = spawn('flock', ['--no-fork', path, 'sleep', '60'], { stdio: 'ignore' });
    await until(() => readFileSync('/proc/locks', 'utf8').includes(`-> FLOCK  ADVISORY  WRITE ${waiter.pid} `), 'the other waits');
    process.kill(sys.pid ?? 0, 'SIGKILL');
    for (let waitedMs = 0; lost.length === 0; waitedMs += 50) {
      assert.ok(waitedMs < 20_000, 'not in time: the loss is told');
      await delay(50);
    }
    assert.ok(hasCode(lost[0], 'conflict'));
  });

  test('a lock that is watched tells of whoever else opens the file, not of itself', async () => {
    await using sys = createSysClient({ path: program.path, log: silentLog });
    await using other = createSysClient({ path: program.path, log: silentLog });
    const path = `${program.dir}/watched`;
    let wanted = 0;
    const lost: unknown[] = [];
    const onWanted = (): void => void (wanted += 1);
    await using _lock = await sys.lock(path, (error) => lost.push(error), onWanted);
    await delay(50);
    assert.equal(wanted, 0, 'its own open is none');
    await assert.rejects(other.lock(path), (error) => hasCode(error, 'conflict'));
    await until(() => wanted === 1, 'the other is told of');
    const first = holderOf(path);
    process.kill(sys.pid ?? 0, 'SIGKILL');
    await until(() => ![undefined, first].includes(holderOf(path)), 'the lock is taken again');
    await delay(50);
    assert.equal(wanted, 1, 'nor the one after a restart');
    assert.deepEqual(lost, []);
  });

  test('who changes the owners of many files tells how far it is', async () => {
    await using sys = createSysClient({ path: program.path, log: silentLog });
    const top = `${program.dir}/many`;
    mkdirSync(top);
    for (let n = 0; n < 3000; n++) writeFileSync(`${top}/${n}`, '');
    const told: number[] = [];
    await sys.chownTree(top, { gid: 7, timeoutMs: 10_000, onProgress: (files) => told.push(files) });
    assert.deepEqual(told, [1024, 2048]);
    assert.equal(statSync(`${top}/2999`).gid, 7);
  });

  test('the kernel log is followed across a restart', async () => {
    await using sys = createSysClient({ path: program.path, log: silentLog });
    const records: string[] = [];
    await using _follow = await sys.followKernelLog((record) => records.push(record));
    const marker = `sys-test-${process.pid}`;
    writeFileSync('/dev/kmsg', `${marker} one\n`);
    await until(() => records.some((record) => record.includes(`${marker} one`)), 'the first record');
    process.kill(sys.pid ?? 0, 'SIGKILL');
    await until(() => {
      writeFileSync('/dev/kmsg', `${marker} two\n`);
      return records.some((record) => record.includes(`${marker} two`));
    }, 'the second record');
  });

  test('a program that is missing or speaks another version fails each request', async () => {
    await using missing = createSysClient({ path: '/nonexistent/sys', log: silentLog });
    await assert.rejects(missing.readFiles(['/etc/hostname']), (error) => hasCode(error, 'unavailable'));
    await using silent = createSysClient({ path: '/bin/true', log: silentLog });
    await assert.rejects(silent.readFiles(['/etc/hostname']), (error) => hasCode(error, 'unavailable'));
  });

  test('a thousand requests at once are all answered', async () => {
    await using sys = createSysClient({ path: program.path, log: silentLog });
    const results = await Promise.all(Array.from({ length: 1000 }, () => sys.readFiles(['/proc/self/stat'])));
    assert.ok(results.every(([data]) => (data?.length ?? 0) > 0));
  });

  test('answers of megabytes arrive whole while small ones pass', async () => {
    await using sys = createSysClient({ path: program.path, log: silentLog });
    const big = sys.run({ argv: ['head', '-c', '30000000', '/dev/zero'], maxOutputBytes: 30_000_000, timeoutMs: 30_000 });
    const small = await sys.run({ argv: ['echo', 'x'], timeoutMs: 5000 });
    assert.equal(small.stdout.length, 2);
    assert.equal((await big).stdout.length, 30_000_000);
  });

  test('a request longer than sys takes fails alone', async () => {
    await using sys = createSysClient({ path: program.path, log: silentLog });
    const { pid } = sys;
    const other = sys.run({ argv: ['sleep', '0.5'], timeoutMs: 5000 });
    const stdin = Buffer.alloc(maxFrameBytes);
    await assert.rejects(sys.run({ argv: ['true'], stdin, timeoutMs: 5000 }), (error) => hasCode(error, 'invalid'));
    assert.equal((await other).code, 0);
    const long = await sys.run({ argv: ['wc', '-c'], stdin: stdin.subarray(1000), timeoutMs: 5000 });
    assert.equal(Number(Buffer.from(long.stdout).toString()), maxFrameBytes - 1000);
    assert.equal(sys.pid, pid);
  });

  test('a tree deeper than any path can say is removed, and measured or refused', async () => {
    await using sys = createSysClient({ path: program.path, log: silentLog });
    const plant = async (depth: number): Promise<string> => {
      const top = `${program.dir}/deep-${depth}`;
      const script = `const fs = require('fs'); fs.mkdirSync('${top}'); process.chdir('${top}'); for (let i = 1; i < ${depth}; i++) { fs.mkdirSync('dddddddd'); process.chdir('dddddddd'); fs.writeFileSync('f', ''); }`;
      await exec([process.execPath, '-e', script]);
      return top;
    };
    const deep = await plant(3000);
    assert.equal((await sys.diskUsage(deep, { timeoutMs: 10_000 })).inodes, 3000 + 2999);
    await sys.chownTree(deep, { gid: 5, timeoutMs: 10_000 });
    await sys.removeTree(deep, { timeoutMs: 10_000 });
    const deeper = await plant(6000);
    await assert.rejects(sys.diskUsage(deeper, { timeoutMs: 10_000 }), (error) => hasCode(error, 'invalid'));
    await sys.removeTree(deeper, { timeoutMs: 10_000 });
    assert.deepEqual(
      readdirSync(program.dir).filter((name) => name.startsWith('deep')),
      [],
    );
  });

  describe('sockets of netfilter are kept for the next request', () => {
    const NETFILTER = 12;
    // The kernel answers an unknown message with an error that repeats its number.
    const unknown = (sequence: number, flags = 5): Buffer => {
      const message = Buffer.alloc(20);
      message.writeUInt32LE(20, 0);
      message.writeUInt16LE(0x0afe, 4);
      message.writeUInt16LE(flags, 6); // 5: NLM_F_REQUEST | NLM_F_ACK
      message.writeUInt32LE(sequence, 8);
      return message;
    };
    /** Never answered. */
    const ignored = unknown(0, 0);
    const ask = (sys: Sys, sequences: number[], expectAnswers: number): Promise<Buffer[]> =>
      sys
        .netlink({ family: NETFILTER, messages: Buffer.concat(sequences.map((sequence) => unknown(sequence))), expectAnswers, timeoutMs: 5000 })
        .then((answers) => answers.map((answer) => Buffer.from(answer)));
    const numbers = async (sys: Sys, sequences: number[], expectAnswers: number): Promise<number[]> =>
      (await ask(sys, sequences, expectAnswers)).map((answer) => answer.readUInt32LE(8));
    const children = (pid: number | undefined): number[] => readFileSync(`/proc/${pid}/task/${pid}/children`, 'utf8').split(' ').filter(Boolean).map(Number);

    test('which sees nothing of the one before', async () => {
      await using sys = createSysClient({ path: program.path, log: silentLog });
      assert.deepEqual(await numbers(sys, [1], 1), [1]);
      assert.equal(socketsOf(sys.pid).size, 1);
      for (let round = 0; round < 20; round++) {
        assert.deepEqual(await numbers(sys, [100, 101, 102], 1), [100], 'the other two are left unread');
        assert.deepEqual(await numbers(sys, [round], 1), [round]);
      }
      const many = await Promise.all(Array.from({ length: 60 }, (_, index) => numbers(sys, [1000 + index], 1)));
      assert.deepEqual(
        many,
        Array.from({ length: 60 }, (_, index) => [1000 + index]),
      );
      assert.ok(socketsOf(sys.pid).size <= 8);
    });

    test('whatever became of that one', async () => {
      await using sys = createSysClient({ path: program.path, log: silentLog });
      await numbers(sys, [1], 1);
      const before = [...socketsOf(sys.pid).keys()];
      const few = await sys.netlink({ family: NETFILTER, messages: ignored, expectAnswers: 1, timeoutMs: 50 });
      assert.deepEqual(few, [], 'not in time');
      const killed = assert.rejects(sys.netlink({ family: NETFILTER, messages: ignored, expectAnswers: 1, timeoutMs: 60_000 }));
      await until(() => children(sys.pid).length === 1, 'a child waits');
      process.kill(children(sys.pid)[0]!, 'SIGKILL');
      await killed;
      assert.deepEqual([...socketsOf(sys.pid).keys()], before, 'to close one can take as long as somebody else writes rules');
      assert.deepEqual(await numbers(sys, [7], 1), [7]);
    });

    test('and hold nothing that nobody waited for', async () => {
      await using sys = createSysClient({ path: program.path, log: silentLog });
      const refused = Array.from({ length: 20_000 }, (_, index) => index);
      assert.deepEqual(await numbers(sys, refused, 1), [0]);
      await until(() => [...socketsOf(sys.pid).values()].every((bytes) => bytes === 0), 'it is read away');
    });

    test('which children that stay do not hold as well', async () => {
      await using sys = createSysClient({ path: program.path, log: silentLog });
      await numbers(sys, [1], 1);
      await until(() => children(sys.pid).length === 0, 'the child ends');
      await using _lock = await sys.lock(`${program.dir}/beside`);
      assert.equal(socketsOf(children(sys.pid)[0]).size, 0);
    });

    test('and requests of other families do not take their places', async () => {
      await using sys = createSysClient({ path: program.path, log: silentLog });
      await Promise.all(Array.from({ length: 20 }, () => sys.netlink({ family: 0, messages: ignored, expectAnswers: 1, timeoutMs: 100 })));
      const ports = new Set<number>();
      for (let round = 0; round < 5; round++) {
        await until(() => children(sys.pid).length === 0, 'the child ends');
        ports.add((await ask(sys, [round], 1))[0]!.readUInt32LE(12));
      }
      assert.equal(ports.size, 1);
    });
  });

  test('a netlink dump in a network namespace of its own sees its loopback alone', async () => {
    await using sys = createSysClient({ path: program.path, log: silentLog });
    const dumpLinks = Buffer.alloc(32);
    dumpLinks.writeUInt32LE(32, 0);
    dumpLinks.writeUInt16LE(18, 4); // RTM_GETLINK
    dumpLinks.writeUInt16LE(0x301, 6); // NLM_F_REQUEST | NLM_F_DUMP
    const answers = await sys.netlink({ family: 0, messages: dumpLinks, expectAnswers: 1, timeoutMs: 2000 });
    assert.ok(Buffer.concat(answers).includes('lo\0'));
    await assert.rejects(sys.netlink({ family: 0, netns: '/proc/nonexistent', messages: dumpLinks, expectAnswers: 1, timeoutMs: 2000 }), (error) =>
      hasCode(error, 'not-found'),
    );
    const ended = performance.now();
    const refused = await sys.netlink({
      family: 0,
      messages: Buffer.concat([dumpLinks.subarray(0, 4), Buffer.of(0xff, 0x0f, 5, 0), Buffer.alloc(24)]),
      expectAnswers: 5,
      timeoutMs: 5000,
    });
    assert.equal(refused.length, 1);
    assert.ok(performance.now() - ended < 2000, 'a refusal ends the wait');
  });
});

function isAlive(pid: string): boolean {
  try {
    return !/^State:\s+Z/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return false;
  }
}
