import { setTimeout as delay } from 'node:timers/promises';
import { realClock } from '../../base/clock.ts';
import { messageOf, OpError } from '../../base/errors.ts';
import { createKubeApi } from '../../base/kubeapi/client.ts';
import { readKubeConfig } from '../../base/kubeapi/config.ts';
import { ApiError, isApiError } from '../../base/kubeapi/errors.ts';
import type { KubeApi, KubeObject, ResourceRef } from '../../base/kubeapi/types.ts';
import { silentLog } from '../../base/log.ts';
import { realRng } from '../../base/rng.ts';
import type { Node, Pod, Service } from '../../proto/kube/types.ts';
import { builtinResource } from '../core/builtin.ts';
import type { ManifestObject } from '../core/manifest.ts';
import { podCidrsOf, type SetPlan } from '../core/plan.ts';

const POLL_MS = 50;
const LOOK = 'the set runs on for you to look at: nodelet status, nodelet logs agent, nodelet kubectl describe pods';

export interface PodSummary {
  readonly namespace: string;
  readonly name: string;
  readonly ready: string;
  readonly status: string;
  readonly ip: string;
  readonly node: string;
}

export interface ServiceSummary {
  readonly namespace: string;
  readonly name: string;
  readonly clusterIP: string;
  readonly port: number;
  readonly ports: string;
}

/** The set's API server as `up` uses it: by the public API alone, with the administrator's kubeconfig. */
export interface Cluster extends AsyncDisposable {
  ready(timeoutMs: number): Promise<void>;
  nodesRegistered(timeoutMs: number): Promise<void>;
  nodesReady(timeoutMs: number): Promise<void>;
  apply(objects: readonly ManifestObject[]): Promise<void>;
  /** The same for what a new API server may not be ready for: again until all of it is there. */
  make(objects: readonly ManifestObject[], timeoutMs: number): Promise<void>;
  /** The API server's version, `v1.37.2`. */
  version(): Promise<string>;
  podsReady(objects: readonly ManifestObject[], timeoutMs: number, advice?: string): Promise<void>;
  servicesAnswer(objects: readonly ManifestObject[], timeoutMs: number): Promise<void>;
  summary(objects: readonly ManifestObject[]): Promise<{ pods: PodSummary[]; services: ServiceSummary[] }>;
}

export async function connectCluster(plan: SetPlan, signal: AbortSignal): Promise<Cluster> {
  const config = await readKubeConfig(`${plan.state}/admin.kubeconfig`);
  const api = createKubeApi({ config, log: silentLog, clock: realClock, rng: realRng, userAgent: 'nodelet-up' });

  const until = async (doing: string, timeoutMs: number, look: () => Promise<string | null>, advice = 'see: nodelet doctor'): Promise<void> => {
    const deadline = performance.now() + timeoutMs;
    for (let last = 'nothing yet'; ; await delay(POLL_MS)) {
      if (signal.aborted) throw new OpError('aborted', doing, 'stopped');
      try {
        const missing = await look();
        if (missing === null) return;
        last = missing;
      } catch (error) {
        if (!(error instanceof ApiError) && !(error instanceof OpError)) throw error;
        last = messageOf(error);
      }
      if (performance.now() > deadline) throw new OpError('deadline', doing, `${last} after ${(timeoutMs / 1000).toFixed(0)} s`, { advice });
    }
  };
  const nodes = async (): Promise<Map<string, Node>> =>
    new Map((await api.list<Node>({ group: '', version: 'v1', resource: 'nodes' })).items.map((node) => [node.metadata?.name ?? '', node]));
  const missingNodes = async (good: (node: Node) => boolean): Promise<string | null> => {
    const known = await nodes();
    const missing = plan.nodes.filter((node) => {
      const found = known.get(node.name);
      return found === undefined || !good(found);
    });
    return missing.length === 0 ? null : `${missing.map((node) => node.name).join(', ')} not there`;
  };

  return {
    ready: (timeoutMs) =>
      until('waiting for the API server', timeoutMs, async () => {
        const answer = await api.raw('GET', '/readyz', { timeoutMs: 5_000 });
        return answer.status === 200 ? null : `/readyz says ${answer.status}`;
      }),
    async nodesRegistered(timeoutMs) {
      await until('waiting for the nodes', timeoutMs, () => missingNodes(() => true));
      const known = await nodes();
      for (const node of plan.nodes) {
        if (known.get(node.name)?.spec?.podCIDR !== undefined) continue;
        await api
          .patch({ group: '', version: 'v1', resource: 'nodes', name: node.name }, 'merge', { spec: { podCIDR: node.podCidr, podCIDRs: podCidrsOf(node) } })
          .catch((error: unknown) => {
            if (!isApiError(error, 422) && !isApiError(error, 409)) throw error;
          });
      }
    },
    nodesReady: (timeoutMs) =>
      until('waiting for the nodes', timeoutMs, () =>
        missingNodes((node) => node.status?.conditions?.some((condition) => condition.type === 'Ready' && condition.status === 'True') === true),
      ),
    async apply(objects) {
      for (const object of objects) await applyOne(api, object);
    },
    make: (objects, timeoutMs) =>
      until('making what every cluster has', timeoutMs, async () => {
        for (const object of objects) await applyOne(api, object);
        return null;
      }),
    async version() {
      const answer = await api.raw('GET', '/version', { timeoutMs: 5_000 });
      return (JSON.parse(Buffer.from(answer.body).toString()) as { gitVersion: string }).gitVersion;
    },
    podsReady: (objects, timeoutMs, advice = LOOK) => until('waiting for the pods', timeoutMs, () => missingPods(api, objects), advice),
    async servicesAnswer(objects, timeoutMs) {
      const { services } = await summarize(api, objects);
      const withAddress = services.filter((service) => service.clusterIP !== 'None' && service.clusterIP !== '' && service.ports.includes('TCP'));
      if (withAddress.length === 0) return;
      await until(
        'waiting for the Services',
        timeoutMs,
        async () => {
          for (const service of withAddress)
            if (!(await connects(service.clusterIP, service.port)))
              return `${service.namespace}/${service.name} does not answer on ${service.clusterIP}:${service.port}`;
          return null;
        },
        LOOK,
      );
    },
    summary: (objects) => summarize(api, objects),
    [Symbol.asyncDispose]: () => api[Symbol.asyncDispose](),
  };
}

