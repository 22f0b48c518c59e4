import assert from 'node:assert/strict';
import { spawn, type ChildProcess } from 'node:child_process';
import { existsSync } from 'node:fs';
import { chmod, copyFile, mkdir, readdir, readFile, rmdir, stat, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { exec } from '../../base/exec.ts';
import { eventually } from '../set.ts';
import { buildProgram, sysProblem, type Program } from '../sys/program.ts';
import { exitOf } from './exit-of.ts';

/** The commands as a user has them, the true C program, a caller with a kubelet's name and flags, and a runtime in memory: each a process. */
const skip = sysProblem();
if (skip !== false) console.log(`cri attach: skipped, ${skip}`);

const root = new URL('../..', import.meta.url).pathname;
const SLOW_MS = 60_000;

interface Run extends AsyncDisposable {
  readonly child: ChildProcess;
  readonly pid: number;
  readonly out: () => string;
  count(word: string): number;
}

function run(argv: readonly string[], options: { env?: Record<string, string>; argv0?: string } = {}): Run {
  const child = spawn(argv[0] ?? '', argv.slice(1), {
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, ...options.env },
    ...(options.argv0 === undefined ? {} : { argv0: options.argv0 }),
  });
  let text = '';
  for (const stream of [child.stdout, child.stderr]) stream?.on('data', (bytes: Buffer) => (text += bytes.toString()));
  return {
    child,
    pid: child.pid ?? 0,
    out: () => text,
    count: (word) => text.split(word).length - 1,
    [Symbol.asyncDispose]: async () => {
      if (child.exitCode !== null || child.signalCode !== null) return;
      child.kill('SIGKILL');
      await exitOf(child);
    },
  };
}

const script = (name: string): string => new URL(name, import.meta.url).pathname;
async function said(one: Run, words: string): Promise<void> {
  await eventually(`"${words}" is said`, SLOW_MS, async () => {
    if (one.out().includes(words)) return true;
    assert.ok(one.child.exitCode === null && one.child.signalCode === null, `it ended:\n${one.out()}`);
    return null;
  }).catch((cause: unknown) => {
    throw new Error(`"${words}" is not said, but:\n${one.out()}`, { cause });
  });
}

