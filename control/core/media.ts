/** How an object goes out. */
export type Form = { as: 'object' } | { as: 'table'; version: string } | { as: 'metadata' };

export interface Accepted {
  form: Form;
  syntax: 'json' | 'yaml';
}

/** The first media type of an Accept header that can be served; undefined when there is none. */
export function negotiate(accept: string, isWatch: boolean): Accepted | undefined {
  const wanted = accept.trim() === '' ? ['*/*'] : accept.split(',');
  for (const item of wanted) {
    const [type = '', ...parameters] = item.split(';').map((part) => part.trim());
    const named = new Map(parameters.map((parameter) => parameter.split('=') as [string, string]));
    const isJson = ['application/json', '*/*', 'application/*'].includes(type);
    if (!isJson && (type !== 'application/yaml' || isWatch)) continue;
    const as = named.get('as');
    const isMeta = named.get('g') === 'meta.k8s.io';
    const syntax = isJson ? 'json' : 'yaml';
    if (as === undefined) return { form: { as: 'object' }, syntax };
    if (as === 'Table' && isMeta) return { form: { as: 'table', version: named.get('v') ?? 'v1' }, syntax };
    if ((as === 'PartialObjectMetadata' || as === 'PartialObjectMetadataList') && isMeta) return { form: { as: 'metadata' }, syntax };
  }
  return undefined;
}
