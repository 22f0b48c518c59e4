import { existsSync, readFileSync } from 'node:fs';
import { access, constants, cp, mkdir, readdir, readFile, realpath, rm } from 'node:fs/promises';
import { homedir } from 'node:os';
import { exec } from '../../base/exec.ts';
import { OpError } from '../../base/errors.ts';
import { lockFile } from '../../node/io/lock.ts';
import { installPackages } from '../../node/io/packages.ts';
import { suites } from '../../scripts/suites.ts';
import { runProgram, type Program } from '../../scripts/command.ts';
import { commitOf } from '../conformance/cluster.ts';
import { bootMachine, endMachine, killLeft, killMachine, runJob, runningMachine, type Machine } from './boot.ts';
import { findImage } from './image.ts';
import { KINDS, needQemu, PIECE_NAMES, shellLine, umlProblem, unknownNames, usualKind, workOf, type Kind } from './plan.ts';

interface Options {
  /** Left out: that of `usualKind`. */
  readonly kind: string | undefined;
  readonly json: boolean;
  readonly seconds: string;
  readonly memory: string | undefined;
  readonly out: string | undefined;
}

const root = new URL('../..', import.meta.url).pathname.replace(/\/$/, '');
const PROGRAMS: Readonly<Record<Kind, { readonly name: string; readonly package: string; readonly memoryMiB: number }>> = {
  qemu: { name: 'qemu-system-x86_64', package: 'qemu-system-x86', memoryMiB: 3072 },
  bare: { name: 'qemu-system-x86_64', package: 'qemu-system-x86', memoryMiB: 2048 },
  uml: { name: 'linux.uml', package: 'user-mode-linux', memoryMiB: 2048 },
};
const LOCK_MS = 30 * 60_000;

await runProgram('machine', 'Boots a machine with cgroup v2 and runs suites of this checkout in it.', (program) => {
  const { host } = program;
  const cache = `${host.env['XDG_CACHE_HOME'] ?? `${homedir()}/.cache`}/nodelet/machine`;
  program.command
    .option(
      '--kind <kind>',
      'uml: seconds to boot, without cpuset and nf_tables for IP; qemu: everything; bare: that without systemd; left out: the soonest that serves',
    )
    .option('--seconds <n>', 'the machine ends after this long, whatever it does', '7200')
    .option('--memory <MiB>', 'its memory; 3072 for qemu, 2048 for bare and uml')
    .option('--out <folder>', 'what the work leaves in /exchange/out is copied there');
  program.add<Options>(
    'run [suites...]',
    `run suites of nodelet test, or ${PIECE_NAMES.join(', ')}; or a command behind --`,
    [
      'nodelet machine run root cases',
      'nodelet machine run cgroups up part5',
      'nodelet machine --out DIR run kubelets',
      'nodelet machine run -- ./nodelet doctor',
    ],
    (options, args) => {
      const isCommand = host.args.includes('--');
      if (args.length === 0) throw new OpError('invalid', 'choosing what to run', 'no suite is named', { advice: `there are: ${names().join(', ')}` });
      const kind = kindOf(options, isCommand ? [] : args);
      return work(program, cache, { ...options, kind }, isCommand ? shellLine(args) : workOfNames(kind, args));
    },
  );
  program.add<Options>(
    'shell <line>',
    'run a line of shell in the checkout there',
    ["nodelet machine shell 'cat /sys/fs/cgroup/cgroup.controllers'"],
    (options, args) => work(program, cache, options, args.join(' ')),
  );
  program.add<Options>(
    'up',
    'boot a machine that stays, for the commands above',
    ['nodelet machine up', 'NODELET_ASSETS=DIR nodelet machine up'],
    async (options) => {
      const runDir = `${cache}/running/${kindOf(options)}`;
      await using _lock = await lockFile(`${runDir}.lock`, 'booting a machine', LOCK_MS);
      const machine = (await runningMachine(runDir)) ?? (await boot(program, cache, options, runDir));
      program.answer(options.json, machine, describe(machine));
      return 0;
    },
  );
  program.add<Options>('down', 'end the machine that stays', ['nodelet machine down'], async (options) => {
    const kinds = options.kind === undefined ? KINDS : [kindOf(options)];
    const running = (await Promise.all(kinds.map((kind) => runningMachine(`${cache}/running/${kind}`)))).filter((machine) => machine !== null);
    for (const machine of running) await program.progress.step(`${machine.kind} ended`, () => endMachine(machine));
    await sweep(`${cache}/running`);
    program.answer(options.json, { ended: running.map(({ kind }) => kind) }, running.length === 0 ? ['no machine runs'] : []);
    return 0;
  });
});

function names(): string[] {
  return [...suites().keys(), ...PIECE_NAMES];
}

/** The kind that was named, or the one that soonest serves these suites. */
function kindOf({ kind }: Options, suites: readonly string[] = []): Kind {
  if (kind === undefined) return usualKind(readFileSync('/proc/cpuinfo', 'utf8'), suites);
  const known = KINDS.find((one) => one === kind);
  if (known !== undefined) return known;
  throw new OpError('invalid', 'reading --kind', `"${kind}" is no kind of machine`, { advice: `there are: ${KINDS.join(', ')}` });
}

function numberOf(option: string, text: string): number {
  const number = Number(text);
  if (Number.isSafeInteger(number) && number > 0) return number;
  throw new OpError('invalid', `reading ${option}`, `"${text}" is not a whole number above 0`);
}

