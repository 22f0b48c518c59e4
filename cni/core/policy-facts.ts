import type { LabelSelector, Namespace, NetworkPolicy, Node, Pod } from '../../proto/kube/types.ts';
import { addressText, parseAddress, type Address } from './address.ts';
import type { Protocol } from './config.ts';

/** What NetworkPolicies are made of, trimmed to what rules need. */

export type Labels = Readonly<Record<string, string>>;

export interface NamedPort {
  readonly name: string;
  readonly protocol: Protocol;
  readonly port: number;
}

export interface PolicyPod {
  readonly namespace: string;
  readonly name: string;
  readonly node: string;
  readonly labels: Labels;
  /** Empty while it has none, and once it is finished: another pod may have them then. */
  readonly addresses: readonly Address[];
  readonly ports: readonly NamedPort[];
  /** It has the node's addresses: its packets are the node's, and no policy speaks of them. */
  readonly isHost: boolean;
  readonly isFinished: boolean;
}

export interface PolicyNamespace {
  readonly name: string;
  readonly labels: Labels;
}

/** A node by all addresses that its status tells. */
export interface PolicyNode {
  readonly name: string;
  readonly labels: Labels;
  readonly addresses: readonly Address[];
}

/** A policy without what the server adds; `key` is its namespace and name. */
export interface Policy {
  readonly key: string;
  readonly namespace: string;
  readonly spec: NetworkPolicy['spec'];
}

const PROTOCOLS: Readonly<Record<string, Protocol>> = { TCP: 'tcp', UDP: 'udp', SCTP: 'sctp' };

/** The protocol as the kernel's tools write it; TCP where none is named, null for one that is not known. */
export function protocolOf(text: string | undefined): Protocol | null {
  return PROTOCOLS[text ?? 'TCP'] ?? null;
}

/** Keys of objects: `namespace/name`. */
export const keyOf = (object: { metadata: { namespace?: string; name?: string } }): string =>
  `${object.metadata.namespace ?? ''}/${object.metadata.name ?? ''}`;

/** The pod's addresses of both families, each once. */
function addressesOf(pod: Pod): Address[] {
  const texts = [pod.status?.podIP, ...(pod.status?.podIPs ?? []).map((one) => one.ip)];
  const found = new Map<string, Address>();
  for (const text of texts) {
    const address = text === undefined ? null : parseAddress(text);
    if (address !== null) found.set(addressText(address), address);
  }
  return [...found.values()];
}

export function podFacts(pod: Pod): PolicyPod {
  const isHost = pod.spec?.hostNetwork === true;
  const isFinished = pod.status?.phase === 'Succeeded' || pod.status?.phase === 'Failed';
  // Init containers that go on running may have ports too.
  const containers = [...(pod.spec?.containers ?? []), ...(pod.spec?.initContainers ?? []).filter((one) => one.restartPolicy === 'Always')];
  const ports = containers.flatMap((container) =>
    (container.ports ?? []).flatMap(({ name, protocol, containerPort }): NamedPort[] => {
      const known = protocolOf(protocol);
      return name === undefined || name === '' || known === null ? [] : [{ name, protocol: known, port: containerPort }];
    }),
  );
  return {
    namespace: pod.metadata.namespace ?? '',
    name: pod.metadata.name ?? '',
    node: pod.spec?.nodeName ?? '',
    labels: pod.metadata.labels ?? {},
    addresses: isHost || isFinished ? [] : addressesOf(pod),
    ports,
    isHost,
    isFinished,
  };
}

export function namespaceFacts(namespace: Namespace): PolicyNamespace {
  return { name: namespace.metadata.name ?? '', labels: namespace.metadata.labels ?? {} };
}

export function nodeFacts(node: Node): PolicyNode {
  const addresses = (node.status?.addresses ?? []).flatMap(({ address }) => parseAddress(address) ?? []);
  return { name: node.metadata.name ?? '', labels: node.metadata.labels ?? {}, addresses };
}

export function policyFacts(policy: NetworkPolicy): Policy {
  return { key: keyOf(policy), namespace: policy.metadata.namespace ?? '', spec: policy.spec };
}

/** metav1.LabelSelector: every part must hold; an empty one selects everything. An operator that is not known selects nothing. */
export function selects(selector: LabelSelector, labels: Labels): boolean {
  for (const [key, value] of Object.entries(selector.matchLabels ?? {})) if (labels[key] !== value) return false;
  for (const { key, operator, values = [] } of selector.matchExpressions ?? []) {
    const value = Object.hasOwn(labels, key) ? labels[key] : undefined;
    if (operator === 'In' ? value === undefined || !values.includes(value) : false) return false;
    if (operator === 'NotIn' && value !== undefined && values.includes(value)) return false;
    if (operator === 'Exists' && value === undefined) return false;
    if (operator === 'DoesNotExist' && value !== undefined) return false;
    if (!['In', 'NotIn', 'Exists', 'DoesNotExist'].includes(operator)) return false;
  }
  return true;
}
