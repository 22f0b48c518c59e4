import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { exec, tryExec } from '../../base/exec.ts';
import { buildProgram, type Program, sysProblem } from './program.ts';

const skip = sysProblem();
if (skip !== false) console.log(`sys as a node's PID 1: skipped, ${skip}`);

async function until<T>(look: () => T | null | undefined | false | 0, what: string, withinMs = 5000): Promise<T> {
  const endMs = performance.now() + withinMs;
  for (;;) {
    const value = look();
    if (value !== null && value !== undefined && value !== false && value !== 0) return value;
    assert.ok(performance.now() < endMs, `not in time: ${what}`);
    await delay(20);
  }
}

/** Gone, or waiting for somebody else to reap it, which holds nothing but its number. */
function isGone(pid: number): boolean {
  try {
    return /^State:\s+[ZX]/m.test(readFileSync(`/proc/${pid}/status`, 'utf8'));
  } catch {
    return true;
  }
}

interface Service {
  pid: number;
  restarts: number;
}

class TestNode {
  readonly program: Program;
  readonly files: { spec: string; state: string; control: string; log: string; pid: string };
  pid = 0;

  constructor(program: Program, name: string) {
    this.program = program;
    const file = (kind: string): string => `${program.dir}/${name}.${kind}`;
    this.files = { spec: file('spec'), state: file('state'), control: file('control'), log: file('log'), pid: file('pid') };
  }

  spec(...services: Record<string, string | number | string[]>[]): void {
    const lines = services.flatMap((service) =>
      Object.entries(service).flatMap(([word, value]) => (Array.isArray(value) ? value : [value]).map((one) => `${word} ${one}`)),
    );
    writeFileSync(this.files.spec, [`state ${this.files.state}`, `control ${this.files.control}`, '# a comment', '', ...lines, ''].join('\n'));
  }

  async start(...options: string[]): Promise<void> {
    const { spec, log, pid } = this.files;
    const said = await exec([
      this.program.path,
      'nsrun',
      '--net=new',
      '--mount',
      '--uts=node-test',
      '--ipc',
      '--pid',
      '--pidfile',
      pid,
      '--log',
      log,
      ...options,
      '--',
      'init',
      spec,
    ]);
    this.pid = Number(said.stdout);
    assert.equal(readFileSync(pid, 'utf8'), said.stdout);
  }

  async inside(...argv: string[]): Promise<{ code: number; stdout: string; stderr: string }> {
    return await tryExec([this.program.path, 'exec', '--pid', String(this.pid), '--', ...argv]);
  }

  services(): Map<string, Service> {
    const lines = existsSync(this.files.state) ? readFileSync(this.files.state, 'utf8').trim().split('\n') : [];
    return new Map(lines.map((line) => line.split(' ')).map(([name, pid, restarts]) => [name ?? '', { pid: Number(pid), restarts: Number(restarts) }]));
  }

  async control(line: string): Promise<string> {
    const socket = connect(this.files.control);
    socket.write(`${line}\n`);
    let answer = '';
    for await (const chunk of socket) answer += String(chunk);
    return answer;
  }

  async kill(): Promise<void> {
    if (this.pid === 0 || isGone(this.pid)) return;
    process.kill(this.pid, 'SIGKILL');
    await until(() => isGone(this.pid), 'PID 1 is gone');
  }
}

const sleeper = (seconds: string): Record<string, string | string[]> => ({ service: `sleep-${seconds}`, argv: ['sleep', seconds], env: 'PATH=/usr/bin:/bin' });
const pids = (pattern: string): string[] => {
  try {
    return execFileSync('pgrep', ['-f', pattern], { encoding: 'utf8' }).trim().split('\n');
  } catch {
    return [];
  }
};

