import type { ResourceInfo } from '../../proto/kube/schema-types.ts';
import { printYaml } from '../../base/yaml.ts';
import { toServed } from '../core/convert.ts';
import { notAcceptable } from '../core/failure.ts';
import type { Obj } from '../core/json.ts';
import { negotiate } from '../core/media.ts';
import type { Accepted } from '../core/media.ts';
import { apiVersionOf } from '../core/schema.ts';
import { columnsOf, rowOf } from '../core/tables.ts';
import { collectionOf } from './kernel.ts';
import type { Answer, Kernel } from './kernel.ts';
import type { WatchForm } from './watch.ts';

const ACCEPTABLE = 'application/json, application/yaml';

export function acceptedBy(accept: string, isWatch: boolean): Accepted {
  const found = negotiate(accept, isWatch);
  if (found === undefined) throw notAcceptable(ACCEPTABLE);
  return found;
}

/** metav1.PartialObjectMetadata: what tools that need no spec ask for. */
export function metadataOnly(object: Obj): Obj {
  return { kind: 'PartialObjectMetadata', apiVersion: 'meta.k8s.io/v1', metadata: object['metadata'] };
}

export interface TableOptions {
  includeObject: string;
  nowMs: number;
}

function rows(info: ResourceInfo, objects: readonly Obj[], options: TableOptions): Obj[] {
  return objects.map((object) => {
    const row: Obj = rowOf(info, object, options.nowMs);
    if (options.includeObject === 'Object') row['object'] = object;
    else if (options.includeObject !== 'None') row['object'] = metadataOnly(object);
    return row;
  });
}

export function tableOf(info: ResourceInfo, objects: readonly Obj[], metadata: Obj, options: TableOptions, withColumns = true): Obj {
  return {
    kind: 'Table',
    apiVersion: 'meta.k8s.io/v1',
    metadata,
    columnDefinitions: withColumns ? columnsOf(info) : null,
    rows: rows(info, objects, options),
  };
}

/** An answer as text, in the form the client accepts. */
export async function render(
  kernel: Kernel,
  info: ResourceInfo | undefined,
  answer: Answer,
  accepted: Accepted,
  query: URLSearchParams,
  isPretty: boolean,
): Promise<string> {
  if (answer.kind === 'object') {
    let object = answer.object as Obj;
    const isResource = info !== undefined && object['metadata'] !== undefined && object['kind'] === info.kind;
    if (isResource && accepted.form.as === 'table') {
      object = tableOf(
        info,
        [object],
        { resourceVersion: object['metadata'].resourceVersion },
        { includeObject: query.get('includeObject') ?? '', nowMs: kernel.clock.nowMs() },
      );
    } else if (isResource && accepted.form.as === 'metadata') object = metadataOnly(object);
    return encode(object, accepted, isPretty);
  }
  if (answer.kind !== 'list') return '';
  const { resource, entries, metadata } = answer;
  const isStored = collectionOf(resource) === `${resource.group}/${resource.resource}` && !(resource.group === 'autoscaling' && resource.version === 'v1');
  const served = (): Obj[] => entries.map((entry) => toServed(resource.group, resource.version, entry.object));
  if (accepted.form.as === 'table') {
    return encode(tableOf(resource, served(), metadata, { includeObject: query.get('includeObject') ?? '', nowMs: kernel.clock.nowMs() }), accepted, isPretty);
  }
  if (accepted.form.as === 'metadata') {
    return encode(
      { kind: 'PartialObjectMetadataList', apiVersion: 'meta.k8s.io/v1', metadata, items: served().map((object) => ({ ...metadataOnly(object) })) },
      accepted,
      isPretty,
    );
  }
  const head = { kind: `${resource.kind}List`, apiVersion: apiVersionOf(resource), metadata };
  if (isPretty || accepted.syntax === 'yaml' || !isStored) return encode({ ...head, items: served() }, accepted, isPretty);
  // Stored JSON goes out as it lies: a list costs no parsing and no encoding.
  return `${JSON.stringify(head).slice(0, -1)},"items":[${entries.map((entry) => entry.json).join(',')}]}`;
}

async function encode(object: unknown, accepted: Accepted, isPretty: boolean): Promise<string> {
  if (accepted.syntax === 'yaml') return printYaml(JSON.parse(JSON.stringify(object)));
  return `${isPretty ? JSON.stringify(object, undefined, 2) : JSON.stringify(object)}\n`;
}

/** How the events of a watch are encoded. Tables name their columns once. */
export function watchForm(kernel: Kernel, info: ResourceInfo, accepted: Accepted, query: URLSearchParams): WatchForm {
  if (accepted.form.as === 'metadata') return { key: 'metadata', render: metadataOnly };
  if (accepted.form.as !== 'table') return { key: '', render: undefined };
  let isFirst = true;
  return {
    // Ages differ with time and the columns stand in the first line only, so table lines are nobody else's.
    key: undefined,
    render(object) {
      const withColumns = isFirst;
      isFirst = false;
      return tableOf(
        info,
        [object],
        { resourceVersion: object['metadata'].resourceVersion },
        { includeObject: query.get('includeObject') ?? '', nowMs: kernel.clock.nowMs() },
        withColumns,
      );
    },
  };
}
