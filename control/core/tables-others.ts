import type { Obj } from './json.ts';
import { age, ageOf, col, labelsText, name, orNone, selectorText, wide } from './table-cells.ts';
import type { Column } from './table-cells.ts';

const size = (object: Obj | undefined): number => Object.keys(object ?? {}).length;

function externalIp(service: Obj): string {
  const { type, externalIPs = [], externalName } = service['spec'];
  if (type === 'ExternalName') return externalName ?? '';
  const ingress: string[] = (service['status'].loadBalancer?.ingress ?? []).map((item: Obj) => item['ip'] ?? item['hostname']);
  const all = [...ingress, ...externalIPs];
  if (type === 'LoadBalancer') return all.length > 0 ? all.join(',') : '<pending>';
  return orNone(all.join(','));
}

function ports(service: Obj): string {
  return orNone(
    (service['spec'].ports ?? [])
      .map((port: Obj) => `${port['port']}${port['nodePort'] === undefined ? '' : `:${port['nodePort']}`}/${port['protocol']}`)
      .join(','),
  );
}

function endpoints(object: Obj): string {
  const list: string[] = [];
  for (const subset of object['subsets'] ?? []) {
    for (const address of subset.addresses ?? []) {
      if ((subset.ports ?? []).length === 0) list.push(address.ip);
      for (const port of subset.ports ?? []) list.push(`${address.ip}:${port.port}`);
    }
  }
  return list.length === 0 ? '<none>' : list.length > 3 ? `${list.slice(0, 3).join(',')} + ${list.length - 3} more...` : list.join(',');
}

const few = (list: readonly string[], most: number): string =>
  list.length > most ? `${list.slice(0, most).join(',')} + ${list.length - most} more...` : list.join(',');

function nodeStatus(node: Obj): string {
  const ready = (node['status'].conditions ?? []).find((item: Obj) => item['type'] === 'Ready');
  const word = ready === undefined ? 'Unknown' : ready.status === 'True' ? 'Ready' : 'NotReady';
  return node['spec'].unschedulable === true ? `${word},SchedulingDisabled` : word;
}

function nodeRoles(node: Obj): string {
  const prefix = 'node-role.kubernetes.io/';
  const roles = Object.entries(node['metadata'].labels ?? {}).flatMap(([key, value]) => {
    if (key.startsWith(prefix) && key.length > prefix.length) return [key.slice(prefix.length)];
    return key === 'kubernetes.io/role' && value !== '' ? [String(value)] : [];
  });
  return orNone([...new Set(roles)].toSorted().join(','));
}

const address = (node: Obj, type: string): string => orNone((node['status'].addresses ?? []).find((item: Obj) => item['type'] === type)?.address);
const info = (node: Obj, key: string): string => node['status'].nodeInfo?.[key] ?? '';
const orUnknown = (text: string): string => (text === '' ? '<unknown>' : text);

const MODES: Record<string, string> = { ReadWriteOnce: 'RWO', ReadOnlyMany: 'ROX', ReadWriteMany: 'RWX', ReadWriteOncePod: 'RWOP' };
const modes = (list: readonly string[] | undefined): string => (list ?? []).map((mode) => MODES[mode] ?? mode).join(',');

const subjects =
  (kind: string) =>
  (binding: Obj): string =>
    (binding['subjects'] ?? [])
      .filter((item: Obj) => item['kind'] === kind)
      .map((item: Obj) => (kind === 'ServiceAccount' ? `${item['namespace']}/${item['name']}` : item['name']))
      .join(', ');

const bindings: readonly Column[] = [
  name,
  col('Role', (object) => `${object['roleRef']?.kind}/${object['roleRef']?.name}`),
  age,
  wide('Users', subjects('User')),
  wide('Groups', subjects('Group')),
  wide('ServiceAccounts', subjects('ServiceAccount')),
];

const created: Column = col('Created At', (object) => object['metadata'].creationTimestamp ?? '');

