import type { IncomingMessage, ServerResponse } from 'node:http';
import type { Duplex } from 'node:stream';
import { once } from 'node:events';
import type { Clock } from '../../base/clock.ts';
import { hasCode, messageOf } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import { microsOf, readLog } from '../../cri/mod.ts';
import type { Container, Pod } from '../../proto/kube/types.ts';
import { logContainerId } from '../core/log-container.ts';
import { readLogQuery, type ServerRoute } from '../core/server-paths.ts';
import { HealthPage, type HealthCheck } from '../../base/component-pages.ts';
import { execProtocol, forwardPorts, tunnelledProtocols, webSocketProtocols } from '../core/stream-protocols.ts';
import type { ContainerFacts } from '../core/types.ts';
import type { Pods } from '../seams.ts';
import type { Cri } from './cri.ts';
import { HttpFailure, type ServerRequest } from './server.ts';
import { createServerDebug, type ServerDebugOptions } from './server-debug.ts';
import type { createSystemLogs } from './system-logs.ts';
import { splice } from './stream-splice.ts';
import { translateExec, type AskedStreams } from './stream-translate.ts';
import { tunnelSpdy } from './stream-tunnel.ts';

export type ServerRuntimeCalls = Pick<Cri['runtime'], 'containerStatus' | 'exec' | 'attach' | 'portForward' | 'checkpointContainer' | 'execSync'>;

export interface ServerRoutesOptions {
  clock: Clock;
  log: Log;
  pods: Pods;
  runtime: ServerRuntimeCalls;
  runtimeTimeoutMs: number;
  podLogsDir: string;
  debug: Omit<ServerDebugOptions, 'clock' | 'runtime' | 'runtimeTimeoutMs'>;
  /** `/logs/`; null: `enableSystemLogHandler` is off. */
  systemLogs: ReturnType<typeof createSystemLogs> | null;
  /** `enableDebuggingHandlers`: all but health, pods, metrics and stats. */
  debugHandlers: boolean;
  /** `ExtendWebSocketsToKubelet`: exec and attach by v5.channel.k8s.io, port-forward through a WebSocket. */
  webSockets: boolean;
  /** A stream that is spoken here and not passed on as it is. */
  streamed?: (subresource: 'exec' | 'attach' | 'portforward') => void;
  /** `PodLogsQuerySplitStreams`: one of a container's two streams may be asked for. */
  splitStreams: boolean;
  /** Pods that hold something of the node, as they were given it. */
  allocated: () => readonly Pod[];
  /** The whole configuration, as /configz shows it. */
  configz: () => unknown;
  /** Null: the sync loop lives. */
  syncLoop: () => string | null;
  /** Metrics by page, in Prometheus' text form. */
  metrics: (page: '' | 'cadvisor' | 'resource' | 'probes' | 'slis', signal: AbortSignal) => Promise<string>;
  /** /stats/summary. */
  stats: (query: URLSearchParams, signal: AbortSignal) => Promise<unknown>;
}

/** Without debugging handlers these are refused in words, and the others are not there. */
const refusedRoutes: readonly ServerRoute['kind'][] = ['run', 'exec', 'attach', 'portForward', 'logs', 'runningpods', 'pprof', 'systemLogs'];
const plainRoutes: readonly ServerRoute['kind'][] = ['healthz', 'pods', 'metrics', 'stats'];

