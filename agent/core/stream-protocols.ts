import type { Status } from '../../proto/kube/types.ts';
/*
 * Which form of exec, attach and port-forward a client asks for over a WebSocket (KEP-4006), and what is told over the
 * error channel. Channels: 0 input, 1 output, 2 errors, 3 the end, 4 the terminal's size; 255 says that one is closed.
 */

/** The exec and attach protocol whose channels can be closed one by one. */
export const execProtocol = 'v5.channel.k8s.io';
const tunnelPrefix = 'SPDY/3.1+';

/** The subprotocols of a request, in its order; none for what is no WebSocket. */
export function webSocketProtocols(headers: { readonly upgrade?: string | undefined; readonly 'sec-websocket-protocol'?: string | undefined }): string[] {
  if (headers.upgrade?.toLowerCase() !== 'websocket') return [];
  return (headers['sec-websocket-protocol'] ?? '').split(',').map((each) => each.trim());
}

/** Of the subprotocols those that carry SPDY through a WebSocket, as the SPDY side calls them (`portforward.k8s.io`). */
export function tunnelledProtocols(protocols: readonly string[]): string[] {
  return protocols.filter((each) => each.startsWith(tunnelPrefix) && each.endsWith('.k8s.io')).map((each) => each.slice(tunnelPrefix.length));
}

/** The subprotocol to accept for what the SPDY side chose. */
export function tunnelProtocol(chosen: string): string {
  return tunnelPrefix + chosen;
}

/** The ports that an older WebSocket client names beforehand; a text is what is wrong with them, in upstream's words. */
export function forwardPorts(asked: readonly string[]): number[] | string {
  if (asked.length === 0) return 'query parameter "port" is required';
  const ports: number[] = [];
  for (const given of asked) {
    if (given === '') return 'query parameter "port" cannot be empty';
    for (const each of given.split(',')) {
      const unparsed = (why: string): string => `unable to parse "${given}" as a port: strconv.ParseUint: parsing "${each}": ${why}`;
      if (!/^\d+$/.test(each)) return unparsed('invalid syntax');
      if (Number(each) > 65_535) return unparsed('value out of range');
      if (Number(each) === 0) return `port "${given}" must be > 0`;
      ports.push(Number(each));
    }
  }
  return ports;
}

export type ExecMessage =
  | { readonly kind: 'data'; readonly channel: 'stdin' | 'resize'; readonly bytes: Uint8Array }
  | { readonly kind: 'endInput' }
  | { readonly kind: 'nothing' }
  /** What no client may say: the connection ends. */
  | { readonly kind: 'broken' };

/** What a client's message of `v5.channel.k8s.io` says. */
export function readExecMessage(message: Uint8Array): ExecMessage {
  const [first, second] = message;
  if (first === 255) {
    if (message.length !== 2 || (second ?? 5) > 4) return { kind: 'broken' };
    return second === 0 ? { kind: 'endInput' } : { kind: 'nothing' };
  }
  if (message.length < 2 || (first !== 0 && first !== 4)) return { kind: 'nothing' };
  return { kind: 'data', channel: first === 0 ? 'stdin' : 'resize', bytes: message.subarray(1) };
}

/** The end of an exec as `v4.channel.k8s.io` told it, in the words a client of `v5.channel.k8s.io` gets from upstream. */
export function endOfExec(told: string): unknown {
  if (told === '') return success();
  let read: Status;
  try {
    read = JSON.parse(told) as Status;
  } catch (error) {
    return internalError(`error stream protocol error: ${(error as Error).message} in ${JSON.stringify(told)}`);
  }
  if (read.status === 'Success') return success();
  if (read.status !== 'Failure') return internalError('error stream protocol error: unknown error');
  if (read.reason !== 'NonZeroExitCode') return internalError(read.message ?? '');
  if (read.details === undefined) return internalError('error stream protocol error: details must be set');
  const code = read.details.causes?.find(({ reason }) => reason === 'ExitCode')?.message;
  if (code === undefined) return internalError('error stream protocol error: no ExitCode cause given');
  return {
    metadata: {},
    status: 'Failure',
    message: `command terminated with non-zero exit code: command terminated with exit code ${code}`,
    reason: 'NonZeroExitCode',
    details: { causes: [{ reason: 'ExitCode', message: code }] },
  };
}

function success(): unknown {
  return { metadata: {}, status: 'Success' };
}

/** A failure that is none of the command's. */
export function internalError(message: string): unknown {
  return {
    metadata: {},
    status: 'Failure',
    message: `Internal error occurred: ${message}`,
    reason: 'InternalError',
    details: { causes: [{ message }] },
    code: 500,
  };
}
