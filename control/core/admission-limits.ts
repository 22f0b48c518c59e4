import type { ResourceInfo } from '../../proto/kube/schema-types.ts';
import { forbidden } from './failure.ts';
import type { Obj } from './json.ts';
import { canonicalQuantity, compareQuantities, parseQuantity } from './quantity.ts';
import type { Surroundings } from './strategy.ts';

/** LimitRange: fills in requests and limits of containers, and refuses what lies outside the range. */
export function limitPod(pod: Obj, around: Surroundings): void {
  const items = [...around.view.list('', 'limitranges', pod['metadata'].namespace)].flatMap((range) => range['spec']?.limits ?? []) as Obj[];
  if (items.length === 0) return;
  const containers = [...(pod['spec'].initContainers ?? []), ...(pod['spec'].containers ?? [])] as Obj[];
  for (const item of items) {
    if (item['type'] !== 'Container') continue;
    for (const container of containers) {
      const resources: Obj = (container['resources'] ??= {});
      const hadLimits = { ...resources['limits'] };
      fill(resources, 'limits', item['default'] ?? {});
      for (const [name, value] of Object.entries(hadLimits)) if (resources['requests']?.[name] === undefined) (resources['requests'] ??= {})[name] = value;
      fill(resources, 'requests', item['defaultRequest'] ?? {});
      for (const [name, most] of Object.entries((item['max'] ?? {}) as Record<string, string>)) {
        const limit = resources['limits']?.[name];
        if (limit === undefined || compareQuantities(limit, most) > 0) {
          throw forbidden(
            { group: '', resource: 'pods' },
            pod['metadata'].name ?? '',
            limit === undefined
              ? `maximum ${name} usage per Container is ${most}.  No limit is specified`
              : `maximum ${name} usage per Container is ${most}, but limit is ${limit}`,
          );
        }
      }
      for (const [name, least] of Object.entries((item['min'] ?? {}) as Record<string, string>)) {
        const request = resources['requests']?.[name];
        if (request === undefined || compareQuantities(request, least) < 0) {
          throw forbidden(
            { group: '', resource: 'pods' },
            pod['metadata'].name ?? '',
            request === undefined
              ? `minimum ${name} usage per Container is ${least}.  No request is specified`
              : `minimum ${name} usage per Container is ${least}, but request is ${request}`,
          );
        }
      }
    }
  }
}

function fill(resources: Obj, field: 'limits' | 'requests', values: Obj): void {
  for (const [name, value] of Object.entries(values)) {
    const target: Obj = (resources[field] ??= {});
    target[name] ??= value;
  }
}

type Usage = Map<string, bigint>;

function add(usage: Usage, name: string, text: string): void {
  usage.set(name, (usage.get(name) ?? 0n) + (parseQuantity(text)?.nano ?? 0n));
}

/** What one object counts for in a quota. */
export function usageOf(info: { group: string; resource: string }, object: Obj): Usage {
  const usage: Usage = new Map();
  add(usage, `count/${info.resource}${info.group === '' ? '' : `.${info.group}`}`, '1');
  if (info.group !== '') return usage;
  add(usage, info.resource, '1');
  if (info.resource === 'persistentvolumeclaims') add(usage, 'requests.storage', object['spec']?.resources?.requests?.storage ?? '0');
  if (info.resource === 'services') {
    if (object['spec']?.type === 'NodePort') add(usage, 'services.nodeports', String((object['spec'].ports ?? []).length));
    if (object['spec']?.type === 'LoadBalancer') add(usage, 'services.loadbalancers', '1');
  }
  if (info.resource !== 'pods') return usage;
  for (const container of (object['spec']?.containers ?? []) as Obj[]) {
    for (const [name, value] of Object.entries(container['resources']?.requests ?? {})) {
      add(usage, `requests.${name}`, value as string);
      add(usage, name, value as string);
    }
    for (const [name, value] of Object.entries(container['resources']?.limits ?? {})) add(usage, `limits.${name}`, value as string);
  }
  return usage;
}

const isEnded = (object: Obj): boolean => ['Succeeded', 'Failed'].includes(object['status']?.phase);

/** ResourceQuota: a create that would pass a hard limit is refused and the limit is named. */
export function checkQuota(info: ResourceInfo, object: Obj, around: Surroundings): void {
  const { namespace, name } = object['metadata'];
  const quotas = [...around.view.list('', 'resourcequotas', namespace)].filter(
    (quota) => quota['spec']?.scopes === undefined && quota['spec']?.scopeSelector === undefined,
  );
  if (quotas.length === 0) return;
  const wanted = usageOf(info, object);
  let used: Usage | undefined;
  for (const quota of quotas) {
    const hard: Obj = quota['spec']?.hard ?? {};
    const counted = Object.keys(hard).filter((key) => wanted.has(key));
    const missing =
      info.resource === 'pods' && info.group === ''
        ? Object.keys(hard).filter((key) => /^(requests\.|limits\.)?(cpu|memory)$/.test(key) && !wanted.has(key))
        : [];
    if (missing.length > 0)
      throw forbidden(
        info,
        name ?? '',
        `failed quota: ${quota['metadata'].name}: must specify ${missing
          .toSorted()
          .map((key) => `${key} for: ${namesWithout(object, key)}`)
          .join('; ')}`,
      );
    if (counted.length === 0) continue;
    used ??= totalUsage(info, namespace, around);
    const over = counted.filter((key) => (used!.get(key) ?? 0n) + wanted.get(key)! > (parseQuantity(String(hard[key]))?.nano ?? 0n));
    if (over.length === 0) continue;
    const part = (label: string, values: (key: string) => string): string =>
      `${label}: ${over
        .toSorted()
        .map((key) => `${key}=${values(key)}`)
        .join(',')}`;
    const show = (nano: bigint): string => canonicalQuantity(`${nano}n`) ?? '0';
    throw forbidden(
      info,
      name ?? '',
      `exceeded quota: ${quota['metadata'].name}, ${part('requested', (key) => show(wanted.get(key)!))}, ${part('used', (key) => show(used!.get(key) ?? 0n))}, ${part('limited', (key) => String(hard[key]))}`,
    );
  }
}

function namesWithout(pod: Obj, key: string): string {
  const [field, resource] = key.includes('.') ? (key.split('.') as [string, string]) : ['requests', key];
  return (pod['spec']?.containers ?? [])
    .filter((container: Obj) => container['resources']?.[field]?.[resource] === undefined)
    .map((container: Obj) => container['name'])
    .join(',');
}

function totalUsage(info: ResourceInfo, namespace: string, around: Surroundings): Usage {
  const total: Usage = new Map();
  for (const other of around.view.list(info.group, info.resource, namespace)) {
    if (info.resource === 'pods' && isEnded(other)) continue;
    for (const [key, value] of usageOf(info, other)) total.set(key, (total.get(key) ?? 0n) + value);
  }
  return total;
}
