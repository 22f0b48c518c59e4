import { request as httpRequest } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { IncomingMessage } from 'node:http';
import type { Duplex } from 'node:stream';
import { connect as connectTcp } from 'node:net';
import { connect as connectTls } from 'node:tls';
import { carry } from '../../base/carry.ts';
import { badRequest, internal, noSuchPath, notFound } from '../core/failure.ts';
import { Failure } from '../core/failure.ts';
import type { Obj } from '../core/json.ts';
import { isProxyable } from '../core/proxyable.ts';
import type { Call, Kernel } from './kernel.ts';
import type { Pki } from './pki.ts';

/** Where a stream or a proxied request goes. */
export interface Target {
  isTls: boolean;
  /** A kubelet, which gets our client certificate and must show one of its own where a CA for it is known. */
  isKubelet?: boolean;
  host: string;
  port: number;
  /** Path with query. */
  path: string;
  /** The node speaks the newest WebSocket protocols itself. */
  takesWebSockets: boolean;
}

const STREAMS = new Set(['exec', 'attach', 'portforward', 'log', 'proxy']);

/** Is this a subresource whose answer comes from somewhere else? */
export const isForwarded = (call: Call): boolean =>
  call.info.isResource && STREAMS.has(call.info.subresource) && ['pods', 'nodes', 'services'].includes(call.info.resource) && call.info.group === '';

/** Finds the kubelet, pod or endpoint behind a subresource. */
export function targetOf(kernel: Kernel, call: Call): Target {
  const { info } = call;
  switch (`${info.resource}/${info.subresource}`) {
    case 'nodes/proxy':
      return { ...kubeletOf(kernel, bareName(info.name).name), path: (info.rest === '' ? '/' : info.rest) + queryText(call.query) };
    case 'pods/proxy':
      return outside(podTarget(kernel, call));
    case 'services/proxy':
      return outside(serviceTarget(kernel, call));
    default:
      return containerTarget(kernel, call);
  }
}

/** Addresses of pods and endpoints are what somebody wrote: they must not lead into this machine or its link. */
function outside(target: Target): Target {
  if (!isProxyable(target.host)) throw badRequest('address not allowed');
  return target;
}

const queryText = (query: URLSearchParams): string => (query.size === 0 ? '' : `?${query.toString()}`);

function bareName(name: string): { scheme: string; name: string; port: string } {
  const parts = name.split(':');
  if (parts.length === 3) return { scheme: parts[0]!, name: parts[1]!, port: parts[2]! };
  return { scheme: '', name: parts[0]!, port: parts[1] ?? '' };
}

function kubeletOf(kernel: Kernel, name: string): Omit<Target, 'path'> {
  const node = kernel.view.get('', 'nodes', '', name);
  if (node === undefined) throw notFound({ group: '', resource: 'nodes' }, name);
  const addresses: Obj[] = node['status']?.addresses ?? [];
  const address = ['InternalIP', 'Hostname', 'ExternalIP'].flatMap((type) => addresses.filter((item) => item['type'] === type))[0];
  if (address === undefined) throw internal(`no preferred addresses found; known addresses: []`);
  const port = node['status']?.daemonEndpoints?.kubeletEndpoint?.Port ?? kernel.config.kubeletPort;
  const takesWebSockets = (node['status']?.declaredFeatures ?? []).includes('ExtendWebSocketsToKubelet');
  return { isTls: true, isKubelet: true, host: address['address'], port, takesWebSockets };
}

function podOf(kernel: Kernel, call: Call, name: string): Obj {
  const pod = kernel.view.get('', 'pods', call.info.namespace, name);
  if (pod === undefined) throw notFound({ group: '', resource: 'pods' }, name);
  return pod;
}

function containerOf(pod: Obj, asked: string): string {
  const { name } = pod['metadata'];
  const main: Obj[] = pod['spec'].containers;
  const all: Obj[] = [...main, ...(pod['spec'].initContainers ?? []), ...(pod['spec'].ephemeralContainers ?? [])];
  if (asked !== '') {
    if (!all.some((container) => container['name'] === asked)) throw badRequest(`container ${asked} is not valid for pod ${name}`);
    return asked;
  }
  if (main.length === 1) return main[0]!['name'];
  const names = (list: Obj[]): string => list.map((container) => container['name']).join(' ');
  const inits: Obj[] = pod['spec'].initContainers ?? [];
  throw badRequest(
    `a container name must be specified for pod ${name}, choose one of: [${names(main)}]${inits.length === 0 ? '' : ` or one of the init containers: [${names(inits)}]`}`,
  );
}

