import { tryParseQuantity } from './quantity.ts';

/** Kinds of values in a manifest that nobody has judged before this node reads it. */
type Shape = 'text' | 'texts' | 'number' | 'trees' | 'tree' | 'text map' | 'quantities';

const SPEC: Readonly<Record<string, Shape>> = {
  containers: 'trees',
  initContainers: 'trees',
  ephemeralContainers: 'trees',
  volumes: 'trees',
  tolerations: 'trees',
  imagePullSecrets: 'trees',
  hostAliases: 'trees',
  readinessGates: 'trees',
  resourceClaims: 'trees',
  topologySpreadConstraints: 'trees',
  nodeSelector: 'text map',
  overhead: 'quantities',
  resources: 'tree',
  securityContext: 'tree',
  affinity: 'tree',
  dnsConfig: 'tree',
  dnsPolicy: 'text',
  restartPolicy: 'text',
  serviceAccountName: 'text',
  hostname: 'text',
  subdomain: 'text',
  priorityClassName: 'text',
  runtimeClassName: 'text',
  schedulerName: 'text',
  nodeName: 'text',
  terminationGracePeriodSeconds: 'number',
  activeDeadlineSeconds: 'number',
  priority: 'number',
};
const CONTAINER: Readonly<Record<string, Shape>> = {
  name: 'text',
  image: 'text',
  imagePullPolicy: 'text',
  command: 'texts',
  args: 'texts',
  workingDir: 'text',
  env: 'trees',
  envFrom: 'trees',
  ports: 'trees',
  volumeMounts: 'trees',
  volumeDevices: 'trees',
  resizePolicy: 'trees',
  resources: 'tree',
  securityContext: 'tree',
  livenessProbe: 'tree',
  readinessProbe: 'tree',
  startupProbe: 'tree',
  lifecycle: 'tree',
  restartPolicy: 'text',
  terminationMessagePath: 'text',
  terminationMessagePolicy: 'text',
};
const METADATA: Readonly<Record<string, Shape>> = { name: 'text', namespace: 'text', uid: 'text', labels: 'text map', annotations: 'text map' };

export function isTree(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

function fits(value: unknown, shape: Shape): boolean {
  switch (shape) {
    case 'text':
      return typeof value === 'string';
    case 'number':
      return typeof value === 'number';
    case 'tree':
      return isTree(value);
    case 'texts':
      return Array.isArray(value) && value.every((each) => typeof each === 'string');
    case 'trees':
      return Array.isArray(value) && value.every(isTree);
    case 'text map':
      return isTree(value) && Object.values(value).every((each) => typeof each === 'string');
    case 'quantities':
      return isTree(value) && Object.values(value).every((each) => (typeof each === 'string' || typeof each === 'number') && tryParseQuantity(each) !== null);
  }
}

function wrong(tree: Record<string, unknown>, shapes: Readonly<Record<string, Shape>>, path: string): string | null {
  for (const [name, shape] of Object.entries(shapes)) {
    const value = tree[name];
    if (value !== undefined && value !== null && !fits(value, shape)) return `${path}.${name}: Invalid value: ${(JSON.stringify(value) ?? '').slice(0, 100)}`;
  }
  return null;
}

function wrongResources(tree: Record<string, unknown>, path: string): string | null {
  const { resources } = tree;
  return isTree(resources) ? wrong(resources, { limits: 'quantities', requests: 'quantities', claims: 'trees' }, `${path}.resources`) : null;
}

/**
 * The first field of a manifest whose value is of another kind than the API has there, or null. Everything on a node
 * that reads pods trusts the kinds and amounts of an API server's objects; a file has met no API server.
 */
export function shapeProblem(metadata: Record<string, unknown>, spec: Record<string, unknown>): string | null {
  const problem = wrong(metadata, METADATA, 'metadata') ?? wrong(spec, SPEC, 'spec') ?? wrongResources(spec, 'spec');
  if (problem !== null) return problem;
  for (const list of ['initContainers', 'containers'] as const) {
    for (const [at, container] of ((spec[list] ?? []) as Record<string, unknown>[]).entries()) {
      const path = `spec.${list}[${at}]`;
      const found = wrong(container, CONTAINER, path) ?? wrongResources(container, path);
      if (found !== null) return found;
    }
  }
  return null;
}