describe("sys as a node's PID 1", { skip }, () => {
  let program: Program;
  const nodes: TestNode[] = [];
  const node = (name: string): TestNode => {
    const made = new TestNode(program, name);
    nodes.push(made);
    return made;
  };
  before(() => {
    program = buildProgram();
  });
  after(async () => {
    for (const one of nodes) await one.kill();
    program[Symbol.dispose]();
  });

  test('a node has its own names, processes, network and mounts, and its services only their own environment', async () => {
    const n = node('own');
    n.spec({
      service: 'main',
      argv: ['sh', '-c', 'env; hostname; ls -l /proc/self/fd | wc -l; exec sleep 901'],
      env: ['PATH=/usr/bin:/bin', 'A=b c'],
      log: `${program.dir}/main.log`,
      cwd: '/usr',
    });
    execFileSync('mkdir', ['-p', `${program.dir}/in`, `${program.dir}/t`]);
    await n.start('--bind', `${program.dir}/in:${program.dir}/t`);
    const log = await until(
      () => /^node-test$/m.test(readFileSync(`${program.dir}/main.log`, { encoding: 'utf8', flag: 'a+' })) && readFileSync(`${program.dir}/main.log`, 'utf8'),
      'the service wrote its log',
    );
    assert.deepEqual(
      log
        .split('\n')
        .filter((line) => line.includes('='))
        .sort(),
      ['A=b c', 'PATH=/usr/bin:/bin', 'PWD=/usr'],
    );
    await until(() => existsSync(n.files.state), 'PID 1 wrote its state');
    for (const file of [n.files.state, n.files.control, n.files.pid]) assert.equal(statSync(file).mode & 0o022, 0, `${file} is for its owner to write`);
    const seen = await n.inside('sh', '-c', 'hostname; cat /proc/1/comm; ls /sys/class/net >/dev/null; ip -o link | wc -l');
    assert.deepEqual(seen.stdout.trim().split('\n'), ['node-test', 'sys-init', '1']);
    for (const kind of ['net', 'mnt', 'uts', 'ipc', 'pid']) {
      const link = `readlink /proc/self/ns/${kind}`;
      assert.notEqual((await n.inside('sh', '-c', link)).stdout, (await exec(['sh', '-c', link])).stdout, kind);
    }
    assert.ok((await n.inside('sh', '-c', 'grep -c . /sys/fs/cgroup/cgroup.controllers /proc/self/cgroup')).stdout.includes('/proc/self/cgroup:'));
    assert.ok(!readFileSync('/proc/self/mountinfo', 'utf8').includes(`${program.dir}/t `), 'mounts stay inside');
    await n.kill();
  });

  test('after kill -9 of PID 1 nothing of it remains, daemons that fled their parents included', async () => {
    const n = node('kill');
    n.spec({ service: 'main', argv: ['sh', '-c', '(setsid sleep 902 &); sleep 902 & exec sleep 902'], env: 'PATH=/usr/bin:/bin' });
    await n.start();
    await until(() => pids('^sleep 902').length === 3, 'three processes run');
    const outside = spawn(program.path, ['exec', '--pid', String(n.pid), '--', 'sleep', '902'], { stdio: 'ignore' });
    const ended = once(outside, 'exit');
    await until(() => pids('^sleep 902').length === 4, 'and one from outside');
    await n.kill();
    await until(() => pids('^sleep 902').length === 0, 'all are gone');
    assert.deepEqual(await ended, [137, null]);
  });

  test('a service that dies is started again, later each time; orphans are reaped', async () => {
    const n = node('restart');
    n.spec(
      { ...sleeper('903'), delay: 50 },
      { service: 'failing', argv: ['false'], env: 'PATH=/usr/bin:/bin', delay: 100 },
      { service: 'orphans', argv: ['sh', '-c', 'for i in 1 2 3; do (true &); done; exec sleep 904'], env: 'PATH=/usr/bin:/bin' },
    );
    await n.start();
    const first = await until(() => n.services().get('sleep-903'), 'it runs');
    assert.equal(await n.control('signal sleep-903 9'), 'ok\n');
    const second = await until(
      () => ((n.services().get('sleep-903')?.restarts ?? 0) > 0 && (n.services().get('sleep-903')?.pid ?? 0) > 0 ? n.services().get('sleep-903') : null),
      'it runs again',
    );
    assert.ok(second.pid !== first.pid && second.restarts === 1);
    await delay(1000);
    const { restarts = 0 } = n.services().get('failing') ?? {};
    assert.ok(restarts >= 2 && restarts <= 4, `100 + 200 + 400 ms: ${restarts} restarts in a second`);
    assert.doesNotMatch((await n.inside('ps', '-eo', 'stat,args')).stdout, /^Z/m);
    await n.kill();
  });

  test('services are stopped, started and restarted by name', async () => {
    const n = node('control');
    n.spec({ ...sleeper('905'), delay: 10_000 });
    await n.start();
    const running = (): number => n.services().get('sleep-905')?.pid ?? 0;
    const first = await until(running, 'it runs');
    assert.equal(await n.control('restart sleep-905'), 'ok\n');
    const second = await until(() => running() !== first && running(), 'at once, whatever its delay');
    assert.equal(await n.control('stop sleep-905'), 'ok\n');
    await until(() => running() === 0, 'it stopped');
    assert.match(await n.control('status'), /^sleep-905 0 1 0 stopped$/m);
    assert.equal(await n.control('start sleep-905'), 'ok\n');
    assert.notEqual(await until(running, 'it runs again'), second);
    assert.match(await n.control('stop nobody'), /^error/);
    assert.match(await n.control('explode sleep-905'), /^error/);
    await n.kill();
  });

  test('SIGHUP starts what is new and stops what is gone; a broken file changes nothing', async () => {
    const n = node('hup');
    n.spec(sleeper('906'), sleeper('907'));
    await n.start();
    const kept = await until(() => n.services().get('sleep-907')?.pid, 'both run');
    n.spec(sleeper('907'), sleeper('908'));
    process.kill(n.pid, 'SIGHUP');
    await until(() => !n.services().has('sleep-906') && (n.services().get('sleep-908')?.pid ?? 0) > 0, 'the new set runs');
    assert.equal(n.services().get('sleep-907')?.pid, kept);
    writeFileSync(n.files.spec, 'nonsense\n');
    process.kill(n.pid, 'SIGHUP');
    await until(() => readFileSync(n.files.log, 'utf8').includes('line 1 is not understood'), 'it complains');
    assert.deepEqual([...n.services().keys()].sort(), ['sleep-907', 'sleep-908']);
    await n.kill();
  });

  test('SIGTERM stops the services last first and ends the node', async () => {
    const n = node('term');
    const log = `${program.dir}/order.log`;
    const polite = (name: string): Record<string, string | string[]> => ({
      service: name,
      argv: ['sh', '-c', `trap 'echo ${name}; exit 0' TERM; echo up; while :; do sleep 0.05; done`],
      env: 'PATH=/usr/bin:/bin',
      log,
    });
    n.spec(polite('runtime'), polite('agent'), {
      service: 'stray',
      argv: ['sh', '-c', '(setsid sleep 909 &); exit 0'],
      env: 'PATH=/usr/bin:/bin',
      delay: 60_000,
    });
    await n.start();
    await until(() => readFileSync(log, { encoding: 'utf8', flag: 'a+' }) === 'up\nup\n', 'both run');
    process.kill(n.pid, 'SIGTERM');
    await until(() => isGone(n.pid), 'PID 1 ends');
    assert.deepEqual(readFileSync(log, 'utf8').trim().split('\n').slice(2), ['agent', 'runtime']);
    assert.deepEqual(pids('^sleep 909'), []);
    assert.equal(existsSync(n.files.control), false);
  });

  test('exec passes exit codes and signals, and what cannot be made is said', async () => {
    const n = node('exec');
    n.spec(sleeper('910'));
    await n.start();
    assert.equal((await n.inside('sh', '-c', 'exit 7')).code, 7);
    assert.equal((await n.inside('sh', '-c', 'kill -15 $$')).code, 143);
    assert.equal((await n.inside('/proc/nonexistent')).code, 127);
    const waiting = spawn(program.path, ['exec', '--pid', String(n.pid), '--', 'sh', '-c', 'trap "exit 5" TERM; echo up; while :; do sleep 0.05; done'], {
      stdio: ['ignore', 'pipe', 'ignore'],
    });
    await once(waiting.stdout, 'data');
    waiting.kill('SIGTERM');
    assert.deepEqual(await once(waiting, 'exit'), [5, null]);
    await n.kill();
    const failed = await tryExec([
      program.path,
      'nsrun',
      '--pid',
      '--mount',
      '--net=/nonexistent',
      '--pidfile',
      `${program.dir}/none`,
      '--',
      'init',
      n.files.spec,
    ]);
    assert.deepEqual(
      [failed.code, failed.stderr, existsSync(`${program.dir}/none`)],
      [1, 'sys: enter network namespace /nonexistent: No such file or directory\n', false],
    );
    assert.equal((await tryExec([program.path, 'exec', '--pid', String(n.pid), '--', 'true'])).code, 1);
  });
});
