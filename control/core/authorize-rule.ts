import type { Attributes } from './authorize.ts';
import type { Obj } from './json.ts';

const matches = (list: readonly string[] | undefined, value: string): boolean => list !== undefined && (list.includes('*') || list.includes(value));

/** Does one rule allow this? */
export function ruleAllows(rule: Obj, asked: Attributes): boolean {
  if (!matches(rule['verbs'], asked.verb)) return false;
  if (!asked.isResource) {
    return (rule['nonResourceURLs'] ?? []).some(
      (url: string) => url === '*' || url === asked.path || (url.endsWith('*') && asked.path.startsWith(url.slice(0, -1))),
    );
  }
  if (!matches(rule['apiGroups'], asked.group)) return false;
  const wanted = asked.subresource === '' ? asked.resource : `${asked.resource}/${asked.subresource}`;
  const hasResource = (rule['resources'] ?? []).some(
    (name: string) => name === '*' || name === wanted || (asked.subresource !== '' && name === `*/${asked.subresource}`),
  );
  if (!hasResource) return false;
  const names: string[] = rule['resourceNames'] ?? [];
  return names.length === 0 || names.includes(asked.name);
}
