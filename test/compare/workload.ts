import type { Pod } from '../../proto/kube/types.ts';

/** What pods are compared: nothing but a container, or what most pods have beside it. */
export type Flavour = 'plain' | 'probed';

export const NAMESPACE = 'compare';
const PAUSE = 'registry.k8s.io/pause:3.10.2';
const SERVER = 'busybox:1.37';

/**
 * A pod that is bound to its node by hand, so that no scheduler is measured. `plain` is a pause container without a
 * token; `probed` has a token volume, one readiness and one liveness HTTP probe every 10 s.
 */
export function podFor(node: string, flavour: Flavour, index: number): Pod {
  const metadata = { name: `${flavour}-${index}`, namespace: NAMESPACE, labels: { compare: flavour } };
  const tolerations = [{ operator: 'Exists' }];
  const resources = { requests: { cpu: '1m', memory: '1Mi' } };
  if (flavour === 'plain') {
    return {
      apiVersion: 'v1',
      kind: 'Pod',
      metadata,
      spec: { nodeName: node, automountServiceAccountToken: false, tolerations, containers: [{ name: 'main', image: PAUSE, resources }] },
    };
  }
  const probe = { httpGet: { path: '/', port: 8080 }, periodSeconds: 10 };
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata,
    spec: {
      nodeName: node,
      terminationGracePeriodSeconds: 5,
      tolerations,
      containers: [
        {
          name: 'main',
          image: SERVER,
          command: ['sh', '-c', "trap 'exit 0' TERM; mkdir -p /www; echo ok > /www/index.html; httpd -f -p 8080 -h /www & wait"],
          resources,
          readinessProbe: probe,
          livenessProbe: probe,
        },
      ],
    },
  };
}

/** Images that the workload needs, and the recipe that makes each where no registry answers. */
export const IMAGES: readonly { readonly name: string; readonly recipe: string }[] = [
  { name: PAUSE, recipe: 'pause' },
  { name: SERVER, recipe: 'busybox' },
];
