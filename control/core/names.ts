import type { Cause } from './failure.ts';
import { isObject } from './json.ts';
import type { Obj } from './json.ts';

/** Field checks with upstream's sentences; each gives a cause or nothing. */

export const required = (field: string, message = ''): Cause => ({
  reason: 'FieldValueRequired',
  field,
  message: message === '' ? 'Required value' : `Required value: ${message}`,
});
export const wrong = (field: string, value: unknown, message: string): Cause => ({
  reason: 'FieldValueInvalid',
  field,
  message: `Invalid value: ${show(value)}: ${message}`,
});
export const forbiddenField = (field: string, message: string): Cause => ({ reason: 'FieldValueForbidden', field, message: `Forbidden: ${message}` });
export const duplicate = (field: string, value: unknown): Cause => ({ reason: 'FieldValueDuplicate', field, message: `Duplicate value: ${show(value)}` });
export const unsupported = (field: string, value: unknown, known: readonly string[]): Cause => ({
  reason: 'FieldValueNotSupported',
  field,
  message: `Unsupported value: ${show(value)}: supported values: ${known.map((item) => JSON.stringify(item)).join(', ')}`,
});
export const missingField = (field: string, value: unknown): Cause => ({ reason: 'FieldValueNotFound', field, message: `Not found: ${show(value)}` });
export const tooLong = (field: string, max: number): Cause => ({ reason: 'FieldValueTooLong', field, message: `Too long: may not be more than ${max} bytes` });

function show(value: unknown): string {
  if (value === undefined || value === null) return 'null';
  return typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean' ? JSON.stringify(value) : JSON.stringify(value);
}

