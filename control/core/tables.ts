import type { ResourceInfo } from '../../proto/kube/schema-types.ts';
import type { Obj } from './json.ts';
import type { Cell, Column } from './table-cells.ts';
import { col, name } from './table-cells.ts';
import { WORKLOAD_TABLES } from './tables-workloads.ts';
import { OTHER_TABLES } from './tables-others.ts';
import { podConditions, POD_TABLE } from './table-pods.ts';

const TABLES: Record<string, readonly Column[]> = { '/pods': POD_TABLE, ...WORKLOAD_TABLES, ...OTHER_TABLES };

/** What kinds without a table of their own show. */
const PLAIN: readonly Column[] = [name, col('Created At', (object) => object['metadata'].creationTimestamp ?? '')];

const tableFor = (info: ResourceInfo): readonly Column[] => TABLES[info.group === 'events.k8s.io' ? '/events' : `${info.group}/${info.resource}`] ?? PLAIN;

export function columnsOf(info: ResourceInfo): Obj[] {
  return tableFor(info).map(({ title, type, format, priority }) => ({ name: title, type, format, description: '', priority }));
}

/** An object may lack what its kind should have, since not every kind is checked in full; a table shows it all the same. */
function cellOf(column: Column, object: Obj, nowMs: number): Cell {
  try {
    return column.cell(object, nowMs);
  } catch {
    return '<unknown>';
  }
}

/** One line of a table. The object may be a mere bookmark, with nothing but a version. */
export function rowOf(info: ResourceInfo, object: Obj, nowMs: number): Obj {
  const safe: Obj = { ...object, metadata: object['metadata'] ?? {}, spec: object['spec'] ?? {}, status: object['status'] ?? {} };
  const row: Obj = { cells: tableFor(info).map((column) => cellOf(column, safe, nowMs)) };
  if (info.group === '' && info.resource === 'pods') {
    const conditions = podConditions(safe);
    if (conditions !== undefined) row['conditions'] = conditions;
  }
  return row;
}
