import type { ConfigMap, Container, EnvVar, Pod, Secret, Service } from '../../proto/kube/types.ts';
import { expand } from './expand.ts';
import { milliValueOf, parseQuantity, valueOf } from './quantity.ts';
import { utf8Text } from '../../base/utf8.ts';

export interface EnvPair {
  readonly name: string;
  readonly value: string;
}

/** What a container's environment is made of, read beforehand. `null`: the API server says it is not there. */
export interface EnvInput {
  readonly pod: Pod;
  readonly container: Container;
  readonly podIPs: readonly string[];
  readonly hostIPs: readonly string[];
  readonly configMaps: Readonly<Record<string, ConfigMap | null>>;
  readonly secrets: Readonly<Record<string, Secret | null>>;
  /** Services of the pod's namespace, and those of `default`. */
  readonly services: readonly Service[];
  /** Variables whose value stands in a file of a volume, read beforehand; null: not there and not optional. */
  readonly fileKeys: Readonly<Record<string, string | null>>;
  /** Stand in for limits that the container does not have. */
  readonly allocatable: Readonly<Record<string, string>>;
}

export type EnvResult = { readonly ok: true; readonly env: readonly EnvPair[] } | { readonly ok: false; readonly message: string };

/** Names of the objects that the environment of a container needs. */
export function envNeeds(container: Container): { configMaps: string[]; secrets: string[] } {
  const configMaps = new Set<string>();
  const secrets = new Set<string>();
  for (const from of container.envFrom ?? []) {
    if (from.configMapRef?.name !== undefined) configMaps.add(from.configMapRef.name);
    if (from.secretRef?.name !== undefined) secrets.add(from.secretRef.name);
  }
  for (const variable of container.env ?? []) {
    if (variable.valueFrom?.configMapKeyRef?.name !== undefined) configMaps.add(variable.valueFrom.configMapKeyRef.name);
    if (variable.valueFrom?.secretKeyRef?.name !== undefined) secrets.add(variable.valueFrom.secretKeyRef.name);
  }
  return { configMaps: [...configMaps], secrets: [...secrets] };
}

/**
 * The environment of a container: envFrom, then env in order, then what Services add. A variable sees those before
 * it; values that come from maps are never expanded.
 */
export function envOf(input: EnvInput): EnvResult {
  const { container } = input;
  const services = new Map(serviceEnv(input));
  const result = new Map<string, string>();
  const problem = addFrom(input, result);
  if (problem !== null) return { ok: false, message: problem };
  const known = (name: string): string | undefined => result.get(name) ?? services.get(name);
  for (const variable of container.env ?? []) {
    const value = variable.value !== undefined && variable.value !== '' ? { text: expand(variable.value, known) } : sourceOf(input, variable);
    if ('problem' in value) return { ok: false, message: value.problem };
    if (value.text === undefined) continue;
    // A name that is set again keeps its first place and takes the new value.
    result.set(variable.name, value.text);
  }
  for (const [name, value] of services) if (!result.has(name)) result.set(name, value);
  return { ok: true, env: [...result].map(([name, value]) => ({ name, value })) };
}

/** Command and arguments with references to the container's own environment filled in. */
export function expandAll(texts: readonly string[] | undefined, env: readonly EnvPair[]): string[] {
  const values = new Map(env.map((pair) => [pair.name, pair.value]));
  return (texts ?? []).map((text) => expand(text, (name) => values.get(name)));
}

function addFrom(input: EnvInput, result: Map<string, string>): string | null {
  const namespace = input.pod.metadata.namespace ?? '';
  for (const from of input.container.envFrom ?? []) {
    const prefix = from.prefix ?? '';
    const { configMapRef, secretRef } = from;
    if (configMapRef !== undefined) {
      const name = configMapRef.name ?? '';
      const map = input.configMaps[name] ?? null;
      if (map === null && configMapRef.optional !== true) return `configmap "${name}" not found`;
      for (const [key, value] of sorted(map?.data)) result.set(prefix + key, value);
    } else if (secretRef !== undefined) {
      const name = secretRef.name ?? '';
      const secret = input.secrets[name] ?? null;
      if (secret === null && secretRef.optional !== true) return `secret "${name}" not found`;
      for (const [key, value] of sorted(secret?.data)) {
        const text = fromBase64(value);
        if (text === null) return `secret ${namespace}/${name} has data that is not base64 under key ${key}`;
        result.set(prefix + key, text);
      }
    }
  }
  return null;
}