/** What the agent's HTTPS API answers, for requests that may be made. */
export function createServerRoutes(options: ServerRoutesOptions) {
  const { pods, runtime, log } = options;
  const call = (signal: AbortSignal) => ({ timeoutMs: options.runtimeTimeoutMs, signal });

  const requireDebug = (route: ServerRoute): void => {
    if (options.debugHandlers || plainRoutes.includes(route.kind)) return;
    throw refusedRoutes.includes(route.kind) ? new HttpFailure(405, 'Debug endpoints are disabled.\n') : new HttpFailure(404, '404: Page Not Found');
  };

  const podOf = (route: { namespace: string; pod: string }, uid: string | null): Pod => {
    const pod = pods.byName(route.namespace, route.pod);
    if (pod === undefined) throw new HttpFailure(404, 'pod does not exist');
    if (uid !== null && pod.metadata.uid !== uid) throw new HttpFailure(404, 'pod not found');
    return pod;
  };

  /** The container of that name that runs now. */
  const runningContainer = (pod: Pod, name: string): ContainerFacts => {
    const found = pods.facts(pod.metadata.uid ?? '')?.containers.find((each) => each.name === name && each.state === 'running');
    if (found === undefined) throw new HttpFailure(500, `container not found ("${name}")`);
    return found;
  };

  const debug = createServerDebug(
    { ...options.debug, clock: options.clock, runtime, runtimeTimeoutMs: options.runtimeTimeoutMs },
    { podOf, hasContainer: (pod, name) => specOf(pod, name) !== undefined, runningContainer },
  );

  const healthPage = new HealthPage();
  const resetHealth = (response: ServerResponse): void => {
    healthPage.reset();
    response.writeHead(200, { 'content-type': 'text/plain; charset=utf-8' });
    response.end('metrics reset\n');
  };
  const health = (check: string, query: URLSearchParams, response: ServerResponse): void => {
    const checks: HealthCheck[] = [
      { name: 'ping', trouble: null },
      { name: 'log', trouble: null },
      { name: 'syncloop', trouble: options.syncLoop() },
      // The agent ends when that server does.
      { name: 'device-plugin', trouble: null },
    ];
    const one = checks.find(({ name }) => name === check);
    if (check !== '' && one === undefined) throw new HttpFailure(404, '404: Page Not Found');
    const { status, text } =
      one === undefined
        ? healthPage.answer(checks, query)
        : one.trouble === null
          ? { status: 200, text: 'ok' }
          : { status: 500, text: `internal server error: ${one.trouble}\n` };
    response.writeHead(status, { 'content-type': 'text/plain; charset=utf-8', 'x-content-type-options': 'nosniff' });
    response.end(text);
  };

  /** By name alone, as upstream: a static pod's UID here is another than that of its mirror pod, which a client knows. */
  const isRunning = (pod: Pod, { container }: { container: string }): boolean =>
    pods.facts(pod.metadata.uid ?? '')?.containers.some((each) => each.name === container && each.state === 'running') ?? false;

  const logs = async (route: ServerRoute & { kind: 'logs' }, request: ServerRequest, response: ServerResponse, signal: AbortSignal): Promise<void> => {
    const query = readLogQuery((key) => request.query.get(key));
    if (query === 'undecodable') throw new HttpFailure(400, '{"message": "Unable to decode query."}');
    if (query === 'invalid') throw new HttpFailure(422, '{"message": "Invalid request."}');
    const pod = pods.byName(route.namespace, route.pod);
    if (pod === undefined) throw new HttpFailure(404, `pod "${route.pod}" does not exist`);
    if (specOf(pod, route.container) === undefined) throw new HttpFailure(404, `container "${route.container}" not found in pod "${route.pod}"`);
    if (query.stream !== 'All' && !options.splitStreams)
      throw new HttpFailure(400, `unable to return the given log stream: "${query.stream}". Please enable PodLogsQuerySplitStreams feature gate in kubelet`);
    const chosen = logContainerId(route.pod, pod.status ?? {}, route.container, query.previous);
    if (typeof chosen === 'string') throw new HttpFailure(400, chosen);
    const sinceMicros =
      query.sinceAgoMs !== null ? (options.clock.nowMs() - query.sinceAgoMs) * 1000 : query.sinceTime === null ? null : microsOf(query.sinceTime);
    if (Number.isNaN(sinceMicros)) throw new HttpFailure(400, `sinceTime ${JSON.stringify(query.sinceTime)} is not an RFC 3339 time`);
    const { status } = await runtime.containerStatus({ containerId: chosen.id, verbose: false }, call(signal)).catch((error: unknown) => {
      if (hasCode(error, 'not-found')) return { status: null };
      throw error;
    });
    if (status === null || status.logPath === '') throw new HttpFailure(400, `unable to retrieve container logs for ${chosen.fullId}`);
    const uid = pod.metadata.uid ?? '';
    const isRunning = (): boolean =>
      pods.facts(uid)?.containers.some((each) => each.id === chosen.id && (each.state === 'running' || each.state === 'created')) ?? false;
    const open = (): void => {
      if (response.headersSent) return;
      response.writeHead(200, { 'content-type': 'text/plain' });
      response.flushHeaders();
    };
    // Headers of a followed log go out at once: the client waits for them before it shows anything.
    const early = query.follow ? setTimeout(open, 200) : undefined;
    try {
      await readLog(
        {
          clock: options.clock,
          path: status.logPath,
          root: options.podLogsDir,
          follow: query.follow,
          tailLines: query.tailLines,
          limitBytes: query.limitBytes,
          sinceMicros,
          timestamps: query.timestamps,
          stream: query.stream,
          isRunning,
        },
        async (piece) => {
          open();
          if (!response.write(piece)) await once(response, 'drain', { signal });
        },
        signal,
      );
    } catch (error) {
      if (signal.aborted) return;
      if (!hasCode(error, 'not-found')) throw error;
      // Upstream has said 200 by then.
      open();
      response.write(`failed to try resolving symlinks in path "${status.logPath}": lstat ${status.logPath}: no such file or directory`);
    } finally {
      clearTimeout(early);
    }
    open();
    response.end();
  };

  const streamUrl = async (route: ServerRoute, { query, raw }: ServerRequest, signal: AbortSignal): Promise<{ url: string; asked: AskedStreams | null }> => {
    if (route.kind === 'portForward') {
      const port = isPlainWebSocket(raw) ? forwardPorts(query.getAll('port')) : [];
      if (typeof port === 'string') throw new HttpFailure(400, port);
      const pod = podOf(route, route.uid);
      const sandbox = pods.facts(pod.metadata.uid ?? '')?.sandboxes.find(({ ready }) => ready);
      if (sandbox === undefined) throw new HttpFailure(500, `pod not found ("${route.pod}_${route.namespace}")`);
      return { url: (await runtime.portForward({ podSandboxId: sandbox.id, port }, call(signal))).url, asked: null };
    }
    if (route.kind !== 'exec' && route.kind !== 'attach') throw new HttpFailure(404, '404 page not found');
    const flag = (key: string): boolean => query.get(key) === '1' || query.get(key) === 'true';
    const [stdin, stdout, stderrAsked, ttyAsked] = [flag('input'), flag('output'), flag('error'), flag('tty')] as const;
    if (!stdin && !stdout && !stderrAsked) throw new HttpFailure(400, 'you must specify at least 1 of stdin, stdout, stderr');
    const pod = podOf(route, null);
    if (route.kind === 'attach' && !isRunning(pod, route))
      throw new HttpFailure(500, `container ${route.container} not found in pod ${route.pod}_${route.namespace}`);
    if (!isRunning(pod, route)) throw new HttpFailure(500, `container not found ("${route.container}")`);
    const container = runningContainer(pod, route.container);
    // Whether a process has a terminal is settled when it starts: attach takes what the container was made with.
    const tty = route.kind === 'attach' ? (specOf(pod, route.container)?.tty ?? false) : ttyAsked;
    const streams = { containerId: container.id, stdin, stdout, stderr: stderrAsked && !tty, tty };
    const asked = { stdin, stdout, stderr: stderrAsked, tty };
    if (route.kind === 'attach') return { url: (await runtime.attach(streams, call(signal))).url, asked };
    const cmd = query.getAll('command');
    return { url: (await runtime.exec({ ...streams, cmd }, call(signal))).url, asked };
  };

  return {
    handle: async (route: ServerRoute, request: ServerRequest, response: ServerResponse, signal: AbortSignal): Promise<void> => {
      requireDebug(route);
      switch (route.kind) {
        case 'healthz':
          return health(route.check, request.query, response);
        case 'pods':
          return answerJson(response, podList(pods.list()));
        case 'runningpods':
          return answerJson(response, podList(runningPods(pods)));
        case 'allocatedPods':
          return answerJson(response, allocatedAnswer(options.allocated(), route.pod));
        case 'configz':
          return answerJson(response, { kubeletconfig: options.configz() });
        case 'metrics': {
          if (route.what === 'slis' && request.raw.method === 'DELETE') return resetHealth(response);
          const text = (route.what === 'slis' ? healthPage.text() : '') + (await options.metrics(route.what, signal));
          response.writeHead(200, { 'content-type': 'text/plain; version=0.0.4; charset=utf-8; escaping=underscores' });
          return void response.end(text);
        }
        case 'stats':
          return answerJson(response, await options.stats(request.query, signal));
        case 'logs':
          return logs(route, request, response, signal);
        case 'systemLogs':
          if (options.systemLogs === null) throw new HttpFailure(405, 'logs endpoint is disabled.\n');
          return options.systemLogs.answer(route.path, request.query, response, signal);
        case 'exec':
        case 'attach':
        case 'portForward':
          // What is wrong with it besides is said first, as upstream does: it asks the runtime before it looks.
          await streamUrl(route, request, signal);
          throw new HttpFailure(500, 'Upgrade request required\n');
        default:
          return debug.answer(route, request, response, signal);
      }
    },
    upgrade: async (route: ServerRoute, request: ServerRequest, client: Duplex, head: Uint8Array, signal: AbortSignal): Promise<void> => {
      requireDebug(route);
      const { url, asked } = await streamUrl(route, request, signal);
      log.debug(4, 'Joining a stream', { kind: route.kind });
      const protocols = options.webSockets ? webSocketProtocols(request.raw.headers) : [];
      const tunnelled = tunnelledProtocols(protocols);
      try {
        const isOurs = asked === null ? tunnelled.length > 0 : protocols.includes(execProtocol);
        if (isOurs) options.streamed?.(route.kind === 'portForward' ? 'portforward' : route.kind === 'attach' ? 'attach' : 'exec');
        if (asked !== null && protocols.includes(execProtocol)) await translateExec(request.raw, client, head, new URL(url), asked, signal);
        else if (asked === null && tunnelled.length > 0) await tunnelSpdy(request.raw, client, head, new URL(url), tunnelled, signal);
        else await splice(request.raw, client, head, new URL(url), signal);
      } catch (error) {
        throw hasCode(error, 'unavailable') ? new HttpFailure(500, `error dialing backend: ${messageOf(error)}\n`) : error;
      }
    },
  };
}

