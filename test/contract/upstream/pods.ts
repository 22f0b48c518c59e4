import type { ConfigMap, Container, Pod, Secret } from '../../../proto/kube/types.ts';

/** The namespace and the image of all six pods. */
export const NAMESPACE = 'contract';
export const IMAGE = 'docker.io/contract/busybox:1';

/** Runs until it is asked to end, and ends at once then. */
const forever = ['sh', '-c', 'trap "exit 0" TERM; sleep 3600 & wait'];
const box = (name: string, more: Partial<Container> = {}): Container => ({ name, image: IMAGE, imagePullPolicy: 'IfNotPresent', command: forever, ...more });

export interface RecordedPod {
  readonly name: string;
  /** When it is looked at: a condition that is True, or a number of restarts. */
  readonly until: { readonly condition: 'Ready' } | { readonly restarts: number };
  /** Resources of `main` that it is given while it runs. */
  readonly resizeTo?: NonNullable<Container['resources']>;
  readonly pod: Pod;
}

function pod(name: string, spec: Omit<NonNullable<Pod['spec']>, 'containers'> & { containers: Container[] }, metadata: Pod['metadata'] = {}): Pod {
  return { apiVersion: 'v1', kind: 'Pod', metadata: { name, namespace: NAMESPACE, ...metadata }, spec: { terminationGracePeriodSeconds: 5, ...spec } };
}

const request = { cpu: '100m', memory: '64Mi' };
const limit = { cpu: '200m', memory: '128Mi' };

/** What the volumes are made of. */
export const OBJECTS: readonly (ConfigMap | Secret)[] = [
  { apiVersion: 'v1', kind: 'ConfigMap', metadata: { name: 'settings', namespace: NAMESPACE }, data: { colour: 'blue', 'data-1': 'one' } },
  { apiVersion: 'v1', kind: 'Secret', metadata: { name: 'keys', namespace: NAMESPACE }, stringData: { password: 'open sesame' } },
];

/** One thing of a kubelet each; run one after the other. */
export const PODS: readonly RecordedPod[] = [
  {
    name: 'plain',
    until: { condition: 'Ready' },
    pod: pod(
      'plain',
      {
        containers: [
          box('main', {
            imagePullPolicy: 'Always',
            env: [
              { name: 'ZED', value: 'last letter first' },
              { name: 'ALPHA', value: '$(ZED), $$(ZED), $(NOT_THERE)' },
              { name: 'POD_IP', valueFrom: { fieldRef: { fieldPath: 'status.podIP' } } },
              { name: 'NODE', valueFrom: { fieldRef: { fieldPath: 'spec.nodeName' } } },
              { name: 'LIMIT', valueFrom: { resourceFieldRef: { resource: 'limits.memory', divisor: '1Mi' } } },
            ],
            ports: [{ name: 'http', containerPort: 8080, protocol: 'TCP' }],
            resources: { requests: request, limits: limit },
            lifecycle: { preStop: { exec: { command: ['true'] } } },
          }),
        ],
      },
      { labels: { app: 'plain' }, annotations: { note: 'kept' } },
    ),
  },
  {
    name: 'init',
    until: { condition: 'Ready' },
    pod: pod('init', { initContainers: [box('first', { command: ['true'] }), box('second', { command: ['true'] })], containers: [box('main')] }),
  },
  {
    name: 'sidecar',
    until: { condition: 'Ready' },
    pod: pod('sidecar', {
      initContainers: [box('before', { command: ['true'] }), box('beside', { restartPolicy: 'Always' })],
      containers: [box('main')],
    }),
  },
  {
    name: 'crash',
    until: { restarts: 2 },
    pod: pod('crash', { containers: [box('main', { command: ['sh', '-c', 'echo broken; exit 3'], terminationMessagePolicy: 'FallbackToLogsOnError' })] }),
  },
  {
    name: 'volumes',
    until: { condition: 'Ready' },
    pod: pod(
      'volumes',
      {
        securityContext: { fsGroup: 2000 },
        containers: [
          box('main', {
            envFrom: [{ configMapRef: { name: 'settings' } }],
            env: [{ name: 'PASSWORD', valueFrom: { secretKeyRef: { name: 'keys', key: 'password' } } }],
            volumeMounts: [
              { name: 'settings', mountPath: '/settings' },
              { name: 'keys', mountPath: '/keys', readOnly: true },
              { name: 'about', mountPath: '/about' },
              { name: 'token', mountPath: '/token' },
              { name: 'scratch', mountPath: '/scratch', subPath: 'part' },
              { name: 'memory', mountPath: '/memory' },
            ],
          }),
        ],
        volumes: [
          { name: 'settings', configMap: { name: 'settings', items: [{ key: 'colour', path: 'deep/colour' }] } },
          { name: 'keys', secret: { secretName: 'keys', defaultMode: 0o400 } },
          { name: 'about', downwardAPI: { items: [{ path: 'labels', fieldRef: { fieldPath: 'metadata.labels' } }] } },
          { name: 'token', projected: { sources: [{ serviceAccountToken: { path: 'token', audience: 'contract', expirationSeconds: 3600 } }] } },
          { name: 'scratch', emptyDir: {} },
          { name: 'memory', emptyDir: { medium: 'Memory', sizeLimit: '1Mi' } },
        ],
      },
      { labels: { app: 'volumes', tier: 'one' } },
    ),
  },
  {
    name: 'resize',
    until: { condition: 'Ready' },
    resizeTo: { requests: { cpu: '150m', memory: '64Mi' }, limits: { cpu: '300m', memory: '192Mi' } },
    pod: pod('resize', { containers: [box('main', { resources: { requests: request, limits: limit } })] }),
  },
];
