export interface Difference {
  /** `CreateContainer main#0.config.labels.app`. */
  readonly path: string;
  /** Undefined where it is absent. */
  readonly a: unknown;
  readonly b: unknown;
}

/** What tells an item of a list of objects from its neighbours, in the order of preference. */
const NAMES_OF_ITEMS = ['containerPath', 'key', 'name', 'type', 'pageSize', 'containerPort', 'hostPath'] as const;

type Item = Readonly<Record<string, unknown>>;

function namesOf(list: readonly unknown[]): readonly string[] | null {
  if (!list.every(isObject)) return null;
  for (const field of NAMES_OF_ITEMS) {
    const names = (list as Item[]).map((item) => item[field]);
    if (names.every((name) => typeof name === 'string' || typeof name === 'number') && new Set(names).size === names.length) return names.map(String);
  }
  return null;
}

function byName(list: readonly unknown[]): ReadonlyMap<string, unknown> | null {
  const names = namesOf(list);
  return names === null ? null : new Map(names.map((name, at) => [name, list[at]]));
}

/** Places of `names` in the order of another list, those that it does not have left out. */
function sameOrder(a: readonly string[], b: readonly string[]): boolean {
  const [inA, inB] = [new Set(a), new Set(b)];
  const common = a.filter((name) => inB.has(name));
  const others = b.filter((name) => inA.has(name));
  return common.every((name, at) => name === others[at]);
}

function listDifferences(a: readonly unknown[], b: readonly unknown[], path: string): Difference[] {
  const [namedA, namedB] = [byName(a), byName(b)];
  if (namedA !== null && namedB !== null && a.length + b.length > 0) {
    const names = [...new Set([...namedA.keys(), ...namedB.keys()])];
    const found = names.flatMap((name) => differences(namedA.get(name), namedB.get(name), `${path}[${name}]`));
    const [orderA, orderB] = [[...namedA.keys()], [...namedB.keys()]];
    return sameOrder(orderA, orderB) ? found : [...found, { path: `${path} (order)`, a: orderA, b: orderB }];
  }
  const [setA, setB] = [new Set(a), new Set(b)];
  const plain = [...a, ...b].every((item) => typeof item === 'string') && setA.size === a.length && setB.size === b.length;
  // A set, as capabilities are: an item more is one difference. Of equal length they are compared place by place.
  if (plain && a.length !== b.length) {
    const found = [...setA.union(setB)].flatMap((item) =>
      setA.has(item) && setB.has(item)
        ? []
        : [{ path: `${path}[${String(item)}]`, a: setA.has(item) ? item : undefined, b: setB.has(item) ? item : undefined }],
    );
    return sameOrder(a as string[], b as string[]) ? found : [...found, { path: `${path} (order)`, a, b }];
  }
  return Array.from({ length: Math.max(a.length, b.length) }, (_, at) => differences(a[at], b[at], `${path}[${at}]`)).flat();
}

/** Every leaf in which two values differ. Items of lists are compared by what names them, else place by place. */
export function differences(a: unknown, b: unknown, path = ''): Difference[] {
  if (Object.is(a, b)) return [];
  if (Array.isArray(a) && Array.isArray(b)) return listDifferences(a, b, path);
  if (isObject(a) && isObject(b)) {
    const keys = new Set([...Object.keys(a), ...Object.keys(b)]);
    return [...keys].sort().flatMap((key) => differences(a[key], b[key], path === '' ? key : `${path}.${key}`));
  }
  return [{ path, a, b }];
}

function isObject(value: unknown): value is Record<string, unknown> {
  return value !== null && typeof value === 'object' && !Array.isArray(value);
}
