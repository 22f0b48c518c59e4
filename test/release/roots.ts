/** `node test/release/roots.ts`: the one file in bare roots of Debian 11, 12 and 13. Needs root, debootstrap and the distribution's mirror. */
import { chmod, copyFile, mkdir, readdir, rm, stat } from 'node:fs/promises';
import { arch } from 'node:os';
import { OpError } from '../../base/errors.ts';
import { exec, tryExec } from '../../base/exec.ts';
import { runProgram, type Program } from '../../scripts/command.ts';
import { imageCache } from '../images/make.ts';
import { bootstrap, readOrigin } from '../machine/tree.ts';

const root = new URL('../..', import.meta.url).pathname.replace(/\/$/, '');
const RELEASES: Readonly<Record<string, string>> = { 11: 'bullseye', 12: 'bookworm', 13: 'trixie' };
/** In each root: what is called, and what it must say. */
const CALLS: readonly (readonly [string, RegExp])[] = [
  ['/nodelet --version', /^nodelet v1\.\d+\.\d+\+nodelet/],
  ['/kubelet --version', /^Kubernetes v1\.\d+\.\d+\+nodelet/],
  ['/kube-proxy --version', /^Kubernetes v1\./],
  ['/nodelet doctor || true', /\S/],
  ['/nodelet cri --help', /Usage|usage/],
  ['/kubelet --help', /kubeconfig/],
  // The C program that the agent starts, and the CNI plugin as a runtime calls it.
  ['/var/lib/nodelet/releases/*/dist/sys --help 2>&1 || true', /\S/],
  ['CNI_COMMAND=VERSION /var/lib/nodelet/releases/*/dist/cni/nodelet </dev/null || true', /cniVersion/],
];
const STARTS = 7;
const CALL_MS = 120_000;

interface Seen {
  readonly debian: string;
  readonly libc: string;
  readonly firstSeconds: number;
  /** The median of further starts of `kubelet --version`. */
  readonly againSeconds: number;
  readonly unpackedBytes: number;
}

interface Options {
  readonly json: boolean;
  readonly release?: string;
  readonly debian: string;
}

await runProgram('release roots', 'Runs the one file where nothing of it is installed.', (program) => {
  program
    .add<Options>(
      'try',
      'try it in bare roots of Debian',
      ['sudo node test/release/roots.ts', 'sudo node test/release/roots.ts --debian 11'],
      (options) => run(program, options),
      {
        isDefault: true,
      },
    )
    .option('--release <file>', 'a release that was made before; left out: it is made')
    .option('--debian <list>', 'which', Object.keys(RELEASES).join(','));
});

async function run(program: Program, options: Options): Promise<number> {
  const { host, progress } = program;
  if (process.geteuid?.() !== 0) throw new OpError('denied', 'starting', 'this needs root', { advice: 'run it with sudo' });
  const wanted = options.debian.split(',').map((debian) => {
    const name = RELEASES[debian];
    if (name === undefined) throw new OpError('invalid', 'reading --debian', `"${debian}" is none of ${Object.keys(RELEASES).join(', ')}`);
    return { debian, name };
  });
  const file =
    options.release ??
    (JSON.parse((await exec([`${root}/nodelet`, 'release', 'make', '--json'], { signal: host.signal, doing: 'making a release' })).stdout) as { file: string })
      .file;
  const { site } = await readOrigin(host.signal);
  const cache = `${imageCache(host.env)}/../roots`;
  await mkdir(cache, { recursive: true });
  const seen: Seen[] = [];
  for (const { debian, name } of wanted) {
    const tree = `${cache}/${name}`;
    const isThere = await stat(`${tree}/bin/sh`).then(
      () => true,
      () => false,
    );
    if (!isThere)
      await bootstrap({ progress, signal: host.signal }, { release: name, site }, tree).catch(async (error: unknown) => {
        await rm(tree, { recursive: true, force: true });
        throw error;
      });
    seen.push(await progress.step(`Debian ${debian}`, () => tryIn(tree, debian, file, host.signal)));
  }
  const sizeBytes = (await stat(file)).size;
  program.answer(options.json, { file, arch: arch(), sizeBytes, seen }, [
    `${file}: ${(sizeBytes / 1e6).toFixed(1)} MB, linux-${arch()}`,
    ...seen.map(
      (one) =>
        `Debian ${one.debian} (${one.libc}): ${CALLS.length} calls good; first start ${one.firstSeconds.toFixed(2)} s, then ${one.againSeconds.toFixed(2)} s; ${(one.unpackedBytes / 1e6).toFixed(0)} MB unpacked`,
    ),
  ]);
  return 0;
}

/** A line in the root, with a /proc that goes with it and an environment of its own. */
function inRoot(tree: string, line: string, signal: AbortSignal) {
  const script = 'mount -t proc proc "$0/proc" && mount -t tmpfs tmpfs "$0/tmp" && exec env -i PATH=/usr/sbin:/usr/bin:/sbin:/bin chroot "$0" sh -c "$1"';
  return tryExec(['unshare', '--mount', '--propagation', 'private', '--pid', '--fork', '--kill-child', 'sh', '-ec', script, tree, line], {
    signal,
    timeoutMs: CALL_MS,
  });
}

async function tryIn(tree: string, debian: string, file: string, signal: AbortSignal): Promise<Seen> {
  const home = `${tree}/var/lib/nodelet`;
  await rm(home, { recursive: true, force: true });
  for (const name of ['nodelet', 'kubelet', 'kube-proxy']) {
    await copyFile(file, `${tree}/${name}`);
    await chmod(`${tree}/${name}`, 0o755);
  }
  try {
    const timed = async (): Promise<number> => {
      const begunAt = performance.now();
      await inRoot(tree, '/kubelet --version', signal);
      return (performance.now() - begunAt) / 1000;
    };
    const firstSeconds = await timed();
    const again: number[] = [];
    for (let at = 0; at < STARTS; at += 1) again.push(await timed());
    for (const [line, words] of CALLS) {
      const { stdout, stderr } = await inRoot(tree, line, signal);
      if (!words.test(stdout)) throw new OpError('failed', `Debian ${debian}: ${line}`, (stderr || stdout || 'it says nothing').trim().slice(0, 500));
    }
    const libc = (await inRoot(tree, 'ldd --version | head -n 1', signal)).stdout.trim().replace(/^ldd /, '');
    const [release = ''] = await readdir(`${home}/releases`);
    const { stdout } = await exec(['du', '--summarize', '--bytes', `${home}/releases/${release}`]);
    return {
      debian,
      libc,
      firstSeconds,
      againSeconds: again.toSorted((a, b) => a - b)[Math.trunc(STARTS / 2)] ?? Number.NaN,
      unpackedBytes: Number(stdout.split('\t')[0]),
    };
  } finally {
    for (const name of ['nodelet', 'kubelet', 'kube-proxy']) await rm(`${tree}/${name}`, { force: true });
    await rm(home, { recursive: true, force: true });
  }
}