function eventSource(event: Obj): string {
  const { component = '', host = '' } = event['source'] ?? {};
  const from = component === '' ? (event['reportingComponent'] ?? event['reportingController'] ?? '') : component;
  const where = host === '' ? (event['reportingInstance'] ?? '') : host;
  return where === '' ? from : `${from}, ${where}`;
}

function lastSeen(event: Obj, nowMs: number): string {
  const first = firstSeen(event, nowMs);
  const last = event['lastTimestamp'] ?? event['deprecatedLastTimestamp'];
  if (event['series'] !== undefined) return `${ageOf(event['series'].lastObservedTime, nowMs)} (x${event['series'].count} over ${first})`;
  if (last === undefined || last === null) return first;
  const count = event['count'] ?? event['deprecatedCount'] ?? 0;
  return count > 1 ? `${ageOf(last, nowMs)} (x${count} over ${first})` : ageOf(last, nowMs);
}

function firstSeen(event: Obj, nowMs: number): string {
  return ageOf(event['firstTimestamp'] ?? event['deprecatedFirstTimestamp'] ?? event['eventTime'], nowMs);
}

function objectName(event: Obj): string {
  const about: Obj = event['involvedObject'] ?? event['regarding'] ?? {};
  const kind = String(about['kind'] ?? '').toLowerCase();
  return (about['name'] ?? '') === '' ? kind : `${kind}/${about['name']}`;
}

const webhooks: readonly Column[] = [name, col('Webhooks', (object) => (object['webhooks'] ?? []).length, 'integer'), age];

