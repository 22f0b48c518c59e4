import { redisConfig, redisSet, shop } from '../walkthrough/manifests.ts';

/** Namespaces that the walk makes and removes. */
export const SHOP = 'shop';

/** M2 in its namespace. */
export const web = shop();

/** The StatefulSet of the documents with its headless Service, Secret and ConfigMap (M3). */
export const redis = `${redisConfig}---
${redisSet({ more: 'readinessProbe: { exec: { command: [redis-cli, ping] }, periodSeconds: 1 }' })}`;

/** M2 once more under another name, its pods never all on one node. */
export const spread = shop()
  .replaceAll('web', 'even')
  .replace(
    '    spec:\n      containers:',
    '    spec:\n      topologySpreadConstraints:\n        - { maxSkew: 1, topologyKey: kubernetes.io/hostname, whenUnsatisfiable: DoNotSchedule, nodeTaintsPolicy: Honor, labelSelector: { matchLabels: { app: even } } }\n      containers:',
  );

/** A pod that is on one node and leaves it sooner than the default when that node is lost. */
export const impatient = (name: string, node: string, seconds: number): string =>
  JSON.stringify({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name, namespace: SHOP, labels: { app: name } },
    spec: {
      nodeSelector: { 'kubernetes.io/hostname': node },
      tolerations: [{ key: 'node.kubernetes.io/unreachable', operator: 'Exists', effect: 'NoExecute', tolerationSeconds: seconds }],
      containers: [{ name: 'web', image: 'nginx:1.30-alpine' }],
    },
  });

/** A static pod, as a file in a node's folder of manifests. It takes no address: the first is the walk's to see. */
export const staticPod = `apiVersion: v1
kind: Pod
metadata: { name: walked, namespace: default }
spec: { hostNetwork: true, containers: [{ name: pause, image: "registry.k8s.io/pause:3.10.2" }] }
`;
