import type { Cause } from './failure.ts';
import { defaultTemplate } from './defaults-pod.ts';
import { semanticallySame } from './json.ts';
import type { Obj } from './json.ts';
import { forbiddenField, required, tooLong, wrong } from './names.ts';
import type { Strategy } from './strategy.ts';

const OBJECT_DATA_MAX_BYTES = 1024 * 1024;

const utf8Length = (text: string): number => {
  let size = 0;
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at);
    size += code < 0x80 ? 1 : code < 0x800 ? 2 : code >= 0xd800 && code < 0xdc00 ? 4 : code >= 0xdc00 && code < 0xe000 ? 0 : 3;
  }
  return size;
};

const base64Length = (text: string): number => Math.floor((text.length * 3) / 4) - (text.endsWith('==') ? 2 : text.endsWith('=') ? 1 : 0);

function checkKeys(field: string, data: Obj | undefined): Cause[] {
  const out: Cause[] = [];
  for (const key of Object.keys(data ?? {})) {
    if (key.length > 253) out.push(wrong(`${field}[${key}]`, key, 'must be no more than 253 characters'));
    if (!/^[-._a-zA-Z0-9]+$/.test(key)) {
      out.push(
        wrong(
          `${field}[${key}]`,
          key,
          "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')",
        ),
      );
    } else if (key === '.' || key.startsWith('..')) out.push(wrong(`${field}[${key}]`, key, key === '.' ? `must not be '.'` : `must not start with '..'`));
  }
  return out;
}

function checkImmutable(object: Obj, old: Obj | undefined, fields: readonly string[]): Cause[] {
  if (old?.['immutable'] !== true) return [];
  const out: Cause[] = [];
  if (object['immutable'] !== true) out.push(forbiddenField('immutable', 'field is immutable when `immutable` is set'));
  for (const field of fields) if (!semanticallySame(object[field], old[field])) out.push(forbiddenField(field, 'field is immutable when `immutable` is set'));
  return out;
}

const CONFIGMAPS: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: false,
  validate(object, old) {
    const out = [...checkKeys('data', object['data']), ...checkKeys('binaryData', object['binaryData'])];
    let size = 0;
    for (const value of Object.values(object['data'] ?? {})) size += utf8Length(String(value));
    for (const value of Object.values(object['binaryData'] ?? {})) size += base64Length(String(value));
    for (const key of Object.keys(object['data'] ?? {}))
      if (key in (object['binaryData'] ?? {})) out.push(wrong(`data[${key}]`, key, 'duplicate of key present in binaryData'));
    if (size > OBJECT_DATA_MAX_BYTES) out.push(tooLong('[]', OBJECT_DATA_MAX_BYTES));
    return [...out, ...checkImmutable(object, old, ['data', 'binaryData'])];
  },
};

const ALPHABET = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';

/** Base64 of a text's UTF-8 bytes. */
export function toBase64(text: string): string {
  const bytes: number[] = [];
  for (const char of text) {
    const code = char.codePointAt(0)!;
    if (code < 0x80) bytes.push(code);
    else if (code < 0x800) bytes.push(0xc0 | (code >> 6), 0x80 | (code & 63));
    else if (code < 0x10000) bytes.push(0xe0 | (code >> 12), 0x80 | ((code >> 6) & 63), 0x80 | (code & 63));
    else bytes.push(0xf0 | (code >> 18), 0x80 | ((code >> 12) & 63), 0x80 | ((code >> 6) & 63), 0x80 | (code & 63));
  }
  let out = '';
  for (let at = 0; at < bytes.length; at += 3) {
    const [a, b, c] = [bytes[at]!, bytes[at + 1], bytes[at + 2]];
    out += ALPHABET[a >> 2]! + ALPHABET[((a & 3) << 4) | ((b ?? 0) >> 4)]!;
    out += b === undefined ? '==' : ALPHABET[((b & 15) << 2) | ((c ?? 0) >> 6)]! + (c === undefined ? '=' : ALPHABET[c & 63]!);
  }
  return out;
}

const REQUIRED_KEYS: Record<string, readonly string[]> = {
  'kubernetes.io/dockercfg': ['.dockercfg'],
  'kubernetes.io/dockerconfigjson': ['.dockerconfigjson'],
  'kubernetes.io/tls': ['tls.crt', 'tls.key'],
  'kubernetes.io/ssh-auth': ['ssh-privatekey'],
};

