import type { IncomingMessage, ServerResponse } from 'node:http';

/** What a page below /debug answers. */
export interface DebugAnswer {
  readonly status: number;
  readonly type: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body: string | Uint8Array;
}

const MAX_VERBOSITY_BYTES = 1024;

export function sendDebugAnswer(response: ServerResponse, { status, type, headers, body }: DebugAnswer): void {
  response.writeHead(status, { 'content-type': type, 'x-content-type-options': 'nosniff', ...headers }).end(body);
}

/** /debug/flags/v: takes the verbosity over that was put there, and says so in Go's words. */
export async function verbosityAnswer(
  request: IncomingMessage,
  setVerbosity: (level: number) => void,
): Promise<{ readonly status: number; readonly body: string }> {
  if (request.method !== 'PUT') return { status: 406, body: 'unsupported http method\n' };
  let text = '';
  for await (const piece of request) {
    text += String(piece);
    if (text.length > MAX_VERBOSITY_BYTES) break;
  }
  if (!/^\d{1,9}$/.test(text)) return { status: 400, body: `strconv.ParseUint: parsing ${JSON.stringify(text)}: invalid syntax\n` };
  setVerbosity(Number(text));
  return { status: 200, body: `successfully set klog.logging.verbosity to ${text}\n` };
}
