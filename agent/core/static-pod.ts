import type { Container, Pod, PodSpec, Probe } from '../../proto/kube/types.ts';
import { isTree, shapeProblem } from './static-shape.ts';

/** A pod out of a file instead of the API server: what upstream's kubelet refuses, fills in and names. */

export const hashAnnotation = 'kubernetes.io/config.hash';
export const mirrorAnnotation = 'kubernetes.io/config.mirror';
export const sourceAnnotation = 'kubernetes.io/config.source';
export const seenAnnotation = 'kubernetes.io/config.seen';

/** Whether what the runtime runs was made from a file or a URL: its sandbox has the pod's annotations. */
export const isMadeFromStatic = (sandboxes: readonly { readonly annotations: Readonly<Record<string, string>> }[]): boolean =>
  sandboxes.some(({ annotations }) => annotations[sourceAnnotation] === 'file' || annotations[sourceAnnotation] === 'http');

export interface StaticOrigin {
  readonly nodeName: string;
  /** `file` or `http`, as the annotation says it. */
  readonly source: 'file' | 'http';
  /** When this version was first seen, as the annotation says it. */
  readonly seen: string;
  /** Stands in for a UID that the manifest does not give: follows from its content, the node and the place it lies at. */
  readonly hash: string;
}

const label = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;
const subdomain = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;
/** A UID becomes the name of directories and cgroups. */
const plainUid = /^[A-Za-z0-9][-A-Za-z0-9_]{0,127}$/;

export type StaticPod = { readonly ok: true; readonly pod: Pod } | { readonly ok: false; readonly message: string };

/** Reads a manifest as a pod of this node, or says what is wrong with it. */
export function staticPod(document: unknown, origin: StaticOrigin): StaticPod {
  const wrong = (message: string): StaticPod => ({ ok: false, message });
  if (!isTree(document) || document['kind'] !== 'Pod' || document['apiVersion'] !== 'v1') return wrong('it is no Pod of apiVersion v1');
  const { metadata: given, spec } = document;
  const metadata = (given ?? {}) as Pod['metadata'];
  if (!isTree(given) || typeof metadata.name !== 'string' || metadata.name === '') return wrong('invalid pod: name is needed for the pod');
  if (!isTree(spec) || !Array.isArray(spec.containers) || spec.containers.length === 0) return wrong('invalid pod: spec.containers: Required value');
  const shape = shapeProblem(given, spec);
  if (shape !== null) return wrong(`invalid pod: ${shape}`);
  const uid: string = metadata.uid === undefined || metadata.uid === '' ? origin.hash : metadata.uid;
  const name = `${metadata.name}-${origin.nodeName.toLowerCase()}`;
  const namespace: string = metadata.namespace === undefined || metadata.namespace === '' ? 'default' : metadata.namespace;
  const pod: Pod = {
    apiVersion: 'v1',
    kind: 'Pod',
    metadata: {
      ...metadata,
      name,
      namespace,
      uid,
      annotations: { ...metadata.annotations, [hashAnnotation]: uid, [sourceAnnotation]: origin.source, [seenAnnotation]: origin.seen },
    },
    spec: { ...defaulted(spec as unknown as PodSpec), nodeName: origin.nodeName },
    status: { phase: 'Pending' },
  };
  if (origin.source === 'file') pod.spec.tolerations = [...(pod.spec.tolerations ?? []), { operator: 'Exists', effect: 'NoExecute' }];
  const problem = problemOf(pod);
  if (problem !== null) return wrong(`invalid pod: ${problem}`);
  const reference = referenceOf(pod.spec);
  return reference === null ? { ok: true, pod } : wrong(`static pods may not reference ${reference}`);
}

/** What would reach outside its place by its name, or could not run at all. The API server judges the rest, at the mirror. */
function problemOf({ metadata, spec }: Pod): string | null {
  const { name = '', namespace = '', uid = '' } = metadata;
  if (name.length > 253 || !subdomain.test(name)) return `metadata.name: Invalid value: ${JSON.stringify(name)}`;
  if (!label.test(namespace)) return `metadata.namespace: Invalid value: ${JSON.stringify(namespace)}`;
  if (typeof uid !== 'string' || !plainUid.test(uid)) return `metadata.uid: Invalid value: ${JSON.stringify(uid)}`;
  const names = new Set<string>();
  for (const container of containersOf(spec)) {
    if (!isTree(container) || typeof container.name !== 'string' || !label.test(container.name))
      return `spec.containers: Invalid value: ${JSON.stringify(container?.name ?? null)}: a container needs a name of lower-case letters, digits and dashes`;
    if (names.has(container.name)) return `spec.containers: Duplicate value: ${JSON.stringify(container.name)}`;
    names.add(container.name);
    if (typeof container.image !== 'string' || container.image.trim() === '') return `spec.containers ${JSON.stringify(container.name)}: image: Required value`;
  }
  const volumes = new Set<string>();
  for (const volume of spec.volumes ?? []) {
    if (!isTree(volume) || typeof volume.name !== 'string' || !label.test(volume.name))
      return `spec.volumes: Invalid value: ${JSON.stringify(volume?.name ?? null)}`;
    if (volumes.has(volume.name)) return `spec.volumes: Duplicate value: ${JSON.stringify(volume.name)}`;
    volumes.add(volume.name);
  }
  if ((spec.ephemeralContainers ?? []).length > 0) return 'spec.ephemeralContainers: Forbidden: cannot be set on create';
  return null;
}

function containersOf(spec: PodSpec): Container[] {
  return [...(spec.initContainers ?? []), ...spec.containers];
}

