import type { Node, Pod } from '../../../proto/kube/types.ts';
import { isPodTerminal } from '../controllers/pods.ts';
import { type Amounts, allocatable, minus, plus, podRequests, scoringRequests } from './resources.ts';

export interface NodeInfo {
  readonly node: Node;
  readonly capacity: Amounts;
  readonly pods: ReadonlyMap<string, Pod>;
  readonly taken: Amounts;
  /** As `taken`, with something assumed for pods that ask for nothing. */
  readonly scored: Amounts;
}

interface Placed {
  pod: Pod;
  node: string;
  requests: Amounts;
  scoring: Amounts;
  assumed: boolean;
}

interface MutableNodeInfo {
  node: Node | undefined;
  capacity: Amounts;
  pods: Map<string, Pod>;
  taken: Amounts;
  scored: Amounts;
}

/** Which pods take what of which node: kept by single changes, so that a decision does not count everything again. */
export class ClusterState {
  readonly #nodes = new Map<string, MutableNodeInfo>();
  readonly #placed = new Map<string, Placed>();

  setNode(node: Node): void {
    const info = this.#infoOf(node.metadata.name ?? '');
    info.node = node;
    info.capacity = allocatable(node);
  }

  removeNode(name: string): void {
    const info = this.#nodes.get(name);
    if (info === undefined) return;
    info.node = undefined;
    if (info.pods.size === 0) this.#nodes.delete(name);
  }

  /** A pod as the server has it. One that is only assumed stays so until the server says where it is. */
  setPod(pod: Pod): void {
    const uid = pod.metadata.uid ?? '';
    const node = pod.spec.nodeName ?? '';
    const before = this.#placed.get(uid);
    if (isPodTerminal(pod)) return this.removePod(uid);
    if (node === '') return;
    if (before !== undefined && before.node === node && before.pod.spec === pod.spec) {
      this.#placed.set(uid, { ...before, pod, assumed: false });
      this.#infoOf(node).pods.set(uid, pod);
      return;
    }
    this.#place(pod, node, false);
  }

  /** Counts the pod on the node before the server has been told. */
  assume(pod: Pod, node: string): void {
    this.#place(pod, node, true);
  }

  /** Takes back an assumption that did not come true. */
  forget(uid: string): void {
    if (this.#placed.get(uid)?.assumed === true) this.removePod(uid);
  }

  removePod(uid: string): void {
    const placed = this.#placed.get(uid);
    if (placed === undefined) return;
    this.#placed.delete(uid);
    const info = this.#infoOf(placed.node);
    info.pods.delete(uid);
    info.taken = minus(info.taken, placed.requests);
    info.scored = minus(info.scored, placed.scoring);
    if (info.node === undefined && info.pods.size === 0) this.#nodes.delete(placed.node);
  }

  isPlaced(uid: string): boolean {
    return this.#placed.has(uid);
  }

  /** Nodes that exist, by name. */
  nodes(): NodeInfo[] {
    const known = [...this.#nodes.values()].filter((info): info is MutableNodeInfo & NodeInfo => info.node !== undefined);
    return known.toSorted((a, b) => ((a.node.metadata.name ?? '') < (b.node.metadata.name ?? '') ? -1 : 1));
  }

  #place(pod: Pod, node: string, assumed: boolean): void {
    const uid = pod.metadata.uid ?? '';
    this.removePod(uid);
    const placed: Placed = { pod, node, requests: podRequests(pod), scoring: scoringRequests(pod), assumed };
    this.#placed.set(uid, placed);
    const info = this.#infoOf(node);
    info.pods.set(uid, pod);
    info.taken = plus(info.taken, placed.requests);
    info.scored = plus(info.scored, placed.scoring);
  }

  #infoOf(name: string): MutableNodeInfo {
    let info = this.#nodes.get(name);
    if (info === undefined) {
      info = { node: undefined, capacity: {}, pods: new Map(), taken: {}, scored: {} };
      this.#nodes.set(name, info);
    }
    return info;
  }
}
