import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';
import { isWrite, parseAudit } from '../cluster/walkthrough/audit.ts';

/** What one audit line says that a node wrote, `patch pods/status` say; null for reads, for others, and for what is refused. */
export function writeOf(line: string, node: string, namespace: string): string | null {
  const event = parseAudit(line);
  if (event === null || !isWrite(event) || event.user !== `system:node:${node}` || event.namespace !== namespace) return null;
  return `${event.verb} ${event.resource}`;
}

/** Writes of a node for objects of a namespace, by verb and resource, in the part of an audit log from `offset` on. */
export async function countWrites(path: string, offset: number, node: string, namespace: string): Promise<Record<string, number>> {
  const counts: Record<string, number> = {};
  for await (const line of createInterface({ input: createReadStream(path, { start: offset }) })) {
    const write = writeOf(line, node, namespace);
    if (write !== null) counts[write] = (counts[write] ?? 0) + 1;
  }
  return counts;
}