const SECRETS: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: false,
  defaults(object) {
    object['type'] ??= 'Opaque';
    if (object['stringData'] === undefined) return;
    for (const [key, value] of Object.entries(object['stringData'])) (object['data'] ??= {})[key] = toBase64(String(value));
    delete object['stringData'];
  },
  validate(object, old) {
    const out = checkKeys('data', object['data']);
    let size = 0;
    for (const [key, value] of Object.entries(object['data'] ?? {})) {
      size += base64Length(String(value));
      if (!/^[A-Za-z0-9+/\r\n]*={0,2}$/.test(String(value))) out.push(wrong(`data[${key}]`, '', 'illegal base64 data'));
    }
    if (size > OBJECT_DATA_MAX_BYTES) out.push(tooLong('data', OBJECT_DATA_MAX_BYTES));
    for (const key of REQUIRED_KEYS[object['type']] ?? []) if (!(key in (object['data'] ?? {}))) out.push(required(`data[${key}]`));
    if (object['type'] === 'kubernetes.io/service-account-token' && (object['metadata'].annotations?.['kubernetes.io/service-account.name'] ?? '') === '')
      out.push(required('metadata.annotations[kubernetes.io/service-account.name]'));
    if (old !== undefined && object['type'] !== old['type']) out.push(wrong('type', object['type'], 'field is immutable'));
    return [...out, ...checkImmutable(object, old, ['data'])];
  },
  fields: (object) => ({ type: object['type'] ?? '' }),
};

const NAMESPACES: Strategy = {
  nameRule: 'label',
  hasGeneration: false,
  defaults(object) {
    const { name } = object['metadata'];
    if (name !== undefined && name !== '') (object['metadata'].labels ??= {})['kubernetes.io/metadata.name'] = name;
  },
  prepareCreate(object) {
    (object['metadata'].labels ??= {})['kubernetes.io/metadata.name'] = object['metadata'].name;
    const finalizers: string[] = object['spec']?.finalizers ?? [];
    object['spec'] = { ...object['spec'], finalizers: finalizers.includes('kubernetes') ? finalizers : [...finalizers, 'kubernetes'] };
    object['status'] = { phase: 'Active' };
  },
  prepareUpdate(object, old) {
    object['spec'] = { ...object['spec'], finalizers: old['spec']?.finalizers };
    if (object['spec'].finalizers === undefined) delete object['spec'].finalizers;
  },
  fields: (object) => ({ 'status.phase': object['status']?.phase ?? '', name: object['metadata'].name ?? '' }),
};

const NODES: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: false,
  defaults(object) {
    object['spec'] ??= {};
  },
  prepareCreate(object) {
    const status: Obj = (object['status'] ??= {});
    status['daemonEndpoints'] ??= { kubeletEndpoint: { Port: 0 } };
    const fields = [
      'architecture',
      'bootID',
      'containerRuntimeVersion',
      'kernelVersion',
      'kubeProxyVersion',
      'kubeletVersion',
      'machineID',
      'operatingSystem',
      'osImage',
      'systemUUID',
    ];
    status['nodeInfo'] = { ...Object.fromEntries(fields.map((field) => [field, ''])), ...status['nodeInfo'] };
  },
  validate(object, old) {
    const had: string = old?.['spec']?.podCIDR ?? '';
    const has: string = object['spec']?.podCIDR ?? '';
    const out: Cause[] = [];
    if (had !== '' && had !== has) out.push(forbiddenField('spec.podCIDR', 'node updates may not change podCIDR except from "" to valid'));
    const seen = new Set<string>();
    (object['spec']?.taints ?? []).forEach((taint: Obj, at: number) => {
      const key = `${taint['key']}:${taint['effect']}`;
      if ((taint['key'] ?? '') === '') out.push(required(`metadata.taints[${at}].key`, 'name part must be non-empty'));
      if (seen.has(key)) out.push({ reason: 'FieldValueDuplicate', field: `metadata.taints[${at}]`, message: `Duplicate value: ${JSON.stringify(taint)}` });
      seen.add(key);
    });
    return out;
  },
  fields: (object) => ({ 'spec.unschedulable': String(object['spec']?.unschedulable === true) }),
};

