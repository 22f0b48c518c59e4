import { spawn } from 'node:child_process';
import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { readdir, realpath, rm } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { OpError } from '../../base/errors.ts';
import { tryExec } from '../../base/exec.ts';
import { suites } from '../../scripts/suites.ts';
import type { Program } from '../../scripts/command.ts';
import { findAssets } from '../assets/find.ts';
import { cacheRoot } from '../assets/store.ts';
import { packSources } from '../machine/boot.ts';
import { openDocker, type Docker } from './docker.ts';
import { makeNodeImage } from './node-image.ts';
import { jobOf, nodeArguments, type Work } from './suite-plan.ts';

const BOOT_MS = 180_000;
const POLL_MS = 500;
const REMOVE_MS = 60_000;
/** Programs that a node set puts into its images. They are static, and the node image has none. */
const STATIC = ['/usr/bin/busybox', '/usr/bin/catatonit'];

interface SuiteOptions {
  readonly root: string;
  readonly image: string;
  /** Suites of `nodelet test`, test files, or `shutdown`. */
  readonly works: readonly string[];
  /** The container stays, with all it holds, for somebody to look into. */
  readonly isKept: boolean;
}

interface SuiteRun {
  readonly container: string;
  readonly system: string;
  readonly code: number;
  readonly seconds: number;
}

/** What the words mean. Throws OpError `invalid` for one that is neither. */
function worksOf(words: readonly string[]): Work[] {
  const all = suites();
  return words.map((word) => {
    const files = all.get(word) ?? ([...all.values()].flat().includes(word) ? [word] : null);
    if (files === null && word !== 'shutdown')
      throw new OpError('invalid', 'choosing suites', `"${word}" is no suite and no test file`, { advice: `suites: ${[...all.keys()].join(', ')}, shutdown` });
    return { name: word, files: files ?? [] };
  });
}

/** Runs suites of this checkout in a node container that nothing but Docker Engine has made, and removes it. */
async function runInNode(program: Program, docker: Docker, options: SuiteOptions): Promise<SuiteRun> {
  const { progress, host } = program;
  const works = worksOf(options.works);
  const assets = await realpath(host.env['NODELET_ASSETS'] ?? `${cacheRoot(host.env)}/current`);
  const container = `nodelet-suite-${randomBytes(3).toString('hex')}`;
  const archive = `${options.root}/dist/${container}.tar`;
  const [node = ''] = (await readdir(`${options.root}/.tools`)).filter((name) => name.startsWith('node-') && !name.includes('.tmp.'));
  const begun = performance.now();
  try {
    const system = await progress.step('node container booted', async () => {
      await docker.run(
        nodeArguments({ container, image: options.image, root: options.root, node, assets, statics: STATIC.filter((path) => existsSync(path)) }),
      );
      return booted(docker, container, host.signal);
    });
    await progress.step('sources brought in', async () => {
      await packSources(options.root, archive, host.signal);
      await docker.run(['cp', archive, `${container}:/sources.tar`]);
    });
    const code = await talk(program, docker, ['exec', container, 'bash', '-c', jobOf(works, node)]);
    return { container, system, code, seconds: Math.round((performance.now() - begun) / 1000) };
  } finally {
    await rm(archive, { force: true });
    // Also when the command was stopped: it is a privileged container, and nobody else knows its name.
    if (!options.isKept) await tryExec(['docker', 'rm', '--force', '--volumes', container], { env: docker.env, timeoutMs: REMOVE_MS });
  }
}

/** Waits until systemd in the container has come to rest. Returns its word: a unit that failed makes it `degraded`. */
async function booted(docker: Docker, container: string, signal: AbortSignal): Promise<string> {
  const end = performance.now() + BOOT_MS;
  for (;;) {
    const { stdout } = await docker.ask(['exec', container, 'systemctl', 'is-system-running']);
    const word = stdout.trim();
    if (word === 'running' || word === 'degraded') return word;
    // A kubelet without its configuration is started again and again, and the system is never at rest.
    if (word === 'starting') await docker.ask(['exec', container, 'systemctl', 'stop', 'kubelet', 'containerd']);
    if (performance.now() > end)
      throw new OpError('deadline', 'booting a node container', `systemd says "${word}"`, { advice: `see: docker logs ${container}` });
    await delay(POLL_MS, undefined, { signal });
  }
}

/** Runs docker with its words going on as they come. Returns its status. */
function talk({ host }: Program, docker: Docker, args: readonly string[]): Promise<number> {
  return new Promise((resolve, reject) => {
    const child = spawn('docker', args, { env: { ...docker.env }, stdio: ['ignore', 'pipe', 'pipe'] });
    const stop = (): void => void child.kill('SIGTERM');
    host.signal.addEventListener('abort', stop, { once: true });
    for (const stream of [child.stdout, child.stderr]) stream.setEncoding('utf8').on('data', (text: string) => host.stderr(text));
    child.once('error', reject);
    child.once('close', (code) => {
      host.signal.removeEventListener('abort', stop);
      if (host.signal.aborted) reject(new OpError('aborted', 'running suites in a node container', 'stopped'));
      else resolve(code ?? 1);
    });
  });
}

/** Adds `nodelet kind suite`. */
export function addSuite(program: Program, root: string): void {
  program
    .add<{ json: boolean; image?: string; keep: boolean }>(
      'suite <work...>',
      'run suites of nodelet test, or test files, in a kind node container without a cluster: systemd is process 1 there',
      ['sudo nodelet kind suite root shutdown', 'sudo nodelet kind suite test/cases/kubelet-devices.test.ts --keep'],
      async (options, words) => {
        const docker = await openDocker(program);
        const image = options.image ?? (await makeNodeImage(program, docker, await findAssets({ env: program.host.env }))).name;
        const done = await runInNode(program, docker, { root, image, works: words, isKept: options.keep });
        program.answer(options.json, done, [
          `${words.join(' ')} in a node container of ${image} (systemd ${done.system}): ${done.code === 0 ? 'good' : 'BAD'} in ${done.seconds} s`,
          ...(options.keep ? [`docker exec -it ${done.container} bash`] : []),
        ]);
        return done.code === 0 ? 0 : 1;
      },
    )
    .option('--image <image>', 'a node image; left out: the one that is made here')
    .option('--keep', 'leave the container', false);
}