function specOf(pod: Pod, name: string): Pick<Container, 'tty'> | undefined {
  const { containers, initContainers = [], ephemeralContainers = [] } = pod.spec;
  return [...containers, ...initContainers, ...ephemeralContainers].find((each) => each.name === name);
}

/** Statuses are left out: they tell of what is, and this is what was given. */
function allocatedAnswer(all: readonly Pod[], one: { namespace: string; name: string; uid: string } | null): unknown {
  if (one === null) return podList(all.map((pod) => ({ ...pod, status: {} })));
  const { namespace, name, uid } = one;
  if (namespace === '' || name === '') throw new HttpFailure(400, 'podNamespace and podID are required');
  const found = all.find(({ metadata }) => metadata.namespace === namespace && metadata.name === name);
  if (found === undefined || (uid !== '' && found.metadata.uid !== uid)) throw new HttpFailure(404, 'pod not found');
  return { kind: 'Pod', apiVersion: 'v1', metadata: found.metadata, spec: found.spec, status: {} };
}

function podList(items: readonly Pod[]): unknown {
  const bare = items.map(({ metadata, spec, status }) => ({ metadata, spec, status }));
  return { kind: 'PodList', apiVersion: 'v1', metadata: {}, items: bare };
}

/** What the runtime has, as pods with names and images only, as upstream prints it. */
function runningPods(pods: Pods): Pod[] {
  return pods
    .allFacts()
    .map(({ uid, namespace, name, containers }) => ({
      metadata: { name, namespace, uid },
      spec: { containers: containers.filter(({ state }) => state === 'running').map((each) => ({ name: each.name, image: each.imageRef, resources: {} })) },
      status: {},
    }))
    .filter(({ spec }) => spec.containers.length > 0);
}

/** Port-forward of older clients, which name their ports beforehand. */
function isPlainWebSocket(raw: IncomingMessage): boolean {
  const protocols = webSocketProtocols(raw.headers);
  return protocols.length > 0 && tunnelledProtocols(protocols).length === 0;
}

function answerJson(response: ServerResponse, body: unknown): void {
  response.writeHead(200, { 'content-type': 'application/json' });
  response.end(`${JSON.stringify(body)}\n`);
}
