import { createSocket, type Socket } from 'node:dgram';
import { createServer, type Server, type Socket as Connection } from 'node:net';
import { messageOf, OpError } from '../../base/errors.ts';
import type { ControlDeps } from '../controllers/deps.ts';
import { endWith } from '../controllers/end.ts';
import { namespaceStore, serviceStore, sliceStore } from '../controllers/collections.ts';
import { Stores } from '../controllers/store.ts';
import { CLASS_IN, decodeAnswers, decodeQuery, encodeQuery, encodeResponse, type Query, RCODE, type ResourceRecord, UDP_SIZE } from '../core/dns/wire.ts';
import { answerQuestion, type ZoneView } from '../core/dns/zone.ts';
import { forward, framed, parseUpstream, type Upstream } from './forward.ts';
import { dnsServiceIp, startDnsService } from './service.ts';

const MAX_FORWARDS = 1000;
const MAX_CONNECTIONS = 200;
const IDLE_CONNECTION_MS = 10_000;
const MIN_UDP_SIZE = 512;
const MAX_TCP_SIZE = 65_535;

/**
 * The cluster's name server: answers for the cluster's zone from the API's Services and EndpointSlices, forwards the
 * rest, and keeps the Service that leads to it. Throws OpError when it cannot listen.
 */
export async function startDns(deps: ControlDeps): Promise<AsyncDisposable> {
  const stores = new Stores(deps.api, deps.clock, deps.log, deps.signal);
  const zone = zoneView(deps, stores);
  const listen = parseUpstream(deps.config.dnsListen);
  const upstreams = deps.config.dnsUpstreams.map(parseUpstream).filter(({ host, port }) => host !== listen.host || port !== listen.port);
  const resolver = new Resolver(deps, zone, upstreams, stores.signal);
  const udp = await listenUdp(listen, resolver);
  const tcp = await listenTcp(listen, resolver, deps).catch((error: unknown) => {
    udp.close();
    throw error;
  });
  const service = startDnsService(deps, stores);
  return endWith(deps.signal, async () => {
    udp.close();
    tcp.stop();
    await service[Symbol.asyncDispose]();
    await stores[Symbol.asyncDispose]();
  });
}

interface LiveZone extends ZoneView {
  /** False until everything has been listed once: till then a name that is not there says nothing. */
  isComplete(): boolean;
}

function zoneView(deps: ControlDeps, stores: Stores): LiveZone {
  const services = serviceStore(stores);
  const slices = sliceStore(stores);
  const namespaces = namespaceStore(stores);
  services.addIndex('ip', ({ spec }) => (spec.clusterIPs ?? [spec.clusterIP ?? '']).filter((ip) => ip !== '' && ip !== 'None'));
  slices.addIndex('ip', (slice) => [...new Set((slice.endpoints ?? []).flatMap((endpoint) => endpoint.addresses))]);
  return {
    isComplete: () => services.isSynced && slices.isSynced && namespaces.isSynced,
    domain: deps.config.clusterDomain.toLowerCase(),
    serverAddress: dnsServiceIp(deps.config.serviceCIDR),
    service: (namespace, name) => services.get(`${namespace}/${name}`),
    slices: (namespace, name) => slices.by('service', `${namespace}/${name}`),
    hasNamespace: (name) => namespaces.get(name) !== undefined,
    servicesWithIp: (ip) => services.by('ip', ip),
    slicesWithIp: (ip) => slices.by('ip', ip),
  };
}

class Resolver {
  readonly #deps: ControlDeps;
  readonly #zone: LiveZone;
  readonly #upstreams: readonly Upstream[];
  readonly #signal: AbortSignal;
  #turn = 0;
  #forwards = 0;

  constructor(deps: ControlDeps, zone: LiveZone, upstreams: readonly Upstream[], signal: AbortSignal) {
    this.#deps = deps;
    this.#zone = zone;
    this.#upstreams = upstreams;
    this.#signal = signal;
  }