const REFUSAL_MAX_CHARS = 50_000;
const LOG_FIELDS = ['follow', 'previous', 'sinceSeconds', 'sinceTime', 'timestamps', 'tailLines', 'limitBytes', 'stream'];
/** The kubelet's names for what clients call by longer ones. */
const STREAM_FIELDS: Record<string, string> = { stdin: 'input', stdout: 'output', stderr: 'error', tty: 'tty' };

function containerTarget(kernel: Kernel, call: Call): Target {
  const { info, query } = call;
  const pod = podOf(kernel, call, info.name);
  const node: string = pod['spec'].nodeName ?? '';
  if (node === '') throw badRequest(`pod ${info.name} does not have a host assigned`);
  const kubelet = kubeletOf(kernel, node);
  const out = new URLSearchParams();
  if (info.subresource === 'portforward') {
    for (const ports of query.getAll('ports')) for (const port of ports.split(',')) out.append('port', port);
    return { ...kubelet, path: `/portForward/${info.namespace}/${info.name}${queryText(out)}` };
  }
  const container = containerOf(pod, query.get('container') ?? '');
  if (info.subresource === 'log') {
    checkLogOptions(query);
    for (const field of LOG_FIELDS) if (query.has(field)) out.append(field, query.get(field)!);
    return { ...kubelet, path: `/containerLogs/${info.namespace}/${info.name}/${container}${queryText(out)}` };
  }
  for (const [field, name] of Object.entries(STREAM_FIELDS)) if (['true', '1'].includes(query.get(field) ?? '')) out.append(name, '1');
  for (const word of query.getAll('command')) out.append('command', word);
  if (
    !Object.values(STREAM_FIELDS)
      .slice(0, 3)
      .some((name) => out.has(name))
  )
    throw badRequest(`Pod${info.subresource === 'exec' ? 'Exec' : 'Attach'}Options: must specify at least one of stdin, stdout, stderr`);
  return { ...kubelet, path: `/${info.subresource}/${info.namespace}/${info.name}/${container}${queryText(out)}` };
}

function checkLogOptions(query: URLSearchParams): void {
  const refuse = (field: string, value: string, why: string): never => {
    throw new Failure(422, 'Invalid', `PodLogOptions "" is invalid: ${field}: Invalid value: ${value}: ${why}`, {
      kind: 'PodLogOptions',
      causes: [{ reason: 'FieldValueInvalid', field, message: why }],
    });
  };
  const tail = query.get('tailLines');
  if (tail !== null && Number(tail) < 0) refuse('tailLines', tail, 'must be greater than or equal to 0');
  const since = query.get('sinceSeconds');
  if (since !== null && Number(since) < 1) refuse('sinceSeconds', since, 'must be greater than 0');
}

function podTarget(kernel: Kernel, call: Call): Target {
  const { name, scheme, port } = bareName(call.info.name);
  const pod = podOf(kernel, call, name);
  const address = pod['status']?.podIP;
  if (address === undefined) throw badRequest(`address not allowed`);
  const firstPort = (pod['spec'].containers as Obj[]).flatMap((container) => container['ports'] ?? [])[0]?.containerPort;
  return {
    isTls: scheme === 'https',
    host: address,
    port: Number(port === '' ? (firstPort ?? 80) : port),
    path: (call.info.rest === '' ? '/' : call.info.rest) + queryText(call.query),
    takesWebSockets: true,
  };
}

function serviceTarget(kernel: Kernel, call: Call): Target {
  const { name, scheme, port } = bareName(call.info.name);
  const service = kernel.view.get('', 'services', call.info.namespace, name);
  if (service === undefined) throw notFound({ group: '', resource: 'services' }, name);
  const wanted = (service['spec'].ports ?? []).find((item: Obj) => port === '' || item['name'] === port || String(item['port']) === port);
  const slices = [...kernel.view.list('discovery.k8s.io', 'endpointslices', call.info.namespace)].filter(
    (slice) => slice['metadata'].labels?.['kubernetes.io/service-name'] === name,
  );
  for (const slice of slices) {
    const target = (slice['ports'] ?? []).find((item: Obj) => (item['name'] ?? '') === (wanted?.name ?? ''));
    const ready = (slice['endpoints'] ?? []).filter((item: Obj) => item['conditions']?.ready !== false);
    if (target === undefined || ready.length === 0) continue;
    const address = ready[kernel.rng.int(ready.length)].addresses[0];
    return {
      isTls: scheme === 'https',
      host: address,
      port: target.port,
      path: (call.info.rest === '' ? '/' : call.info.rest) + queryText(call.query),
      takesWebSockets: true,
    };
  }
  throw new Failure(503, 'ServiceUnavailable', `no endpoints available for service ${JSON.stringify(call.info.name)}`);
}

