import assert from 'node:assert/strict';
import { execa } from 'execa';
import { createHash, randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { appendFile, mkdir, readdir, readFile, rename, writeFile } from 'node:fs/promises';
import { homedir } from 'node:os';
import { after, before, test } from 'node:test';
import type { ContainerConfig, PodSandboxConfig } from '../../proto/cri/types.ts';

/* exec, logs and stats of `nodelet cri` against a real containerd in namespaces of its own. */

const asset = `${process.env['XDG_CACHE_HOME'] ?? `${homedir()}/.cache`}/nodelet/assets/current/containerd-2.4/containerd`;
if (process.env['NODELET_TEST_CONTAINERD'] === undefined && existsSync(asset)) process.env['NODELET_TEST_CONTAINERD'] = asset;
const { busybox, containerdProblem, startContainerd } = await import('../contract/containerd.ts');
const problem = containerdProblem();
const skip = problem ?? false;
if (problem !== null) console.log(`cri ask: skipped, ${problem}`);

const MAIN = new URL('../../node/main.ts', import.meta.url).pathname;
let containerd: Awaited<ReturnType<typeof startContainerd>>;
let containerId: string;
let log: string;
let pid: string;
let podSandboxId: string;
let sandboxConfig: PodSandboxConfig;
let config: ContainerConfig;

before(async () => {
  if (skip !== false) return;
  containerd = await startContainerd();
  const { client, folder, cgroupParent } = containerd;
  const labels = { 'io.kubernetes.pod.name': 'web', 'io.kubernetes.pod.namespace': 'default', 'io.kubernetes.pod.uid': 'u1' };
  sandboxConfig = {
    metadata: { name: 'web', namespace: 'default', uid: 'u1', attempt: 0 },
    labels,
    logDirectory: `${folder}/logs/web`,
    linux: { cgroupParent },
  };
  await mkdir(`${folder}/logs/web`, { recursive: true });
  ({ podSandboxId } = await client.runtime.runPodSandbox({ config: sandboxConfig }));
  config = {
    metadata: { name: 'main', attempt: 0 },
    image: { image: busybox },
    command: ['sh', '-c', 'echo hello; sleep 0.5; echo wrong >&2; exec sleep 100000'],
    labels,
    logPath: 'main_0.log',
    linux: {},
  };
  ({ containerId } = await client.runtime.createContainer({ podSandboxId, sandboxConfig, config }));
  await client.runtime.startContainer({ containerId });
  log = `${folder}/logs/web/main_0.log`;
  pid = await processOf(`${folder}/containerd.toml`);
});
after(() => containerd?.[Symbol.asyncDispose]());

/** The process with that argument: its network has the streaming server. */
async function processOf(argument: string): Promise<string> {
  for (const entry of await readdir('/proc')) {
    if (!/^\d+$/.test(entry)) continue;
    const words = (await readFile(`/proc/${entry}/cmdline`, 'utf8').catch(() => '')).split('\0');
    if (words.includes(argument) && words[0]?.endsWith('/containerd') === true) return entry;
  }
  throw new Error(`no process has ${argument}`);
}

const words = (args: readonly string[]): string[] => ['-t', pid, '-n', process.execPath, '--disable-warning=ExperimentalWarning', MAIN, 'cri', ...args];
const env = (): Record<string, string> => ({ CONTAINER_RUNTIME_ENDPOINT: `unix://${containerd.folder}/containerd.sock` });

async function cri(args: readonly string[], input?: string | Buffer): Promise<{ code: number; out: string; err: string }> {
  const result = await execa('nsenter', words(args), {
    reject: false,
    timeout: 120_000,
    stripFinalNewline: false,
    env: env(),
    ...(input === undefined ? { stdin: 'ignore' as const } : { input }),
  });
  return { code: result.exitCode ?? -1, out: result.stdout, err: result.stderr };
}

const shell = (script: string): string[] => ['--', 'sh', '-c', script];

for (const transport of ['spdy', 'websocket']) {
  test(`exec over ${transport}: both outputs, exit code, what cannot run`, { skip, timeout: 180_000 }, async () => {
    const ended = await cri(['exec', '--transport', transport, 'web/main', ...shell('echo out; echo err >&2; exit 7')]);
    assert.deepEqual(ended, { code: 7, out: 'out\n', err: 'err\n' });
    const many = await cri(['exec', '--transport', transport, containerId.slice(0, 8), ...shell('dd if=/dev/zero bs=1M count=5 2>/dev/null')]);
    assert.deepEqual([many.code, many.out.length], [0, 5 * 2 ** 20]);
    const absent = await cri(['exec', '--transport', transport, 'web', '--', 'nothing-such']);
    assert.equal(absent.code, 1);
    assert.match(absent.err, /executable file not found/);
  });
}

test('exec over SPDY: the end of input is passed on, and five megabytes as they are', { skip, timeout: 180_000 }, async () => {
  assert.equal((await cri(['exec', '-i', 'web', ...shell('cat; echo done')], 'abc')).out, 'abcdone\n');
  const bytes = randomBytes(5 * 2 ** 20);
  const sum = await cri(['exec', '-i', 'web', ...shell('md5sum')], bytes);
  assert.equal(sum.out.split(' ')[0], createHash('md5').update(bytes).digest('hex'), sum.err);
});

test('exec with a terminal gives one, and ExecSync answers at once', { skip, timeout: 180_000 }, async () => {
  const typed = await cri(['exec', '-t', 'web', ...shell('test -t 1 && echo terminal')]);
  assert.equal(typed.out, 'terminal\r\n', typed.err);
  const sync = await cri(['exec', '--sync', '--json', 'web', ...shell('echo a; echo b >&2; exit 3')]);
  assert.deepEqual([sync.code, JSON.parse(sync.out)], [3, { exitCode: 3, stdout: 'a\n', stderr: 'b\n' }]);
});

/** Runs with a terminal of its own, and types each when what stands before it has come. */
async function typing(command: string, steps: readonly (readonly [awaited: RegExp, typed: string])[]): Promise<{ code: number | undefined; out: string }> {
  const child = execa('script', ['-qec', command, '/dev/null'], { reject: false, timeout: 60_000, env: env(), stdin: 'pipe' });
  let out = '';
  let from = 0;
  const left = [...steps];
  child.stdout.on('data', (bytes: Buffer) => {
    out += bytes.toString();
    const [awaited, typed] = left[0] ?? [];
    if (awaited === undefined || typed === undefined || !awaited.test(out.slice(from))) return;
    from = out.length;
    left.shift();
    child.stdin.write(typed);
  });
  const { exitCode } = await child;
  return { code: exitCode, out };
}

const noScript = existsSync('/usr/bin/script') ? skip : 'needs script (bsdutils)';

for (const transport of ['spdy', 'websocket']) {
  test(`exec -it on a terminal over ${transport}: its size, keys as they are, Ctrl-C, and the exit code`, { skip: noScript, timeout: 180_000 }, async () => {
    const inner = ['nsenter', ...words(['exec', '-it', '--transport', transport, 'web', '--', 'sh'])].join(' ');
    const { code, out } = await typing(`sh -c 'stty rows 33 cols 101; exec ${inner}'`, [
      [/# /, 'stty size\r'],
      [/33 101/, 'echo go""ne; sleep 100\r'],
      [/gone/, '\u0003'],
      [/# /, 'exit 5\r'],
    ]);
    assert.equal(code, 5, out);
    assert.match(out, /33 101/);
  });
}

test('stats --watch: one table after another until it is told to end', { skip, timeout: 180_000 }, async () => {
  const child = execa('nsenter', words(['stats', '--watch', '--every', '500ms']), { reject: false, timeout: 60_000, env: env() });
  let out = '';
  child.stdout.on('data', (bytes: Buffer) => {
    out += bytes.toString();
    if (out.split('CONTAINER').length > 3) child.kill('SIGINT');
  });
  const { exitCode } = await child;
  assert.equal(exitCode, 0, out);
  assert.match(out, /main/);
});

test('logs: all, the end, one stream, and on over a rotation until the container ends', { skip, timeout: 180_000 }, async () => {
  assert.equal((await cri(['logs', 'web'])).out, 'hello\nwrong\n');
  assert.equal((await cri(['logs', '--tail', '1', 'web/main'])).out, 'wrong\n');
  assert.equal((await cri(['logs', '--stream', 'stdout', 'default/web/main'])).out, 'hello\n');
  assert.match((await cri(['logs', '--timestamps', '--since', '1h', 'web'])).out, /^\d{4}-\d\d-\d\dT[\d:.]+\S* hello\n/);
  const following = cri(['logs', '--follow', 'web']);
  await rename(log, `${log}.20260101-000000`);
  await appendFile(`${log}.20260101-000000`, '2026-01-01T00:00:00Z stdout F before\n');
  await writeFile(log, '2026-01-01T00:00:01Z stdout F after\n');
  await new Promise((resolve) => setTimeout(resolve, 2_000));
  await containerd.client.runtime.stopContainer({ containerId, timeout: 0 });
  const followed = await following;
  assert.equal(followed.code, 0, followed.err);
  assert.equal(followed.out.endsWith('after\n'), true, followed.out);
});

test('logs --previous: of the attempt before, also when that has ended', { skip, timeout: 180_000 }, async () => {
  const { client } = containerd;
  const image = { ...config, metadata: { name: 'main', attempt: 1 }, command: ['sh', '-c', 'echo again; exec sleep 100000'], logPath: 'main_1.log' };
  const second = await client.runtime.createContainer({ podSandboxId, sandboxConfig, config: image });
  await client.runtime.startContainer({ containerId: second.containerId });
  const now = await cri(['logs', 'web/main']);
  assert.equal(now.out, 'again\n', now.err);
  const earlier = await cri(['logs', '--previous', 'web/main']);
  assert.equal(earlier.out.endsWith('after\n'), true, earlier.out + earlier.err);
  const none = await cri(['logs', '--previous', containerId]);
  assert.match(none.err, /has none/);
});
