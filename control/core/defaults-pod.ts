import type { Obj } from './json.ts';

/** Every container of a pod spec, whatever its list. */
export function containersOf(spec: Obj): Obj[] {
  return [...(spec['initContainers'] ?? []), ...(spec['containers'] ?? []), ...(spec['ephemeralContainers'] ?? [])];
}

/** `Always` for `:latest` and for no tag at all. A digest is a fixed image. */
export function pullPolicyOf(image: string): 'Always' | 'IfNotPresent' {
  if (image.includes('@')) return 'IfNotPresent';
  const tag = /:([^/:]+)$/.exec(image)?.[1] ?? 'latest';
  return tag === 'latest' ? 'Always' : 'IfNotPresent';
}

function defaultHttp(action: Obj | undefined): void {
  if (action === undefined) return;
  action['path'] ??= '/';
  action['scheme'] ??= 'HTTP';
}

function defaultProbe(probe: Obj | undefined): void {
  if (probe === undefined) return;
  probe['timeoutSeconds'] ||= 1;
  probe['periodSeconds'] ||= 10;
  probe['successThreshold'] ||= 1;
  probe['failureThreshold'] ||= 3;
  defaultHttp(probe['httpGet']);
  if (probe['grpc'] !== undefined) probe['grpc'].service ??= '';
}

function defaultContainer(container: Obj): void {
  container['imagePullPolicy'] ??= pullPolicyOf(container['image'] ?? '');
  container['terminationMessagePath'] ??= '/dev/termination-log';
  container['terminationMessagePolicy'] ??= 'File';
  container['resources'] ??= {};
  for (const port of container['ports'] ?? []) port['protocol'] ??= 'TCP';
  for (const env of container['env'] ?? []) if (env['valueFrom']?.fieldRef !== undefined) env['valueFrom'].fieldRef.apiVersion ??= 'v1';
  for (const env of container['env'] ?? []) if (env['valueFrom']?.resourceFieldRef !== undefined) env['valueFrom'].resourceFieldRef.divisor ??= '0';
  for (const name of ['livenessProbe', 'readinessProbe', 'startupProbe']) defaultProbe(container[name]);
  for (const hook of ['postStart', 'preStop']) defaultHttp(container['lifecycle']?.[hook]?.httpGet);
}

function defaultDownward(items: Obj[] | undefined): void {
  for (const item of items ?? []) {
    if (item['fieldRef'] !== undefined) item['fieldRef'].apiVersion ??= 'v1';
    if (item['resourceFieldRef'] !== undefined) item['resourceFieldRef'].divisor ??= '0';
  }
}

const FILE_MODE = 0o644;

function defaultVolume(volume: Obj): void {
  if (Object.keys(volume).filter((key) => key !== 'name').length === 0) volume['emptyDir'] = {};
  for (const kind of ['secret', 'configMap', 'downwardAPI', 'projected']) if (volume[kind] !== undefined) volume[kind].defaultMode ??= FILE_MODE;
  if (volume['hostPath'] !== undefined) volume['hostPath'].type ??= '';
  if (volume['image'] !== undefined) volume['image'].pullPolicy ??= pullPolicyOf(volume['image'].reference ?? '');
  if (volume['iscsi'] !== undefined) volume['iscsi'].iscsiInterface ??= 'default';
  if (volume['ephemeral']?.volumeClaimTemplate?.spec !== undefined) volume['ephemeral'].volumeClaimTemplate.spec.volumeMode ??= 'Filesystem';
  defaultDownward(volume['downwardAPI']?.items);
  for (const source of volume['projected']?.sources ?? []) {
    if (source['serviceAccountToken'] !== undefined) source['serviceAccountToken'].expirationSeconds ??= 3600;
    defaultDownward(source['downwardAPI']?.items);
  }
}

/** What holds for a pod spec wherever it stands, in a pod or in a template. */
export function defaultPodSpec(spec: Obj): void {
  if ((spec['serviceAccountName'] ?? '') === '' && spec['serviceAccount'] !== undefined) spec['serviceAccountName'] = spec['serviceAccount'];
  if (spec['serviceAccountName'] !== undefined) spec['serviceAccount'] = spec['serviceAccountName'];
  spec['restartPolicy'] ??= 'Always';
  spec['dnsPolicy'] ??= 'ClusterFirst';
  spec['securityContext'] ??= {};
  spec['terminationGracePeriodSeconds'] ??= 30;
  spec['schedulerName'] ??= 'default-scheduler';
  for (const container of containersOf(spec)) defaultContainer(container);
  for (const volume of spec['volumes'] ?? []) defaultVolume(volume);
  if (spec['hostNetwork'] === true) {
    for (const container of [...(spec['initContainers'] ?? []), ...(spec['containers'] ?? [])])
      for (const port of container['ports'] ?? []) port['hostPort'] ||= port['containerPort'];
  }
  for (const constraint of spec['topologySpreadConstraints'] ?? []) {
    constraint['nodeAffinityPolicy'] ??= undefined;
    for (const key of Object.keys(constraint)) if (constraint[key] === undefined) delete constraint[key];
  }
}

/** A template inside a workload: `template` always has metadata and spec. */
export function defaultTemplate(template: Obj | undefined): void {
  if (template === undefined) return;
  template['metadata'] ??= {};
  template['spec'] ??= {};
  defaultPodSpec(template['spec']);
}

/** What holds for pods only, not for templates. */
export function defaultPod(pod: Obj): void {
  const spec: Obj = (pod['spec'] ??= {});
  if ((spec['terminationGracePeriodSeconds'] ?? 0) < 0) spec['terminationGracePeriodSeconds'] = 1;
  defaultPodSpec(spec);
  spec['enableServiceLinks'] ??= true;
  for (const container of [...(spec['initContainers'] ?? []), ...(spec['containers'] ?? [])]) {
    const limits: Obj | undefined = container['resources'].limits;
    if (limits === undefined) continue;
    const requests: Obj = (container['resources'].requests ??= {});
    for (const [name, value] of Object.entries(limits)) requests[name] ??= value;
  }
}

/** The class eviction goes by: Guaranteed, Burstable or BestEffort. */
export function qosClassOf(pod: Obj): string {
  const containers: Obj[] = [...(pod['spec'].initContainers ?? []), ...(pod['spec'].containers ?? [])];
  const podLevel: Obj | undefined = pod['spec'].resources;
  const sources: Obj[] =
    podLevel !== undefined && (podLevel['limits'] !== undefined || podLevel['requests'] !== undefined) ? [{ resources: podLevel }] : containers;
  let hasAny = false;
  let isGuaranteed = sources.length > 0;
  for (const { resources = {} } of sources) {
    for (const name of ['cpu', 'memory']) {
      const request = resources.requests?.[name];
      const limit = resources.limits?.[name];
      const isSet = (value: unknown): boolean => value !== undefined && value !== '0';
      if (isSet(request) || isSet(limit)) hasAny = true;
      if (!isSet(limit) || request !== limit) isGuaranteed = false;
    }
  }
  return !hasAny ? 'BestEffort' : isGuaranteed ? 'Guaranteed' : 'Burstable';
}