export const OTHER_TABLES: Record<string, readonly Column[]> = {
  '/services': [
    name,
    col('Type', (object) => object['spec'].type ?? ''),
    col('Cluster-IP', (object) => orNone(object['spec'].clusterIP)),
    col('External-IP', externalIp),
    col('Port(s)', ports),
    age,
    wide('Selector', (object) => labelsText(object['spec'].selector)),
  ],
  '/endpoints': [name, col('Endpoints', endpoints), age],
  '/nodes': [
    name,
    col('Status', nodeStatus),
    col('Roles', nodeRoles),
    age,
    col('Version', (object) => info(object, 'kubeletVersion')),
    wide('Internal-IP', (object) => address(object, 'InternalIP')),
    wide('External-IP', (object) => address(object, 'ExternalIP')),
    wide('OS-Image', (object) => orUnknown(info(object, 'osImage'))),
    wide(
      'Kernel-Version',
      (object) => `${orUnknown(info(object, 'kernelVersion'))}${info(object, 'architecture') === '' ? '' : ` (${info(object, 'architecture')})`}`,
    ),
    wide('Container-Runtime', (object) => orUnknown(info(object, 'containerRuntimeVersion'))),
  ],
  '/events': [
    col('Last Seen', lastSeen),
    col('Type', (object) => object['type'] ?? ''),
    col('Reason', (object) => object['reason'] ?? ''),
    col('Object', objectName),
    wide('Subobject', (object) => object['involvedObject']?.fieldPath ?? object['regarding']?.fieldPath ?? ''),
    wide('Source', eventSource),
    col('Message', (object) => String(object['message'] ?? object['note'] ?? '').trim()),
    wide('First Seen', firstSeen),
    wide('Count', (object) => object['series']?.count ?? object['count'] ?? object['deprecatedCount'] ?? 1, 'integer'),
    { ...name, priority: 1 },
  ],
  '/namespaces': [name, col('Status', (object) => object['status'].phase ?? ''), age],
  '/secrets': [name, col('Type', (object) => object['type'] ?? ''), col('Data', (object) => size(object['data']), 'integer'), age],
  '/configmaps': [name, col('Data', (object) => size(object['data']) + size(object['binaryData']), 'integer'), age],
  '/serviceaccounts': [name, age],
  '/persistentvolumes': [
    name,
    col('Capacity', (object) => object['spec'].capacity?.storage ?? ''),
    col('Access Modes', (object) => modes(object['spec'].accessModes)),
    col('Reclaim Policy', (object) => object['spec'].persistentVolumeReclaimPolicy ?? ''),
    col('Status', (object) => (object['metadata'].deletionTimestamp === undefined ? (object['status'].phase ?? '') : 'Terminating')),
    col('Claim', (object) => (object['spec'].claimRef === undefined ? '' : `${object['spec'].claimRef.namespace}/${object['spec'].claimRef.name}`)),
    col('StorageClass', (object) => object['spec'].storageClassName ?? ''),
    col('VolumeAttributesClass', (object) => object['spec'].volumeAttributesClassName ?? '<unset>'),
    col('Reason', (object) => object['status'].reason ?? ''),
    age,
    wide('VolumeMode', (object) => object['spec'].volumeMode ?? '<unset>'),
  ],
  '/persistentvolumeclaims': [
    name,
    col('Status', (object) => (object['metadata'].deletionTimestamp === undefined ? (object['status'].phase ?? '') : 'Terminating')),
    col('Volume', (object) => object['spec'].volumeName ?? ''),
    col('Capacity', (object) => (object['spec'].volumeName === undefined ? '' : (object['status'].capacity?.storage ?? ''))),
    col('Access Modes', (object) => (object['spec'].volumeName === undefined ? '' : modes(object['status'].accessModes))),
    col('StorageClass', (object) => object['spec'].storageClassName ?? ''),
    col('VolumeAttributesClass', (object) => object['spec'].volumeAttributesClassName ?? '<unset>'),
    age,
    wide('VolumeMode', (object) => object['spec'].volumeMode ?? '<unset>'),
  ],
  '/resourcequotas': [
    name,
    col('Request', (object) => quotaText(object, (key) => !key.startsWith('limits.'))),
    col('Limit', (object) => quotaText(object, (key) => key.startsWith('limits.'))),
    age,
  ],
  '/limitranges': [name, created],
  '/podtemplates': [
    name,
    col('Containers', (object) => (object['template']?.spec?.containers ?? []).map((item: Obj) => item['name']).join(',')),
    col('Images', (object) => (object['template']?.spec?.containers ?? []).map((item: Obj) => item['image']).join(',')),
    col('Pod Labels', (object) => labelsText(object['template']?.metadata?.labels)),
  ],
  'discovery.k8s.io/endpointslices': [
    name,
    col('AddressType', (object) => object['addressType'] ?? ''),
    col('Ports', (object) =>
      few(
        (object['ports'] ?? []).length === 0 ? ['<unset>'] : object['ports'].map((port: Obj) => (port['port'] === undefined ? '*' : String(port['port']))),
        3,
      ),
    ),
    col('Endpoints', (object) => {
      const list: string[] = (object['endpoints'] ?? []).flatMap((item: Obj) => item['addresses'] ?? []);
      return list.length === 0 ? '<unset>' : few(list, 3);
    }),
    age,
  ],
  'coordination.k8s.io/leases': [name, col('Holder', (object) => object['spec'].holderIdentity ?? ''), age],
  'networking.k8s.io/networkpolicies': [name, col('Pod-Selector', (object) => selectorText(object['spec'].podSelector)), age],
  'networking.k8s.io/ingresses': [
    name,
    col('Class', (object) => object['spec'].ingressClassName ?? object['metadata'].annotations?.['kubernetes.io/ingress.class'] ?? '<none>'),
    col('Hosts', (object) => {
      const hosts: string[] = (object['spec'].rules ?? []).map((rule: Obj) => rule['host'] ?? '*');
      return hosts.length === 0 ? '*' : few(hosts, 3);
    }),
    col('Address', (object) => (object['status'].loadBalancer?.ingress ?? []).map((item: Obj) => item['ip'] ?? item['hostname']).join(',')),
    col('Ports', (object) => ((object['spec'].tls ?? []).length > 0 ? '80, 443' : '80')),
    age,
  ],
  'networking.k8s.io/ingressclasses': [
    name,
    col('Controller', (object) => object['spec'].controller ?? ''),
    col('Parameters', (object) => (object['spec'].parameters === undefined ? '<none>' : `${object['spec'].parameters.kind}/${object['spec'].parameters.name}`)),
    age,
  ],
  'storage.k8s.io/storageclasses': [
    {
      ...name,
      cell: (object) =>
        `${object['metadata'].name}${object['metadata'].annotations?.['storageclass.kubernetes.io/is-default-class'] === 'true' ? ' (default)' : ''}`,
    },
    col('Provisioner', (object) => object['provisioner'] ?? ''),
    col('ReclaimPolicy', (object) => object['reclaimPolicy'] ?? 'Delete'),
    col('VolumeBindingMode', (object) => object['volumeBindingMode'] ?? 'Immediate'),
    col('AllowVolumeExpansion', (object) => object['allowVolumeExpansion'] === true, 'boolean'),
    age,
  ],
  'storage.k8s.io/csinodes': [name, col('Drivers', (object) => (object['spec'].drivers ?? []).length, 'integer'), age],
  'storage.k8s.io/csidrivers': [
    name,
    col('AttachRequired', (object) => object['spec'].attachRequired !== false, 'boolean'),
    col('PodInfoOnMount', (object) => object['spec'].podInfoOnMount === true, 'boolean'),
    col('StorageCapacity', (object) => object['spec'].storageCapacity === true, 'boolean'),
    col('TokenRequests', (object) => (object['spec'].tokenRequests ?? []).map((item: Obj) => item['audience']).join(',') || '<unset>'),
    col('RequiresRepublish', (object) => object['spec'].requiresRepublish === true, 'boolean'),
    col('Modes', (object) => (object['spec'].volumeLifecycleModes ?? []).join(',') || '<none>'),
    age,
  ],
  'storage.k8s.io/volumeattachments': [
    name,
    col('Attacher', (object) => object['spec'].attacher ?? ''),
    col('PV', (object) => object['spec'].source?.persistentVolumeName ?? ''),
    col('Node', (object) => object['spec'].nodeName ?? ''),
    col('Attached', (object) => object['status'].attached === true, 'boolean'),
    age,
  ],
  'node.k8s.io/runtimeclasses': [name, col('Handler', (object) => object['handler'] ?? ''), age],
  'scheduling.k8s.io/priorityclasses': [
    name,
    col('Value', (object) => object['value'] ?? 0, 'integer'),
    col('Global-Default', (object) => object['globalDefault'] === true, 'boolean'),
    age,
    col('PreemptionPolicy', (object) => object['preemptionPolicy'] ?? 'PreemptLowerPriority'),
  ],
  'rbac.authorization.k8s.io/roles': [name, created],
  'rbac.authorization.k8s.io/clusterroles': [name, created],
  'rbac.authorization.k8s.io/rolebindings': bindings,
  'rbac.authorization.k8s.io/clusterrolebindings': bindings,
  'certificates.k8s.io/certificatesigningrequests': [
    name,
    age,
    col('SignerName', (object) => object['spec'].signerName ?? '<none>'),
    col('Requestor', (object) => object['spec'].username ?? ''),
    col('RequestedDuration', (object) => (object['spec'].expirationSeconds === undefined ? '<none>' : `${object['spec'].expirationSeconds}s`)),
    col('Condition', (object) => {
      const types: string[] = (object['status'].conditions ?? []).map((item: Obj) => item['type']);
      const parts = [types.includes('Denied') ? 'Denied' : types.includes('Approved') ? 'Approved' : 'Pending'];
      if (types.includes('Failed')) parts.push('Failed');
      if (object['status'].certificate !== undefined) parts.push('Issued');
      return parts.join(',');
    }),
  ],
  'admissionregistration.k8s.io/validatingwebhookconfigurations': webhooks,
  'admissionregistration.k8s.io/mutatingwebhookconfigurations': webhooks,
};

function quotaText(quota: Obj, isWanted: (key: string) => boolean): string {
  const hard: Obj = quota['status'].hard ?? quota['spec'].hard ?? {};
  return Object.keys(hard)
    .filter(isWanted)
    .toSorted()
    .map((key) => `${key}: ${quota['status'].used?.[key] ?? '0'}/${hard[key]}`)
    .join(', ');
}
