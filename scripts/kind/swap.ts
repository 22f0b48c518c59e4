import { messageOf, OpError } from '../../base/errors.ts';
import { version } from '../../base/version.ts';
import type { Progress } from '../../node/mod.ts';
import { copyIn, writeIn, type Place } from './place.ts';
import { swapProxy, restoreProxy, type ProxyChange } from './proxy.ts';
import { ReadyWatch } from './ready.ts';
import { until } from './until.ts';
import { dropIn, execStartOf, programOf, readUnit } from './unit.ts';

const HOME = '/var/lib/nodelet';
/** What was done to a node, so that it can be taken back; written before it is done. */
const STATE = `${HOME}/swap.json`;
export const PROGRAM = `${HOME}/bin/kubelet`;
const UNIT = 'kubelet.service';
const DROP_IN = `/etc/systemd/system/${UNIT}.d/90-nodelet.conf`;
const READY_MS = 120_000;
const STOP_MS = 60_000;
const HEALTHY_ROUNDS = 3;

export interface SwapOptions {
  readonly proxy: 'nftables' | 'iptables' | null;
  /** The release's file on this machine. */
  readonly release: string;
  readonly progress: Progress;
}

interface State {
  readonly version: string;
  readonly was: { readonly kubeletVersion: string; readonly program: string };
  readonly proxy: ProxyChange | null;
}

/** What a swap or a restore did, and what the node's pods felt of it. */
export interface Swapped {
  readonly node: string;
  readonly from: string;
  readonly to: string;
  /** From the stop of one kubelet to the first word of the other at the API server. */
  readonly gapSeconds: number;
  readonly isReadyThroughout: boolean;
  /** Age of the node's Lease when the other kubelet renewed it. */
  readonly leaseGapSeconds: number;
  readonly containers: { readonly kept: number; readonly lost: readonly string[]; readonly added: readonly string[] };
  readonly proxy: ProxyChange | null;
}

interface Facts {
  readonly execStart: string;
  readonly program: string;
  readonly kubeletVersion: string;
  readonly state: State | null;
}

/** Looks at how a node runs its kubelet. Throws OpError `unsupported` with what is not as expected; changes nothing. */
export async function look(place: Place): Promise<Facts> {
  const doing = `looking at the kubelet of ${place.node}`;
  const refuse = (detail: string, advice = ''): never => {
    throw new OpError('unsupported', doing, detail, { advice });
  };
  const shown = await place.ask(['systemctl', 'show', UNIT, '--property=LoadState,ActiveState,MainPID,FragmentPath,DropInPaths']);
  if (shown.code !== 0) refuse('systemd does not answer there');
  const unit = readUnit(shown.stdout);
  if (!unit.isLoaded) refuse(`there is no unit ${UNIT}`);
  const [machine = ''] = (await place.inside(['uname', '-m'])).trim().split('\n');
  const here = { x64: 'x86_64', arm64: 'aarch64' }[process.arch as string];
  if (machine !== here) refuse(`the node is ${machine}, and the release is for ${here ?? process.arch}`);
  const files = await place.inside(['cat', ...unit.files.filter((path) => path !== DROP_IN)]);
  const execStart = execStartOf(files) ?? refuse(`its unit starts not exactly one program (${unit.files.join(', ')})`);
  const state = await readState(place);
  if (state === null && unit.files.includes(DROP_IN))
    refuse(`${DROP_IN} is there, and nothing says what was before`, `remove it by hand, then: systemctl daemon-reload`);
  if (!unit.isActive || unit.mainPid === 0) refuse('its kubelet does not run', `see: docker exec ${place.node} journalctl --unit=${UNIT}`);
  const node = JSON.parse(await place.kubectl(['get', 'node', place.node, '--output=json'])) as {
    status: { conditions: { type: string; status: string }[]; nodeInfo: { kubeletVersion: string } };
  };
  if (node.status.conditions.find(({ type }) => type === 'Ready')?.status !== 'True') refuse('the node is not Ready', 'wait until it is, or mend it first');
  return { execStart, program: programOf(execStart), kubeletVersion: node.status.nodeInfo.kubeletVersion, state };
}

