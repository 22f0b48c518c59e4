/*
 * What a page of a kubelet's statistics is made of, without its values: of metrics a line each with type, labels, whether a
 * time stands behind the values, and what it is told of; of the summary the paths of its fields.
 */

/** What a line of /metrics/cadvisor is about, by its labels. */
function kindOf(labels: Readonly<Record<string, string>>): string {
  const { id, container, name, pod = '' } = labels;
  if (id === undefined) return container === undefined ? pod : `${pod}/${container}`;
  if (id === '/') return 'root';
  if (container !== '') return 'container';
  if (name !== '') return 'sandbox';
  if (pod !== '') return 'pod';
  return id.includes('kubepods') ? 'class' : 'system';
}

/** `name type {labels} stamped|plain kinds…`, in order; series of pods outside `namespace` are left out, and -1 or -2 at the end of a pod's name. */
export function metricShapes(page: string, namespace: string): string[] {
  const types = new Map([...page.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name = '', type = '']) => [name, type]));
  const found = new Map<string, { labels: Set<string>; stamps: Set<string>; kinds: Set<string> }>();
  for (const [, series = '', set = '', , stamp] of page.matchAll(/^([a-z_]+)(?:\{(.*)\})? (\S+)(?: (\d+))?$/gim)) {
    const labels = Object.fromEntries([...set.matchAll(/(\w+)="((?:[^"\\]|\\.)*)"/g)].map(([, key = '', value = '']) => [key, value]));
    if ((labels['namespace'] ?? '') !== '' && labels['namespace'] !== namespace) continue;
    const name = types.has(series) ? series : series.replace(/_(bucket|sum|count)$/, '');
    const one = found.get(name) ?? { labels: new Set(), stamps: new Set(), kinds: new Set() };
    found.set(name, one);
    const names = Object.keys(labels).filter((label) => label !== 'le' && label !== 'quantile');
    one.labels.add(`{${names.toSorted().join(',')}}`);
    one.stamps.add(stamp === undefined ? 'plain' : 'stamped');
    one.kinds.add(kindOf({ ...labels, ...(labels['pod'] === undefined ? {} : { pod: withoutNode(labels['pod']) }) }));
  }
  return [...found]
    .map(([name, { labels, stamps, kinds }]) =>
      [name, types.get(name) ?? '', [...labels].join('|'), [...stamps].join('|'), ...[...kinds].toSorted()].join(' ').trim(),
    )
    .toSorted();
}

const withoutNode = (name: string): string => name.replace(/-[12]$/, '');

/** Paths of all fields of /stats/summary, in order; what stands in lists by its name. */
export function summaryPaths(summary: unknown, namespace: string): string[] {
  const paths = new Set<string>();
  const walk = (value: unknown, path: string): void => {
    if (Array.isArray(value)) {
      for (const each of value as { name?: string; podRef?: { name: string; namespace: string } }[])
        if (each.podRef === undefined || each.podRef.namespace === namespace) walk(each, `${path}[${nameOf(each)}]`);
    } else if (typeof value === 'object' && value !== null) for (const [key, inner] of Object.entries(value)) walk(inner, `${path}.${key}`);
    else paths.add(path);
  };
  walk(summary, '');
  return [...paths].toSorted();
}

const nameOf = ({ name = '', podRef }: { name?: string; podRef?: { name: string } }): string =>
  podRef === undefined ? name.replace(/^kube-api-access-.*/, 'kube-api-access') : withoutNode(podRef.name);

/** Lines of `recorded` that `seen` lacks: with a metric that is told of more than was recorded all is well. */
export function missingShapes(recorded: readonly string[], seen: readonly string[]): string[] {
  const byName = new Map(seen.map((line) => [line.split(' ')[0], line.split(' ')]));
  return recorded.filter((line) => {
    const [name, ...wanted] = line.split(' ');
    const [, ...has] = byName.get(name) ?? [];
    return !byName.has(name) || wanted.some((word) => !has.includes(word));
  });
}
