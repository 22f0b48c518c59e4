import type { Cause } from './failure.ts';
import { same } from './json.ts';
import type { Obj } from './json.ts';
import { checkLabels, duplicate, forbiddenField, missingField, nameProblems, required, unsupported, wrong } from './names.ts';
import { compareQuantities, parseQuantity } from './quantity.ts';

const atLeast = (field: string, value: unknown, least: number): Cause[] =>
  typeof value === 'number' && value < least
    ? [wrong(field, value, least === 0 ? 'must be greater than or equal to 0' : `must be greater than or equal to ${least}`)]
    : [];

export const nonNegative = (field: string, value: unknown): Cause[] => atLeast(field, value, 0);

export function portProblem(field: string, value: unknown): Cause[] {
  return typeof value === 'number' && value > 0 && value < 65_536 ? [] : [wrong(field, value ?? 0, 'must be between 1 and 65535, inclusive')];
}

function checkResources(resources: Obj | undefined, field: string): Cause[] {
  const out: Cause[] = [];
  for (const [name, value] of Object.entries((resources?.['limits'] ?? {}) as Record<string, string>)) {
    if ((parseQuantity(value)?.nano ?? 0n) < 0n) out.push(wrong(`${field}.limits[${name}]`, value, 'must be greater than or equal to 0'));
  }
  for (const [name, value] of Object.entries((resources?.['requests'] ?? {}) as Record<string, string>)) {
    if ((parseQuantity(value)?.nano ?? 0n) < 0n) out.push(wrong(`${field}.requests[${name}]`, value, 'must be greater than or equal to 0'));
    const limit = resources?.['limits']?.[name];
    if (limit !== undefined && compareQuantities(value, limit) > 0)
      out.push(wrong(`${field}.requests`, value, `must be less than or equal to ${name} limit of ${limit}`));
  }
  return out;
}

function checkProbe(probe: Obj | undefined, field: string): Cause[] {
  if (probe === undefined) return [];
  const out: Cause[] = [];
  const handlers = ['exec', 'httpGet', 'tcpSocket', 'grpc'].filter((name) => probe[name] !== undefined);
  if (handlers.length === 0) out.push(required(field, 'must specify a handler type'));
  if (handlers.length > 1) for (const name of handlers.slice(1)) out.push(forbiddenField(`${field}.${name}`, 'may not specify more than 1 handler type'));
  for (const name of ['initialDelaySeconds', 'timeoutSeconds', 'periodSeconds', 'successThreshold', 'failureThreshold'])
    out.push(...nonNegative(`${field}.${name}`, probe[name]));
  if (!field.includes('readiness') && probe['successThreshold'] !== undefined && probe['successThreshold'] !== 1)
    out.push(wrong(`${field}.successThreshold`, probe['successThreshold'], 'must be 1'));
  return out;
}

const ENV_FIELDS = [
  'metadata.name',
  'metadata.namespace',
  'metadata.uid',
  'spec.nodeName',
  'spec.serviceAccountName',
  'status.hostIP',
  'status.hostIPs',
  'status.podIP',
  'status.podIPs',
];
const FILE_FIELDS = ['metadata.annotations', 'metadata.labels', 'metadata.name', 'metadata.namespace', 'metadata.uid'];

/** Which fields of a pod can be told to its containers, as environment or as a file. */
function checkFieldRef(ref: Obj | undefined, field: string, allowed: readonly string[], isEnv: boolean): Cause[] {
  if (ref === undefined) return [];
  const path: string = ref['fieldPath'] ?? '';
  if (path === '') return [required(`${field}.fieldPath`)];
  const isKeyed = /^metadata\.(labels|annotations)\['[^']+'\]$/.test(path);
  if (isKeyed || allowed.includes(path)) return [];
  if (![...ENV_FIELDS, ...FILE_FIELDS].includes(path) || !isEnv) {
    if (!isEnv && ENV_FIELDS.includes(path)) return [unsupported(`${field}.fieldPath`, path, allowed)];
    return [wrong(`${field}.fieldPath`, path, `error converting fieldPath: field label not supported: ${path}`)];
  }
  return [unsupported(`${field}.fieldPath`, path, allowed)];
}

function checkEnv(container: Obj, field: string): Cause[] {
  const out: Cause[] = [];
  (container['env'] ?? []).forEach((env: Obj, at: number) => {
    const path = `${field}.env[${at}]`;
    if ((env['name'] ?? '') === '') out.push(required(`${path}.name`));
    else if (!/^[\x20-\x3c\x3e-\x7e]+$/.test(env['name']))
      out.push(wrong(`${path}.name`, env['name'], "a valid environment variable name must consist only of printable ASCII characters other than '='"));
    out.push(...checkFieldRef(env['valueFrom']?.fieldRef, `${path}.valueFrom.fieldRef`, ENV_FIELDS, true));
    if (env['valueFrom'] !== undefined && (env['value'] ?? '') !== '')
      out.push(wrong(`${path}.valueFrom`, '', 'may not be specified when `value` is not empty'));
  });
  return out;
}

