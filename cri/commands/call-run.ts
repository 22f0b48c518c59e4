import { readFile } from 'node:fs/promises';
import { text } from 'node:stream/consumers';
import { hasCode, messageOf, OpError } from '../../base/errors.ts';
import type { Host } from '../../base/host.ts';
import { deadlineMs } from '../client.ts';
import { emptyMessage, nearest, readInput } from '../core/message-input.ts';
import { plainJson } from '../core/plain-json.ts';
import { tableText } from '../core/table.ts';
import { connectEndpoints } from '../io/endpoint.ts';
import { allMethods, messageTypes } from '../shape.ts';
import type { RuntimeFlags } from './runtime-options.ts';

export interface CallFlags extends RuntimeFlags {
  readonly list: boolean;
  readonly template: boolean;
  readonly count?: number;
}

type Method = ReturnType<typeof allMethods>[number];

function list(host: Host, json: boolean): void {
  const rows = allMethods().map(({ service, method, requestType, responseType, responseStream }) => ({
    service,
    method,
    request: requestType,
    response: responseType,
    streams: responseStream === true,
  }));
  if (json) host.stdout(rows.map((row) => `${JSON.stringify(row)}\n`).join(''));
  else
    host.stdout(
      tableText(
        ['METHOD', 'SERVICE', 'REQUEST', 'RESPONSE'],
        rows.map(({ service, method, request, response, streams }) => [method, service, request, streams ? `stream of ${response}` : response]),
      ),
    );
}

function findMethod(name: string): Method {
  const methods = allMethods();
  const plain = name.slice(name.lastIndexOf('/') + 1);
  const found = methods.find(({ method }) => method === plain) ?? methods.find(({ method }) => method.toLowerCase() === plain.toLowerCase());
  if (found !== undefined) return found;
  const meant = nearest(
    plain,
    methods.map(({ method }) => method),
  );
  throw new OpError('invalid', 'choosing a method', `the CRI has no ${name}`, {
    advice: meant === undefined ? 'see them with: nodelet cri call --list' : `did you mean ${meant}?`,
  });
}

/** The request's text: the argument itself, the file that it names, or standard input. */
async function requestText(given: string | undefined): Promise<string> {
  if (given === undefined) return '{}';
  if (given === '-') return text(process.stdin);
  if (!given.startsWith('@')) return given;
  if (given === '@-') return text(process.stdin);
  const path = given.slice(1);
  return readFile(path, 'utf8').catch((cause: unknown) => {
    throw new OpError('invalid', 'reading the request', messageOf(cause), { cause });
  });
}

function parse(source: string): unknown {
  try {
    return JSON.parse(source.trim() === '' ? '{}' : source);
  } catch (cause) {
    throw new OpError('invalid', 'reading the request', `it is no JSON: ${messageOf(cause)}`, {
      advice: `write it as '{"containerId": "…"}', or see it with --template`,
    });
  }
}

/** `nodelet cri call`: one line for each message of a stream, and the answer of any other method written out. */
export async function call(host: Host, name: string | undefined, given: string | undefined, flags: CallFlags): Promise<number> {
  if (flags.list) {
    list(host, flags.json);
    return 0;
  }
  if (name === undefined) throw new OpError('invalid', 'choosing a method', 'none is named', { advice: 'see them with: nodelet cri call --list' });
  const { service, method, requestType, responseStream } = findMethod(name);
  if (flags.template) {
    host.stdout(`${JSON.stringify(emptyMessage(messageTypes, requestType), null, flags.json ? 0 : 2)}\n`);
    return 0;
  }
  const isStream = responseStream === true;
  if (flags.count !== undefined && !isStream) throw new OpError('invalid', 'counting messages', `${method} answers once`, { advice: 'leave --count away' });
  const request = readInput(messageTypes, requestType, parse(await requestText(given)));
  await using runtime = await connectEndpoints(flags, host.env);
  if (!isStream) {
    const answer = await runtime.transport.call({ service, method, request }, { timeoutMs: flags.timeout ?? deadlineMs(method, request), signal: host.signal });
    host.stdout(`${JSON.stringify(plainJson(answer), null, flags.json ? 0 : 2)}\n`);
    return 0;
  }
  let left = flags.count ?? Infinity;
  if (left === 0) return 0;
  try {
    for await (const message of runtime.transport.stream({ service, method, request }, { timeoutMs: flags.timeout ?? Infinity, signal: host.signal })) {
      host.stdout(`${JSON.stringify(plainJson(message))}\n`);
      if (--left <= 0) break;
    }
  } catch (error) {
    // Ctrl-C is how a stream is ended that has no end of its own.
    if (!hasCode(error, 'aborted')) throw error;
  }
  return 0;
}
