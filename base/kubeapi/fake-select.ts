import { ApiError } from './errors.ts';
import type { KubeObject } from './types.ts';

type Test = (object: KubeObject) => boolean;

function labelTest(term: string): Test {
  const set = /^([^\s!=]+)\s+(in|notin)\s+\(([^)]*)\)$/.exec(term);
  if (set !== null) {
    const [, key = '', operator, list = ''] = set;
    const values = list.split(',').map((value) => value.trim());
    return ({ metadata: { labels } }) => {
      const value = labels?.[key];
      return operator === 'in' ? value !== undefined && values.includes(value) : value === undefined || !values.includes(value);
    };
  }
  const equals = /^([^\s!=]+)\s*(==|=|!=)\s*(\S*)$/.exec(term);
  if (equals !== null) {
    const [, key = '', operator, wanted = ''] = equals;
    return ({ metadata: { labels } }) => (labels?.[key] === wanted) === (operator !== '!=');
  }
  const absent = /^!\s*(\S+)$/.exec(term);
  if (absent !== null) return ({ metadata: { labels } }) => labels?.[absent[1] ?? ''] === undefined;
  if (/^\S+$/.test(term)) return ({ metadata: { labels } }) => labels?.[term] !== undefined;
  throw new ApiError(400, 'BadRequest', `unable to parse requirement: ${term}`);
}

/** Selectors compare text; what is absent is empty. */
function textOf(value: unknown): string {
  if (value === undefined || value === null) return '';
  return typeof value === 'string' ? value : JSON.stringify(value);
}

function fieldTest(term: string): Test {
  const match = /^([\w.]+)(==|=|!=)(.*)$/.exec(term);
  if (match === null) throw new ApiError(400, 'BadRequest', `invalid selector: '${term}'`);
  const [, path = '', operator, wanted] = match;
  return (object) => {
    let value: unknown = object;
    for (const part of path.split('.')) value = (value as Record<string, unknown> | undefined)?.[part];
    const equal = textOf(value) === wanted;
    return operator === '!=' ? !equal : equal;
  };
}

/** Whether an object is meant by the selectors of a list or watch. Throws ApiError 400 for one that is not understood. */
export function selectorTest(labelSelector = '', fieldSelector = ''): Test {
  const labels = labelSelector === '' ? [] : labelSelector.split(/,(?![^(]*\))/).map((term) => labelTest(term.trim()));
  const fields = fieldSelector === '' ? [] : fieldSelector.split(',').map((term) => fieldTest(term.trim()));
  return (object) => [...labels, ...fields].every((test) => test(object));
}
