import { createReadStream } from 'node:fs';
import { readdir } from 'node:fs/promises';
import { createInterface } from 'node:readline';

/** One request as the API server logged it. */
export interface AuditEvent {
  /** When the stage was reached, in milliseconds since 1970 with microseconds behind the point. */
  readonly atMs: number;
  readonly stage: string;
  readonly verb: string;
  readonly user: string;
  readonly uri: string;
  /** With its subresource, `pods/status` say. */
  readonly resource: string;
  readonly namespace: string;
  readonly name: string;
  readonly code: number;
}

interface Line {
  readonly stage: string;
  readonly requestURI: string;
  readonly verb: string;
  readonly user: { readonly username: string };
  readonly objectRef?: { readonly resource?: string; readonly subresource?: string; readonly namespace?: string; readonly name?: string };
  readonly responseStatus?: { readonly code?: number };
  readonly stageTimestamp: string;
}

const WRITES = new Set(['create', 'update', 'patch', 'delete', 'deletecollection']);

export const isWrite = (event: AuditEvent): boolean => event.stage === 'ResponseComplete' && WRITES.has(event.verb) && event.code < 400;

/** Milliseconds of an RFC 3339 time with microseconds, which Date would cut. */
function microTime(text: string): number {
  const fraction = /\.(\d+)Z$/.exec(text)?.[1] ?? '0';
  return Date.parse(text.replace(/\.\d+Z$/, 'Z')) + Number(`0.${fraction}`) * 1000;
}

/** One line of an audit log; null for half a line, which the last of a growing file may be. */
export function parseAudit(text: string): AuditEvent | null {
  let line: Line;
  try {
    line = JSON.parse(text) as Line;
  } catch {
    return null;
  }
  const { resource = '', subresource, namespace = '', name = '' } = line.objectRef ?? {};
  return {
    atMs: microTime(line.stageTimestamp),
    stage: line.stage,
    verb: line.verb,
    user: line.user.username,
    uri: line.requestURI,
    resource: subresource === undefined ? resource : `${resource}/${subresource}`,
    namespace,
    name,
    code: line.responseStatus?.code ?? 0,
  };
}

/** All of an audit log since a moment, the files that were set aside included, in the order of time. */
export async function readAudit(folder: string, sinceMs: number): Promise<AuditEvent[]> {
  const events: AuditEvent[] = [];
  for (const file of (await readdir(folder)).filter((name) => /^audit.*\.log$/.test(name))) {
    for await (const text of createInterface({ input: createReadStream(`${folder}/${file}`) })) {
      const event = parseAudit(text);
      if (event !== null && event.atMs >= sinceMs) events.push(event);
    }
  }
  return events.sort((a, b) => a.atMs - b.atMs);
}
