import type { Lab } from './lab.ts';

export interface PodSeen {
  readonly metadata: {
    readonly name: string;
    readonly uid: string;
    readonly labels?: Readonly<Record<string, string>>;
    readonly creationTimestamp: string;
    readonly deletionTimestamp?: string;
  };
  readonly spec: { readonly nodeName?: string };
  readonly status: {
    readonly phase: string;
    readonly podIP?: string;
    readonly conditions?: readonly { readonly type: string; readonly status: string }[];
    readonly containerStatuses?: readonly { readonly containerID?: string; readonly restartCount: number }[];
  };
}

export const isReady = (pod: PodSeen): boolean => pod.status.conditions?.some(({ type, status }) => type === 'Ready' && status === 'True') === true;

export async function podsOf(lab: Lab, namespace: string, selector = ''): Promise<PodSeen[]> {
  const { items } = await lab.get<{ items: PodSeen[] }>(['-n', namespace, 'pods', ...(selector === '' ? [] : ['-l', selector])]);
  return items;
}

/** Waits until as many pods are Ready and none is beside them. */
export function readyPods(lab: Lab, namespace: string, selector: string, count: number): Promise<PodSeen[]> {
  return lab.eventually(`${count} pods with ${selector} Ready`, 240_000, async () => {
    const pods = await podsOf(lab, namespace, selector);
    return pods.length === count && pods.every(isReady) ? pods : null;
  });
}

/** How many pods of a list each node has, most first. */
export function countByNode(pods: readonly PodSeen[]): Map<string, number> {
  const counts = new Map<string, number>();
  for (const { spec } of pods) counts.set(spec.nodeName ?? '', (counts.get(spec.nodeName ?? '') ?? 0) + 1);
  return new Map([...counts].sort((a, b) => b[1] - a[1]));
}

export interface NodeSeen {
  readonly spec: { readonly taints?: readonly { readonly key: string; readonly effect: string; readonly timeAdded?: string }[] };
  readonly status: { readonly conditions: readonly { readonly type: string; readonly status: string; readonly lastTransitionTime: string }[] };
}

export const readyOf = (node: NodeSeen): string => node.status.conditions.find(({ type }) => type === 'Ready')?.status ?? 'none';

/** The taints that say a node cannot be reached, as `KEY:EFFECT`. */
export const lostTaints = (node: NodeSeen): string[] =>
  (node.spec.taints ?? [])
    .filter(({ key }) => key === 'node.kubernetes.io/unreachable' || key === 'node.kubernetes.io/not-ready')
    .map(({ key, effect }) => `${key}:${effect}`)
    .sort();

export interface SliceSeen {
  readonly endpoints: readonly {
    readonly addresses: readonly string[];
    readonly conditions: { readonly ready?: boolean };
    readonly nodeName?: string;
    readonly targetRef?: { readonly name: string };
  }[];
}
