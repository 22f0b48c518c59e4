import type { Clock } from '../base/clock.ts';
import { OpError } from '../base/errors.ts';
import type { Host } from '../base/host.ts';
import { whereOf, type WhereFlags } from './attach-command.ts';
import { attachStates } from './io/attach-state.ts';
import { detachOne } from './io/detach.ts';
import { stateHome } from './io/our-paths.ts';
import { findPlace } from './io/place.ts';
import { openStand } from './io/stand.ts';
import { REGISTRY } from './io/tap-registry.ts';

/** `nodelet cri detach`: from anywhere; also what killed ones left. */
export async function detach(host: Host, flags: WhereFlags & { all: boolean; json: boolean }, clock: Clock): Promise<number> {
  if (process.geteuid?.() !== 0) throw new OpError('denied', 'detaching', 'this needs root', { advice: 'run it with sudo' });
  const all = await attachStates(REGISTRY);
  let chosen = all.map(({ state }) => state);
  const where = whereOf(flags);
  if (Object.values(where).some((value) => value !== undefined)) {
    const place = await findPlace(where, stateHome(host.env), host.signal);
    await using stand = await openStand(place.folder, place.name, host.pid);
    chosen = chosen.filter((state) => state.key === stand.key);
  } else if (chosen.length > 1 && !flags.all) {
    throw new OpError(
      'invalid',
      'detaching',
      `there are several: ${all.map(({ state }) => `${state.socket} of ${state.place} (process ${state.process.pid})`).join('; ')}`,
      {
        advice: 'say which, as for attach, or --all',
      },
    );
  }
  if (chosen.length === 0) throw new OpError('not-found', 'detaching', 'nothing is attached there');
  const results: { socket: string; place: string; did: string }[] = [];
  for (const state of chosen) {
    const did = await detachOne(state, REGISTRY, { pid: host.pid, clock, signal: host.signal });
    results.push({ socket: state.socket, place: state.place, did });
    if (!flags.json) host.stdout(`${state.socket} (${state.place}): ${did}\n`);
  }
  if (flags.json) host.stdout(`${JSON.stringify({ detached: results })}\n`);
  return 0;
}
