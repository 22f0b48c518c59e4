import { mkdir, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import type { Progress } from '../../../node/io/progress.ts';
import type { Pod } from '../../../proto/kube/types.ts';
import type { Lab } from './lab.ts';
import { metricShapes, missingShapes, summaryPaths } from './page-shapes.ts';

/** Where what upstream's kubelet shows is kept. */
export const PAGES = new URL('pages/', import.meta.url).pathname;
export const PAGES_NAMESPACE = 'default';

const IMAGE = 'registry.k8s.io/e2e-test-images/busybox:1.37.0-2';
/** A kubelet looks at a cgroup every ten seconds or more seldom, and at a volume once a minute. */
const SETTLE_MS = 75_000;

const pages = {
  cadvisor: { path: 'metrics/cadvisor', shapes: (text: string) => metricShapes(text, PAGES_NAMESPACE) },
  resource: { path: 'metrics/resource', shapes: (text: string) => metricShapes(text, PAGES_NAMESPACE) },
  probes: { path: 'metrics/probes', shapes: (text: string) => metricShapes(text, PAGES_NAMESPACE) },
  summary: { path: 'stats/summary', shapes: (text: string) => summaryPaths(JSON.parse(text), PAGES_NAMESPACE) },
};

/** The same pods for each node: limits and volumes, a sidecar and probes, the host's network. */
export function pagePods(node: string): Pod[] {
  const number = node.slice(-1);
  const pod = (name: string, spec: Pod['spec']): Pod => ({
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: { name: `${name}-${number}`, namespace: PAGES_NAMESPACE },
    spec: { nodeName: node, terminationGracePeriodSeconds: 1, ...spec },
  });
  const box = { image: IMAGE, command: ['sleep', '100000'] };
  const probe = { exec: { command: ['true'] }, periodSeconds: 1 };
  return [
    pod('one', {
      containers: [
        {
          ...box,
          name: 'main',
          resources: { limits: { memory: '80M' } },
          volumeMounts: [
            { name: 'disk', mountPath: '/disk' },
            { name: 'memory', mountPath: '/memory' },
          ],
        },
      ],
      volumes: [
        { name: 'disk', emptyDir: {} },
        { name: 'memory', emptyDir: { medium: 'Memory', sizeLimit: '10Mi' } },
      ],
    }),
    pod('two', {
      initContainers: [{ ...box, name: 'side', restartPolicy: 'Always' }],
      containers: [
        { ...box, name: 'a', resources: { limits: { memory: '64Mi', cpu: '100m' } }, readinessProbe: probe, livenessProbe: probe },
        { ...box, name: 'b', resources: { requests: { cpu: '50m' } } },
      ],
    }),
    pod('host', { hostNetwork: true, containers: [{ ...box, name: 'main' }] }),
  ];
}

/** Fetches the pages of both nodes (the first has upstream's kubelet), keeps upstream's shapes in `folder`, and answers with what ours lacks. */
export async function recordPages(lab: Lab, folder: string, keep: string | undefined, progress: Progress): Promise<string[]> {
  const nodes = (await lab.get<{ items: { metadata: { name: string } }[] }>(['nodes'])).items.map(({ metadata }) => metadata.name).toSorted();
  const pods = nodes.flatMap((node) => pagePods(node));
  await lab.kubectl(['apply', '-f', '-'], JSON.stringify({ apiVersion: 'v1', kind: 'List', items: pods }));
  await progress.step('pods ready', () =>
    lab.kubectl(['wait', '--for=condition=Ready', '--timeout=50s', ...pods.map(({ metadata }) => `pod/${metadata.name}`)]),
  );
  await progress.step('statistics gathered', () => delay(SETTLE_MS));
  const missing: string[] = [];
  await mkdir(folder, { recursive: true });
  for (const [name, { path, shapes }] of Object.entries(pages)) {
    const [upstream = [], ours = []] = await Promise.all(
      nodes.map(async (node) => {
        const text = await lab.kubectl(['get', '--raw', `/api/v1/nodes/${node}/proxy/${path}`]);
        if (keep !== undefined) await writeFile(join(keep, `${node}-${name}.txt`), text);
        return shapes(text);
      }),
    );
    await writeFile(join(folder, `${name}.txt`), `${upstream.join('\n')}\n`);
    missing.push(...missingShapes(upstream, ours).map((line) => `${name}: ${line}`));
  }
  return missing;
}