type Value = { text: string | undefined } | { problem: string };

function sourceOf(input: EnvInput, variable: EnvVar): Value {
  const source = variable.valueFrom;
  const namespace = input.pod.metadata.namespace ?? '';
  if (source === undefined) return { text: variable.value ?? '' };
  if (source.fieldRef !== undefined) return fieldValue(input, source.fieldRef.fieldPath);
  if (source.resourceFieldRef !== undefined) return resourceValue(input, source.resourceFieldRef);
  if (source.configMapKeyRef !== undefined) {
    const { name = '', key, optional } = source.configMapKeyRef;
    const map = input.configMaps[name] ?? null;
    if (map === null) return optional === true ? { text: undefined } : { problem: `configmap "${name}" not found` };
    const value = valueAt(map.data, key);
    if (value === undefined) return optional === true ? { text: undefined } : { problem: `couldn't find key ${key} in ConfigMap ${namespace}/${name}` };
    return { text: value };
  }
  if (source.secretKeyRef !== undefined) {
    const { name = '', key, optional } = source.secretKeyRef;
    const secret = input.secrets[name] ?? null;
    if (secret === null) return optional === true ? { text: undefined } : { problem: `secret "${name}" not found` };
    const value = valueAt(secret.data, key);
    if (value === undefined) return optional === true ? { text: undefined } : { problem: `couldn't find key ${key} in Secret ${namespace}/${name}` };
    return { text: fromBase64(value) ?? '' };
  }
  if (source.fileKeyRef !== undefined) {
    const value = input.fileKeys[variable.name] ?? null;
    if (value !== null) return { text: value };
    if (source.fileKeyRef.optional === true) return { text: undefined };
    return { problem: `environment variable key "${source.fileKeyRef.key}" not found in file "${source.fileKeyRef.path}"` };
  }
  return { text: '' };
}

const subscript = /^metadata\.(labels|annotations)\['(.+)'\]$/;

/** A field of the pod as text: the downward API's own list, for environments. */
export function fieldValue(input: Pick<EnvInput, 'pod' | 'podIPs' | 'hostIPs'>, path: string): Value {
  const { pod, podIPs, hostIPs } = input;
  const match = subscript.exec(path);
  if (match !== null) return { text: valueAt(pod.metadata[match[1] as 'labels' | 'annotations'], match[2]!) ?? '' };
  switch (path) {
    case 'metadata.name':
      return { text: pod.metadata.name ?? '' };
    case 'metadata.namespace':
      return { text: pod.metadata.namespace ?? '' };
    case 'metadata.uid':
      return { text: pod.metadata.uid ?? '' };
    case 'spec.nodeName':
      return { text: pod.spec.nodeName ?? '' };
    case 'spec.serviceAccountName':
      return { text: pod.spec.serviceAccountName ?? '' };
    case 'status.podIP':
      return { text: podIPs[0] ?? '' };
    case 'status.podIPs':
      return { text: podIPs.join(',') };
    case 'status.hostIP':
      return { text: hostIPs[0] ?? '' };
    case 'status.hostIPs':
      return { text: hostIPs.join(',') };
    default:
      return { problem: `field label not supported: ${path}` };
  }
}

function resourceValue(input: EnvInput, ref: { containerName?: string; resource: string; divisor?: string }): Value {
  const { pod, allocatable } = input;
  const all = [...pod.spec.containers, ...(pod.spec.initContainers ?? [])];
  const container = ref.containerName === undefined || ref.containerName === '' ? input.container : all.find((each) => each.name === ref.containerName);
  if (container === undefined) return { problem: `container ${ref.containerName} not found` };
  const [list = '', ...rest] = ref.resource.split('.');
  const name = rest.join('.');
  if ((list !== 'limits' && list !== 'requests') || name === '') return { problem: `Unsupported container resource : ${ref.resource}` };
  const limits = container.resources?.limits?.[name] ?? pod.spec.resources?.limits?.[name] ?? allocatable[name] ?? '0';
  const amount = list === 'limits' ? limits : (container.resources?.requests?.[name] ?? '0');
  return { text: divided(name, amount, ref.divisor) };
}

