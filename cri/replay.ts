import { randomBytes } from 'node:crypto';
import { existsSync } from 'node:fs';
import { mkdir } from 'node:fs/promises';
import type { Clock } from '../base/clock.ts';
import { messageOf, OpError } from '../base/errors.ts';
import type { Host } from '../base/host.ts';
import { createCriClient, type CriClient } from './client.ts';
import { textAt, type Fields } from './core/playback-world.ts';
import { ReplayPlan, type ReplayStep } from './core/replay-plan.ts';
import { Rewriter } from './core/replay-rewrite.ts';
import { callLine, differenceLines, Tally } from './core/replay-text.ts';
import { connectRuntime } from './grpc.ts';
import { readRecording } from './io/recording-read.ts';
import { runName } from './core/replay-run.ts';
import { deadReplays, makeNeeded, ownOwner, removeCgroup, removeFolder, removeSandboxes, replayCgroup, replayFolder } from './io/replay-traces.ts';
import { Replayer } from './replayer.ts';
import type { Transport } from './transport.ts';

export interface ReplayFlags {
  readonly upstream: string;
  readonly speed: number;
  readonly pod?: string;
  readonly namespace?: string;
  readonly cgroupParent?: string;
  readonly folder?: string;
  readonly pull: boolean;
  readonly keep: boolean;
  readonly trust: boolean;
  readonly json: boolean;
}

/** How long calls under way may take once the replay is stopped. */
const LAST_CALLS_MS = 30_000;
const PROGRESS_MS = 1_000;
const RUN_BYTES = 4;

/** Which images this runtime has, and by what name; and which of them the replay has brought. */
class Images {
  readonly #client: CriClient;
  readonly #names: ReadonlyMap<string, readonly string[]>;
  readonly #here = new Map<string, Promise<string>>();
  readonly #absent = new Set<string>();

  constructor(client: CriClient, names: ReadonlyMap<string, readonly string[]>) {
    this.#client = client;
    this.#names = names;
  }

