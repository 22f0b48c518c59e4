import { mkdir, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { execa } from 'execa';
import { OpError } from '../../base/errors.ts';
import type { Host } from '../../base/host.ts';
import { blobPath, listImages, type ImageStore } from '../../node/io/images.ts';
import type { Progress } from '../../node/io/progress.ts';
import { checksOf, type ImageCheck } from './checks.ts';
import { chosenImages, type ImageChoice } from './make.ts';

export interface CheckImagesOptions {
  readonly host: Host;
  readonly store: ImageStore;
  readonly progress: Progress;
  readonly choice: ImageChoice;
}

export interface CheckedImage {
  readonly name: string;
  readonly result: 'passed' | 'failed' | 'not made';
  readonly checks: readonly { readonly what: string; readonly passed: boolean; readonly why?: string }[];
}

interface Config {
  readonly config?: { readonly Env?: readonly string[]; readonly User?: string };
}

const CHECK_MS = 30_000;

/**
 * Starts each image's programs in its own root (the layers unpacked, a network, mount and PID namespace of its own, as
 * the user the image names) and compares what they print. Needs root.
 */
export async function checkE2eImages(options: CheckImagesOptions): Promise<CheckedImage[]> {
  const chosen = chosenImages(options.choice);
  const stored = new Map((await listImages(options.store)).map((image) => [image.name, image.digest]));
  const results: CheckedImage[] = [];
  for (const { name } of chosen) {
    const digest = stored.get(name);
    if (digest === undefined) results.push({ name, result: 'not made', checks: [] });
    else results.push(await options.progress.step(`${name} checked`, async () => checkOne(options, name, digest)));
  }
  return results;
}

async function checkOne(options: CheckImagesOptions, name: string, digest: string): Promise<CheckedImage> {
  const checks = checksOf(name);
  if (checks.length === 0) throw new Error(`${name} has no checks`);
  const read = async <T>(blob: string): Promise<T> => JSON.parse(await readFile(blobPath(options.store, blob), 'utf8')) as T;
  const manifest = await read<{ config: { digest: string }; layers: { digest: string }[] }>(digest);
  const { config } = await read<Config>(manifest.config.digest);
  const root = await mkdtemp(`${tmpdir()}/nodelet-image-`);
  try {
    for (const layer of manifest.layers) await unpack(blobPath(options.store, layer.digest), root, options.host.signal);
    for (const folder of ['proc', 'dev', 'sys', 'tmp', 'etc']) await mkdir(`${root}/${folder}`, { recursive: true });
    const results: CheckedImage['checks'][number][] = [];
    for (const check of checks) {
      const why = await runCheck(options, root, config ?? {}, check);
      results.push({ what: check.what, passed: why === null, ...(why === null ? {} : { why }) });
      if (why !== null) options.progress.note(`    ${check.what}: ${why}`);
    }
    return { name, result: results.every((entry) => entry.passed) ? 'passed' : 'failed', checks: results };
  } finally {
    await Promise.all([root, `${root}.out`, `${root}.err`].map((path) => rm(path, { recursive: true, force: true })));
  }
}

async function unpack(blob: string, root: string, signal: AbortSignal): Promise<void> {
  await execa('tar', ['--extract', '--gzip', '--file', blob, '--directory', root, '--numeric-owner', '--preserve-permissions', '--same-owner'], {
    cancelSignal: signal,
  });
}

// What a runtime gives every container: a loopback that is up, /dev with the usual nodes, names for localhost.
const ENTER = `ip link set lo up
mount -t proc proc "$1/proc"
mount -t tmpfs -o mode=0755 dev "$1/dev"
for n in null:3 zero:5 full:7 random:8 urandom:9; do mknod -m 666 "$1/dev/\${n%:*}" c 1 "\${n#*:}"; done
ln -s /proc/self/fd "$1/dev/fd"; ln -s /proc/self/fd/1 "$1/dev/stdout"; ln -s /proc/self/fd/2 "$1/dev/stderr"
printf '127.0.0.1 localhost\\n' > "$1/dev/hosts"; touch "$1/etc/hosts"; mount --bind "$1/dev/hosts" "$1/etc/hosts"
out=$2; err=$3; shift 3
exec "$@" > "$out" 2> "$err"
`;

/** Null when it passes, else the reason. */
async function runCheck(options: CheckImagesOptions, root: string, config: NonNullable<Config['config']>, check: ImageCheck): Promise<string | null> {
  const [user = '0', group = user === '' ? '0' : user] = check.user === undefined ? (config.User ?? '0').split(':') : [String(check.user)];
  const env = [...(config.Env ?? ['PATH=/usr/sbin:/usr/bin:/sbin:/bin']), ...Object.entries(check.env ?? {}).map(([name, value]) => `${name}=${value}`)];
  const words = typeof check.run === 'string' ? ['/bin/sh', '-c', check.run] : check.run;
  // Files, because a program that opens /dev/stdout by its name cannot open the socket that Node would give it.
  const [out, err] = [`${root}.out`, `${root}.err`];
  const id = (text: string): string => (/^\d+$/.test(text) ? `+${text}` : text);
  const inside = ['chroot', `--userspec=${id(user)}:${id(group)}`, '--groups=', root, ...words];
  const result = await execa(
    'unshare',
    ['--mount', '--net', '--pid', '--ipc', '--uts', '--fork', '--kill-child', 'sh', '-c', ENTER, 'sh', root, out, err, ...inEnvironment(inside, env)],
    {
      reject: false,
      timeout: CHECK_MS,
      cancelSignal: options.host.signal,
      extendEnv: false,
      env: { PATH: options.host.env['PATH'] ?? '' },
      stdout: { file: out },
      stderr: { file: err },
    },
  );
  const printed = (await Promise.all([out, err].map(printedTo))).join('') || result.stderr;
  options.host.signal.throwIfAborted();
  if (result.exitCode === undefined && !result.timedOut && result.signal === undefined)
    throw new OpError('not-found', 'starting an image', result.shortMessage ?? 'unshare is not there', { advice: 'apt-get install util-linux' });
  if (result.timedOut) return `did not end within ${CHECK_MS / 1000} s`;
  const said = printed.trim().slice(-300);
  if (result.exitCode !== (check.exit ?? 0)) return `exit ${result.exitCode ?? result.signal}: ${said}`;
  if (check.output !== undefined && !check.output.test(printed)) return `printed ${JSON.stringify(said)}, not ${String(check.output)}`;
  return null;
}

/** `env -i` execs the program itself: a shell in between could drop names that it does not like. */
function inEnvironment(words: readonly string[], env: readonly string[]): string[] {
  return ['env', '-i', ...env, ...words];
}

/** What was printed to a file; nothing where the program was never reached. */
async function printedTo(path: string): Promise<string> {
  return readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return '';
    throw error;
  });
}
