import { dirname } from 'node:path';
import { messageOf, OpError } from '../../base/errors.ts';
import { version } from '../../base/version.ts';
import type { Progress } from '../../node/mod.ts';
import { changeKubelet, settleKubelet, type Changed } from './change.ts';
import { DROP_IN, look, PROGRAM, readState, RELEASES, requireRunning, STATE, UNIT, type Facts, type State } from './look.ts';
import type { Place } from './place.ts';
import { restoreProxy, swapProxy, type ProxyChange } from './proxy.ts';
import { dropIn } from './unit.ts';

export interface SwapOptions {
  readonly proxy: 'nftables' | 'iptables' | null;
  /** The release's file on this machine; asked for once the node was looked at, for it may have to be made. */
  readonly release: () => Promise<string>;
  readonly progress: Progress;
}

/** What a swap or a restore did, and what the node's pods felt of it. */
export interface Swapped extends Changed {
  readonly node: string;
  readonly from: string;
  readonly proxy: ProxyChange | null;
}

const isOurs = (kubeletVersion: string): boolean => kubeletVersion.includes('+nodelet');
const minorOf = (text: string): string => /^v?(\d+\.\d+)\./.exec(text)?.[1] ?? '';

/** Puts our kubelet in the place of the node's own, with its pods running on. What fails halfway is taken back. */
export async function swap(place: Place, options: SwapOptions): Promise<Swapped> {
  const { progress } = options;
  const doing = `swapping ${place.node}`;
  // The UIDs of static pods are each kubelet's own: the API server would end in the midst of it.
  if (place.role === 'control-plane')
    throw new OpError('unsupported', doing, 'it is a control plane, whose static pods would be made anew, the API server among them', {
      advice: 'name a worker',
    });
  const facts = await progress.step(`${place.node} looked at`, () => look(place));
  if (facts.state !== null)
    throw new OpError('exists', doing, 'its kubelet was swapped already', { advice: `put it back with: nodelet kind restore ${place.node}` });
  const kubeletVersion = await requireRunning(place, facts);
  if (isOurs(kubeletVersion)) throw new OpError('exists', doing, `its own kubelet is ${kubeletVersion}: there is nothing to swap`);
  if (minorOf(kubeletVersion) !== minorOf(version)) throw new OpError('unsupported', doing, `its kubelet is ${kubeletVersion}, ours behaves as ${version}`);
  const state: State = { version, was: { kubeletVersion, program: facts.program }, proxy: null };
  const remember = (proxy: ProxyChange | null): Promise<void> => place.write(STATE, JSON.stringify({ ...state, proxy }), '0600');
  const release = await options.release();
  const undone = takenBack(place, options, doing);
  await undone(clean, async () => {
    await progress.step('release copied in', async () => {
      await place.copy(release, PROGRAM);
      // Unpacked now, so that the kubelet's own start is short.
      await place.inside([PROGRAM, '--version']);
    });
    await remember(null);
  });
  return undone(
    (there) => putBack(there, kubeletVersion),
    async () => {
      await place.write(DROP_IN, dropIn(facts.execStart, PROGRAM));
      const done = await progress.step('kubelet swapped', () => changeKubelet(place, isOurs));
      const { proxy: mode } = options;
      const proxy = mode === null ? null : await progress.step('proxy swapped', () => swapProxy(place, mode, remember));
      return { node: place.node, from: kubeletVersion, ...done, proxy };
    },
  );
}

/** Puts the node's own kubelet and proxy back, with its pods running on. What fails halfway leaves ours there as it was. */
export async function restore(place: Place, options: Pick<SwapOptions, 'progress'>): Promise<Swapped> {
  const { progress } = options;
  const doing = `restoring ${place.node}`;
  const facts = await progress.step(`${place.node} looked at`, () => look(place));
  const { state } = facts;
  if (state === null) throw new OpError('not-found', doing, 'nothing of it was swapped');
  const forward = (there: Place): Promise<void> => (facts.isDroppedIn ? putForward(there, facts, state) : Promise.resolve());
  const done = await takenBack(
    place,
    options,
    doing,
  )(forward, async () => {
    if (state.proxy !== null) await progress.step('proxy put back', () => restoreProxy(place));
    await place.inside(['rm', '-f', DROP_IN]);
    return progress.step('kubelet put back', () => changeKubelet(place, (seen) => !isOurs(seen)));
  });
  await clean(place);
  return { node: place.node, from: state.version, ...done, proxy: state.proxy };
}

/** Work that is undone when it fails or is stopped; the undoing itself cannot be stopped. */
function takenBack(place: Place, { progress }: Pick<SwapOptions, 'progress'>, doing: string) {
  return async <T>(undo: (there: Place) => Promise<void>, work: () => Promise<T>): Promise<T> => {
    try {
      return await work();
    } catch (error) {
      await progress
        .step('taken back', () => undo(place.unstoppable()))
        .catch((second: unknown) => {
          throw new OpError('failed', doing, `${messageOf(error)}; and taking it back failed: ${messageOf(second)}`, {
            cause: error,
            advice: `see: docker exec ${place.node} journalctl --unit=${UNIT}; then: nodelet kind restore ${place.node}`,
          });
        });
      throw error;
    }
  };
}

/** Takes away what a swap brought; the record of it last. */
async function clean(place: Place): Promise<void> {
  await place.inside(['rm', '-rf', PROGRAM, `${PROGRAM}.new`, RELEASES]);
  await place.inside(['sh', '-c', 'rm -f "$0" && rmdir --ignore-fail-on-non-empty "$@"', STATE, dirname(PROGRAM), dirname(STATE)]);
}

async function putBack(place: Place, kubeletVersion: string): Promise<void> {
  const state = await readState(place);
  if (state?.proxy != null) await restoreProxy(place);
  await place.inside(['rm', '-f', DROP_IN]);
  await settleKubelet(place, (seen) => seen === kubeletVersion);
  await clean(place);
}

async function putForward(place: Place, { execStart }: Facts, state: State): Promise<void> {
  await place.write(DROP_IN, dropIn(execStart, PROGRAM));
  await settleKubelet(place, isOurs);
  const { proxy } = state;
  // What was changed when it was swapped is what restore tells of, whatever is left to change now.
  if (proxy !== null) await swapProxy(place, proxy.mode, () => place.write(STATE, JSON.stringify(state), '0600'));
}
