/** One listing of the runtime, boiled down to what makes a pod worth another look. */
export type Listing = ReadonlyMap<string, PodListing>;

export interface PodListing {
  readonly uid: string;
  readonly namespace: string;
  readonly name: string;
  /** id → state, sandboxes and containers together. */
  readonly states: ReadonlyMap<string, string>;
}

/** UIDs whose sandboxes or containers have come, gone or changed their state between two listings. */
export function changedUids(before: Listing, after: Listing): string[] {
  const changed: string[] = [];
  for (const [uid, pod] of after) if (!sameStates(before.get(uid), pod)) changed.push(uid);
  for (const uid of before.keys()) if (!after.has(uid)) changed.push(uid);
  return changed;
}

function sameStates(before: PodListing | undefined, after: PodListing): boolean {
  if (before === undefined || before.states.size !== after.states.size) return false;
  for (const [id, state] of after.states) if (before.states.get(id) !== state) return false;
  return true;
}