async function readState(place: Place): Promise<State | null> {
  const { code, stdout } = await place.ask(['cat', STATE]);
  if (code !== 0) return null;
  try {
    return JSON.parse(stdout) as State;
  } catch {
    throw new OpError('unsupported', `looking at ${place.node}`, `${STATE} is no JSON`, { advice: `read it, and remove ${DROP_IN} by hand` });
  }
}

/** Names of a node's running containers by their ids. */
async function containersOf(place: Place): Promise<Map<string, string>> {
  const list = JSON.parse(await place.inside(['crictl', 'ps', '--state=Running', '--output=json'])) as {
    containers: { id: string; metadata: { name: string }; labels: Record<string, string> }[];
  };
  return new Map(
    list.containers.map(({ id, metadata, labels }) => [
      id,
      `${labels['io.kubernetes.pod.namespace'] ?? ''}/${labels['io.kubernetes.pod.name'] ?? ''}/${metadata.name}`,
    ]),
  );
}

async function leaseOf(place: Place): Promise<number> {
  const time = await place.kubectl(['get', 'lease', '--namespace=kube-node-lease', place.node, '--output=jsonpath={.spec.renewTime}']);
  return Date.parse(time);
}

/** Puts our kubelet in the place of the node's own, with its pods running on. What fails halfway is taken back. */
export async function swap(place: Place, options: SwapOptions): Promise<Swapped> {
  const { progress } = options;
  const facts = await progress.step(`${place.node} looked at`, () => look(place));
  if (facts.state !== null || facts.kubeletVersion.includes('+nodelet'))
    throw new OpError('exists', `swapping ${place.node}`, `its kubelet is ${facts.kubeletVersion} already`, {
      advice: `put it back with: nodelet kind restore ${place.node}`,
    });
  const minor = (text: string): string => /^v?(\d+\.\d+)\./.exec(text)?.[1] ?? '';
  if (minor(facts.kubeletVersion) !== minor(version))
    throw new OpError('unsupported', `swapping ${place.node}`, `its kubelet is ${facts.kubeletVersion}, ours behaves as ${version}`);
  await progress.step('release copied in', async () => {
    await copyIn(place, options.release, PROGRAM);
    // Unpacked now, so that the kubelet's own start is short.
    await place.inside([PROGRAM, '--version']);
  });
  const state: State = { version, was: { kubeletVersion: facts.kubeletVersion, program: facts.program }, proxy: null };
  await writeIn(place, STATE, JSON.stringify(state), '0600');
  try {
    await writeIn(place, DROP_IN, dropIn(facts.execStart, PROGRAM));
    const done = await progress.step('kubelet swapped', () => change(place, (seen) => seen.includes('+nodelet')));
    let proxy: ProxyChange | null = null;
    const mode = options.proxy;
    if (mode !== null) {
      proxy = await progress.step('proxy swapped', () =>
        swapProxy(place, mode, async (planned) => writeIn(place, STATE, JSON.stringify({ ...state, proxy: planned }), '0600')),
      );
    }
    return { node: place.node, from: facts.kubeletVersion, ...done, proxy };
  } catch (error) {
    await progress
      .step('taken back', () => back(place, facts))
      .catch((second: unknown) => {
        throw new OpError('failed', `swapping ${place.node}`, `${messageOf(error)}; and taking it back failed: ${messageOf(second)}`, {
          cause: error,
          advice: `see: docker exec ${place.node} journalctl --unit=${UNIT}; try: nodelet kind restore ${place.node}`,
        });
      });
    throw error;
  }
}