function checkContainer(container: Obj, field: string, volumes: ReadonlySet<string>): Cause[] {
  const out: Cause[] = [];
  const name: string = container['name'] ?? '';
  if (name === '') out.push(required(`${field}.name`));
  else out.push(...nameProblems('label', name).map((problem) => wrong(`${field}.name`, name, problem)));
  const image: string = container['image'] ?? '';
  if (image === '') out.push(required(`${field}.image`));
  else if (image !== image.trim()) out.push(wrong(`${field}.image`, image, 'must not have leading or trailing whitespace'));
  const portNames = new Set<string>();
  (container['ports'] ?? []).forEach((port: Obj, at: number) => {
    const path = `${field}.ports[${at}]`;
    if (port['containerPort'] === undefined) out.push(required(`${path}.containerPort`));
    else out.push(...portProblem(`${path}.containerPort`, port['containerPort']));
    if (port['hostPort'] !== undefined && port['hostPort'] !== 0) out.push(...portProblem(`${path}.hostPort`, port['hostPort']));
    if (!['TCP', 'UDP', 'SCTP'].includes(port['protocol'])) out.push(unsupported(`${path}.protocol`, port['protocol'], ['SCTP', 'TCP', 'UDP']));
    if (port['name'] !== undefined && portNames.has(port['name'])) out.push(duplicate(`${path}.name`, port['name']));
    if (port['name'] !== undefined) portNames.add(port['name']);
  });
  out.push(...checkEnv(container, field));
  const paths = new Set<string>();
  (container['volumeMounts'] ?? []).forEach((mount: Obj, at: number) => {
    const path = `${field}.volumeMounts[${at}]`;
    if ((mount['name'] ?? '') === '') out.push(required(`${path}.name`));
    else if (!volumes.has(mount['name'])) out.push(missingField(`${path}.name`, mount['name']));
    if ((mount['mountPath'] ?? '') === '') out.push(required(`${path}.mountPath`));
    if (paths.has(mount['mountPath'])) out.push(wrong(`${path}.mountPath`, mount['mountPath'], 'must be unique'));
    paths.add(mount['mountPath']);
    if (
      String(mount['subPath'] ?? '')
        .split('/')
        .includes('..')
    )
      out.push(wrong(`${path}.subPath`, mount['subPath'], "must not contain '..'"));
  });
  if (!['Always', 'Never', 'IfNotPresent'].includes(container['imagePullPolicy']))
    out.push(unsupported(`${field}.imagePullPolicy`, container['imagePullPolicy'], ['Always', 'IfNotPresent', 'Never']));
  for (const probe of ['livenessProbe', 'readinessProbe', 'startupProbe']) out.push(...checkProbe(container[probe], `${field}.${probe}`));
  out.push(...checkResources(container['resources'], `${field}.resources`));
  return out;
}

const HOST_PATH_TYPES = ['', 'BlockDevice', 'CharDevice', 'Directory', 'DirectoryOrCreate', 'File', 'FileOrCreate', 'Socket'];