function refOf(object: ManifestObject): ResourceRef {
  const resource = builtinResource(object.apiVersion, object.kind);
  if (resource === undefined) throw new OpError('invalid', 'applying the manifest', `no resource for ${object.apiVersion} ${object.kind}`);
  const { group, version } = resource;
  return { group, version, resource: resource.resource, name: object.name, ...(resource.namespaced ? { namespace: object.namespace ?? 'default' } : {}) };
}

async function applyOne(api: KubeApi, object: ManifestObject): Promise<void> {
  const ref = refOf(object);
  try {
    await api.patch(
      ref,
      'apply',
      { ...object.body, metadata: { ...(object.body['metadata'] as object), ...(ref.namespace === undefined ? {} : { namespace: ref.namespace }) } },
      { force: true, query: { fieldManager: 'nodelet-up', fieldValidation: 'Strict' } },
    );
  } catch (error) {
    if (error instanceof ApiError)
      throw new OpError('invalid', `applying ${object.kind} ${object.name}`, error.message, {
        cause: error,
        advice: 'the set runs; mend the manifest and run up again',
      });
    throw error;
  }
}

async function missingPods(api: KubeApi, objects: readonly ManifestObject[]): Promise<string | null> {
  for (const object of objects) {
    if (object.kind === 'Pod') {
      const pod = await api.get<Pod>(refOf(object));
      if (pod.status?.phase !== 'Succeeded' && !isReady(pod)) return `pod ${object.name} is not ready (${statusOf(pod)})`;
    }
    if (object.kind === 'Deployment' || object.kind === 'ReplicaSet' || object.kind === 'StatefulSet') {
      const owner = await api.get<KubeObject & { spec?: { replicas?: number }; status?: { readyReplicas?: number; observedGeneration?: number } }>(
        refOf(object),
      );
      const wanted = owner.spec?.replicas ?? 1;
      const ready = owner.status?.readyReplicas ?? 0;
      if (ready < wanted || (owner.status?.observedGeneration ?? 0) < (owner.metadata.generation ?? 0))
        return `${object.kind} ${object.name}: ${ready} of ${wanted} pods ready`;
    }
  }
  return null;
}

function isReady(pod: Pod): boolean {
  return pod.status?.conditions?.some((condition) => condition.type === 'Ready' && condition.status === 'True') === true;
}

function statusOf(pod: Pod): string {
  for (const container of pod.status?.containerStatuses ?? []) if (container.state?.waiting?.reason !== undefined) return container.state.waiting.reason;
  return pod.status?.phase ?? 'Pending';
}

async function summarize(api: KubeApi, objects: readonly ManifestObject[]): Promise<{ pods: PodSummary[]; services: ServiceSummary[] }> {
  const namespaces = [...new Set(objects.map((object) => object.namespace ?? 'default'))];
  const pods: PodSummary[] = [];
  const services: ServiceSummary[] = [];
  for (const namespace of namespaces) {
    for (const pod of (await api.list<Pod>({ group: '', version: 'v1', resource: 'pods', namespace })).items) {
      const containers = pod.status?.containerStatuses ?? [];
      const ready = `${containers.filter((container) => container.ready).length}/${pod.spec?.containers.length ?? 0}`;
      pods.push({
        namespace,
        name: pod.metadata?.name ?? '',
        ready,
        status: isReady(pod) ? 'Running' : statusOf(pod),
        ip: pod.status?.podIP ?? '',
        node: pod.spec?.nodeName ?? '',
      });
    }
  }
  for (const object of objects) {
    if (object.kind !== 'Service') continue;
    const service = await api.get<Service>(refOf(object));
    const ports = service.spec?.ports ?? [];
    services.push({
      namespace: object.namespace ?? 'default',
      name: object.name,
      clusterIP: service.spec?.clusterIP ?? '',
      port: ports[0]?.port ?? 0,
      ports: ports.map((port) => `${port.port}/${port.protocol ?? 'TCP'}`).join(','),
    });
  }
  return { pods, services };
}

async function connects(address: string, port: number): Promise<boolean> {
  const { connect } = await import('node:net');
  return new Promise((resolve) => {
    const socket = connect({ host: address, port });
    const finish = (answer: boolean): void => {
      socket.destroy();
      resolve(answer);
    };
    socket.setTimeout(1_000, () => finish(false));
    socket.once('connect', () => finish(true));
    socket.once('error', () => finish(false));
  });
}
