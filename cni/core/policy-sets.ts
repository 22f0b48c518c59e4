import type { LabelSelector } from '../../proto/kube/types.ts';
import { addressText, type Address, type Family } from './address.ts';
import { hashHex } from './names.ts';
import type { Protocol } from './config.ts';
import { selects, type PolicyNamespace, type PolicyNode, type PolicyPod } from './policy-facts.ts';
import { FAMILIES } from './policy-match.ts';

export interface SetContent {
  readonly type: string;
  readonly elements: ReadonlySet<string>;
}

const TYPE = { 4: 'ipv4_addr', 6: 'ipv6_addr' } as const;

/** Named sets that rules speak of, in pairs of one a family; each is made once, from the selector that names it. */
export class PolicySets {
  readonly all = new Map<string, { type: string; elements: Set<string> }>();
  readonly #pods: readonly PolicyPod[];
  readonly #namespaces: ReadonlyMap<string, PolicyNamespace>;
  readonly #nodes: readonly PolicyNode[];

  constructor(pods: readonly PolicyPod[], namespaces: ReadonlyMap<string, PolicyNamespace>, nodes: readonly PolicyNode[]) {
    this.#pods = pods;
    this.#namespaces = namespaces;
    this.#nodes = nodes;
  }

  /** Each address with itself: packets that come back to their sender. */
  addSelf(addresses: readonly Address[]): void {
    this.#pair('self', (type) => `${type} . ${type}`);
    for (const address of addresses) this.#add('self', address.family, `${addressText(address)} . ${addressText(address)}`);
  }

  /** The pods that are selected, in one namespace or in all that are selected. */
  pods(pods: LabelSelector, where: LabelSelector | string): string {
    const name = `pods-${hashHex(JSON.stringify([canonical(pods), typeof where === 'string' ? where : canonical(where)]))}`;
    if (!this.#pair(name, (type) => type)) return name;
    const isThere = new Map<string, boolean>();
    const inSpace = (namespace: string): boolean => {
      if (typeof where === 'string') return namespace === where;
      const known = isThere.get(namespace);
      if (known !== undefined) return known;
      const found = this.#namespaces.get(namespace);
      const is = found !== undefined && selects(where, found.labels);
      isThere.set(namespace, is);
      return is;
    };
    for (const pod of this.#pods)
      if (inSpace(pod.namespace) && selects(pods, pod.labels)) for (const address of pod.addresses) this.#add(name, address.family, addressText(address));
    return name;
  }

  nodes(selector: LabelSelector): string {
    const name = `nodes-${hashHex(JSON.stringify(canonical(selector)))}`;
    if (!this.#pair(name, (type) => type)) return name;
    for (const node of this.#nodes)
      if (selects(selector, node.labels)) for (const address of node.addresses) this.#add(name, address.family, addressText(address));
    return name;
  }

  /** A name is another number in each pod: where the packet goes, which is the isolated pod itself for ingress. Null: of any protocol. */
  namedPort(port: string, protocol: Protocol | null): string {
    const name = `port-${hashHex(`${protocol ?? 'any'} ${port}`)}`;
    if (!this.#pair(name, (type) => `${type} . inet_proto . inet_service`)) return name;
    for (const pod of this.#pods)
      for (const one of pod.ports)
        if (one.name === port && (protocol === null || one.protocol === protocol))
          for (const address of pod.addresses) this.#add(name, address.family, `${addressText(address)} . ${one.protocol} . ${one.port}`);
    return name;
  }

  /** Makes both sets; false when they are there. */
  #pair(name: string, type: (address: string) => string): boolean {
    if (this.all.has(`${name}-4`)) return false;
    for (const family of FAMILIES) this.all.set(`${name}-${family}`, { type: type(TYPE[family]), elements: new Set() });
    return true;
  }

  #add(name: string, family: Family, element: string): void {
    this.all.get(`${name}-${family}`)!.elements.add(element);
  }
}

/** Selectors that say the same have one text. */
function canonical(selector: LabelSelector): unknown {
  return [
    Object.entries(selector.matchLabels ?? {}).sort(([a], [b]) => (a < b ? -1 : 1)),
    (selector.matchExpressions ?? []).map(({ key, operator, values = [] }) => JSON.stringify([key, operator, [...values].sort()])).sort(),
  ];
}
