/** One listing of the runtime, boiled down to what makes a pod worth another look. */
export type Listing = ReadonlyMap<string, PodListing>;

export interface PodListing {
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
  /** id → state, sandboxes and containers together. */
  readonly states: ReadonlyMap<string, string>;
}

const made = 'CONTAINER_CREATED';

/**
 * UIDs whose sandboxes or containers have come, gone or changed their state between two listings. One that is made and
 * does not run yet is no news, as for upstream: whoever made it goes on with it, or has failed and comes back at its time.
 */
export function changedUids(before: Listing, after: Listing): string[] {
  const changed: string[] = [];
  for (const [uid, pod] of after) if (!sameStates(before.get(uid), pod)) changed.push(uid);
  for (const uid of before.keys()) if (!after.has(uid)) changed.push(uid);
  return changed;
}

function sameStates(before: PodListing | undefined, after: PodListing): boolean {
  const [then, now] = [before?.states ?? new Map<string, string>(), after.states];
  const came = [...now].some(([id, state]) => state !== made && then.get(id) !== state);
  return !came && ![...then].some(([id, state]) => state !== made && !now.has(id));
}
