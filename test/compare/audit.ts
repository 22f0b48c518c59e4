import { createReadStream } from 'node:fs';
import { createInterface } from 'node:readline';

interface AuditEvent {
  readonly stage?: string;
  readonly verb?: string;
  readonly user?: { readonly username?: string };
  readonly objectRef?: { readonly resource?: string; readonly subresource?: string; readonly namespace?: string };
  readonly responseStatus?: { readonly code?: number };
}

const WRITES = new Set(['create', 'update', 'patch', 'delete', 'deletecollection']);

/** What one audit line says that a node wrote, `patch pods/status` say; null for reads, for others, and for what is refused. */
export function writeOf(line: string, node: string, namespace: string): string | null {
  let event: AuditEvent;
  try {
    event = JSON.parse(line) as AuditEvent;
  } catch {
    // The last line of a log that is being written may be half.
    return null;
  }
  if (event.stage !== 'ResponseComplete' || event.user?.username !== `system:node:${node}`) return null;
  const { resource = '', subresource, namespace: where } = event.objectRef ?? {};
  if (!WRITES.has(event.verb ?? '') || where !== namespace || (event.responseStatus?.code ?? 0) >= 400) return null;
  return `${event.verb} ${resource}${subresource === undefined ? '' : `/${subresource}`}`;
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
