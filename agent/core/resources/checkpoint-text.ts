import { OpError } from '../../../base/errors.ts';
import { fnv1a32 } from '../hash.ts';

/** Keys in the order of their bytes, as Go writes and prints maps. */
export function byKey<V>(entries: Iterable<readonly [string, V]>): [string, V][] {
  return [...entries].map(([key, value]): [string, V] => [key, value]).toSorted(([left], [right]) => (left < right ? -1 : left > right ? 1 : 0));
}

/** A JSON object whose keys stand in this order, also where they look like numbers. */
export function jsonObject(entries: readonly (readonly [string, string])[]): string {
  return `{${entries.map(([key, json]) => `${JSON.stringify(key)}:${json}`).join(',')}}`;
}

/** `dataChecksum` of upstream's state files: over the text of `data`. */
export function dataChecksum(data: string): number {
  return fnv1a32(`(string)${data}`);
}

/**
 * A state file: its fields as kubelets before 1.37 read them, with their checksum, and all of it once more as `data` with
 * one of its own. `newer`: by name, maps for which older kubelets have no place; empty ones are left out.
 */
export function stateText(
  fields: readonly (readonly [string, string])[],
  newer: Readonly<Record<string, readonly (readonly [string, string])[]>>,
  checksum: number,
): string {
  const data = jsonObject([...fields, ...Object.entries(newer).flatMap(([name, map]) => (map.length === 0 ? [] : [[name, jsonObject(map)] as const]))]);
  return jsonObject([...fields, ['checksum', String(checksum)], ['data', JSON.stringify(data)], ['dataChecksum', String(dataChecksum(data))]]);
}

/** Reads the object that a checkpoint is. Throws OpError `invalid` for what is none. */
export function parseObject(text: string, name: string): Record<string, unknown> {
  try {
    const value = JSON.parse(text) as unknown;
    if (typeof value === 'object' && value !== null && !Array.isArray(value)) return value as Record<string, unknown>;
    throw new SyntaxError('an object is expected');
  } catch (error) {
    throw damaged(name, error instanceof Error ? error.message : String(error));
  }
}

/** Runs `read`; what has another shape than a checkpoint's is damaged, too. */
export function readShape<T>(name: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    if (error instanceof TypeError) throw damaged(name, `another shape is expected: ${error.message}`);
    throw error;
  }
}

export function damaged(name: string, why: string): OpError {
  const what = name.startsWith('cpu') ? 'CPU manager' : name.startsWith('memory') ? 'memory manager' : 'device manager';
  return new OpError('invalid', `restore state from checkpoint ${name}`, why, {
    advice: `Drain this node and delete the ${what} checkpoint file ${name} before starting again.`,
  });
}

/**
 * The text to read out of a state file of version 4 (CPU) or 3 (memory): `data`, when its checksum fits. Null for the
 * older forms, which have their fields in the file itself and a checksum over Go's print of them.
 */
export function dataOf(file: Record<string, unknown>, name: string): string | null {
  const { data, dataChecksum: told } = file;
  if (typeof data !== 'string' || data === '') return null;
  if (told !== dataChecksum(data)) throw damaged(name, 'checkpoint is corrupted');
  return data;
}