/** Rounded up to a multiple of the divisor, which is one core or one byte when it is not given. */
export function divided(resource: string, amount: string, divisor: string | undefined): string {
  const by = divisor === undefined || parseQuantity(divisor).nano === 0n ? '1' : divisor;
  const [top, bottom] = resource === 'cpu' ? [milliValueOf(amount), milliValueOf(by)] : [valueOf(amount), valueOf(by)];
  const whole = (top + bottom - 1n) / bottom;
  return String(whole);
}

function serviceEnv(input: EnvInput): [string, string][] {
  const { pod } = input;
  const namespace = pod.metadata.namespace ?? '';
  const links = pod.spec.enableServiceLinks !== false;
  const chosen = new Map<string, Service>();
  for (const service of input.services) {
    const ip = service.spec?.clusterIP ?? '';
    const name = service.metadata.name ?? '';
    if (ip === '' || ip === 'None') continue;
    if (service.metadata.namespace === namespace && links) chosen.set(name, service);
    else if (service.metadata.namespace === 'default' && name === 'kubernetes' && !chosen.has(name)) chosen.set(name, service);
  }
  return [...chosen.keys()].toSorted().flatMap((name) => oneServiceEnv(chosen.get(name)!));
}

function oneServiceEnv(service: Service): [string, string][] {
  const ip = service.spec?.clusterIP ?? '';
  const ports = service.spec?.ports ?? [];
  const first = ports[0];
  if (first === undefined) return [];
  const upper = (text: string): string => text.replaceAll('-', '_').toUpperCase();
  const prefix = upper(service.metadata.name ?? '');
  const host = ip.includes(':') ? `[${ip}]` : ip;
  const result: [string, string][] = [
    [`${prefix}_SERVICE_HOST`, ip],
    [`${prefix}_SERVICE_PORT`, String(first.port)],
  ];
  for (const port of ports) if (port.name !== undefined && port.name !== '') result.push([`${prefix}_SERVICE_PORT_${upper(port.name)}`, String(port.port)]);
  for (const [index, port] of ports.entries()) {
    const protocol = port.protocol ?? 'TCP';
    const url = `${protocol.toLowerCase()}://${host}:${port.port}`;
    const own = `${prefix}_PORT_${port.port}_${protocol.toUpperCase()}`;
    if (index === 0) result.push([`${prefix}_PORT`, url]);
    result.push([own, url], [`${own}_PROTO`, protocol.toLowerCase()], [`${own}_PORT`, String(port.port)], [`${own}_ADDR`, ip]);
  }
  return result;
}

/** Only what somebody put there: `constructor` is a valid key, and every object has one. */
export function valueAt(data: Readonly<Record<string, string>> | undefined, key: string): string | undefined {
  return data !== undefined && Object.hasOwn(data, key) ? data[key] : undefined;
}

function sorted(data: Readonly<Record<string, string>> | undefined): [string, string][] {
  return Object.entries(data ?? {}).toSorted(([left], [right]) => (left < right ? -1 : 1));
}

const alphabet = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';
const places = new Int8Array(128).fill(-1);
for (let place = 0; place < alphabet.length; place++) places[alphabet.charCodeAt(place)] = place;

/** Base64 to UTF-8 text, lossy like Go's string(bytes) is not: a broken sequence becomes U+FFFD. Null: not base64. */
export function fromBase64(text: string): string | null {
  let length = text.length;
  while (length > 0 && text[length - 1] === '=') length -= 1;
  const bytes = new Uint8Array((length * 3) >> 2);
  let bits = 0;
  let value = 0;
  let at = 0;
  for (let index = 0; index < length; index++) {
    const place = places[text.charCodeAt(index)] ?? -1;
    if (place < 0) return null;
    value = ((value << 6) | place) & 0xfff;
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes[at++] = (value >> bits) & 0xff;
  }
  return utf8Text(bytes);
}
