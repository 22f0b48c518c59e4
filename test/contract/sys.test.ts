import assert from 'node:assert/strict';
import { execFileSync, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { hasCode, OpError } from '../../base/errors.ts';
import { silentLog } from '../../base/log.ts';
import { createSysClient } from '../../base/sys/client.ts';
import { createFakeSys } from '../../base/sys/fake.ts';
import { createFallbackSys } from '../../base/sys/fallback.ts';
import type { FileOp, FileOpResult, Sys } from '../../base/sys/types.ts';

const soonMs = 5000;
const text = (data: Uint8Array | undefined | null): string => Buffer.from(data ?? []).toString();

interface World {
  name: 'real' | 'fallback' | 'fake';
  skip: string | false;
  open(): { sys: Sys; dir: string; close(): Promise<void> };
}

function needsOf(name: 'real' | 'fallback'): string | false {
  if (process.getuid?.() !== 0) return 'needs root: it mounts';
  try {
    if (name === 'real') execFileSync('cc', ['--version'], { stdio: 'ignore' });
    else execFileSync('nsenter', ['--version'], { stdio: 'ignore' });
    return false;
  } catch {
    return name === 'real' ? 'needs a C compiler (cc)' : 'needs util-linux';
  }
}

function onDisk(make: (dir: string) => Sys): World['open'] {
  return () => {
    const dir = mkdtempSync(join(tmpdir(), 'sys-contract-'));
    const sys = make(dir);
    return {
      sys,
      dir,
      async close() {
        await sys[Symbol.asyncDispose]();
        rmSync(dir, { recursive: true });
      },
    };
  };
}

function build(dir: string): string {
  const given = process.env['NODELET_SYS'];
  if (given !== undefined) return given;
  const path = join(dir, 'sys');
  execFileSync('sh', [join(import.meta.dirname, '../../sys/build.sh'), path]);
  return path;
}

const worlds: World[] = [
  { name: 'real', skip: needsOf('real'), open: onDisk((dir) => createSysClient({ path: build(dir), log: silentLog })) },
  { name: 'fallback', skip: needsOf('fallback'), open: onDisk(() => createFallbackSys({ log: silentLog })) },
  {
    name: 'fake',
    skip: false,
    open() {
      const sys = createFakeSys();
      sys.put('/scratch', null);
      return { sys, dir: '/scratch', close: () => Promise.resolve() };
    },
  },
];

for (const world of worlds) {
  if (world.skip !== false) console.log(`sys contract, ${world.name}: skipped, ${world.skip}`);
  describe(`sys contract: ${world.name}`, { skip: world.skip }, () => contract(world));
}

function contract(world: World): void {
  let opened: ReturnType<World['open']>;
  let sys: Sys;
  let dir: string;
  before(() => {
    opened = world.open();
    ({ sys, dir } = opened);
  });
  after(async () => {
    await opened.close();
  });
  const fake = world.name === 'fake' ? 'programs are scripted in the fake' : false;
  const work = (root: string, ...ops: FileOp[]): Promise<FileOpResult[]> => sys.fileOps({ root, ops, timeoutMs: soonMs });
  const last = async (root: string, ...ops: FileOp[]): Promise<FileOpResult> => (await work(root, ...ops)).at(-1) as FileOpResult;

  describe('run', { skip: fake }, () => {
    const run = (script: string, more: Partial<Parameters<Sys['run']>[0]> = {}, signal?: AbortSignal): ReturnType<Sys['run']> =>
      sys.run({ argv: ['sh', '-c', script], timeoutMs: soonMs, ...more }, signal);

    test('hands over input, environment, directory, output and exit code', async () => {
      const result = await run('cat; echo $X; pwd; env | wc -l; echo wrong >&2; exit 3', {
        stdin: 'in\n',
        env: { PATH: '/bin:/usr/bin', X: 'a b' },
        cwd: '/usr',
      });
      const [input, value, cwd] = text(result.stdout).split('\n');
      assert.deepEqual(
        [input, value, cwd, text(result.stderr), result.code, result.signal, result.timedOut, result.truncated],
        ['in', 'a b', '/usr', 'wrong\n', 3, null, false, false],
      );
    });

    test('a signal that ends it is reported', async () => {
      const result = await run('kill -15 $$');
      assert.deepEqual([result.code, result.signal], [null, 15]);
    });

    test('what cannot be started throws', async () => {
      await assert.rejects(sys.run({ argv: ['/nonexistent/program'], timeoutMs: soonMs }), (error) => hasCode(error, 'not-found'));
      await assert.rejects(sys.run({ argv: ['/etc/passwd'], timeoutMs: soonMs }), (error) => hasCode(error, 'denied'));
    });

    test('at the deadline the whole group dies and what was printed is kept', async () => {
      const marker = `3${process.pid % 1000}.25`;
      const result = await run(`echo first; sleep ${marker} & sleep ${marker}`, { timeoutMs: 200 });
      assert.deepEqual([result.timedOut, result.code, text(result.stdout)], [true, null, 'first\n']);
      assert.notEqual((await run(`pgrep -f '^sleep ${marker.replace('.', '[.]')}'`)).code, 0);
    });

    test('an aborted run throws and its group dies', async () => {
      const marker = `4${process.pid % 1000}.25`;
      await assert.rejects(run(`sleep ${marker} & sleep ${marker}`, {}, AbortSignal.timeout(100)), (error) => hasCode(error, 'aborted'));
      assert.notEqual((await run(`pgrep -f '^sleep ${marker.replace('.', '[.]')}'`)).code, 0);
    });

    test('output above the limit is dropped and said so; the program still ends by itself', async () => {
      const result = await run('head -c 3000000 /dev/zero; echo done >&2', { maxOutputBytes: 1000 });
      assert.deepEqual([result.stdout.length, text(result.stderr), result.truncated, result.code], [1000, 'done\n', true, 0]);
    });

    test('a writer without an end hides neither the deadline nor the end of who started it', async () => {
      const beganMs = performance.now();
      const endless = await run('yes & yes & yes', { timeoutMs: 500, maxOutputBytes: 1000 });
      assert.deepEqual([endless.timedOut, endless.truncated, endless.stdout.length], [true, true, 1000]);
      // Out of reach of the group's end; it goes with the pipe that nobody reads any more.
      assert.equal((await run('setsid yes & sleep 0.2', { timeoutMs: soonMs, maxOutputBytes: 1000 })).code, 0);
      assert.ok(performance.now() - beganMs < soonMs, 'it took too long');
    });

    test('large input and output do not wait for each other', async () => {
      const data = Buffer.alloc(2_000_000, 'x');
      const result = await run('cat', { stdin: data, maxOutputBytes: 4_000_000 });
      assert.equal(result.stdout.length, data.length);
      assert.equal((await run('exit 0', { stdin: data })).code, 0);
    });

    test('a background child does not hold the answer back', async () => {
      assert.equal(text((await run('sleep 30 & echo now')).stdout), 'now\n');
    });

    test('it enters a network and a mount namespace', async () => {
      const other = spawn('unshare', ['--net', '--mount', 'sh', '-c', 'echo ready; exec sleep 60'], { stdio: ['ignore', 'pipe', 'inherit'] });
      try {
        await once(other.stdout, 'data');
        const links = (pid: number | 'self'): string => `readlink /proc/${pid}/ns/net /proc/${pid}/ns/mnt`;
        const there = await run(links('self'), { netns: `/proc/${other.pid}/ns/net`, mntns: `/proc/${other.pid}/ns/mnt` });
        assert.equal(text(there.stdout), text((await run(links(other.pid ?? 0))).stdout));
        assert.notEqual(text(there.stdout), text((await run(links('self'))).stdout));
      } finally {
        other.kill('SIGKILL');
        await once(other, 'exit');
      }
    });

    test('many run at once', async () => {
      const results = await Promise.all(Array.from({ length: 30 }, (_, index) => run(`echo ${index}`)));
      assert.deepEqual(
        results.map(({ stdout }) => Number(text(stdout))),
        Array.from({ length: 30 }, (_, index) => index),
      );
    });
  });

  describe('file operations', () => {
    test('write, read, list, links and modes', async () => {
      const results = await work(
        dir,
        { op: 'mkdir', path: 'ops', mode: 0o2770 },
        { op: 'mkdir', path: 'ops', mode: 0o700 },
        { op: 'write', path: 'ops/file', data: 'hello', mode: 0o4640, uid: 7, gid: 8 },
        { op: 'write', path: 'ops/file', data: 'hi', mode: 0o640 },
        { op: 'symlink', target: 'file', path: 'ops/link' },
        { op: 'readlink', path: 'ops/link' },
        { op: 'list', path: 'ops' },
        { op: 'read', path: 'ops/file', maxBytes: 1 },
        { op: 'chown', path: 'ops/file', uid: 1, gid: 2 },
        { op: 'chmod', path: 'ops/file', mode: 0o600 },
        { op: 'stat', path: 'ops/file' },
        { op: 'stat', path: 'ops' },
        { op: 'stat', path: 'ops/link' },
      );
      assert.deepEqual(
        results.map(({ errno }) => errno),
        results.map(() => ''),
      );
      assert.equal(results[5]?.target, 'file');
      assert.deepEqual(results[6]?.names?.toSorted(), ['file', 'link']);
      assert.equal(text(results[7]?.data), 'h');
      assert.deepEqual({ ...results[10]?.stat }, { type: 'file', mode: 0o600, uid: 1, gid: 2, size: 2, mountPoint: false });
      assert.deepEqual([results[11]?.stat?.type, results[11]?.stat?.mode], ['dir', 0o2770]);
      assert.equal(results[12]?.stat?.type, 'link');
    });

    test('rename replaces, unlink of nothing is fine, unlink of a full directory is not', async () => {
      await work(
        dir,
        { op: 'mkdir', path: 'ren', mode: 0o755 },
        { op: 'write', path: 'ren/a', data: 'a', mode: 0o600 },
        { op: 'write', path: 'ren/b', data: 'b', mode: 0o600 },
      );
      const results = await work(
        dir,
        { op: 'rename', path: 'ren/a', to: 'ren/b' },
        { op: 'unlink', path: 'ren/a' },
        { op: 'read', path: 'ren/b', maxBytes: 9 },
        { op: 'unlink', path: 'ren' },
      );
      assert.deepEqual(
        results.map(({ errno }) => errno),
        ['', '', '', 'ENOTEMPTY'],
      );
      assert.equal(text(results[2]?.data), 'a');
      assert.deepEqual(
        (await work(dir, { op: 'unlink', path: 'ren/b' }, { op: 'unlink', path: 'ren' }, { op: 'stat', path: 'ren' })).map(({ errno }) => errno),
        ['', '', 'ENOENT'],
      );
    });

    test('the list of answers ends at the first failure', async () => {
      const results = await work(dir, { op: 'stat', path: '' }, { op: 'read', path: 'absent', maxBytes: 1 }, { op: 'stat', path: '' });
      assert.deepEqual(
        results.map(({ errno }) => errno),
        ['', 'ENOENT'],
      );
      assert.equal((await last(dir, { op: 'symlink', target: 'x', path: 'twice' }, { op: 'symlink', target: 'x', path: 'twice' })).errno, 'EEXIST');
      await assert.rejects(sys.fileOps({ root: `${dir}/absent`, ops: [{ op: 'stat', path: '' }], timeoutMs: soonMs }), (error) => hasCode(error, 'not-found'));
    });

    test('links are refused, kept inside, or followed, as asked', async () => {
      await work(
        dir,
        { op: 'mkdir', path: 'in', mode: 0o755 },
        { op: 'mkdir', path: 'in/d', mode: 0o755 },
        { op: 'write', path: 'in/d/f', data: 'x', mode: 0o644 },
        { op: 'write', path: 'out', data: 'secret', mode: 0o644 },
      );
      await work(
        `${dir}/in`,
        { op: 'symlink', target: 'd/f', path: 'good' },
        { op: 'symlink', target: '../out', path: 'bad' },
        { op: 'symlink', target: 'd', path: 'dirlink' },
      );
      const read = async (path: string, links: 'refuse' | 'beneath' | 'follow'): Promise<string> => {
        const [result] = await sys.fileOps({ root: `${dir}/in`, ops: [{ op: 'read', path, maxBytes: 9 }], links, timeoutMs: soonMs });
        return result?.errno === '' ? text(result.data) : (result?.errno ?? '');
      };
      assert.deepEqual(
        await Promise.all([read('good', 'refuse'), read('good', 'beneath'), read('good', 'follow'), read('dirlink/f', 'refuse'), read('dirlink/f', 'beneath')]),
        ['ELOOP', 'x', 'x', 'ELOOP', 'x'],
      );
      assert.deepEqual(await Promise.all([read('bad', 'refuse'), read('bad', 'beneath'), read('bad', 'follow'), read('../out', 'refuse')]), [
        'ELOOP',
        'EXDEV',
        'secret',
        'EXDEV',
      ]);
      assert.equal((await last(`${dir}/in`, { op: 'write', path: 'good', data: 'no', mode: 0o600 })).errno, 'ELOOP');
    });
  });

  describe('beneath a root', () => {
    test('directories get the mode asked for and stay inside', async () => {
      await work(
        dir,
        { op: 'mkdir', path: 'root', mode: 0o755 },
        { op: 'symlink', target: '/', path: 'root/away' },
        { op: 'mkdir', path: 'root/real', mode: 0o755 },
        { op: 'symlink', target: 'real', path: 'root/near' },
      );
      await sys.mkdirBeneath(`${dir}/root`, 'a//b/./c', 0o2777);
      assert.equal((await last(dir, { op: 'stat', path: 'root/a/b/c' })).stat?.mode, 0o2777);
      await sys.mkdirBeneath(`${dir}/root`, 'a/b', 0o700);
      assert.equal((await last(dir, { op: 'stat', path: 'root/a/b' })).stat?.mode, 0o2777);
      await assert.rejects(sys.mkdirBeneath(`${dir}/root`, 'away/x', 0o755), (error) => hasCode(error, 'invalid'));
      await assert.rejects(sys.mkdirBeneath(`${dir}/root`, 'away/x', 0o755, { links: 'beneath' }), (error) => hasCode(error, 'invalid'));
      await assert.rejects(sys.mkdirBeneath(`${dir}/root`, '../x', 0o755), (error) => hasCode(error, 'invalid'));
      await assert.rejects(sys.mkdirBeneath(`${dir}/root`, 'near/x', 0o755), (error) => hasCode(error, 'invalid'));
      await sys.mkdirBeneath(`${dir}/root`, 'near/x', 0o755, { links: 'beneath' });
      assert.equal((await last(dir, { op: 'stat', path: 'root/real/x' })).stat?.type, 'dir');
    });

    test('reading takes the start or the end of a regular file and follows no link', async () => {
      await work(
        dir,
        { op: 'mkdir', path: 'log', mode: 0o755 },
        { op: 'write', path: 'log/f', data: 'abcdef', mode: 0o600 },
        { op: 'symlink', target: 'f', path: 'log/l' },
      );
      assert.equal(text(await sys.readBeneath(`${dir}/log`, 'f', { maxBytes: 4 })), 'abcd');
      assert.equal(text(await sys.readBeneath(`${dir}/log`, 'f', { maxBytes: 4, fromEnd: true })), 'cdef');
      assert.equal(text(await sys.readBeneath(`${dir}/log`, 'f', { maxBytes: 40, fromEnd: true })), 'abcdef');
      await assert.rejects(sys.readBeneath(`${dir}/log`, 'l', { maxBytes: 4 }), (error) => hasCode(error, 'invalid'));
      await assert.rejects(sys.readBeneath(dir, 'log', { maxBytes: 4 }), (error) => hasCode(error, 'invalid'));
      await assert.rejects(sys.readBeneath(dir, 'absent', { maxBytes: 4 }), (error) => hasCode(error, 'not-found'));
    });
  });

  describe('mounts', () => {
    test('mount and unmount, and unmounting what is not mounted', async () => {
      await work(dir, { op: 'mkdir', path: 'm', mode: 0o755 });
      await sys.mount({ source: 'tmpfs', target: `${dir}/m`, fstype: 'tmpfs', flags: ['nosuid', 'nodev'], data: 'size=1048576,mode=0700' });
      const results = await work(dir, { op: 'stat', path: 'm' }, { op: 'write', path: 'm/x', data: '1', mode: 0o600 });
      assert.deepEqual([results[0]?.stat?.mountPoint, results[0]?.stat?.mode, results[1]?.errno], [true, 0o700, '']);
      const facts = await sys.statfs(`${dir}/m`, { timeoutMs: soonMs });
      assert.deepEqual([facts.totalBytes, facts.magic], [1_048_576, 0x01021994]);
      assert.ok(facts.availableBytes > 0 && facts.inodesFree > 0);
      await sys.mount({ source: '', target: `${dir}/m`, fstype: '', flags: ['remount', 'ro'] });
      assert.equal((await last(dir, { op: 'write', path: 'm/y', data: '1', mode: 0o600 })).errno, 'EROFS');
      assert.equal(await sys.umount(`${dir}/m`), 'unmounted');
      assert.equal(await sys.umount(`${dir}/m`), 'not-mounted');
      assert.equal(await sys.umount(`${dir}/absent`), 'not-mounted');
      assert.equal((await last(dir, { op: 'stat', path: 'm/x' })).errno, 'ENOENT');
      await assert.rejects(sys.mount({ source: 'tmpfs', target: `${dir}/absent`, fstype: 'tmpfs' }), (error) => error instanceof OpError);
    });

    test('a bind shows the source, read-only when asked, recursively when asked', async () => {
      await work(
        dir,
        { op: 'mkdir', path: 'b', mode: 0o755 },
        { op: 'mkdir', path: 'b/src', mode: 0o755 },
        { op: 'mkdir', path: 'b/src/sub', mode: 0o755 },
        { op: 'mkdir', path: 'b/dst', mode: 0o755 },
      );
      await sys.mount({ source: 'tmpfs', target: `${dir}/b/src/sub`, fstype: 'tmpfs' });
      const write = async (path: string): Promise<string> => (await last(dir, { op: 'write', path, data: 'x', mode: 0o600 })).errno;
      await sys.bind({ source: `${dir}/b/src`, target: `${dir}/b/dst`, recursive: true, readOnly: true, propagation: 'rslave' });
      assert.deepEqual([await write('b/dst/f'), await write('b/dst/sub/f'), await write('b/src/f')], ['EROFS', '', '']);
      await sys.umount(`${dir}/b/dst`, { lazy: true });
      await sys.bind({ source: `${dir}/b/src`, target: `${dir}/b/dst`, recursive: true, recursiveReadOnly: true, propagation: 'rprivate' });
      assert.deepEqual([await write('b/dst/f'), await write('b/dst/sub/f')], ['EROFS', 'EROFS']);
      await sys.umount(`${dir}/b/dst`, { lazy: true });
      await sys.bind({ source: `${dir}/b/src`, target: `${dir}/b/dst` });
      assert.equal((await last(dir, { op: 'stat', path: 'b/dst/sub/f' })).errno, 'ENOENT');
      assert.equal(await sys.umount(`${dir}/b/dst`), 'unmounted');
      await sys.umount(`${dir}/b/src/sub`);
    });

    test('a bind below a root cannot be led outside, and a file can be bound', async () => {
      await work(
        dir,
        { op: 'mkdir', path: 'v', mode: 0o755 },
        { op: 'mkdir', path: 'v/data', mode: 0o755 },
        { op: 'write', path: 'v/data/f', data: 'F', mode: 0o644 },
      );
      await work(
        dir,
        { op: 'symlink', target: 'data', path: 'v/link' },
        { op: 'symlink', target: '/usr', path: 'v/evil' },
        { op: 'write', path: 'target', data: '', mode: 0o644 },
        { op: 'mkdir', path: 'targetdir', mode: 0o755 },
      );
      await sys.bind({ beneath: `${dir}/v`, source: 'data/f', target: `${dir}/target` });
      assert.equal(text((await last(dir, { op: 'read', path: 'target', maxBytes: 9 })).data), 'F');
      await sys.umount(`${dir}/target`);
      for (const links of ['refuse', 'beneath'] as const) {
        await assert.rejects(sys.bind({ beneath: `${dir}/v`, source: 'evil', target: `${dir}/targetdir`, links }), (error) => hasCode(error, 'invalid'));
        await assert.rejects(sys.bind({ beneath: `${dir}/v`, source: '../target', target: `${dir}/target`, links }), (error) => hasCode(error, 'invalid'));
      }
      await assert.rejects(sys.bind({ beneath: `${dir}/v`, source: 'link/f', target: `${dir}/target` }), (error) => hasCode(error, 'invalid'));
      await sys.bind({ beneath: `${dir}/v`, source: 'link/f', target: `${dir}/target`, links: 'beneath' });
      await sys.umount(`${dir}/target`);
    });
  });

  describe('trees', () => {
    const plant = async (name: string): Promise<void> => {
      await sys.mkdirBeneath(dir, `${name}/deep/er`, 0o755);
      await work(
        dir,
        { op: 'write', path: `${name}/f`, data: Buffer.alloc(8192, 'x'), mode: 0o600 },
        { op: 'write', path: `${name}/deep/g`, data: Buffer.alloc(4096, 'x'), mode: 0o600 },
        { op: 'symlink', target: dir, path: `${name}/deep/up` },
      );
    };

    test('removal takes everything, no link further, and nothing is success', async () => {
      await plant('t1');
      await sys.removeTree(`${dir}/t1`, { timeoutMs: soonMs });
      assert.equal((await last(dir, { op: 'stat', path: 't1' })).errno, 'ENOENT');
      assert.equal((await last(dir, { op: 'stat', path: '' })).errno, '');
      await sys.removeTree(`${dir}/t1`, { timeoutMs: soonMs });
      await sys.removeTree(`${dir}/t1/below`, { timeoutMs: soonMs });
      await work(dir, { op: 'mkdir', path: 'keep', mode: 0o755 }, { op: 'symlink', target: 'keep', path: 'top' });
      await sys.removeTree(`${dir}/top`, { timeoutMs: soonMs });
      assert.equal((await last(dir, { op: 'stat', path: 'keep' })).errno, '');
    });

    test('removal stops at a mount and leaves what is in it', async () => {
      await plant('t2');
      await sys.mount({ source: 'tmpfs', target: `${dir}/t2/deep/er`, fstype: 'tmpfs' });
      await work(dir, { op: 'write', path: 't2/deep/er/precious', data: '', mode: 0o600 });
      await assert.rejects(sys.removeTree(`${dir}/t2`, { timeoutMs: soonMs }), /EBUSY/);
      await assert.rejects(sys.removeTree(`${dir}/t2/deep/er`, { timeoutMs: soonMs }), /EBUSY/);
      assert.equal((await last(dir, { op: 'stat', path: 't2/deep/er/precious' })).errno, '');
      await sys.umount(`${dir}/t2/deep/er`);
      await sys.removeTree(`${dir}/t2`, { timeoutMs: soonMs });
    });

    test('ownership and modes reach everything inside but no link target', async () => {
      await plant('t3');
      await work(dir, { op: 'write', path: 'outside', data: '', mode: 0o600 }, { op: 'symlink', target: '../outside', path: 't3/out' });
      await sys.chownTree(`${dir}/t3`, { gid: 4242, orMode: 0o060, orDirMode: 0o2070, timeoutMs: soonMs });
      const results = await work(
        dir,
        { op: 'stat', path: 't3' },
        { op: 'stat', path: 't3/deep/er' },
        { op: 'stat', path: 't3/deep/g' },
        { op: 'stat', path: 't3/out' },
        { op: 'stat', path: 'outside' },
      );
      assert.deepEqual(
        results.map(({ stat }) => [stat?.gid, stat?.type === 'link' ? null : stat?.mode]),
        [
          [4242, 0o2775],
          [4242, 0o2775],
          [4242, 0o660],
          [4242, null],
          [0, 0o600],
        ],
      );
      await sys.removeTree(`${dir}/t3`, { timeoutMs: soonMs });
    });

    test('disk usage counts blocks and inodes, and nothing of a mount inside', async () => {
      await plant('t4');
      await sys.mount({ source: 'tmpfs', target: `${dir}/t4/deep/er`, fstype: 'tmpfs' });
      await work(dir, { op: 'write', path: 't4/deep/er/big', data: Buffer.alloc(500_000), mode: 0o600 });
      const usage = await sys.diskUsage(`${dir}/t4`, { timeoutMs: soonMs });
      assert.ok(usage.bytes >= 8192 + 4096 && usage.bytes < 100_000, `${usage.bytes} bytes`);
      assert.ok(usage.inodes >= 5 && usage.inodes <= 6, `${usage.inodes} inodes`);
      await sys.umount(`${dir}/t4/deep/er`);
      await sys.removeTree(`${dir}/t4`, { timeoutMs: soonMs });
      await assert.rejects(sys.diskUsage(`${dir}/t4`, { timeoutMs: soonMs }), (error) => error instanceof OpError);
    });
  });

  describe('small files', () => {
    test('many are read at once, each cut at its limit, null where there is none', async () => {
      await work(dir, { op: 'write', path: 's1', data: 'one', mode: 0o600 }, { op: 'write', path: 's2', data: '', mode: 0o600 });
      const results = await sys.readFiles([`${dir}/s1`, `${dir}/absent`, `${dir}/s2`, dir], { maxBytesEach: 2 });
      assert.deepEqual(
        results.map((data) => (data === null ? null : text(data))),
        ['on', null, '', null],
      );
      assert.deepEqual(await sys.readFiles([]), []);
    });

    test('existing files are written, absent ones are not made', async () => {
      await work(dir, { op: 'write', path: 'w', data: 'longer than before', mode: 0o600 });
      const results = await sys.writeFiles([
        { path: `${dir}/w`, data: 'new' },
        { path: `${dir}/absent`, data: 'x' },
      ]);
      assert.deepEqual(
        results.map((failure) => failure?.errno ?? null),
        [null, 'ENOENT'],
      );
      assert.deepEqual(
        (await sys.readFiles([`${dir}/w`, `${dir}/absent`])).map((data) => (data === null ? null : text(data))),
        ['new', null],
      );
    });
  });

  describe('locks', () => {
    test('one holder at a time', async () => {
      const held = await sys.lock(`${dir}/lock`);
      await assert.rejects(sys.lock(`${dir}/lock`), (error) => hasCode(error, 'conflict'));
      await held[Symbol.asyncDispose]();
      await (await sys.lock(`${dir}/lock`))[Symbol.asyncDispose]();
    });
  });
}