  /** The answer to one message; undefined for what deserves none. */
  async resolve(bytes: Uint8Array, transport: 'udp' | 'tcp'): Promise<Uint8Array | undefined> {
    const query = decodeQuery(bytes);
    if (query === undefined || query.isResponse) return undefined;
    const limit = transport === 'tcp' ? MAX_TCP_SIZE : Math.min(Math.max(query.udpSize ?? MIN_UDP_SIZE, MIN_UDP_SIZE), UDP_SIZE);
    const fail = (rcode: number): Uint8Array => encodeResponse(query, { rcode, authoritative: false, answers: [], authority: [], additional: [] }, limit);
    const question = query.questions[0];
    if (query.opcode !== 0) return fail(RCODE.notImplemented);
    if (question === undefined || query.questions.length !== 1) return fail(RCODE.formatError);
    if (question.class !== CLASS_IN) return fail(RCODE.refused);
    const answer = answerQuestion(question, this.#zone, this.#turn++ & 0xffff);
    if (answer.kind === 'answer') return this.#zone.isComplete() ? encodeResponse(query, answer, limit) : fail(RCODE.serverFailure);
    if (answer.chain.length > 0) return this.#alias(query, answer, limit, transport);
    return (await this.#forward(bytes, transport)) ?? fail(this.#upstreams.length === 0 ? RCODE.refused : RCODE.serverFailure);
  }

  /** One of our names points outside: stub resolvers follow no alias, so the rest of the way is asked for here. */
  async #alias(query: Query, { chain, name }: { chain: ResourceRecord[]; name: string }, limit: number, transport: 'udp' | 'tcp'): Promise<Uint8Array> {
    const asked = query.questions[0];
    const onward = asked === undefined ? undefined : await this.#forward(encodeQuery(query.id, { ...asked, name }), transport);
    const rest = onward === undefined ? undefined : decodeAnswers(onward);
    return encodeResponse(
      query,
      { rcode: rest?.rcode ?? RCODE.noError, authoritative: true, answers: [...chain, ...(rest?.answers ?? [])], authority: [], additional: [] },
      limit,
    );
  }

  async #forward(bytes: Uint8Array, transport: 'udp' | 'tcp'): Promise<Uint8Array | undefined> {
    if (this.#upstreams.length === 0 || this.#forwards >= MAX_FORWARDS) return undefined;
    this.#forwards++;
    try {
      return await forward(bytes, transport, this.#upstreams, this.#deps, this.#signal);
    } finally {
      this.#forwards--;
    }
  }
}

function cannotListen(listen: Upstream, cause: unknown): OpError {
  return new OpError('failed', 'cluster DNS', `cannot listen on ${listen.host}:${listen.port}: ${messageOf(cause)}`, {
    cause,
    advice: 'Choose another address with --dns-listen, or stop what listens there.',
  });
}

function listenUdp(listen: Upstream, resolver: Resolver): Promise<Socket> {
  return new Promise((resolve, reject) => {
    const socket = createSocket({ type: listen.host.includes(':') ? 'udp6' : 'udp4' });
    socket.once('error', (error) => reject(cannotListen(listen, error)));
    socket.on('message', (bytes, from) => {
      void resolver.resolve(bytes, 'udp').then((answer) => {
        // The asker may be gone, and the socket closed: neither is our trouble.
        if (answer !== undefined) trySend(socket, answer, from.port, from.address);
      });
    });
    socket.bind(listen.port, listen.host, () => {
      socket.removeAllListeners('error');
      socket.on('error', () => {});
      resolve(socket);
    });
  });
}

function trySend(socket: Socket, answer: Uint8Array, port: number, address: string): void {
  try {
    socket.send(answer, port, address, () => {});
  } catch {
    // ERR_SOCKET_DGRAM_NOT_RUNNING: closed while the answer was on its way.
  }
}

function listenTcp(listen: Upstream, resolver: Resolver, deps: ControlDeps): Promise<{ stop(): void }> {
  const connections = new Set<Connection>();
  const server: Server = createServer((connection) => {
    connections.add(connection);
    connection.on('close', () => connections.delete(connection));
    connection.on('error', () => {});
    connection.setTimeout(IDLE_CONNECTION_MS, () => connection.destroy());
    serveConnection(connection, resolver, deps);
  });
  server.maxConnections = MAX_CONNECTIONS;
  const stop = (): void => {
    server.close();
    for (const connection of connections) connection.destroy();
  };
  return new Promise((resolve, reject) => {
    server.once('error', (error) => reject(cannotListen(listen, error)));
    server.listen(listen.port, listen.host, () => resolve({ stop }));
  });
}

/** Messages of one connection are answered in order. */
function serveConnection(connection: Connection, resolver: Resolver, deps: ControlDeps): void {
  let received = Buffer.alloc(0);
  let last: Promise<void> = Promise.resolve();
  connection.on('data', (chunk) => {
    received = Buffer.concat([received, chunk]);
    while (received.length >= 2 && received.length >= 2 + received.readUInt16BE(0)) {
      const message = received.subarray(2, 2 + received.readUInt16BE(0));
      received = received.subarray(2 + message.length);
      last = last
        .then(async () => {
          const answer = await resolver.resolve(message, 'tcp');
          if (answer !== undefined && connection.writable) connection.write(framed(answer));
        })
        .catch((error: unknown) => {
          deps.log.debug(2, 'dns connection failed', { err: messageOf(error) });
          connection.destroy();
        });
    }
  });
}
