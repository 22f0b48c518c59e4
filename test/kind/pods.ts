import { setTimeout as delay } from 'node:timers/promises';
import { OpError } from '../../base/errors.ts';
import type { Place } from '../../scripts/kind/place.ts';

export const AGNHOST = 'registry.k8s.io/e2e-test-images/agnhost:2.66.1';
export const NAMESPACE = 'swapped';
export const READY_MS = 180_000;

export interface PodList {
  readonly items: readonly {
    readonly metadata: { readonly name: string };
    readonly spec: { readonly nodeName?: string };
    readonly status: {
      readonly conditions?: readonly { type: string; status: string }[];
      readonly containerStatuses?: readonly {
        name: string;
        restartCount: number;
        ready: boolean;
        containerID?: string;
        resources?: { requests?: { cpu?: string } };
      }[];
      readonly initContainerStatuses?: readonly { name: string; restartCount: number; containerID?: string }[];
    };
  }[];
}

/** Pods of every kind that a swap must not touch, most of them on `node`, and a Service backed by pods on all workers. */
export function workload(node: string): object[] {
  const http = { httpGet: { path: '/healthz', port: 8080 }, periodSeconds: 1 };
  const server = {
    name: 'server',
    image: AGNHOST,
    args: ['netexec', '--http-port=8080'],
    ports: [{ containerPort: 8080 }],
    readinessProbe: http,
    livenessProbe: { ...http, failureThreshold: 2 },
  };
  const sidecar = { name: 'sidecar', image: AGNHOST, args: ['pause'], restartPolicy: 'Always', startupProbe: { exec: { command: ['/bin/true'] } } };
  const here = { 'kubernetes.io/hostname': node };
  const labels = (app: string) => ({ app });
  const deployment = (app: string, replicas: number, spec: object) => ({
    apiVersion: 'apps/v1',
    kind: 'Deployment',
    metadata: { name: app, namespace: NAMESPACE },
    spec: {
      replicas,
      selector: { matchLabels: labels(app) },
      template: { metadata: { labels: labels(app) }, spec: { terminationGracePeriodSeconds: 1, ...spec } },
    },
  });
  const spread = [
    {
      maxSkew: 1,
      topologyKey: 'kubernetes.io/hostname',
      whenUnsatisfiable: 'DoNotSchedule',
      nodeTaintsPolicy: 'Honor',
      labelSelector: { matchLabels: labels('web') },
    },
  ];
  return [
    { apiVersion: 'v1', kind: 'Namespace', metadata: { name: NAMESPACE } },
    deployment('web', 4, { containers: [server], topologySpreadConstraints: spread }),
    {
      apiVersion: 'v1',
      kind: 'Service',
      metadata: { name: 'web', namespace: NAMESPACE },
      spec: { type: 'NodePort', selector: labels('web'), ports: [{ port: 80, targetPort: 8080 }] },
    },
    deployment('sidecars', 3, { nodeSelector: here, initContainers: [sidecar], containers: [server] }),
    deployment('plain', 2, {
      nodeSelector: here,
      containers: [{ name: 'pause', image: AGNHOST, args: ['pause'], resources: { requests: { cpu: '10m' }, limits: { cpu: '200m' } } }],
    }),
    {
      apiVersion: 'apps/v1',
      kind: 'DaemonSet',
      metadata: { name: 'each', namespace: NAMESPACE },
      spec: { selector: { matchLabels: labels('each') }, template: { metadata: { labels: labels('each') }, spec: { containers: [server] } } },
    },
    {
      apiVersion: 'apps/v1',
      kind: 'StatefulSet',
      metadata: { name: 'data', namespace: NAMESPACE },
      spec: {
        replicas: 2,
        serviceName: 'data',
        selector: { matchLabels: labels('data') },
        template: {
          metadata: { labels: labels('data') },
          spec: { nodeSelector: here, containers: [{ ...server, volumeMounts: [{ name: 'data', mountPath: '/data' }] }] },
        },
        volumeClaimTemplates: [{ metadata: { name: 'data' }, spec: { accessModes: ['ReadWriteOnce'], resources: { requests: { storage: '10Mi' } } } }],
      },
    },
  ];
}

export async function pods(place: Place): Promise<PodList['items']> {
  return (JSON.parse(await place.kubectl(['get', 'pods', `--namespace=${NAMESPACE}`, '--output=json'])) as PodList).items;
}

export async function allReady(place: Place, least: number): Promise<void> {
  const until = performance.now() + READY_MS;
  for (;;) {
    const items = await pods(place);
    const isReady = (status: PodList['items'][number]['status']): boolean => status.conditions?.find(({ type }) => type === 'Ready')?.status === 'True';
    if (items.length >= least && items.every(({ status }) => isReady(status))) return;
    if (performance.now() > until) {
      const waiting = items.filter(({ status }) => !isReady(status)).map(({ metadata }) => metadata.name);
      throw new OpError('deadline', 'waiting for the pods', `${items.length} of ${least} are there; not ready: ${waiting.join(', ')}`);
    }
    await delay(1_000);
  }
}

/** Restart counts and ids of all containers, by pod and container. */
export async function lives(place: Place): Promise<Map<string, string>> {
  const found = new Map<string, string>();
  for (const { metadata, status } of await pods(place))
    for (const each of [...(status.initContainerStatuses ?? []), ...(status.containerStatuses ?? [])])
      found.set(`${metadata.name}/${each.name}`, `${each.restartCount} ${each.containerID ?? ''}`);
  return found;
}
