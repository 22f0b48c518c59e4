/** What a record of watches says, read without a cluster. */

export type Watched = 'pods' | 'nodes' | 'endpointslices' | 'leases';

export interface Condition {
  readonly type: string;
  readonly status: string;
  readonly reason?: string;
}

/** As much of an object as the steps look at. */
export interface Seen {
  readonly metadata: {
    readonly name: string;
    readonly namespace?: string;
    readonly uid?: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly annotations?: Readonly<Record<string, string>>;
    readonly deletionTimestamp?: string;
    readonly creationTimestamp?: string;
    readonly ownerReferences?: readonly { readonly kind: string; readonly name: string }[];
  };
  readonly spec?: {
    readonly nodeName?: string;
    readonly hostNetwork?: boolean;
    readonly renewTime?: string;
    readonly podCIDR?: string;
    readonly unschedulable?: boolean;
    readonly taints?: readonly { readonly key: string; readonly effect: string; readonly timeAdded?: string }[];
  };
  readonly status?: {
    readonly phase?: string;
    readonly podIP?: string;
    readonly conditions?: readonly Condition[];
    readonly addresses?: readonly { readonly type: string; readonly address: string }[];
    readonly nodeInfo?: { readonly kubeletVersion: string };
    readonly containerStatuses?: readonly { readonly name: string; readonly containerID?: string; readonly restartCount: number; readonly ready: boolean }[];
  };
  readonly endpoints?: readonly { readonly addresses: readonly string[]; readonly nodeName?: string; readonly conditions?: { readonly ready?: boolean } }[];
}

/** One event of a watch, with the moment at which it came here. */
export interface Told {
  readonly atMs: number;
  readonly kind: Watched;
  readonly type: string;
  readonly object: Seen;
}

export const statusOf = ({ status }: Seen, type: string): string => status?.conditions?.find((one) => one.type === type)?.status ?? '';

export const isReady = (object: Seen): boolean => statusOf(object, 'Ready') === 'True';

/** Effects of a node's taints with this key, in order. */
export const taintsOf = ({ spec }: Seen, key: string): string[] =>
  (spec?.taints ?? [])
    .filter((taint) => taint.key === key)
    .map(({ effect }) => effect)
    .toSorted();

export const isOf = ({ metadata }: Seen, app: string): boolean => metadata.labels?.['app'] === app;

/** The first event at or after `fromMs` that is as wanted. */
export function first(told: readonly Told[], fromMs: number, isWanted: (one: Told) => boolean): Told | null {
  return told.find((one) => one.atMs >= fromMs && isWanted(one)) ?? null;
}

/** The time in a Lease that was renewed last before `beforeMs`. */
export function lastRenewalMs(told: readonly Told[], node: string, beforeMs: number): number | null {
  const times = told.filter(({ kind, object, atMs }) => kind === 'leases' && object.metadata.name === node && atMs <= beforeMs);
  return times.length === 0 ? null : Math.max(...times.map(({ object }) => Date.parse(object.spec?.renewTime ?? '')));
}

/** The least number of Ready pods of an app at any moment from `fromMs` on, as the API told it. */
export function leastReady(told: readonly Told[], app: string, fromMs: number): number {
  const ready = new Set<string>();
  let least = Number.POSITIVE_INFINITY;
  for (const { kind, type, object, atMs } of told) {
    if (kind !== 'pods' || !isOf(object, app)) continue;
    if (atMs >= fromMs) least = Math.min(least, ready.size);
    if (type !== 'DELETED' && isReady(object)) ready.add(object.metadata.name);
    else ready.delete(object.metadata.name);
  }
  return Math.min(least, ready.size);
}

/** Pods of this name that were there while another of the same name still was: what a StatefulSet never has. */
export function overlaps(told: readonly Told[], name: string): string[] {
  let uid = '';
  const found: string[] = [];
  for (const { kind, type, object } of told) {
    if (kind !== 'pods' || object.metadata.name !== name) continue;
    const its = object.metadata.uid ?? '';
    if (uid !== '' && its !== uid) found.push(`${its} beside ${uid}`);
    uid = type === 'DELETED' ? '' : its;
  }
  return found;
}

/** Whether a slice sends new connections to pods of the node. */
export const sendsTo = (slice: Seen, node: string): boolean =>
  (slice.endpoints ?? []).some(({ nodeName, conditions }) => nodeName === node && conditions?.ready !== false);

export interface CriSandbox {
  readonly id: string;
  readonly state: string;
  readonly labels: Readonly<Record<string, string>>;
}

export interface CriContainer {
  readonly id: string;
  readonly state: string;
  readonly podSandboxId: string;
  readonly labels: Readonly<Record<string, string>>;
}

/** `namespace/pod` of what the runtime says belongs to a pod. */
export const podOf = ({ labels }: { readonly labels: Readonly<Record<string, string>> }): string =>
  `${labels['io.kubernetes.pod.namespace'] ?? ''}/${labels['io.kubernetes.pod.name'] ?? ''}`;

export const uidOf = ({ labels }: { readonly labels: Readonly<Record<string, string>> }): string => labels['io.kubernetes.pod.uid'] ?? '';

/** The static pods, DaemonSets' pods and others among all of a cluster's, as the documents count them. */
export function census(pods: readonly Seen[]): { readonly static: number; readonly daemons: number; readonly others: number } {
  const owner = ({ metadata }: Seen): string => metadata.ownerReferences?.[0]?.kind ?? '';
  const statics = pods.filter(({ metadata }) => metadata.annotations?.['kubernetes.io/config.mirror'] !== undefined).length;
  const daemons = pods.filter((pod) => owner(pod) === 'DaemonSet').length;
  return { static: statics, daemons, others: pods.length - statics - daemons };
}

/** The part of the nodes from which on a zone counts as disrupted: kube-controller-manager's --unhealthy-zone-threshold. */
const UNHEALTHY = 0.55;

/**
 * How many of so many nodes may be lost while their pods are still evicted: up to two in any case, and below the
 * threshold (ComputeZoneState of nodelifecycle); one that stays Ready is always among them.
 */
export function mostLost(nodes: number): number {
  let most = Math.min(2, nodes - 1);
  while (most + 1 < nodes && (most + 1) / nodes < UNHEALTHY) most += 1;
  return most;
}
