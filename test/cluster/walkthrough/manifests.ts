import { redisSet } from '../../walkthrough/manifests.ts';

/** The images that the documents name, and the recipe that stands in for each where no registry answers. */
export const IMAGES: readonly (readonly [name: string, recipe: string, ...more: string[]])[] = [
  ['nginx:1.29', 'server'],
  ['nginx:1.30', 'server'],
  ['nginx:1.30-alpine', 'server'],
  ['nginx:1.31-alpine', 'server'],
  ['redis:8.2-alpine', 'busybox', '--file', `${new URL('redis-server.sh', import.meta.url).pathname}:/bin/redis-server:0755`],
];

/** The taint that keeps pods off a node of the control plane. */
export const ASIDE = 'node-role.kubernetes.io/control-plane';

const tolerations = (seconds: number): string =>
  ['not-ready', 'unreachable']
    .map((what) => `{ key: node.kubernetes.io/${what}, operator: Exists, effect: NoExecute, tolerationSeconds: ${seconds} }`)
    .join(', ');

/** A pod that serves its page and logs who asked, on one node. */
export const pinned = (name: string, node: string, options: { namespace: string; tolerateSeconds?: number }): string => `apiVersion: v1
kind: Pod
metadata: { name: ${name}, namespace: ${options.namespace}, labels: { app: ${name} } }
spec:
  nodeSelector: { kubernetes.io/hostname: ${node} }
  tolerations: [{ key: ${ASIDE}, operator: Exists, effect: NoSchedule }${options.tolerateSeconds === undefined ? '' : `, ${tolerations(options.tolerateSeconds)}`}]
  containers:
    - name: nginx
      image: nginx:1.30-alpine
      command: [httpd, -f, -vv, -p, '80', -h, /usr/share/nginx/html]
      resources:
        requests: { cpu: 50m, memory: 32Mi }
        limits: { memory: 64Mi }
      readinessProbe:
        httpGet: { path: /, port: 80 }
        periodSeconds: 5
  terminationGracePeriodSeconds: 1
`;

/** Three replicas that must not differ by more than one between the nodes that may take them. */
export const spread = `apiVersion: apps/v1
kind: Deployment
metadata: { name: spread, namespace: shop }
spec:
  replicas: 3
  selector: { matchLabels: { app: spread } }
  template:
    metadata: { labels: { app: spread } }
    spec:
      terminationGracePeriodSeconds: 1
      topologySpreadConstraints:
        - maxSkew: 1
          topologyKey: kubernetes.io/hostname
          whenUnsatisfiable: DoNotSchedule
          nodeTaintsPolicy: Honor
          labelSelector: { matchLabels: { app: spread } }
      containers: [{ name: pause, image: "registry.k8s.io/pause:3.10.2", resources: { requests: { cpu: 10m, memory: 8Mi } } }]
`;

/** Twenty pods that only are there. */
export const many = `apiVersion: apps/v1
kind: Deployment
metadata: { name: many, namespace: default }
spec:
  replicas: 20
  selector: { matchLabels: { app: many } }
  template:
    metadata: { labels: { app: many } }
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{ name: pause, image: "registry.k8s.io/pause:3.10.2", resources: { requests: { cpu: 10m, memory: 8Mi } } }]
`;

/**
 * The StatefulSet with its claim, and in place of a provisioner a volume beforehand: a folder of one node, which as a
 * provisioned one would be reached from there alone.
 */
export const redis = (node: string, folder: string): string => `apiVersion: storage.k8s.io/v1
kind: StorageClass
metadata: { name: standard }
provisioner: kubernetes.io/no-provisioner
volumeBindingMode: WaitForFirstConsumer
---
apiVersion: v1
kind: PersistentVolume
metadata: { name: redis-data }
spec:
  capacity: { storage: 1Gi }
  accessModes: [ReadWriteOnce]
  storageClassName: standard
  local: { path: ${folder} }
  nodeAffinity:
    required:
      nodeSelectorTerms: [{ matchExpressions: [{ key: kubernetes.io/hostname, operator: In, values: [${node}] }] }]
---
${redisSet({ more: 'resources: { requests: { cpu: 50m, memory: 32Mi } }', graceSeconds: 5 })}`;