describe('cri attach', { skip, timeout: 600_000 }, () => {
  let program: Program;
  let folder: string;
  let socket: string;
  let made = 0;
  before(() => {
    program = buildProgram();
  });
  after(() => program[Symbol.dispose]());

  const env = (): Record<string, string> => ({ NODELET_SYS: program.path, NODELET_ROOT: root });
  const nodelet = (...words: string[]): readonly string[] => [process.execPath, '--disable-warning=ExperimentalWarning', `${root}node/main.ts`, ...words];
  const cri = (...words: string[]): Run => run(nodelet('cri', ...words), { env: env() });
  const names = async (): Promise<string[]> => (await readdir(join(folder, 'run'))).toSorted();

  async function world(): Promise<{ runtime: Run; kubelet: Run } & AsyncDisposable> {
    folder = join(program.dir, String(++made));
    socket = join(folder, 'run/containerd.sock');
    await mkdir(join(folder, 'run'), { recursive: true });
    const runtime = run([process.execPath, script('fake-runtime.ts'), socket]);
    await said(runtime, 'answers');
    const kubelet = run([process.execPath, script('fake-kubelet.ts'), `--container-runtime-endpoint=unix://${socket}`], { argv0: 'kubelet' });
    await said(kubelet, 'answer');
    return {
      runtime,
      kubelet,
      [Symbol.asyncDispose]: async () => {
        await kubelet[Symbol.asyncDispose]();
        await runtime[Symbol.asyncDispose]();
      },
    };
  }

  async function goesOn(kubelet: Run): Promise<number> {
    const before = kubelet.count('answer');
    const startMs = performance.now();
    await eventually('the kubelet gets answers', SLOW_MS, async () => (kubelet.count('answer') > before + 3 ? true : null));
    return performance.now() - startMs;
  }

  async function guardOf(): Promise<number> {
    for (const name of await readdir('/run/nodelet/cri')) {
      if (!name.endsWith('.attach')) continue;
      const state = JSON.parse(await readFile(`/run/nodelet/cri/${name}`, 'utf8')) as { socket: string; guard: number };
      if (state.socket === socket) return state.guard;
    }
    throw new Error('no state of it');
  }

  test('its connection is closed, the kubelet runs on and speaks through the tap; Ctrl-C puts everything back', async () => {
    await using here = await world();
    const inode = (await stat(socket)).ino;
    await using tap = cri('attach', '--pid', String(here.kubelet.pid));
    await said(tap, 'closed 1 connection of the kubelet');
    await said(tap, 'speaks through the tap');
    await said(tap, 'watch it with');
    assert.deepEqual(await names(), ['containerd.sock', 'containerd.sock.nodelet', 'containerd.sock.real']);
    await goesOn(here.kubelet);
    tap.child.kill('SIGINT');
    assert.deepEqual(await exitOf(tap.child), [0, null]);
    assert.deepEqual(await names(), ['containerd.sock']);
    assert.equal((await stat(socket)).ino, inode);
    await goesOn(here.kubelet);
    assert.equal(here.kubelet.child.exitCode, null);
    assert.match(tap.out(), /everything is back in its place; [1-9]\d* connections, \d{3,} bytes passed/);
  });

  test('the tap is killed with -9: its guard puts everything back, and the kubelet goes on by itself', async (t) => {
    await using here = await world();
    const inode = (await stat(socket)).ino;
    await using tap = cri('attach', '--socket', socket, '--pid', String(here.kubelet.pid));
    await said(tap, 'watch it with');
    const guard = await guardOf();
    tap.child.kill('SIGKILL');
    const startMs = performance.now();
    await eventually('the folder is as it was', SLOW_MS, async () => ((await names()).length === 1 ? true : null));
    t.diagnostic(
      `the folder is as it was after ${Math.round(performance.now() - startMs)} ms, the kubelet has four answers after ${Math.round(await goesOn(here.kubelet))} ms`,
    );
    assert.equal((await stat(socket)).ino, inode);
    await assert.rejects(guardOf());
    await eventually(
      'the guard ends',
      SLOW_MS,
      async () => (await readFile(`/proc/${guard}/comm`).catch(() => null)) === null || (await readFile(`/proc/${guard}/stat`, 'utf8')).includes(') Z') || null,
    );
  });

  test('what passes bytes on is killed with -9: the tap ends, says why, and puts everything back', async () => {
    await using here = await world();
    await using tap = cri('attach', '--pid', String(here.kubelet.pid));
    await said(tap, 'watch it with');
    const children = (await readFile(`/proc/${tap.pid}/task/${tap.pid}/children`, 'utf8')).trim().split(' ');
    const named = await Promise.all(children.map(async (pid) => [pid, (await readFile(`/proc/${pid}/comm`, 'utf8')).trim()]));
    process.kill(Number(named.find(([, name]) => name === 'nodelet-splice')?.[0]), 'SIGKILL');
    assert.deepEqual(await exitOf(tap.child), [1, null]);
    assert.match(tap.out(), /ended, because the process that passes bytes on has ended: it ended with SIGKILL; everything is back in its place/);
    assert.deepEqual(await names(), ['containerd.sock']);
    await goesOn(here.kubelet);
  });

  test('tap and guard are killed with -9: detach puts back what they left, and so does the next attach', async () => {
    await using here = await world();
    const inode = (await stat(socket)).ino;
    for (const how of ['detach', 'attach']) {
      await using tap = cri('attach', '--pid', String(here.kubelet.pid));
      await said(tap, 'watch it with');
      process.kill(await guardOf(), 'SIGKILL');
      tap.child.kill('SIGKILL');
      await exitOf(tap.child);
      assert.equal((await names()).length, 3);
      if (how === 'attach') {
        await using next = cri('attach', '--pid', String(here.kubelet.pid));
        await said(next, 'put back what a killed one had left');
        await said(next, 'watch it with');
        const done = await exec(['env', ...nodelet('cri', 'detach', '--socket', socket, '--json')], {
          env: { ...(process.env as Record<string, string>), ...env() },
        });
        assert.match(done.stdout, /"did":"process \d+ ended, and everything is back in its place"/);
        await exitOf(next.child);
      } else {
        const done = await exec(['env', ...nodelet('cri', 'detach', '--socket', socket)], { env: { ...(process.env as Record<string, string>), ...env() } });
        assert.match(done.stdout, /put back what a killed one had left/);
      }
      assert.deepEqual(await names(), ['containerd.sock']);
      assert.equal((await stat(socket)).ino, inode);
      await goesOn(here.kubelet);
    }
  });

  test('--kind: a kubelet and a runtime in namespaces of their own, found by what docker inspect says', async () => {
    folder = join(program.dir, String(++made));
    await mkdir(join(folder, 'run'), { recursive: true });
    // Inside, /run is the node's own, and /var/run is the usual link with an absolute target.
    const inside = [
      'mount -t tmpfs own /run && mkdir /run/containerd',
      `"${process.execPath}" ${script('fake-runtime.ts')} /run/containerd/containerd.sock > /run/log &`,
      'until grep -q answers /run/log; do sleep 0.1; done',
      `cat > /run/config.yaml <<END\nkind: KubeletConfiguration\ncontainerRuntimeEndpoint: unix:///var/run/containerd/containerd.sock\nEND`,
      'echo ready',
      `exec -a kubelet "${process.execPath}" ${script('fake-kubelet.ts')} --config /run/config.yaml --container-runtime-endpoint=unix:///var/run/containerd/containerd.sock`,
    ].join('\n');
    await using node = run(['unshare', '--mount', '--pid', '--fork', '--mount-proc', '--kill-child=SIGKILL', 'bash', '-c', inside]);
    await said(node, 'answer');
    const first = (await readFile(`/proc/${node.pid}/task/${node.pid}/children`, 'utf8')).trim();
    await writeFile(
      join(folder, 'docker'),
      `#!/bin/sh\n[ "$1 $2 $5" = "inspect --format a-node" ] || [ "$1 $2 $4" = "inspect --format a-node" ] && echo ${first}\n`,
    );
    await chmod(join(folder, 'docker'), 0o755);
    await using tap = run(nodelet('cri', 'attach', '--kind', 'a-node'), { env: { ...env(), PATH: `${folder}:${process.env['PATH']}` } });
    await said(tap, 'watch it with');
    assert.match(tap.out(), /in the place of \/run\/containerd\/containerd\.sock \(kind node a-node\)/);
    assert.match(tap.out(), /speaks through the tap/);
    const there = `/proc/${first}/root/run/containerd`;
    assert.equal((await readdir(there)).length, 3);
    await goesOn(node);
    tap.child.kill('SIGKILL');
    await eventually('the folder is as it was', SLOW_MS, async () => ((await readdir(there)).length === 1 ? true : null));
    await goesOn(node);
    await using next = run(nodelet('cri', 'attach', '--kind', 'a-node'), { env: { ...env(), PATH: `${folder}:${process.env['PATH']}` } });
    await said(next, 'watch it with');
    node.child.kill('SIGKILL');
    assert.deepEqual(await exitOf(next.child), [1, null]);
    assert.match(next.out(), /ended, because the node has ended/);
  });

  test('a kubelet under a systemd unit is started again by it, and only when it is the main process of that unit', async (t) => {
    const hierarchy = ['/sys/fs/cgroup/unified', '/sys/fs/cgroup'].find((path) => existsSync(join(path, 'cgroup.procs')));
    if (hierarchy === undefined) return t.skip('needs a cgroup hierarchy of version 2, also beside one of version 1');
    folder = join(program.dir, String(++made));
    socket = join(folder, 'run/containerd.sock');
    await mkdir(join(folder, 'run'), { recursive: true });
    await using runtime = run([process.execPath, script('fake-runtime.ts'), socket]);
    await said(runtime, 'answers');
    const group = join(hierarchy, `nodelet-attach-${process.pid}`);
    await mkdir(join(group, 'kubelet.service'), { recursive: true });
    try {
      // Something of systemd's name, which starts a kubelet whenever there is none; and what asks it for the main process and for a restart.
      const keeper = `echo $$ > "${group}/kubelet.service/cgroup.procs"\nwhile :; do (exec -a kubelet "${process.execPath}" ${script('fake-kubelet.ts')} --container-runtime-endpoint=unix://${socket}) & echo $! > ${folder}/main; wait $!; echo again; done`;
      await copyFile('/usr/bin/bash', join(folder, 'systemd'));
      await chmod(join(folder, 'systemd'), 0o755);
      const asked = `#!/bin/sh\necho "$*" >> ${folder}/asked\ncase $1 in show) cat ${folder}/main ;; restart) kill "$(cat ${folder}/main)" ;; esac\n`;
      await writeFile(join(folder, 'systemctl'), asked, { mode: 0o755 });
      await using systemd = run([join(folder, 'systemd'), '-c', keeper]);
      await said(systemd, 'answer');
      const main = async (): Promise<string> => (await readFile(join(folder, 'main'), 'utf8')).trim();
      const path = { env: { ...env(), PATH: `${folder}:${process.env['PATH']}` } };
      const first = await main();
      await using tap = run(nodelet('cri', 'attach', '--pid', first, '--reconnect', 'restart'), path);
      await said(tap, 'kubelet.service started again');
      await said(tap, 'the first caller comes through the tap');
      assert.notEqual(await main(), first);
      assert.equal(await readFile(join(folder, 'asked'), 'utf8'), 'show --property=MainPID --value kubelet.service\nrestart kubelet.service\n');
      tap.child.kill('SIGINT');
      await exitOf(tap.child);
      const second = await main();
      await writeFile(join(folder, 'systemctl'), asked.replace(`cat ${folder}/main ;;`, 'echo 1 ;;'), { mode: 0o755 });
      await using other = run(nodelet('cri', 'attach', '--pid', second, '--reconnect', 'restart'), path);
      await said(other, 'it is not the main process of kubelet.service');
      assert.equal(await main(), second);
    } finally {
      await eventually('the group is empty', SLOW_MS, async () => {
        for (const pid of (await readFile(join(group, 'kubelet.service/cgroup.procs'), 'utf8')).split('\n').filter((line) => line !== ''))
          process.kill(Number(pid), 'SIGKILL');
        await rmdir(join(group, 'kubelet.service'));
        return true;
      });
      await rmdir(group);
    }
  });

  test('a folder that is read-only: said, and nothing is changed', async () => {
    await using here = await world();
    const script = `mount --bind "$1/run" "$1/run" && mount -o remount,ro,bind "$1/run" && shift && exec "$@"`;
    const tried = run(['unshare', '--mount', 'sh', '-c', script, 'sh', folder, ...nodelet('cri', 'attach', '--socket', socket)], { env: env() });
    assert.deepEqual(await exitOf(tried.child), [1, null]);
    assert.match(tried.out(), /read-only/);
    assert.doesNotMatch(tried.out(), /at .*\.ts/);
    assert.deepEqual(await names(), ['containerd.sock']);
    await goesOn(here.kubelet);
  });

  test('what one in the background says is taken away with it when it is killed, by its guard or by detach', async () => {
    await using here = await world();
    for (const how of ['guard', 'detach']) {
      const background = cri('attach', '--pid', String(here.kubelet.pid), '--background');
      assert.deepEqual(await exitOf(background.child), [0, null]);
      const [, pid = '', log = ''] = /goes on as process (\d+), its words are in (\S+)/.exec(background.out()) ?? [];
      await stat(log);
      const guard = await guardOf();
      if (how === 'detach') process.kill(guard, 'SIGKILL');
      process.kill(Number(pid), 'SIGKILL');
      if (how === 'detach') assert.deepEqual(await exitOf(cri('detach', '--pid', String(here.kubelet.pid)).child), [0, null]);
      await eventually('its words are gone', SLOW_MS, async () => (await stat(log).catch(() => null)) === null || null);
      assert.deepEqual(await names(), ['containerd.sock']);
    }
    await goesOn(here.kubelet);
  });

  test('--reconnect never touches no connection, --background returns when it stands, and a second one is refused', async () => {
    await using here = await world();
    const background = cri('attach', '--pid', String(here.kubelet.pid), '--reconnect', 'never', '--background', '--json');
    assert.deepEqual(await exitOf(background.child), [0, null]);
    assert.match(background.out(), /"kubeletConnection":"nothing"/);
    const peers = async (which: string): Promise<string> => (await exec([program.path, 'peers', String(here.kubelet.pid), socket + which])).stdout.trim();
    assert.equal(await peers('.real'), '1');
    assert.equal(await peers(''), '0');
    const second = cri('attach', '--pid', String(here.kubelet.pid));
    assert.deepEqual(await exitOf(second.child), [1, null]);
    assert.match(second.out(), /process \d+ \(since .*\) is attached there already/);
    const done = cri('detach', '--pid', String(here.kubelet.pid));
    assert.deepEqual(await exitOf(done.child), [0, null]);
    assert.deepEqual(await names(), ['containerd.sock']);
    await goesOn(here.kubelet);
    assert.equal(here.kubelet.count('failure'), 0);
  });
});