const LABEL = '[a-z0-9]([-a-z0-9]*[a-z0-9])?';
const SUBDOMAIN = new RegExp(`^${LABEL}(\\.${LABEL})*$`);
const DNS_LABEL = new RegExp(`^${LABEL}$`);
const DNS_1035 = /^[a-z]([-a-z0-9]*[a-z0-9])?$/;
const QUALIFIED = /^([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$/;
const LABEL_VALUE = /^(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?$/;

const longer = (max: number): string => `must be no more than ${max} bytes`;

const SUBDOMAIN_MESSAGE =
  "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')";
const LABEL_MESSAGE =
  "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')";
const LABEL_1035_MESSAGE =
  "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123', regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')";

export type NameRule = 'subdomain' | 'label' | 'label1035' | 'path';

/** Why a name is none, in upstream's words. */
export function nameProblems(rule: NameRule, name: string): string[] {
  const out: string[] = [];
  switch (rule) {
    case 'subdomain':
      if (name.length > 253) out.push(longer(253));
      if (!SUBDOMAIN.test(name)) out.push(SUBDOMAIN_MESSAGE);
      break;
    case 'label':
      if (name.length > 63) out.push(longer(63));
      if (!DNS_LABEL.test(name)) out.push(LABEL_MESSAGE);
      break;
    case 'label1035':
      if (name.length > 63) out.push(longer(63));
      if (!DNS_1035.test(name)) out.push(LABEL_1035_MESSAGE);
      break;
    case 'path':
      if (name === '.' || name === '..') out.push(`may not be '${name}'`);
      for (const part of ['/', '%']) if (name.includes(part)) out.push(`may not contain '${part}'`);
      break;
  }
  return out;
}

/** The problems of a label or annotation key. */
/** What is wrong with a port's name (RFC 6335, section 5.1). */
export function portNameProblems(name: string): string[] {
  const out: string[] = [];
  if (name.length > 15) out.push('must be no more than 15 characters');
  if (!/^[-a-z0-9]+$/.test(name)) out.push('must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)');
  if (!/[a-z]/.test(name)) out.push('must contain at least one letter (a-z)');
  if (name.includes('--')) out.push('must not contain consecutive hyphens');
  if (name.startsWith('-') || name.endsWith('-')) out.push('must not begin or end with a hyphen');
  return out;
}

export function keyProblems(key: string): string[] {
  const parts = key.split('/');
  if (parts.length > 2) {
    return [
      "a qualified name must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]') with an optional DNS subdomain prefix and '/' (e.g. 'example.com/MyName')",
    ];
  }
  const out: string[] = [];
  const name = parts.at(-1)!;
  if (parts.length === 2) {
    if (parts[0] === '') out.push('prefix part must be non-empty');
    else out.push(...nameProblems('subdomain', parts[0]!).map((problem) => `prefix part ${problem}`));
  }
  if (name === '') out.push('name part must be non-empty');
  else if (name.length > 63) out.push(`name part ${longer(63)}`);
  if (!QUALIFIED.test(name)) {
    out.push(
      "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
    );
  }
  return out;
}

export function labelValueProblems(value: string): string[] {
  const out: string[] = [];
  if (value.length > 63) out.push(longer(63));
  if (!LABEL_VALUE.test(value)) {
    out.push(
      "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
    );
  }
  return out;
}

export function checkLabels(field: string, labels: unknown): Cause[] {
  if (!isObject(labels)) return [];
  const out: Cause[] = [];
  for (const [key, value] of Object.entries(labels)) {
    out.push(...keyProblems(key).map((problem) => wrong(field, key, problem)));
    out.push(...labelValueProblems(String(value)).map((problem) => wrong(field, value, problem)));
  }
  return out;
}

const ANNOTATIONS_MAX_BYTES = 256 * 1024;

/** The checks every object's metadata passes. */
export function checkMetadata(metadata: Obj, rule: NameRule, isNamespaced: boolean): Cause[] {
  const out: Cause[] = [];
  const name: string = metadata['name'] ?? '';
  if (name === '') out.push(required('metadata.name', 'name or generateName is required'));
  else out.push(...nameProblems(rule, name).map((problem) => wrong('metadata.name', name, problem)));
  if (isNamespaced) {
    if ((metadata['namespace'] ?? '') === '') out.push(required('metadata.namespace'));
    else out.push(...nameProblems('label', metadata['namespace']).map((problem) => wrong('metadata.namespace', metadata['namespace'], problem)));
  } else if ((metadata['namespace'] ?? '') !== '') out.push(forbiddenField('metadata.namespace', 'not allowed on this type'));
  out.push(...checkLabels('metadata.labels', metadata['labels']));
  let size = 0;
  for (const [key, value] of Object.entries(metadata['annotations'] ?? {})) {
    out.push(...keyProblems(key.toLowerCase()).map((problem) => wrong('metadata.annotations', key, problem)));
    size += key.length + String(value).length;
  }
  if (size > ANNOTATIONS_MAX_BYTES) out.push(tooLong('metadata.annotations', ANNOTATIONS_MAX_BYTES));
  (metadata['ownerReferences'] ?? []).forEach((owner: Obj, at: number) => {
    const field = `metadata.ownerReferences[${at}]`;
    for (const key of ['apiVersion', 'kind', 'name', 'uid']) if ((owner[key] ?? '') === '') out.push(required(`${field}.${key}`, 'must not be empty'));
  });
  (metadata['finalizers'] ?? []).forEach((finalizer: string, at: number) => {
    const field = `metadata.finalizers[${at}]`;
    const problems = keyProblems(finalizer);
    out.push(...problems.map((problem) => wrong(field, finalizer, problem)));
    if (problems.length === 0 && !finalizer.includes('/') && !['orphan', 'foregroundDeletion', 'kubernetes'].includes(finalizer)) {
      out.push(wrong(field, finalizer, 'name is neither a standard finalizer name nor is it fully qualified'));
    }
  });
  const controllers = (metadata['ownerReferences'] ?? []).filter((owner: Obj) => owner['controller'] === true);
  if (controllers.length > 1) {
    out.push(
      wrong(
        'metadata.ownerReferences',
        controllers,
        `Only one reference can have Controller set to true. Found "true" in references for ${controllers[0].kind} and ${controllers[1].kind}`,
      ),
    );
  }
  return out;
}

/** The checks of metadata against the version that is stored. */
export function checkMetadataUpdate(next: Obj, old: Obj): Cause[] {
  const out: Cause[] = [];
  const immutable = (key: string): void => {
    if ((next[key] ?? undefined) !== (old[key] ?? undefined)) out.push(wrong(`metadata.${key}`, next[key] ?? null, 'field is immutable'));
  };
  if (old['deletionTimestamp'] !== undefined) {
    const fresh = (next['finalizers'] ?? []).filter((name: string) => !(old['finalizers'] ?? []).includes(name));
    if (fresh.length > 0) {
      out.push(
        forbiddenField(
          'metadata.finalizers',
          `no new finalizers can be added if the object is being deleted, found new finalizers []string{${fresh.map((name: string) => JSON.stringify(name)).join(', ')}}`,
        ),
      );
    }
  }
  immutable('name');
  immutable('namespace');
  immutable('uid');
  immutable('creationTimestamp');
  return out;
}