/** Puts the node's own kubelet and proxy back, with its pods running on. */
export async function restore(place: Place, options: Pick<SwapOptions, 'progress'>): Promise<Swapped> {
  const { progress } = options;
  const state = await readState(place);
  if (state === null) throw new OpError('not-found', `restoring ${place.node}`, 'nothing of it was swapped');
  if (state.proxy !== null) {
    await progress.step('proxy put back', () => restoreProxy(place));
  }
  await place.inside(['rm', '-f', DROP_IN]);
  const done = await progress.step('kubelet put back', () => change(place, (seen) => !seen.includes('+nodelet')));
  await place.inside(['rm', '-rf', STATE, PROGRAM, `${HOME}/releases`]);
  return { node: place.node, from: state.version, ...done, proxy: state.proxy };
}

async function back(place: Place, facts: Facts): Promise<void> {
  const state = await readState(place);
  if (state?.proxy != null) await restoreProxy(place);
  await place.inside(['rm', '-f', DROP_IN]);
  await place.inside(['systemctl', 'daemon-reload']);
  await place.inside(['systemctl', 'restart', UNIT], { timeoutMs: STOP_MS });
  await using watch = new ReadyWatch(place);
  await watch.until(
    `${place.node} is Ready again`,
    ({ ready, kubeletVersion }) => ready === 'True' && kubeletVersion === facts.kubeletVersion,
    READY_MS,
    place.engine.signal,
  );
  await place.inside(['rm', '-f', STATE]);
}

/** Restarts the unit as its files now say, and waits for the other kubelet's word, its health and its Lease. */
async function change(
  place: Place,
  isOther: (kubeletVersion: string) => boolean,
): Promise<Pick<Swapped, 'to' | 'gapSeconds' | 'isReadyThroughout' | 'leaseGapSeconds' | 'containers'>> {
  const before = await containersOf(place);
  await using watch = new ReadyWatch(place);
  const { signal } = place.engine;
  await watch.until(`${place.node} is seen`, ({ ready }) => ready !== '', STOP_MS, signal);
  const leaseBefore = await leaseOf(place);
  await place.inside(['systemctl', 'daemon-reload']);
  const begunAt = performance.now();
  await place.inside(['systemctl', 'restart', UNIT], { timeoutMs: STOP_MS });
  const seen = await watch.until('the other kubelet reports', ({ ready, kubeletVersion }) => ready === 'True' && isOther(kubeletVersion), READY_MS, signal);
  const gapSeconds = (performance.now() - begunAt) / 1000;
  const leaseGapSeconds = await renewed(place, leaseBefore);
  await healthy(place);
  const after = await containersOf(place);
  const lost = [...before].filter(([id]) => !after.has(id)).map(([, name]) => name);
  const added = [...after].filter(([id]) => !before.has(id)).map(([, name]) => name);
  const isReadyThroughout = watch.seen.isReadyThroughout;
  return { to: seen.kubeletVersion, gapSeconds, isReadyThroughout, leaseGapSeconds, containers: { kept: before.size - lost.length, lost, added } };
}

async function renewed(place: Place, before: number): Promise<number> {
  let now = before;
  await until(`the Lease of ${place.node} is renewed`, { timeoutMs: READY_MS, signal: place.engine.signal, pauseMs: 500 }, async () => {
    now = await leaseOf(place);
    return now > before;
  });
  return (now - before) / 1000;
}

/** A kubelet that starts and dies again and again is Ready in between: it must answer for a while. */
async function healthy(place: Place): Promise<void> {
  let rounds = 0;
  let pid = '';
  await until(`the kubelet of ${place.node} stays healthy`, { timeoutMs: READY_MS, signal: place.engine.signal, pauseMs: 500 }, async () => {
    const { stdout } = await place.ask(['sh', '-c', `curl -fsS -m 2 http://127.0.0.1:10248/healthz && systemctl show ${UNIT} --property=MainPID`]);
    const now = /MainPID=(\d+)/.exec(stdout)?.[1] ?? '';
    rounds = stdout.startsWith('ok') && (pid === '' || now === pid) ? rounds + 1 : 0;
    pid = now;
    return rounds >= HEALTHY_ROUNDS;
  });
}