const EVENTS: Strategy = {
  nameRule: 'path',
  hasGeneration: false,
  createOnUpdate: true,
  defaults(object) {
    object['source'] ??= {};
    object['reportingComponent'] ??= '';
    object['reportingInstance'] ??= '';
  },
  validate(object) {
    const { involvedObject = {}, metadata } = object;
    const space: string = involvedObject.namespace ?? '';
    if (space !== '' && space !== metadata.namespace) return [wrong('involvedObject.namespace', space, 'does not match event.namespace')];
    if (space === '' && metadata.namespace !== 'default' && metadata.namespace !== 'kube-system')
      return [wrong('involvedObject.namespace', space, 'does not match event.namespace')];
    return [];
  },
  fields(object) {
    const about: Obj = object['involvedObject'] ?? {};
    const out: Record<string, string> = {};
    for (const key of ['kind', 'namespace', 'name', 'uid', 'apiVersion', 'resourceVersion', 'fieldPath']) {
      out[`involvedObject.${key}`] = about[key] ?? '';
      out[`regarding.${key}`] = about[key] ?? '';
    }
    const source = object['source']?.component ?? '';
    return {
      ...out,
      reason: object['reason'] ?? '',
      source: source === '' ? (object['reportingComponent'] ?? '') : source,
      reportingComponent: object['reportingComponent'] ?? '',
      type: object['type'] ?? '',
    };
  },
};

const ENDPOINTS: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: false,
  createOnUpdate: true,
  defaults(object) {
    for (const subset of object['subsets'] ?? []) for (const port of subset['ports'] ?? []) port['protocol'] ??= 'TCP';
  },
};

const CLAIMS: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: false,
  returnsDeleted: true,
  defaults(object) {
    (object['spec'] ??= {}).volumeMode ??= 'Filesystem';
    object['status'] ??= { phase: 'Pending' };
  },
  prepareCreate(object) {
    object['status'] = { phase: 'Pending' };
  },
  validate(object, old) {
    const spec: Obj = object['spec'];
    const out: Cause[] = [];
    if ((spec['accessModes'] ?? []).length === 0) out.push(required('spec.accessModes', 'at least 1 access mode is required'));
    if (spec['resources']?.requests?.storage === undefined) out.push(required('spec.resources[storage]'));
    if (old === undefined) return out;
    const fixed = (of: Obj): Obj => ({
      ...of['spec'],
      resources: undefined,
      volumeAttributesClassName: undefined,
      volumeName: (old['spec'].volumeName ?? '') === '' ? undefined : of['spec'].volumeName,
    });
    const hadClass = old['spec'].storageClassName !== undefined;
    const strip = (of: Obj): Obj => (hadClass ? fixed(of) : { ...fixed(of), storageClassName: undefined });
    if (!semanticallySame(strip(object), strip(old)))
      out.push(forbiddenField('spec', 'spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims'));
    return out;
  },
};

const VOLUMES: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: false,
  returnsDeleted: true,
  defaults(object) {
    const spec: Obj = (object['spec'] ??= {});
    spec['persistentVolumeReclaimPolicy'] ??= 'Retain';
    spec['volumeMode'] ??= 'Filesystem';
    object['status'] ??= { phase: 'Pending' };
  },
  prepareCreate(object) {
    object['status'] = { phase: 'Pending' };
  },
  validate(object) {
    const out: Cause[] = [];
    if ((object['spec'].accessModes ?? []).length === 0) out.push(required('spec.accessModes'));
    if (object['spec'].capacity?.storage === undefined) out.push(required('spec.capacity'));
    return out;
  },
};

const ACCOUNTS: Strategy = { nameRule: 'subdomain', hasGeneration: false, returnsDeleted: true };

const TEMPLATES: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: true,
  returnsDeleted: true,
  defaults: (object) => defaultTemplate(object['template']),
};

const LIMIT_RANGES: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: false,
  defaults(object) {
    for (const item of object['spec']?.limits ?? []) {
      if (item['type'] !== 'Container') continue;
      item['default'] = { ...item['max'], ...item['default'] };
      item['defaultRequest'] = { ...item['min'], ...item['default'], ...item['defaultRequest'] };
      for (const key of ['default', 'defaultRequest']) if (Object.keys(item[key]).length === 0) delete item[key];
    }
  },
};

const QUOTAS: Strategy = {
  nameRule: 'subdomain',
  hasGeneration: false,
  returnsDeleted: true,
  prepareCreate(object) {
    object['status'] = {};
  },
};

export const CORE: Record<string, Strategy> = {
  '/configmaps': CONFIGMAPS,
  '/secrets': SECRETS,
  '/namespaces': NAMESPACES,
  '/nodes': NODES,
  '/events': EVENTS,
  '/endpoints': ENDPOINTS,
  '/persistentvolumeclaims': CLAIMS,
  '/persistentvolumes': VOLUMES,
  '/serviceaccounts': ACCOUNTS,
  '/podtemplates': TEMPLATES,
  '/limitranges': LIMIT_RANGES,
  '/resourcequotas': QUOTAS,
};
