import { spawn } from 'node:child_process';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { createInterface } from 'node:readline';
import { messageOf, OpError } from '../../base/errors.ts';
import { version } from '../../base/version.ts';
import { DROP_IN, STATE } from '../../scripts/kind/look.ts';
import { findPlace, type Engine, type Place } from '../../scripts/kind/place.ts';
import { ReadyWatch } from '../../scripts/kind/ready.ts';
import { restore, swap } from '../../scripts/kind/swap.ts';
import type { Program } from '../../scripts/command.ts';

/** One way in which a swap was broken, and what it left. */
export interface Broken {
  readonly how: string;
  readonly isGood: boolean;
  /** What it said, and what was not as before. */
  readonly words: readonly string[];
  readonly seconds: number;
}

/** A kubelet that says what it is and never runs. */
const DEAD = `#!/bin/sh\ncase "\${1:-}" in --version) echo "Kubernetes ${version}"; exit 0 ;; esac\necho "this one cannot run here" >&2\nexit 1\n`;
/** Where the command is killed: after the line that says so, or when the file is there. */
const KILLS = ['looked at', 'release copied in', DROP_IN, 'kubelet swapped', 'nodelet-proxy.service'] as const;
const RESTORE_KILLS = ['proxy put back', 'gone'] as const;
const LOOK_MS = 50;

/** What a swap may change of a node and its cluster, as text; equal texts are a node that is as before. */
async function fingerprint(place: Place): Promise<string> {
  const files = 'find /etc/systemd/system /var/lib/nodelet -type f -o -type l 2>/dev/null | LC_ALL=C sort; cat /etc/systemd/system/kubelet.service.d/*';
  const set = JSON.parse(await place.kubectl(['get', '--namespace=kube-system', 'daemonset/kube-proxy', '--output=json'])) as {
    spec: { updateStrategy: object; template: object };
  };
  const node = JSON.parse(await place.kubectl(['get', 'node', place.node, '--output=json'])) as {
    metadata: { labels: object };
    status: { nodeInfo: { kubeletVersion: string } };
  };
  const running = JSON.parse(await place.inside(['crictl', 'ps', '--state=Running', '--output=json'])) as {
    containers: { id: string; metadata: { name: string } }[];
  };
  // Ours takes the proxy's place for a while: that container is another one afterwards.
  const containers = running.containers.filter(({ metadata }) => metadata.name !== 'kube-proxy').map(({ id }) => id);
  return [
    await place.inside(['sh', '-c', files]),
    JSON.stringify(set.spec.updateStrategy),
    JSON.stringify(set.spec.template),
    JSON.stringify(node.metadata.labels),
    node.status.nodeInfo.kubeletVersion,
    ...containers.toSorted(),
  ].join('\n');
}

function difference(before: string, after: string): string[] {
  const [had, has] = [before.split('\n'), after.split('\n')];
  return [...had.filter((line) => !has.includes(line)).map((line) => `- ${line}`), ...has.filter((line) => !had.includes(line)).map((line) => `+ ${line}`)];
}

/** Breaks swaps and restores of a real node in every way that is named here, and looks for what is left. */
export async function breakSwaps(
  program: Program,
  engine: Engine,
  options: { root: string; node: string; release: string },
  onBroken: (broken: Broken) => void,
): Promise<Broken[]> {
  const { progress } = program;
  const place = await findPlace(engine, options.node);
  const before = await fingerprint(place);
  // The program itself, not the launcher in front of it.
  const itself = [process.execPath, `${options.root}/test/kind/main.ts`] as const;
  const all: Broken[] = [];
  const done = async (how: string, work: () => Promise<string[]>): Promise<void> => {
    const begunAt = performance.now();
    const words = await work();
    const left = difference(before, await fingerprint(place));
    const broken = {
      how,
      isGood: left.length === 0 && !words.some((word) => word.startsWith('BAD')),
      words: [...words, ...left],
      seconds: (performance.now() - begunAt) / 1000,
    };
    all.push(broken);
    onBroken(broken);
  };
  const folder = await mkdtemp(`${tmpdir()}/nodelet-breaks-`);
  try {
    const dead = `${folder}/dead`;
    await writeFile(dead, DEAD, { mode: 0o755 });
    await done('a kubelet of ours that ends at once', () => swapsDead(program, place, dead));
    for (const at of KILLS)
      await done(`swap killed at "${at}"`, async () => {
        const said = await killedAt(place, engine, [...itself, 'swap', place.node, '--proxy', 'nftables', '--release', options.release], at);
        const isRecorded = (await place.ask(['test', '-e', STATE])).code === 0;
        // Before anything was changed there is nothing to restore; what was copied is used by the next swap.
        if (!isRecorded) await swap(place, { proxy: null, release: async () => options.release, progress });
        const { to } = await restore(place, { progress });
        return [said, `${isRecorded ? 'restore' : 'another swap and restore'}: ${to}`];
      });
    for (const at of RESTORE_KILLS)
      await done(`restore killed at "${at}"`, async () => {
        await swap(place, { proxy: 'nftables', release: async () => options.release, progress });
        const said = await killedAt(place, engine, [...itself, 'restore', place.node], at);
        const { to } = await restore(place, { progress });
        return [said, `another restore: ${to}`];
      });
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
  return all;
}

async function swapsDead({ progress }: Program, place: Place, release: string): Promise<string[]> {
  await using watch = new ReadyWatch(place);
  await watch.until('the node is seen', ({ ready }) => ready !== '', 60_000);
  const error: unknown = await swap(place, { proxy: null, release: async () => release, progress }).then(
    () => null,
    (reason: unknown) => reason,
  );
  const { isReadyThroughout } = watch.seen;
  return [
    error instanceof OpError ? error.message : `BAD: ${error === null ? 'it was swapped' : messageOf(error)}`,
    isReadyThroughout ? 'Ready was True throughout' : 'BAD: Ready was not True throughout',
  ];
}

/** Starts a command and kills it, and nothing that it started, as soon as it says a word or a file is there, or gone. */
async function killedAt(place: Place, engine: Engine, argv: readonly [string, ...string[]], at: string): Promise<string> {
  const child = spawn(argv[0], argv.slice(1), { env: { ...engine.env }, stdio: ['ignore', 'ignore', 'pipe'] });
  const ended = new Promise<void>((resolve) => void child.once('close', () => resolve()));
  const kill = (): void => void child.kill('SIGKILL');
  createInterface({ input: child.stderr }).on('line', (line) => {
    if (line.includes(at)) kill();
  });
  const isThere = async (): Promise<boolean> => {
    if (at === 'gone') return (await place.ask(['test', '-e', DROP_IN])).code !== 0;
    const path = at.startsWith('/') ? at : at.endsWith('.service') ? `/etc/systemd/system/${at}` : null;
    return path !== null && (await place.ask(['test', '-e', path])).code === 0;
  };
  for (let isOver = false; !isOver;) {
    if (await isThere()) kill();
    isOver = await Promise.race([ended.then(() => true), place.clock.sleep(LOOK_MS).then(() => false)]);
  }
  return child.signalCode === 'SIGKILL' ? 'killed' : `BAD: it ended with ${child.exitCode ?? 0} before`;
}
