import type { Rng } from '../../base/rng.ts';
import type { Container, Pod } from '../../proto/kube/types.ts';

export const NAMESPACE = 'churn';
export const IMAGE = 'busybox:1.37';

const shell = (script: string): string[] => ['sh', '-c', script];
const box = (name: string, script: string, more: Partial<Container> = {}): Container => ({
  name,
  image: IMAGE,
  command: shell(script),
  resources: { requests: { cpu: '1m', memory: '1Mi' } },
  ...more,
});
const waits = 'trap "exit 0" TERM; while :; do sleep 1 & wait $!; done';
const exec = (script: string) => ({ exec: { command: shell(script) } });

type Make = (rng: Rng) => Pod['spec'];

/** What pods do, by name: to go on, end, crash, fail their probes, be slow to stop, use every kind of volume. */
export const KINDS: Readonly<Record<string, Make>> = {
  idle: () => ({ containers: [box('m', waits)] }),
  pair: () => ({ containers: [box('a', waits), box('b', waits)] }),
  init: () => ({ initContainers: [box('i1', 'true'), box('i2', 'sleep 1')], containers: [box('m', waits)] }),
  initFails: (rng) => ({ initContainers: [box('i', `sleep ${rng.int(2)}; exit 1`)], containers: [box('m', waits)] }),
  sidecar: () => ({ initContainers: [box('s', waits, { restartPolicy: 'Always' })], containers: [box('m', waits)] }),
  crashes: (rng) => ({ containers: [box('m', `sleep ${rng.int(4)}; exit 3`)] }),
  crashesBeside: (rng) => ({ containers: [box('m', `sleep ${1 + rng.int(5)}; exit 3`), box('b', waits)] }),
  completes: (rng) => ({ restartPolicy: 'Never', containers: [box('m', `sleep ${rng.int(6)}`)] }),
  fails: (rng) => ({ restartPolicy: 'Never', containers: [box('m', `sleep ${rng.int(6)}; exit 2`), box('b', 'sleep 3')] }),
  onFailure: (rng) => ({ restartPolicy: 'OnFailure', containers: [box('m', `sleep 1; exit ${rng.int(2)}`)] }),
  liveness: (rng) => ({
    containers: [
      box('m', `touch /tmp/ok; (sleep ${3 + rng.int(6)}; rm /tmp/ok) & ${waits}`, {
        livenessProbe: { ...exec('test -f /tmp/ok'), periodSeconds: 1, failureThreshold: 2 },
      }),
    ],
  }),
  readiness: () => ({
    containers: [
      box('m', `(while :; do touch /tmp/ok; sleep 2; rm /tmp/ok; sleep 2; done) & ${waits}`, {
        readinessProbe: { ...exec('test -f /tmp/ok'), periodSeconds: 1, failureThreshold: 1 },
      }),
    ],
  }),
  startup: () => ({ containers: [box('m', waits, { startupProbe: { ...exec('false'), periodSeconds: 1, failureThreshold: 3 } })] }),
  deaf: () => ({ containers: [box('m', 'trap "" TERM; while :; do sleep 0.5; done')], terminationGracePeriodSeconds: 3 }),
  hooks: () => ({ containers: [box('m', waits, { lifecycle: { postStart: exec('sleep 0.5'), preStop: exec('sleep 1') } })] }),
  deadline: () => ({ activeDeadlineSeconds: 5, containers: [box('m', waits)] }),
  volumes: () => ({
    containers: [
      box('m', waits, {
        volumeMounts: [
          { name: 'disk', mountPath: '/disk' },
          { name: 'ram', mountPath: '/ram' },
          { name: 'map', mountPath: '/map' },
          { name: 'sub', mountPath: '/sub', subPath: 'key' },
          { name: 'all', mountPath: '/all' },
        ],
      }),
    ],
    volumes: [
      { name: 'disk', emptyDir: {} },
      { name: 'ram', emptyDir: { medium: 'Memory', sizeLimit: '1Mi' } },
      { name: 'map', configMap: { name: 'churn' } },
      { name: 'sub', configMap: { name: 'churn' } },
      {
        name: 'all',
        projected: {
          sources: [
            { serviceAccountToken: { path: 'token' } },
            { configMap: { name: 'churn' } },
            { downwardAPI: { items: [{ path: 'name', fieldRef: { fieldPath: 'metadata.name' } }] } },
          ],
        },
      },
    ],
  }),
  hostNetwork: () => ({ hostNetwork: true, containers: [box('m', waits)] }),
  noImage: () => ({ containers: [box('m', waits, { image: 'nowhere.invalid/none:1', imagePullPolicy: 'IfNotPresent' })] }),
  noConfig: () => ({ containers: [box('m', waits)], volumes: [{ name: 'v', configMap: { name: 'missing' } }] }),
};

/** Pod number `number` of a run, bound to `node` by hand. */
export function podFor(rng: Rng, node: string, number: number): Pod {
  const kind = rng.pick(Object.keys(KINDS));
  const spec = KINDS[kind]!(rng);
  return {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: `${kind.toLowerCase()}-${number}`, namespace: NAMESPACE },
    spec: {
      terminationGracePeriodSeconds: rng.pick([0, 1, 2, 5]),
      automountServiceAccountToken: rng.int(2) === 0,
      tolerations: [{ operator: 'Exists' }],
      ...spec,
      nodeName: node,
    },
  };
}

/** What is done next, and how often of a hundred times. */
const DEEDS = { create: 40, delete: 34, deleteNow: 8, killContainer: 8, stopContainer: 4, killSandbox: 3, removeDead: 3 } as const;
export type Deed = keyof typeof DEEDS;

export function deedFor(rng: Rng): Deed {
  let drawn = rng.int(100);
  for (const [deed, share] of Object.entries(DEEDS)) {
    drawn -= share;
    if (drawn < 0) return deed as Deed;
  }
  return 'create';
}
