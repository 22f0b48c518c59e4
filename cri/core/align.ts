import type { KeptLife } from './kept-calls.ts';
import type { PodLife } from './pod-calls.ts';

/** What one kubelet did with a pod, and another with the pod that has its place. */
export interface LifePair {
  /** What both are called: `namespace/name`, for generated names without what was generated; `(node)`. */
  readonly name: string;
  readonly a: KeptLife | null;
  readonly b: KeptLife | null;
}

/** A pod, or all of a namespace (`*`), and what has its place in the other recording. */
export interface PodMapping {
  readonly from: string;
  readonly to: string;
}

export const NODE = '(node)';

/** Characters of generated names: no vowels, and no digits that look like them. */
const SUFFIX = /-[bcdfghjklmnpqrstvwxz2456789]{5}$/;
const SCHEDULED = /-\d{8,10}$/;

function isStatic({ annotations }: PodLife): boolean {
  return annotations['kubernetes.io/config.mirror'] !== undefined || /^(file|http)$/.test(annotations['kubernetes.io/config.source'] ?? '');
}

/** The node's name, which static pods have at their end: what two of them have in common there, or their host's name. */
function nodeSuffix(pods: readonly PodLife[]): string {
  const found = pods.filter(isStatic);
  const onHost = found.find(({ name, hostname }) => hostname !== '' && name.endsWith(`-${hostname}`));
  if (onHost !== undefined) return `-${onHost.hostname}`;
  const [first, ...rest] = [...new Set(found.map(({ name }) => name))];
  if (first === undefined || rest.length === 0) return '';
  for (let at = first.indexOf('-'); at >= 0; at = first.indexOf('-', at + 1)) {
    const suffix = first.slice(at);
    if (rest.every((name) => name.endsWith(suffix) && name.length > suffix.length)) return suffix;
  }
  return '';
}

/** A pod's name without what was generated: its owner's, with the index where it has one. */
export function baseName(pod: PodLife, ofNode: string): string {
  const { name, labels } = pod;
  if (isStatic(pod)) return ofNode !== '' && name.endsWith(ofNode) ? name.slice(0, -ofNode.length) : name;
  if (labels['statefulset.kubernetes.io/pod-name'] !== undefined) return name;
  const hash = labels['pod-template-hash'];
  const short = name.replace(SUFFIX, '');
  if (hash !== undefined) return short.endsWith(`-${hash}`) ? short.slice(0, -hash.length - 1) : short;
  if ((labels['batch.kubernetes.io/job-name'] ?? labels['job-name']) !== undefined) return short.replace(SCHEDULED, '');
  return short;
}

function mapped(pod: PodLife, mappings: readonly PodMapping[]): string | null {
  for (const { from, to } of mappings) {
    if (from === `${pod.namespace}/${pod.name}` || from === pod.key) return to;
    if (from === `${pod.namespace}/*` && to.endsWith('/*')) return to.slice(0, -1) + pod.key.slice(pod.namespace.length + 1);
    if (!from.includes('/') && from === pod.name) return to.includes('/') ? to : `${pod.namespace}/${to}`;
  }
  return null;
}

interface Side {
  readonly life: KeptLife;
  readonly pod: PodLife;
  /** Where it is looked for in the other recording. */
  readonly key: string;
  readonly base: string;
}

function sidesOf(lives: readonly KeptLife[], mappings: readonly PodMapping[]): Side[] {
  const ofNode = nodeSuffix(lives.flatMap(({ pod }) => pod ?? []));
  return lives.flatMap((life) => {
    const { pod } = life;
    if (pod === null) return [];
    const key = mapped(pod, mappings) ?? pod.key;
    const base = `${key.slice(0, key.indexOf('/'))}/${baseName(pod, ofNode)}`;
    return [{ life, pod, key, base }];
  });
}

/**
 * Pods of two recordings side by side: by what was mapped, by the same name, then by owner in the order in which they
 * appeared. Those of the first in its order, then those that only the second has.
 */
export function alignPods(a: readonly KeptLife[], b: readonly KeptLife[], mappings: readonly PodMapping[]): LifePair[] {
  const [sidesA, sidesB] = [sidesOf(a, mappings), sidesOf(b, [])];
  const free = new Map(sidesB.map((side) => [side.pod.key, side]));
  const found = new Map<Side, Side>();
  for (const side of sidesA) {
    const same = free.get(side.key);
    if (same === undefined) continue;
    found.set(side, same);
    free.delete(side.key);
  }
  const waiting = Map.groupBy(free.values(), ({ base }) => base);
  const next = new Map<string, number>();
  for (const side of sidesA) {
    if (found.has(side)) continue;
    const at = next.get(side.base) ?? 0;
    const other = waiting.get(side.base)?.[at];
    if (other === undefined) continue;
    next.set(side.base, at + 1);
    found.set(side, other);
    free.delete(other.pod.key);
  }
  const [nodeA, nodeB] = [a, b].map((lives) => lives.find(({ pod }) => pod === null) ?? null);
  const pairs: LifePair[] = nodeA === null && nodeB === null ? [] : [{ name: NODE, a: nodeA ?? null, b: nodeB ?? null }];
  for (const side of sidesA) {
    const other = found.get(side);
    // One that is alone keeps its whole name unless that was generated.
    const name = other !== undefined && other.pod.key === side.pod.key ? side.pod.key : side.base;
    pairs.push({ name, a: side.life, b: other?.life ?? null });
  }
  for (const side of free.values()) pairs.push({ name: side.base, a: null, b: side.life });
  return pairs;
}
