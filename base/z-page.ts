import { printYaml } from './yaml.ts';

/** /flagz and /statusz in the form that a client's Accept header asks for. */

export interface ZPage {
  readonly kind: 'Flagz' | 'Statusz';
  readonly text: () => string;
  /** The structured form (config.k8s.io/v1beta1). */
  readonly object: () => object;
}

export interface ZPageAnswer {
  readonly status: number;
  readonly headers: Readonly<Record<string, string>>;
  readonly body: string;
}

type Structured = 'json' | 'yaml';
interface Range {
  readonly type: string;
  readonly asked: ReadonlyMap<string, string>;
}

const GROUP = 'config.k8s.io';
const TYPES = 'application/json, application/yaml, text/plain';

/** The page, or why there is none in such a form (406). */
export async function zPageAnswer(accept: string, page: ZPage): Promise<ZPageAnswer> {
  const ranges = rangesOf(accept);
  for (const range of ranges) {
    if (isText(range)) return { status: 200, headers: { 'content-type': 'text/plain; charset=utf-8' }, body: page.text() };
    const form = structured(range);
    const version = range.asked.get('v') ?? '';
    if (form === null || range.asked.get('g') !== GROUP || range.asked.get('as') !== page.kind) continue;
    if (version !== 'v1beta1' && version !== 'v1alpha1') continue;
    const old = `299 - "This version of the ${page.kind.toLowerCase()} endpoint is deprecated. Please use a newer version."`;
    return {
      status: 200,
      headers: { 'content-type': `application/${form};g=${GROUP};v=${version};as=${page.kind}`, ...(version === 'v1alpha1' ? { warning: old } : {}) },
      body: await printed({ ...page.object(), apiVersion: `${GROUP}/${version}` }, form),
    };
  }
  const form = ranges.map(structured).find((each) => each !== null) ?? 'json';
  const message = `only the following media types are accepted: ${TYPES}`;
  const refusal = { kind: 'Status', apiVersion: 'v1', metadata: {}, status: 'Failure', message, reason: 'NotAcceptable', code: 406 };
  return { status: 406, headers: { 'content-type': `application/${form}` }, body: await printed(refusal, form) };
}

async function printed(object: object, form: Structured): Promise<string> {
  return form === 'json' ? `${JSON.stringify(object)}\n` : await printYaml(object);
}

function isText({ type, asked }: Range): boolean {
  return ['text/plain', 'text/*', '*/*'].includes(type) && !asked.has('as');
}

function structured({ type }: Range): Structured | null {
  if (type === 'application/yaml') return 'yaml';
  return type === 'application/json' || type === 'application/*' ? 'json' : null;
}

/** What is asked for, the dearest first. */
function rangesOf(accept: string): Range[] {
  if (accept.trim() === '') return [{ type: '*/*', asked: new Map() }];
  const ranges = accept.split(',').map((text) => {
    const [type = '', ...parameters] = text.split(';').map((each) => each.trim());
    const asked = new Map(parameters.map((each): [string, string] => [each.slice(0, each.indexOf('=')).toLowerCase(), each.slice(each.indexOf('=') + 1)]));
    return { type: type.toLowerCase(), asked };
  });
  const quality = ({ asked }: Range): number => Number(asked.get('q') ?? 1);
  return ranges.toSorted((a, b) => quality(b) - quality(a));
}
