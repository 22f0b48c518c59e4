/**
 * Three names in the runtime's folder: `path`, where callers connect; `real`, under which the runtime's own socket stays
 * reachable; and `own`, the tap's socket. All are hard links, so that a place is always taken over in one step and what
 * was done can be read from who stands where. `own` is made first and removed last: without it nothing is ours to undo.
 */
export type Name = 'path' | 'real' | 'own' | 'next';

/** Who stands there: text that differs for different sockets; null for nobody. */
export interface Standing {
  readonly path: string | null;
  readonly real: string | null;
  readonly own: string | null;
}

export type Move = { readonly do: 'link' | 'rename'; readonly from: Name; readonly to: Name } | { readonly do: 'unlink'; readonly name: Name };

/** `to` gets what `from` names, in one step and whatever was there; `from` stays. (A rename onto another link of the same socket does nothing.) */
function put(from: Name, to: Name): Move[] {
  return [
    { do: 'link', from, to: 'next' },
    { do: 'rename', from: 'next', to },
  ];
}

/** Who callers reach: the tap; nobody, as the runtime took its socket away; or the runtime, by a socket of its own. */
export function whoStands(seen: Standing): 'tap' | 'nobody' | 'runtime' {
  if (seen.path === null) return 'nobody';
  return seen.path === seen.own ? 'tap' : 'runtime';
}

/** The tap takes the place of the runtime's socket, which may be a new one since the last time. */
export function stepIn(seen: Standing): Move[] {
  if (whoStands(seen) !== 'runtime' || seen.own === null) return [];
  return [...(seen.real === seen.path ? [] : put('path', 'real')), ...put('own', 'path')];
}

/** Gives the place back to the runtime's socket for as long as nobody listens there, so that callers are refused by the kernel itself. */
export function stepAside(seen: Standing): Move[] {
  return whoStands(seen) === 'tap' && seen.real !== null ? put('real', 'path') : [];
}

/** Leaves the folder as it would be without us, from any state in between. `guard_main` in sys/attach.c has the same rules. */
export function undo(seen: Standing): Move[] {
  if (seen.own === null) return [];
  const isOurs = seen.path === seen.own;
  const moves: Move[] = [];
  if (seen.real !== null) moves.push(seen.path === null || isOurs ? { do: 'rename', from: 'real', to: 'path' } : { do: 'unlink', name: 'real' });
  else if (isOurs) moves.push({ do: 'unlink', name: 'path' });
  return [...moves, { do: 'unlink', name: 'own' }];
}