/** The first kind of API object that the pod cannot do without; it must be able to run while there is no API server. */
function referenceOf(spec: PodSpec): string | null {
  if ((spec.serviceAccountName ?? '') !== '') return 'serviceaccounts';
  if ((spec.imagePullSecrets ?? []).length > 0) return 'secrets';
  for (const { env = [], envFrom = [] } of containersOf(spec)) {
    if (env.some(({ valueFrom }) => valueFrom?.secretKeyRef !== undefined) || envFrom.some(({ secretRef }) => secretRef !== undefined)) return 'secrets';
    if (env.some(({ valueFrom }) => valueFrom?.configMapKeyRef !== undefined) || envFrom.some(({ configMapRef }) => configMapRef !== undefined))
      return 'configmaps';
  }
  if ((spec.resourceClaims ?? []).length > 0) return 'resourceclaims';
  for (const volume of spec.volumes ?? []) {
    if (volume.secret !== undefined) return 'secrets';
    if (volume.configMap !== undefined) return 'configmaps';
    if (volume.persistentVolumeClaim !== undefined || volume.ephemeral !== undefined) return 'persistentvolumeclaims';
    if (volume.csi !== undefined) return 'csidrivers (via CSI volumes)';
    for (const source of volume.projected?.sources ?? []) {
      if (source.secret !== undefined) return 'secrets (via projected volumes)';
      if (source.configMap !== undefined) return 'configmaps (via projected volumes)';
      if (source.serviceAccountToken !== undefined) return 'serviceaccounts (via projected volumes)';
      if (source.clusterTrustBundle !== undefined) return 'clustertrustbundles (via projected volumes)';
      if (source.podCertificate !== undefined) return 'podcertificates (via projected volumes)';
    }
  }
  return null;
}

/** The defaults that an API server fills in and that decide how a pod runs here. */
function defaulted(spec: PodSpec): PodSpec {
  const hostNetwork = spec.hostNetwork === true;
  return {
    ...spec,
    restartPolicy: spec.restartPolicy ?? 'Always',
    terminationGracePeriodSeconds: spec.terminationGracePeriodSeconds ?? 30,
    dnsPolicy: spec.dnsPolicy ?? 'ClusterFirst',
    securityContext: spec.securityContext ?? {},
    schedulerName: spec.schedulerName ?? 'default-scheduler',
    enableServiceLinks: spec.enableServiceLinks ?? true,
    containers: spec.containers.map((container) => defaultedContainer(container, hostNetwork)),
    ...(spec.initContainers !== undefined && { initContainers: spec.initContainers.map((container) => defaultedContainer(container, hostNetwork)) }),
  };
}

function defaultedContainer(container: Container, hostNetwork: boolean): Container {
  if (!isTree(container)) return container;
  const { image = '', resources = {}, ports, livenessProbe, readinessProbe, startupProbe } = container;
  const tagged = /:([^/:@]+)$/.exec(image.split('@')[0] ?? '')?.[1];
  const limits = Object.entries(resources.limits ?? {}).filter(([name]) => resources.requests?.[name] === undefined);
  return {
    ...container,
    imagePullPolicy: container.imagePullPolicy ?? (image.includes('@') || (tagged !== undefined && tagged !== 'latest') ? 'IfNotPresent' : 'Always'),
    terminationMessagePath: container.terminationMessagePath ?? '/dev/termination-log',
    terminationMessagePolicy: container.terminationMessagePolicy ?? 'File',
    resources: limits.length === 0 ? resources : { ...resources, requests: { ...resources.requests, ...Object.fromEntries(limits) } },
    ...(ports !== undefined && {
      ports: ports.map((port) => ({ protocol: 'TCP', ...(hostNetwork && port.hostPort === undefined ? { hostPort: port.containerPort } : {}), ...port })),
    }),
    ...(livenessProbe !== undefined && { livenessProbe: defaultedProbe(livenessProbe) }),
    ...(readinessProbe !== undefined && { readinessProbe: defaultedProbe(readinessProbe) }),
    ...(startupProbe !== undefined && { startupProbe: defaultedProbe(startupProbe) }),
  };
}

function defaultedProbe(probe: Probe): Probe {
  return {
    ...probe,
    timeoutSeconds: probe.timeoutSeconds ?? 1,
    periodSeconds: probe.periodSeconds ?? 10,
    successThreshold: probe.successThreshold ?? 1,
    failureThreshold: probe.failureThreshold ?? 3,
    ...(probe.httpGet !== undefined && { httpGet: { path: '/', scheme: 'HTTP', ...probe.httpGet } }),
  };
}

/** Whether a pod comes from this node's own files and not from the API server. */
export function isStatic(pod: Pod): boolean {
  const source = pod.metadata.annotations?.[sourceAnnotation];
  return source === 'file' || source === 'http';
}

/** The object that stands for a static pod at the API server. */
export function mirrorOf(pod: Pod, node: { readonly name: string; readonly uid: string }): Pod {
  const { uid: _, resourceVersion: __, ...metadata } = pod.metadata;
  return {
    ...pod,
    metadata: {
      ...metadata,
      annotations: { ...metadata.annotations, [mirrorAnnotation]: pod.metadata.annotations?.[hashAnnotation] ?? '' },
      ownerReferences: [{ apiVersion: 'v1', kind: 'Node', name: node.name, uid: node.uid, controller: true }],
    },
  };
}

/** What is to become of a mirror pod: it is right, of another version or being deleted, or of a pod that is no more. */
export function mirrorVerdict(mirror: Pod, wanted: Pod | undefined): 'right' | 'stale' {
  if (wanted === undefined || mirror.metadata.deletionTimestamp !== undefined) return 'stale';
  return mirror.metadata.annotations?.[mirrorAnnotation] === wanted.metadata.annotations?.[hashAnnotation] ? 'right' : 'stale';
}