  async #has(name: string): Promise<boolean> {
    if (name === '') return false;
    const { image } = await this.#client.images.imageStatus({ image: { image: name } });
    return image !== null;
  }

  /** What a container's image is called here: by its id, else as its pod names it. */
  name(spec: Fields): Promise<string> {
    const reference = textAt(spec, 'image');
    const known = this.#here.get(reference);
    if (known !== undefined) return known;
    const found = (async () => {
      for (const name of [reference, textAt(spec, 'userSpecifiedImage'), ...(this.#names.get(reference) ?? [])]) if (await this.#has(name)) return name;
      // The runtime says what it misses; a later container may find it, after a pull.
      this.#here.delete(reference);
      return reference;
    })();
    this.#here.set(reference, found);
    return found;
  }

  async beforePull(name: string): Promise<void> {
    if (!(await this.#has(name))) this.#absent.add(name);
  }

  /** Takes away what was pulled and not there before. */
  async removePulled(): Promise<void> {
    for (const name of this.#absent) await this.#client.images.removeImage({ image: { image: name } });
  }
}

/** The parent of the replay's cgroups, in the words of this runtime's driver. */
async function cgroupParentFor(client: CriClient, run: string): Promise<string> {
  const driver = await client.runtime.runtimeConfig({}).then(
    ({ linux }) => linux?.cgroupDriver ?? 'CGROUPFS',
    // containerd 1 does not tell, and is set up for cgroupfs unless somebody changed it.
    () => 'CGROUPFS',
  );
  return driver === 'SYSTEMD' ? `nodelet_replay_${run}.slice` : replayCgroup(run);
}

/** `transport` with the pulls noted before they are made. */
function notingPulls(transport: Transport, images: Images): Transport {
  return {
    call: async (call, options) => {
      if (call.method === 'PullImage') await images.beforePull(textAt(call.request, 'image', 'image'));
      return transport.call(call, options);
    },
    stream: (call, options) => transport.stream(call, options),
    [Symbol.asyncDispose]: () => transport[Symbol.asyncDispose](),
  };
}

/** `nodelet cri replay`: 0 when every call that was made ended as recorded. */
export async function replay(host: Host, file: string, flags: ReplayFlags, clock: Clock): Promise<number> {
  if (flags.pod !== undefined && !/^[^/]+\/[^/]+$/.test(flags.pod))
    throw new OpError('invalid', 'choosing a pod', `"${flags.pod}" is no pod`, { advice: 'write --pod NAMESPACE/NAME' });
  const say = (text: string): void => host.stderr(`nodelet cri replay: ${text}\n`);
  const owner = await ownOwner(host.pid);
  const random = randomBytes(RUN_BYTES).toString('hex');
  // What is to be kept is nobody's, so that no later replay takes it away.
  const run = flags.keep ? random : runName(random, owner);
  const transport = connectRuntime(flags.upstream, clock);
  await using client = createCriClient(transport);
  const { runtimeName, runtimeVersion } = await client.runtime.version({}, { timeoutMs: 10_000, signal: host.signal });
  for (const dead of await deadReplays(client, owner.namespace)) {
    say(`taking away what the replay ${dead} left, whose process is dead`);
    await removeTraces(client, dead, clock, say);
  }
  const folder = flags.folder ?? replayFolder(run);
  if (flags.folder === undefined) await mkdir(folder, { mode: 0o700 });
  const cgroupParent = flags.cgroupParent ?? (await cgroupParentFor(client, run));
  const plan = new ReplayPlan();
  const images = new Images(client, plan.imageNames);
  const rewriter = new Rewriter({
    run,
    folder: folder.replace(/\/+$/, ''),
    namespace: flags.namespace,
    cgroupParent,
    exists: existsSync,
    trusted: flags.trust,
  });
  const tally = new Tally();
  const kill = new AbortController();
  const last = host.signal.aborted ? null : onAbort(host.signal, () => clock.after(LAST_CALLS_MS, () => kill.abort()));
  const skip = (step: { call: number; method: string }, why: string): void => {
    tally.skip(step.method, why);
    if (flags.json) host.stdout(`${JSON.stringify({ call: step.call, method: step.method, notReplayed: why })}\n`);
  };
  const replayer = new Replayer({
    transport: notingPulls(transport, images),
    rewriter,
    clock,
    speed: flags.speed,
    signal: host.signal,
    kill: kill.signal,
    prepare: makeNeeded,
    image: (spec) => images.name(spec),
    onSkipped: skip,
    onReplayed: (result) => {
      tally.add(result);
      if (flags.json) host.stdout(`${JSON.stringify(result)}\n`);
      else if (!result.matched) host.stdout(`${callLine(result)}\n${differenceLines(result).join('')}`);
    },
  });
  if (!flags.json) say(`to ${runtimeName} ${runtimeVersion} at ${flags.upstream}; cgroups in ${cgroupParent}, files in ${folder}`);
  using _progress = host.isTerminal && !flags.json ? everySecond(clock, () => host.stderr(`\r${tally.progress()}\u001B[K`)) : undefined;
  try {
    for await (const entry of readRecording(file, (bytes) => say(`the last ${bytes} bytes are cut off: its recorder was killed`))) {
      if (host.signal.aborted) break;
      const step = plan.take(entry);
      if (step === null) continue;
      if ('why' in step) skip(step, step.why);
      else if (isWanted(step, flags)) await replayer.offer(step);
    }
    await replayer.end();
  } finally {
    last?.[Symbol.dispose]();
    if (host.isTerminal && !flags.json) host.stderr('\r\u001B[K');
    if (flags.keep) say(`kept: sandboxes with the label nodelet.dev/replay=${run}, ${folder}, cgroup ${cgroupParent}`);
    else
      await clean({
        client,
        run,
        images,
        folder,
        cgroupParent,
        clock,
        own: { folder: flags.folder === undefined, cgroup: flags.cgroupParent === undefined },
        say,
      });
  }
  const summary = { ...tally.summary(), leftOut: rewriter.tamed, stopped: host.signal.aborted };
  if (flags.json) host.stdout(`${JSON.stringify({ summary })}\n`);
  else host.stdout(tally.text());
  if (rewriter.tamed > 0)
    say(`${rewriter.tamed} times files, devices or privileges of this machine were left out, as nobody vouches for the recording; --trust gives them`);
  if (host.signal.aborted) say('stopped before its end');
  return summary.differ === 0 && !summary.stopped && summary.made > 0 ? 0 : 1;
}

function isWanted(step: ReplayStep, { pod, pull }: ReplayFlags): boolean {
  if (!pull && step.method === 'PullImage') return false;
  return pod === undefined || step.lane === '' || step.lane.startsWith('image ') || step.lane.startsWith(`${pod} `);
}

interface Traces {
  readonly client: CriClient;
  readonly run: string;
  readonly images: Images;
  readonly folder: string;
  readonly cgroupParent: string;
  readonly clock: Clock;
  /** What was made for this replay alone. */
  readonly own: { readonly folder: boolean; readonly cgroup: boolean };
  readonly say: (text: string) => void;
}

/** Takes away what a dead replay left and what has its name; images stay, for nobody knows which were its. */
async function removeTraces(client: CriClient, run: string, clock: Clock, say: (text: string) => void): Promise<void> {
  await takeAway(
    [
      ['its sandboxes', () => removeSandboxes(client, run)],
      [`cgroup ${replayCgroup(run)}`, () => removeCgroup(replayCgroup(run), clock)],
      [replayFolder(run), () => removeFolder(replayFolder(run))],
    ],
    say,
  );
}

/** Takes away everything that the replay made; each part is tried, and what stays is named. */
async function clean({ client, run, images, folder, cgroupParent, clock, own, say }: Traces): Promise<void> {
  await takeAway(
    [
      [`sandboxes with the label nodelet.dev/replay=${run}`, () => removeSandboxes(client, run)],
      ['images that were pulled', () => images.removePulled()],
      [`cgroup ${cgroupParent}`, () => (own.cgroup && !cgroupParent.endsWith('.slice') ? removeCgroup(cgroupParent, clock) : Promise.resolve())],
      [folder, () => (own.folder ? removeFolder(folder) : Promise.resolve())],
    ],
    say,
  );
}

async function takeAway(parts: readonly [string, () => Promise<unknown>][], say: (text: string) => void): Promise<void> {
  for (const [name, remove] of parts) {
    try {
      await remove();
    } catch (error) {
      say(`left over: ${name}: ${messageOf(error)}`);
    }
  }
}

function onAbort(signal: AbortSignal, make: () => Disposable): Disposable {
  let made: Disposable | undefined;
  const listener = (): void => {
    made = make();
  };
  signal.addEventListener('abort', listener, { once: true });
  return {
    [Symbol.dispose]: () => {
      signal.removeEventListener('abort', listener);
      made?.[Symbol.dispose]();
    },
  };
}

function everySecond(clock: Clock, tell: () => void): Disposable {
  let next = clock.after(PROGRESS_MS, again);
  function again(): void {
    tell();
    next = clock.after(PROGRESS_MS, again);
  }
  return { [Symbol.dispose]: () => next[Symbol.dispose]() };
}
