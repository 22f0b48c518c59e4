import type { ObjectMeta, OwnerReference } from '../../../proto/kube/types.ts';

export const FOREGROUND = 'foregroundDeletion';
export const ORPHAN = 'orphan';

/** Which object, and where it is served. */
export interface Identity {
  group: string;
  version: string;
  resource: string;
  kind: string;
  namespace: string;
  name: string;
  uid: string;
}

interface Item {
  identity: Identity;
  owners: readonly OwnerReference[];
  dependents: Set<string>;
  beingDeleted: boolean;
  /** Waits, with the foreground finalizer, for its dependents to go first. */
  waits: boolean;
  orphans: boolean;
  /** Known only because somebody names it as owner. */
  virtual: boolean;
}

/** What a change of the graph asks to be looked at: objects that may have to go, and objects whose dependents are to be let go. */
export interface GraphWork {
  check: string[];
  orphan: string[];
}

/** Who owns whom, across all kinds, kept by single changes. Decides nothing about an object without its live version. */
export class OwnershipGraph {
  readonly #items = new Map<string, Item>();

  get(uid: string): Identity | undefined {
    return this.#items.get(uid)?.identity;
  }

  isVirtual(uid: string): boolean {
    return this.#items.get(uid)?.virtual === true;
  }

  dependents(uid: string): Identity[] {
    return [...(this.#items.get(uid)?.dependents ?? [])].flatMap((dependent) => this.#items.get(dependent)?.identity ?? []);
  }

  /** Dependents that keep `uid` from going while it waits. */
  blockers(uid: string): string[] {
    return [...(this.#items.get(uid)?.dependents ?? [])].filter((dependent) =>
      this.#items.get(dependent)?.owners.some((owner) => owner.uid === uid && owner.blockOwnerDeletion === true),
    );
  }

  waits(uid: string): boolean {
    return this.#items.get(uid)?.waits === true;
  }

  /** `ownerIdentity` says where an owner is served. */
  upsert(identity: Identity, meta: ObjectMeta, ownerIdentity: (owner: OwnerReference) => Identity): GraphWork {
    const work: GraphWork = { check: [], orphan: [] };
    const uid = identity.uid;
    const before = this.#items.get(uid);
    const owners = meta.ownerReferences ?? [];
    const finalizers = meta.finalizers ?? [];
    const beingDeleted = Boolean(meta.deletionTimestamp);
    const item: Item = {
      identity,
      owners,
      dependents: before?.dependents ?? new Set(),
      beingDeleted,
      waits: beingDeleted && finalizers.includes(FOREGROUND),
      orphans: beingDeleted && finalizers.includes(ORPHAN),
      virtual: false,
    };
    this.#items.set(uid, item);
    const old = before === undefined || before.virtual ? [] : before.owners;
    this.#unlink(
      uid,
      old.filter((owner) => !owners.some((kept) => kept.uid === owner.uid)),
      work,
    );
    for (const owner of owners) {
      const held = this.#items.get(owner.uid) ?? this.#addVirtual(ownerIdentity(owner), work);
      held.dependents.add(uid);
      // A dependent that no longer blocks lets its waiting owner go on.
      if (held.waits && old.some((was) => was.uid === owner.uid && was.blockOwnerDeletion === true) && owner.blockOwnerDeletion !== true)
        work.check.push(owner.uid);
    }
    if (item.orphans && before?.orphans !== true) work.orphan.push(uid);
    if (item.waits && before?.waits !== true) work.check.push(uid, ...item.dependents);
    const isNew = before === undefined || before.virtual;
    if (!beingDeleted && owners.length > 0 && (isNew || old.length !== owners.length || old.some((was) => !owners.some((owner) => owner.uid === was.uid)))) {
      // Its owner may have been gone before it came.
      if (owners.some((owner) => this.#items.get(owner.uid)?.virtual !== false || this.#items.get(owner.uid)?.waits === true)) work.check.push(uid);
    }
    return work;
  }

  remove(uid: string): GraphWork {
    const work: GraphWork = { check: [], orphan: [] };
    const item = this.#items.get(uid);
    if (item === undefined) return work;
    this.#items.delete(uid);
    work.check.push(...item.dependents);
    this.#unlink(uid, item.owners, work);
    return work;
  }

  #unlink(uid: string, owners: readonly OwnerReference[], work: GraphWork): void {
    for (const owner of owners) {
      const held = this.#items.get(owner.uid);
      if (held === undefined) continue;
      held.dependents.delete(uid);
      if (held.waits) work.check.push(owner.uid);
      if (held.virtual && held.dependents.size === 0) this.#items.delete(owner.uid);
    }
  }

  #addVirtual(identity: Identity, work: GraphWork): Item {
    const item: Item = { identity, owners: [], dependents: new Set(), beingDeleted: false, waits: false, orphans: false, virtual: true };
    this.#items.set(identity.uid, item);
    // Whether it exists at all has to be asked.
    work.check.push(identity.uid);
    return item;
  }
}

export type OwnerState = 'solid' | 'absent' | 'waits';

export type GcDecision =
  | { kind: 'none' }
  /** All that blocked it is gone. */
  | { kind: 'removeFinalizer'; finalizer: string }
  /** These have to go first. */
  | { kind: 'checkDependents'; uids: string[] }
  /** It lives on with its other owners. */
  | { kind: 'dropOwners'; uids: string[] }
  | { kind: 'delete'; policy: 'Foreground' | 'Background' | 'Orphan'; unblockOwners: boolean };

/** What becomes of one object, from its live metadata and the state of each of its owners. */
export function decideFate(meta: ObjectMeta, owners: ReadonlyMap<string, OwnerState>, graph: OwnershipGraph): GcDecision {
  const uid = meta.uid ?? '';
  const finalizers = meta.finalizers ?? [];
  const waits = Boolean(meta.deletionTimestamp) && finalizers.includes(FOREGROUND);
  if (meta.deletionTimestamp && !waits) return { kind: 'none' };
  if (waits) {
    const blockers = graph.blockers(uid);
    return blockers.length === 0
      ? { kind: 'removeFinalizer', finalizer: FOREGROUND }
      : { kind: 'checkDependents', uids: blockers.filter((blocker) => !graph.waits(blocker)) };
  }
  if (owners.size === 0) return { kind: 'none' };
  const inState = (state: OwnerState): string[] => [...owners].filter(([, found]) => found === state).map(([owner]) => owner);
  const gone = [...inState('absent'), ...inState('waits')];
  if (inState('solid').length > 0) return gone.length === 0 ? { kind: 'none' } : { kind: 'dropOwners', uids: gone };
  const dependents = graph.dependents(uid);
  if (inState('waits').length > 0 && dependents.length > 0) {
    // A waiting dependent may wait for this very object: the circle is opened by not blocking any more.
    return { kind: 'delete', policy: 'Foreground', unblockOwners: dependents.some((dependent) => graph.waits(dependent.uid)) };
  }
  const policy = finalizers.includes(ORPHAN) ? 'Orphan' : finalizers.includes(FOREGROUND) ? 'Foreground' : 'Background';
  return { kind: 'delete', policy, unblockOwners: false };
}
