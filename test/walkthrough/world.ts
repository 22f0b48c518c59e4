import { eventually, kubectlProblem, setProblem, testSet, type TestSet } from '../set.ts';
import { shop } from './manifests.ts';

/** Why the walkthroughs cannot run here, or false: node:test's `skip`. */
export const skip: string | false = (await setProblem()) ?? (await kubectlProblem()) ?? false;

export const IMAGES = ['nginx:1.29', 'nginx:1.30-alpine', 'nginx:1.31-alpine', 'busybox:1.37'] as const;

/** A set with the documents' images served to it. */
export async function world(name: string, args: readonly string[] = []): Promise<TestSet> {
  const set = await testSet(name, args);
  for (const image of IMAGES) {
    const made = await set.nodelet(['image', 'make', image, '--from', image.startsWith('nginx') ? 'server' : 'busybox']);
    if (made.code !== 0) throw new Error(made.err);
  }
  return set;
}

/** Namespace `shop` with the Deployment, rolled out. */
export async function withShop(set: TestSet): Promise<void> {
  await set.k(['create', 'namespace', 'shop']);
  await set.k(['apply', '-f', '-'], shop());
  await set.k(['-n', 'shop', 'rollout', 'status', 'deploy/web', '--timeout=60s']);
}

export interface PodObject {
  metadata: {
    name: string;
    uid: string;
    namespace: string;
    labels?: Record<string, string>;
    ownerReferences?: { name: string; uid: string }[];
    deletionTimestamp?: string;
  };
  spec: { nodeName?: string };
  status: {
    phase: string;
    podIP?: string;
    conditions?: { type: string; status: string; reason?: string; lastTransitionTime?: string }[];
    containerStatuses?: ContainerState[];
    initContainerStatuses?: ContainerState[];
  };
}

export interface ContainerState {
  name: string;
  ready: boolean;
  started?: boolean;
  restartCount: number;
  containerID?: string;
  state: {
    waiting?: { reason: string; message?: string };
    running?: { startedAt: string };
    terminated?: { exitCode: number; reason: string; startedAt: string; finishedAt: string };
  };
  lastState: { terminated?: { exitCode: number; reason: string } };
  resources?: { requests?: Record<string, string>; limits?: Record<string, string> };
  allocatedResources?: Record<string, string>;
}

export async function podList(set: TestSet, namespace: string, selector = ''): Promise<PodObject[]> {
  const args = ['-n', namespace, 'get', 'pods', '-o', 'json', ...(selector === '' ? [] : ['-l', selector])];
  return (JSON.parse(await set.k(args)) as { items: PodObject[] }).items;
}

export async function podNamed(set: TestSet, namespace: string, name: string): Promise<PodObject> {
  return JSON.parse(await set.k(['-n', namespace, 'get', 'pod', name, '-o', 'json'])) as PodObject;
}

export const isReady = (pod: PodObject): boolean =>
  pod.status.conditions?.some((condition) => condition.type === 'Ready' && condition.status === 'True') === true;

export async function ready(set: TestSet, namespace: string, name: string, timeoutMs = 30_000): Promise<PodObject> {
  return eventually(`pod ${name} ready`, timeoutMs, async () => {
    const pod = await podNamed(set, namespace, name);
    return isReady(pod) ? pod : null;
  });
}

export interface EventObject {
  reason: string;
  message: string;
  type: string;
  count?: number;
  source?: { component?: string };
  reportingComponent?: string;
  involvedObject: { kind: string; name: string };
  metadata: { resourceVersion: string };
}

export async function eventList(set: TestSet, namespace: string): Promise<EventObject[]> {
  const { items } = JSON.parse(await set.k(['-n', namespace, 'get', 'events', '-o', 'json'])) as { items: EventObject[] };
  return items.sort((a, b) => Number(a.metadata.resourceVersion) - Number(b.metadata.resourceVersion));
}