/**
 * How the other side is known: a kubelet by the CA of `--kubelet-certificate-authority`, or, as upstream without it, by
 * its address alone. Pods that are proxied to over HTTPS have certificates that nobody here can judge.
 */
function tlsTo(pki: Pki, target: Target): { cert?: string; key?: string; ca?: string; rejectUnauthorized: boolean } {
  if (target.isKubelet !== true) return { rejectUnauthorized: false };
  const ours = { cert: pki.kubeletClient.certificatePem, key: pki.kubeletClient.privateKeyPem };
  return pki.kubeletCaPem === undefined ? { ...ours, rejectUnauthorized: false } : { ...ours, ca: pki.kubeletCaPem, rejectUnauthorized: true };
}

/** Sends a plain request on and gives back the answer as it comes. */
export function forward(pki: Pki, target: Target, call: Call, headers: Record<string, string>): Promise<IncomingMessage> {
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>();
  const send = target.isTls ? httpsRequest : httpRequest;
  const outgoing = send(
    {
      host: target.host,
      port: target.port,
      path: target.path,
      method: call.method,
      headers,
      ...(target.isTls ? tlsTo(pki, target) : {}),
      signal: call.signal,
    },
    resolve,
  );
  outgoing.on('error', (error: Error) =>
    reject(new Failure(500, 'InternalError', `Get "${target.isTls ? 'https' : 'http'}://${target.host}:${target.port}${target.path}": ${error.message}`)),
  );
  if (call.body.kind === 'text') outgoing.end(call.body.text);
  else outgoing.end();
  return promise;
}

/** What a kubelet says of a log that it does not have, as an answer of this API. */
export async function refusalOf(answer: IncomingMessage): Promise<Failure | undefined> {
  const code = answer.statusCode ?? 502;
  if (code >= 200 && code <= 206) return undefined;
  let text = '';
  answer.setEncoding('utf8');
  for await (const chunk of answer as AsyncIterable<string>) {
    text += chunk;
    if (text.length >= REFUSAL_MAX_CHARS) break;
  }
  text = text.slice(0, REFUSAL_MAX_CHARS).trimEnd();
  if (code === 400) return badRequest(text);
  if (code === 500) return internal(text);
  if (code === 404) return noSuchPath();
  return new Failure(code, code === 403 ? 'Forbidden' : code === 401 ? 'Unauthorized' : 'Unknown', text);
}

/** Hands an upgraded connection to the kubelet, byte for byte in both directions. */
export function splice(pki: Pki, target: Target, client: Duplex, head: Buffer, method: string, headers: readonly string[], fail: (error: Error) => void): void {
  const upstream = target.isTls
    ? connectTls({ host: target.host, port: target.port, ...tlsTo(pki, target), ALPNProtocols: ['http/1.1'] })
    : connectTcp({ host: target.host, port: target.port });
  let isOpen = false;
  upstream.once(target.isTls ? 'secureConnect' : 'connect', () => {
    isOpen = true;
    upstream.setNoDelay(true);
    upstream.write(`${method} ${target.path} HTTP/1.1\r\n${headers.join('\r\n')}\r\n\r\n`);
    if (head.length > 0) upstream.write(head);
    carry(client, upstream);
    carry(upstream, client);
  });
  // What a kubelet said before its connection broke still goes out: a client that misses it takes silence for success.
  upstream.on('error', (error) => {
    if (!isOpen) fail(error);
  });
  client.on('error', () => undefined);
  client.on('close', () => upstream.destroy());
  upstream.on('close', () => client.destroySoon?.());
}

declare module 'node:stream' {
  interface Duplex {
    /** Sockets close once what was written has gone out. */
    destroySoon?(): void;
  }
}
