import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { chmod, mkdir, mkdtemp, open, readdir, readFile, rm, symlink } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { after, before, describe, it } from 'node:test';
import { execa } from 'execa';

const root = new URL('../..', import.meta.url).pathname;
const PATH = '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin';

interface Made {
  readonly file: string;
  readonly sizeBytes: number;
  readonly sha256: string;
  readonly payloadSha256: string;
}

describe('one file that runs where nothing is installed', { timeout: 120_000 }, () => {
  let folder = '';
  let made: Made;
  const make = async (file: string): Promise<Made> =>
    JSON.parse((await execa(`${root}nodelet`, ['release', 'make', '-o', file, '--json'], { cwd: root })).stdout) as Made;
  const start = (file: string, args: readonly string[], releases: string): Promise<{ code: number; out: string; err: string }> =>
    execa(file, args, { reject: false, extendEnv: false, env: { PATH, NODELET_RELEASES: releases } }).then((result) => ({
      code: result.exitCode ?? -1,
      out: result.stdout,
      err: result.stderr,
    }));

  before(async () => {
    folder = await mkdtemp(`${tmpdir()}/nodelet-release-`);
    made = await make(`${folder}/nodelet`);
  });
  after(() => rm(folder, { recursive: true, force: true }));

  it('says what it is under each of its names, from a cleared environment', async () => {
    const releases = `${folder}/names`;
    for (const name of ['kubelet', 'kube-proxy']) await symlink(made.file, `${folder}/${name}`);
    assert.match((await start(made.file, ['--version'], releases)).out, /^nodelet v1\.37\.2\+nodelet/);
    assert.match((await start(`${folder}/kubelet`, ['--version'], releases)).out, /^Kubernetes v1\.37\.2\+nodelet/);
    assert.match((await start(`${folder}/kube-proxy`, ['--version'], releases)).out, /^Kubernetes v1\.37\.2/);
    assert.equal((await readdir(releases)).length, 1, 'one release, unpacked once');
  });

  it('is unpacked once when several start together', async () => {
    const releases = `${folder}/together`;
    const all = await Promise.all([1, 2, 3].map(() => start(made.file, ['--version'], releases)));
    assert.deepEqual(
      all.map(({ code }) => code),
      [0, 0, 0],
    );
    assert.equal((await readdir(releases)).length, 1);
  });

  it('refuses to run when it is not whole, and leaves nothing', async () => {
    const cut = `${folder}/cut`;
    {
      await using file = await open(cut, 'w');
      await file.write((await readFile(made.file)).subarray(0, made.sizeBytes - 1000));
    }
    await chmod(cut, 0o755);
    const { code, err } = await start(cut, ['--version'], `${folder}/damaged`);
    assert.equal(code, 1);
    assert.match(err, /^nodelet: .*cut is damaged: .*copy it again$/);
    assert.deepEqual(await readdir(`${folder}/damaged`), []);
  });

  it('says where room is missing', async (t) => {
    if (process.geteuid?.() !== 0) {
      t.skip('needs root for a small file system');
      return;
    }
    const small = `${folder}/small`;
    await execa('mkdir', [small]);
    await execa('mount', ['-t', 'tmpfs', '-o', 'size=60m', 'none', small]);
    try {
      const { code, err } = await start(made.file, ['--version'], `${small}/releases`);
      assert.equal(code, 1);
      assert.equal(err, `nodelet: unpacking into ${small}/releases failed; it needs 170 MB there: make room, or name another folder with NODELET_RELEASES`);
      assert.deepEqual(await readdir(`${small}/releases`), []);
    } finally {
      await execa('umount', [small]);
    }
  });

  it('leaves of older releases the newest and what still runs, and no torn one', async () => {
    const releases = `${folder}/older`;
    const name = (digit: string): string => digit.repeat(64);
    const [oldest, running, previous] = [name('a'), name('b'), name('c')];
    for (const [at, each] of [oldest, running, previous, '.new-torn', 'notes'].entries()) {
      await mkdir(`${releases}/${each}/bin`, { recursive: true });
      await execa('touch', ['-d', `${10 - at} hours ago`, `${releases}/${each}`]);
    }
    await execa('cp', ['/bin/sleep', `${releases}/${running}/bin/node`]);
    await execa('touch', ['-d', '9 hours ago', `${releases}/${running}`]);
    const sleeper = spawn(`${releases}/${running}/bin/node`, ['60'], { stdio: 'ignore' });
    try {
      assert.equal((await start(made.file, ['--version'], releases)).code, 0);
    } finally {
      sleeper.kill('SIGKILL');
    }
    const left = (await readdir(releases)).filter((each) => each !== made.payloadSha256);
    assert.deepEqual(left.sort(), [running, previous, 'notes']);
  });

  it('has the same bytes when it is made again', async () => {
    assert.equal((await make(`${folder}/again`)).sha256, made.sha256);
  });
});