function workOfNames(kind: Kind, args: readonly string[]): string {
  const unknown = unknownNames(args, names());
  if (unknown.length > 0)
    throw new OpError('invalid', 'choosing what to run', `there is no suite ${unknown.join(', ')}`, {
      advice: `there are: ${names().join(', ')}; a command stands behind --`,
    });
  const more = kind === 'uml' ? needQemu(args) : [];
  if (more.length > 0) {
    throw new OpError('unsupported', 'choosing what to run', `the user-mode kernel has no nft tables for IP, which ${more.join(', ')} may need`, {
      advice: 'use --kind qemu',
    });
  }
  return workOf(args);
}

/** Runs a line of shell in the machine that stays, or in one of its own. */
async function work(program: Program, cache: string, options: Options, line: string): Promise<number> {
  const { host, progress } = program;
  const kind = kindOf(options);
  await progress.step('checkout ready', () => exec([`${root}/nodelet`, '--help'], { doing: 'building this checkout', signal: host.signal }));
  const kept = await runningMachine(`${cache}/running/${kind}`);
  const machine = kept ?? (await boot(program, cache, options, `${cache}/running/${kind}-${host.pid}`));
  await using scope = new AsyncDisposableStack();
  if (kept === null)
    scope.defer(() =>
      progress.step('machine ended', () =>
        host.signal.aborted ? killMachine(machine).then(() => rm(machine.runDir, { recursive: true, force: true })) : endMachine(machine),
      ),
    );
  // Of work that was stopped halfway too: hours may be in it.
  scope.defer(async () => {
    const left = `${machine.runDir}/exchange/out`;
    if (options.out !== undefined && existsSync(left)) await cp(left, options.out, { recursive: true });
  });
  const begunAt = performance.now();
  const onOutput = options.json ? host.stderr : host.stdout;
  const status = await runJob(machine, { root, commit: await commitOf(root), work: line, signal: host.signal, onOutput });
  const seconds = Math.round((performance.now() - begunAt) / 100) / 10;
  progress.note(`  ended with ${status} after ${seconds} s in the machine`);
  if (options.json) program.answer(true, { ...machine, work: line, status, seconds }, []);
  return status;
}

async function boot(program: Program, cache: string, options: Options, runDir: string): Promise<Machine> {
  const { host, progress } = program;
  const kind = kindOf(options);
  const seconds = numberOf('--seconds', options.seconds);
  const memoryMiB = options.memory === undefined ? PROGRAMS[kind].memoryMiB : numberOf('--memory', options.memory);
  if (process.geteuid?.() !== 0) throw new OpError('denied', 'making a machine', 'its image can only be made by root', { advice: 'run it with sudo' });
  const path = host.env['PATH'] ?? '';
  const emulator = await programs(program, path, kind);
  if (kind === 'uml') {
    const { stdout } = await exec([emulator, '--version'], { doing: 'asking the user-mode kernel for its version', signal: host.signal });
    const problem = umlProblem(stdout, await readFile('/proc/cpuinfo', 'utf8'));
    if (problem !== null) throw new OpError('unsupported', 'booting a machine', problem, { advice: 'use --kind bare or --kind qemu' });
  }
  await mkdir(cache, { recursive: true });
  const image = await (async () => {
    await using _lock = await lockFile(`${cache}/images.lock`, 'making an image', LOCK_MS);
    return await findImage({ root, cache, progress, signal: host.signal });
  })();
  // A link as the root of a shared folder shows nothing behind it.
  const assets = await realpath(host.env['NODELET_ASSETS'] ?? `${cache}/../assets/current`).catch(() => null);
  const images = await realpath(`${root}/dist/images`).catch(() => null);
  const kubectl = await find(`${assets ?? ''}:${path}`, 'kubectl');
  return progress.step(`${kind} booted`, () =>
    bootMachine({ kind, runDir, program: emulator, image, assets, images, kubectl, memoryMiB, seconds, signal: host.signal }),
  );
}

/** The emulator; installed with what makes an image where one of them is missing. */
async function programs({ progress }: Program, path: string, kind: Kind): Promise<string> {
  const { name, package: brings } = PROGRAMS[kind];
  const lacking = async (): Promise<string[]> => [
    ...((await find(path, name)) === null ? [brings] : []),
    ...((await find(path, 'debootstrap')) === null ? ['debootstrap'] : []),
    ...((await find(path, 'mke2fs')) === null ? ['e2fsprogs'] : []),
  ];
  const missing = await lacking();
  if (missing.length > 0 && (await find(path, 'apt-get')) !== null)
    await progress.step(`packages installed: ${missing.join(' ')}`, () => installPackages(missing));
  const emulator = await find(path, name);
  const still = missing.length > 0 ? await lacking() : [];
  if (emulator !== null && still.length === 0) return emulator;
  throw new OpError('not-found', 'making a machine', `missing here: ${still.join(', ')}, and there is no apt-get that brings them`, {
    advice: `apt-get install --no-install-recommends ${still.join(' ')}`,
  });
}

async function find(path: string, name: string): Promise<string | null> {
  for (const folder of [...path.split(':'), '/usr/sbin', '/sbin']) {
    if (!folder.startsWith('/')) continue;
    const file = `${folder}/${name}`;
    const found = await access(file, constants.X_OK).then(
      () => true,
      () => false,
    );
    if (found) return file;
  }
  return null;
}

/** Removes what machines left whose command was killed. */
async function sweep(folder: string): Promise<void> {
  const entries = await readdir(folder, { withFileTypes: true }).catch(() => []);
  for (const entry of entries) {
    const runDir = `${folder}/${entry.name}`;
    if (!entry.isDirectory() || (await runningMachine(runDir)) !== null) continue;
    await killLeft(runDir);
    await rm(runDir, { recursive: true, force: true });
  }
}

function describe(machine: Machine): string[] {
  return [
    `${machine.kind}: process ${machine.pid}, booted in ${machine.bootSeconds} s`,
    ...Object.entries(machine.facts).map(([key, value]) => `  ${key}: ${value}`),
  ];
}
