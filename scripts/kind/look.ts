import { OpError } from '../../base/errors.ts';
import type { Place } from './place.ts';
import type { ProxyChange } from './proxy.ts';
import { execStartOf, laterThan, programOf, readUnit, type UnitFacts } from './unit.ts';

const HOME = '/var/lib/nodelet';
/** What was done to a node, so that it can be taken back; written before it is done. */
export const STATE = `${HOME}/swap.json`;
export const PROGRAM = `${HOME}/bin/kubelet`;
export const RELEASES = `${HOME}/releases`;
export const UNIT = 'kubelet.service';
export const DROP_IN = `/etc/systemd/system/${UNIT}.d/90-nodelet.conf`;

export interface State {
  readonly version: string;
  readonly was: { readonly kubeletVersion: string; readonly program: string };
  readonly proxy: ProxyChange | null;
}

/** How a node starts its kubelet. */
export interface Facts {
  /** The command line of the unit itself, without our drop-in. */
  readonly execStart: string;
  readonly program: string;
  readonly unit: UnitFacts;
  readonly state: State | null;
  /** Whether our drop-in lies there. */
  readonly isDroppedIn: boolean;
}

type Refuse = (detail: string, advice?: string) => never;

const refusal =
  (place: Place): Refuse =>
  (detail, advice = '') => {
    throw new OpError('unsupported', `looking at the kubelet of ${place.node}`, detail, { advice });
  };

/** Looks at how a node starts its kubelet. Throws OpError `unsupported` with what is not as expected; changes nothing. */
export async function look(place: Place): Promise<Facts> {
  const refuse: Refuse = refusal(place);
  const shown = await place.ask(['systemctl', 'show', UNIT, '--property=LoadState,ActiveState,MainPID,FragmentPath,DropInPaths']);
  if (shown.code !== 0) refuse('systemd does not answer there');
  const unit = readUnit(shown.stdout);
  if (!unit.isLoaded) refuse(`there is no unit ${UNIT}`);
  const machine = (await place.inside(['uname', '-m'])).trim();
  const here = { x64: 'x86_64', arm64: 'aarch64' }[process.arch as string];
  if (machine !== here) refuse(`the node is ${machine}, and the release is for ${here ?? process.arch}`);
  const text = async (paths: readonly string[]): Promise<string> => (paths.length === 0 ? '' : place.inside(['cat', ...paths]));
  const execStart = execStartOf(await text(unit.files.filter((path) => path !== DROP_IN)));
  if (execStart === null) return refuse(`its unit starts not exactly one program (${unit.files.join(', ')})`);
  const later = laterThan(unit.files, DROP_IN);
  if (/^\s*ExecStart\s*=/m.test(await text(later)))
    refuse(`${later.join(', ')} counts after ours and names a program too`, 'give it a name before 90-nodelet.conf');
  const state = await readState(place);
  const isDroppedIn = (await place.ask(['test', '-e', DROP_IN])).code === 0;
  if (state === null && isDroppedIn) refuse(`${DROP_IN} is there, and nothing says what was before`, 'remove it by hand, then: systemctl daemon-reload');
  const program = programOf(execStart);
  if ((await place.ask(['test', '-x', program])).code !== 0) refuse(`${program}, which its unit starts, is no program there`);
  return { execStart, program, unit, state, isDroppedIn };
}

/** What a swap wants beside that: a kubelet that runs on a node that is Ready. Returns the kubelet's version. */
export async function requireRunning(place: Place, { unit }: Facts): Promise<string> {
  const refuse: Refuse = refusal(place);
  if (!unit.isActive || unit.mainPid === 0) refuse('its kubelet does not run', `see: docker exec ${place.node} journalctl --unit=${UNIT}`);
  const node = JSON.parse(await place.kubectl(['get', 'node', place.node, '--output=json'])) as {
    status: { conditions: { type: string; status: string }[]; nodeInfo: { kubeletVersion: string } };
  };
  if (node.status.conditions.find(({ type }) => type === 'Ready')?.status !== 'True') refuse('the node is not Ready', 'wait until it is, or mend it first');
  return node.status.nodeInfo.kubeletVersion;
}

export async function readState(place: Place): Promise<State | null> {
  const { code, stdout } = await place.ask(['cat', STATE]);
  if (code !== 0) return null;
  try {
    return JSON.parse(stdout) as State;
  } catch {
    throw new OpError('unsupported', `looking at ${place.node}`, `${STATE} is no JSON`, { advice: `read it, and remove ${DROP_IN} by hand` });
  }
}
