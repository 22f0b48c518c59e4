import { errnoError } from './errno.ts';
import type { FileOpResult } from './types.ts';

export interface FakeNode {
  type: NonNullable<FileOpResult['stat']>['type'];
  mode: number;
  uid: number;
  gid: number;
  data: Buffer;
  target: string;
  children: Map<string, FakeNode>;
  /** What is mounted here; the last one is seen. */
  mounted: FakeMount[];
}

export interface FakeMount {
  readonly target: string;
  readonly source: string;
  readonly fstype: string;
  readonly data: string;
  readOnly: boolean;
  /** Sees what is mounted inside it (a recursive bind). */
  readonly recursive: boolean;
  /** Mounts below it cannot be written either. */
  readonly allReadOnly: boolean;
  propagation: string;
  readonly root: FakeNode;
}

/** A node and the way that led there. */
export interface Place {
  node: FakeNode;
  /** Mounts that were crossed, outermost first. */
  mounts: readonly FakeMount[];
  /** The node itself is where the last mount begins. */
  mountPoint: boolean;
}

export function fakeNode(type: FakeNode['type'], mode: number): FakeNode {
  return { type, mode, uid: 0, gid: 0, data: Buffer.alloc(0), target: '', children: new Map(), mounted: [] };
}

export type FakeLinks = 'refuse' | 'beneath' | 'follow';

function steps(path: string): string[] {
  return path.split('/').filter((part) => part !== '' && part !== '.');
}

/** A mount of a plain bind is seen without what is mounted inside its source. */
function enter(place: Place, node: FakeNode): Place {
  const over = node.mounted.at(-1);
  const hidden = place.mounts.at(-1)?.recursive === false && place.mounts.at(-1)?.fstype === 'bind';
  if (over === undefined || hidden) return { node, mounts: place.mounts, mountPoint: false };
  return { node: over.root, mounts: [...place.mounts, over], mountPoint: true };
}

/** A tree of files in memory, with mounts and links, that answers with the kernel's errno names. */
export class FakeTree {
  readonly #root: Place = { node: fakeNode('dir', 0o755), mounts: [], mountPoint: false };

  /** A whole path from the top, following every link. */
  find(path: string, followLast = true): Place {
    return this.walk([this.#root], path, 'follow', followLast);
  }

  /** A path below a root; `last` says whether a link at its end is followed. */
  below(root: string, path: string, links: FakeLinks, followLast: boolean): Place {
    const top = this.find(root);
    if (top.node.type !== 'dir') throw errnoError('walk', 'ENOTDIR');
    if (links === 'follow') return this.walk(this.#trail(root), path, links, followLast);
    if (path.startsWith('/')) throw errnoError('walk', 'EXDEV');
    return this.walk([top], path, links, followLast);
  }

  /** The directory that holds the last name of `path`. */
  holder(root: string, path: string, links: FakeLinks): { dir: Place; name: string } {
    const parts = path.replace(/\/+$/, '').split('/');
    const name = parts.pop() ?? '';
    if (name === '' || name === '.' || name === '..') throw errnoError('walk', 'EINVAL');
    const dir = this.below(root, parts.join('/'), links, true);
    if (dir.node.type !== 'dir') throw errnoError('walk', 'ENOTDIR');
    return { dir, name };
  }

  #trail(path: string): Place[] {
    const trail = [this.#root];
    this.walk(trail, path, 'follow', true);
    return trail;
  }

  /** Walks on from the end of `trail`, and leaves there how it went. */
  walk(trail: Place[], path: string, links: FakeLinks, followLast: boolean, depth = 0): Place {
    if (depth > 40) throw errnoError('walk', 'ELOOP');
    const parts = steps(path);
    for (const [index, part] of parts.entries()) {
      const here = trail.at(-1) as Place;
      if (here.node.type !== 'dir') throw errnoError('walk', 'ENOTDIR');
      if (part === '..') {
        if (trail.length > 1) trail.pop();
        else if (links !== 'follow') throw errnoError('walk', 'EXDEV');
        continue;
      }
      const child = here.node.children.get(part);
      if (child === undefined) throw errnoError('walk', 'ENOENT');
      if (child.type === 'link' && (index < parts.length - 1 || followLast)) {
        if (links === 'refuse') throw errnoError('walk', 'ELOOP');
        if (child.target.startsWith('/')) {
          if (links === 'beneath') throw errnoError('walk', 'EXDEV');
          trail.splice(1);
          trail[0] = this.#root;
        }
        this.walk(trail, child.target, links, true, depth + 1);
        continue;
      }
      trail.push(enter(here, child));
    }
    return trail.at(-1) as Place;
  }

  /** Adds a mount on what is seen at `path` now. */
  mount(path: string, make: (over: Place) => Omit<FakeMount, 'target'>): FakeMount {
    const under = this.#under(path);
    const mount = { ...make(this.find(path)), target: path };
    under.mounted.push(mount);
    return mount;
  }

  /** Takes the last mount off `path`; false when there is none. */
  unmount(path: string): FakeMount | undefined {
    try {
      return this.#under(path).mounted.pop();
    } catch {
      return undefined;
    }
  }

  /** The node below whatever is mounted at `path`. */
  #under(path: string): FakeNode {
    const parts = steps(path);
    const name = parts.pop();
    if (name === undefined) return this.#root.node;
    const dir = this.find(`/${parts.join('/')}`);
    const child = dir.node.children.get(name);
    if (child === undefined) throw errnoError('walk', 'ENOENT');
    return child.type === 'link' ? this.#under(child.target.startsWith('/') ? child.target : `/${parts.join('/')}/${child.target}`) : child;
  }
}

export function isReadOnly(place: Place): boolean {
  return place.mounts.at(-1)?.readOnly === true || place.mounts.some((mount) => mount.allReadOnly);
}

/** Throws EROFS where nothing may be changed. */
export function mayChange(place: Place): void {
  if (isReadOnly(place)) throw errnoError('change', 'EROFS');
}

/** Every node from `place` down, without what is mounted inside, parents first. */
export function* inside(place: Place): Generator<FakeNode> {
  yield place.node;
  for (const child of place.node.children.values()) {
    if (child.mounted.length > 0) continue;
    yield* inside({ ...place, node: child });
  }
}

/** Whether something is mounted below. */
export function hasMountBelow(node: FakeNode): boolean {
  return [...node.children.values()].some((child) => child.mounted.length > 0 || hasMountBelow(child));
}
