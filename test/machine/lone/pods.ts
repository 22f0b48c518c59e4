import { setTimeout as delay } from 'node:timers/promises';
import { namespaces, pods, serviceAccounts } from '../../../base/kubeapi/refs.ts';
import type { Container, Pod } from '../../../proto/kube/types.ts';
import { NODE, type LoneNode } from './node.ts';

const TRIES = 600;
const PAUSE_MS = 100;

/** Makes a namespace and waits until pods can be made in it. */
export async function makeNamespace(node: LoneNode, name: string): Promise<void> {
  await node.api.create(namespaces(''), { apiVersion: 'v1', kind: 'Namespace', metadata: { name } });
  for (let tries = 0; tries < TRIES; tries += 1) {
    const { items } = await node.api.list(serviceAccounts(name));
    if (items.length > 0) return;
    await delay(PAUSE_MS);
  }
}

/** A pod as it is made here: on this node, and with no registry to ask. */
function placed(pod: Pod): Pod {
  const present = (containers: readonly Container[]): Container[] =>
    containers.map((container) => ({ ...container, imagePullPolicy: 'IfNotPresent' as const }));
  const { spec } = pod;
  if (spec === undefined) return pod;
  return {
    ...pod,
    spec: {
      ...spec,
      nodeName: NODE,
      containers: present(spec.containers),
      ...(spec.initContainers === undefined ? {} : { initContainers: present(spec.initContainers) }),
    },
  };
}

export async function make(node: LoneNode, pod: Pod): Promise<void> {
  await node.api.create<Pod>(pods(pod.metadata.namespace ?? ''), placed(pod));
}

export const isReady = (pod: Pod): boolean => pod.status?.conditions?.some(({ type, status }) => type === 'Ready' && status === 'True') === true;