/** A pod spec on its own; `field` is `spec` or where the template's spec stands. */
export function checkPodSpec(spec: Obj, field: string): Cause[] {
  const out: Cause[] = [];
  const volumes = new Set<string>();
  (spec['volumes'] ?? []).forEach((volume: Obj, at: number) => {
    const path = `${field}.volumes[${at}].name`;
    const name: string = volume['name'] ?? '';
    if (name === '') out.push(required(path));
    else out.push(...nameProblems('label', name).map((problem) => wrong(path, name, problem)));
    if (volumes.has(name)) out.push(duplicate(path, name));
    volumes.add(name);
    const sources = Object.keys(volume).filter((key) => key !== 'name');
    const files = [
      ...(volume['downwardAPI']?.items ?? []),
      ...(volume['projected']?.sources ?? []).flatMap((source: Obj) => source['downwardAPI']?.items ?? []),
    ] as Obj[];
    files.forEach((item, index) =>
      out.push(...checkFieldRef(item['fieldRef'], `${field}.volumes[${at}].downwardAPI.items[${index}].fieldRef`, FILE_FIELDS, false)),
    );
    const type = volume['hostPath']?.type ?? '';
    if (!HOST_PATH_TYPES.includes(type)) out.push(unsupported(`${field}.volumes[${at}].hostPath.type`, type, HOST_PATH_TYPES));
    for (const extra of sources.slice(1)) out.push(forbiddenField(`${field}.volumes[${at}].${extra}`, 'may not specify more than 1 volume type'));
  });
  const containers: Obj[] = spec['containers'] ?? [];
  if (containers.length === 0) out.push(required(`${field}.containers`));
  const names = new Set<string>();
  for (const list of ['initContainers', 'containers', 'ephemeralContainers']) {
    (spec[list] ?? []).forEach((container: Obj, at: number) => {
      const path = `${field}.${list}[${at}]`;
      out.push(...checkContainer(container, path, volumes));
      if (names.has(container['name'])) out.push(duplicate(`${path}.name`, container['name']));
      names.add(container['name']);
    });
  }
  if (!['Always', 'OnFailure', 'Never'].includes(spec['restartPolicy']))
    out.push(unsupported(`${field}.restartPolicy`, spec['restartPolicy'], ['Always', 'OnFailure', 'Never']));
  if (!['ClusterFirst', 'ClusterFirstWithHostNet', 'Default', 'None'].includes(spec['dnsPolicy']))
    out.push(unsupported(`${field}.dnsPolicy`, spec['dnsPolicy'], ['ClusterFirstWithHostNet', 'ClusterFirst', 'Default', 'None']));
  out.push(...checkLabels(`${field}.nodeSelector`, spec['nodeSelector']));
  out.push(...nonNegative(`${field}.terminationGracePeriodSeconds`, spec['terminationGracePeriodSeconds']));
  if (spec['activeDeadlineSeconds'] !== undefined && (spec['activeDeadlineSeconds'] < 1 || spec['activeDeadlineSeconds'] > 2 ** 31 - 1))
    out.push(wrong(`${field}.activeDeadlineSeconds`, spec['activeDeadlineSeconds'], 'must be between 1 and 2147483647, inclusive'));
  if (spec['hostname'] !== undefined && spec['hostname'] !== '')
    out.push(...nameProblems('label', spec['hostname']).map((problem) => wrong(`${field}.hostname`, spec['hostname'], problem)));
  (spec['tolerations'] ?? []).forEach((item: Obj, at: number) => {
    const path = `${field}.tolerations[${at}]`;
    if ((item['key'] ?? '') === '' && item['operator'] !== 'Exists')
      out.push(wrong(`${path}.operator`, item['operator'] ?? '', 'operator must be Exists when `key` is empty, which means "match all values and all keys"'));
    if (item['tolerationSeconds'] !== undefined && item['effect'] !== 'NoExecute')
      out.push(wrong(`${path}.effect`, item['effect'] ?? '', "effect must be 'NoExecute' when `tolerationSeconds` is set"));
  });
  return out;
}

const FIXED_MESSAGE =
  'pod updates may not change fields other than `spec.containers[*].image`,`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)';

/** Which part of a pod's spec a plain update may change: images, deadline, added tolerations, gates taken away. */
export function checkPodUpdate(pod: Obj, old: Obj): Cause[] {
  const out: Cause[] = [];
  const next: Obj = pod['spec'];
  const had: Obj = old['spec'];
  const fixed = { ...next };
  const images = (list: string): void => {
    if (next[list] === undefined || next[list].length !== (had[list] ?? []).length) return;
    fixed[list] = next[list].map((container: Obj, at: number) => ({ ...container, image: had[list][at].image }));
  };
  images('containers');
  images('initContainers');
  fixed['activeDeadlineSeconds'] = had['activeDeadlineSeconds'];
  const kept = (had['tolerations'] ?? []).every((item: Obj) =>
    (next['tolerations'] ?? []).some((other: Obj) => same({ ...item, tolerationSeconds: 0 }, { ...other, tolerationSeconds: 0 })),
  );
  if (kept) fixed['tolerations'] = had['tolerations'];
  if ((next['schedulingGates'] ?? []).every((gate: Obj) => (had['schedulingGates'] ?? []).some((other: Obj) => other['name'] === gate['name'])))
    fixed['schedulingGates'] = had['schedulingGates'];
  if ((had['schedulingGates'] ?? []).length > 0) {
    fixed['nodeSelector'] = had['nodeSelector'];
    fixed['affinity'] = had['affinity'];
  }
  if (had['terminationGracePeriodSeconds'] < 0 && next['terminationGracePeriodSeconds'] === 1)
    fixed['terminationGracePeriodSeconds'] = had['terminationGracePeriodSeconds'];
  if (!same(fixed, had)) out.push(forbiddenField('spec', FIXED_MESSAGE));
  for (const [at, container] of (next['containers'] ?? []).entries()) if ((container.image ?? '') === '') out.push(required(`spec.containers[${at}].image`));
  return out;
}
