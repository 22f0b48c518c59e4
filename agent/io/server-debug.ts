import type { IncomingMessage, ServerResponse } from 'node:http';
import { join } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import { sendDebugAnswer, verbosityAnswer } from '../../base/debug-answer.ts';
import { version } from '../../base/version.ts';
import type { Pod } from '../../proto/kube/types.ts';
import { flagzObject, flagzText, statuszObject, statuszText } from '../../base/component-pages.ts';
import { zPageAnswer, type ZPage } from '../../base/z-page.ts';
import type { ServerRoute } from '../core/server-paths.ts';
import type { ContainerFacts } from '../core/types.ts';
import { rpcErrorText, type Cri } from './cri.ts';
import type { Profiles } from '../../base/profiles.ts';
import { HttpFailure, type ServerRequest } from './server.ts';

export interface ServerDebugOptions {
  readonly clock: Clock;
  readonly runtime: Pick<Cri['runtime'], 'checkpointContainer' | 'execSync'>;
  readonly runtimeTimeoutMs: number;
  /** `--root-dir`: checkpoints lie below it. */
  readonly rootDir: string;
  /** When the process began. */
  readonly startedMs: number;
  /** Flags and their values, as /flagz shows them; null where `ComponentFlagz` is off. */
  readonly flagz: Readonly<Record<string, string>> | null;
  readonly statusz: boolean;
  /** `ContainerCheckpoint`. */
  readonly checkpoints: boolean;
  /** Null: `enableProfilingHandler` is off. */
  readonly profiles: Pick<Profiles, 'answer'> | null;
  /** Sets `--v`; null: `enableDebugFlagsHandler` is off. */
  readonly setVerbosity: ((level: number) => void) | null;
}

export interface ServerDebugSeams {
  readonly podOf: (route: { namespace: string; pod: string }, uid: string | null) => Pod;
  readonly hasContainer: (pod: Pod, name: string) => boolean;
  readonly runningContainer: (pod: Pod, name: string) => ContainerFacts;
}

/** As upstream lists them: what was there before the page itself. */
const statuszPaths = ['/configz', '/debug', '/flagz', '/healthz', '/metrics'];

/** Checkpoints, commands in a container, and the pages for who looks for a fault. */
export function createServerDebug(options: ServerDebugOptions, { podOf, hasContainer, runningContainer }: ServerDebugSeams) {
  const { clock, runtime } = options;
  const json = (response: ServerResponse, text: string): void => {
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(text);
  };
  const page = (response: ServerResponse, text: string, status = 200): void => {
    response.writeHead(status, { 'content-type': 'text/plain; charset=utf-8' });
    response.end(text);
  };

  const checkpoint = async (
    route: ServerRoute & { kind: 'checkpoint' },
    query: URLSearchParams,
    response: ServerResponse,
    signal: AbortSignal,
  ): Promise<void> => {
    if (!options.checkpoints) throw new HttpFailure(404, '404: Page Not Found');
    const { namespace, pod: name, container } = route;
    const pod = podOf(route, null);
    if (!hasContainer(pod, container)) throw new HttpFailure(404, `container ${container} does not exist`);
    const asked = query.getAll('timeout').at(-1);
    if (asked !== undefined && !/^[+-]?\d{1,18}$/.test(asked)) throw new HttpFailure(404, 'cannot parse value of timeout parameter');
    const at = new Date(clock.nowMs()).toISOString().slice(0, 19);
    const location = join(options.rootDir, 'checkpoints', `checkpoint-${name}_${namespace}-${container}-${at}Z.tar`);
    const timeout = Number(asked ?? 0);
    try {
      const { id } = runningContainer(pod, container);
      // Without a bound of its own the runtime's general one counts, as upstream has it.
      const timeoutMs = timeout > 0 ? timeout * 1000 : options.runtimeTimeoutMs;
      await runtime.checkpointContainer({ containerId: id, location, timeout }, { timeoutMs, signal });
    } catch (error) {
      const words = error instanceof HttpFailure ? `container ${container} not found` : rpcErrorText(error);
      throw new HttpFailure(500, `checkpointing of ${namespace}/${name}/${container} failed (${words})`);
    }
    json(response, JSON.stringify({ items: [location] }));
  };

  const run = async (route: ServerRoute & { kind: 'run' }, query: URLSearchParams, response: ServerResponse, signal: AbortSignal): Promise<void> => {
    const pod = podOf(route, route.uid);
    const { id } = runningContainer(pod, route.container);
    const cmd = (query.get('cmd') ?? '').split(' ');
    let answer;
    try {
      answer = await runtime.execSync({ containerId: id, cmd }, { timeoutMs: options.runtimeTimeoutMs, signal });
    } catch (error) {
      throw new HttpFailure(500, rpcErrorText(error));
    }
    if (answer.exitCode !== 0)
      throw new HttpFailure(500, `command '${cmd.join(' ')}' exited with ${answer.exitCode}: ${Buffer.from(answer.stderr).toString()}`);
    json(response, Buffer.concat([answer.stdout, answer.stderr]).toString());
  };

  const zPage = async (request: IncomingMessage, response: ServerResponse, asked: ZPage): Promise<void> => {
    const { status, headers, body } = await zPageAnswer(request.headers.accept ?? '', asked);
    response.writeHead(status, headers);
    response.end(body);
  };

  const verbosity = async (request: IncomingMessage, response: ServerResponse): Promise<void> => {
    if (options.setVerbosity === null) throw new HttpFailure(405, 'flags endpoint is disabled.\n');
    const { status, body } = await verbosityAnswer(request, options.setVerbosity);
    page(response, body, status);
  };

  const profile = async (name: string, request: IncomingMessage, query: URLSearchParams, response: ServerResponse, signal: AbortSignal): Promise<void> => {
    if (options.profiles === null) throw new HttpFailure(405, 'profiling endpoint is disabled.\n');
    if (request.method !== 'GET') throw new HttpFailure(405, '405: Method Not Allowed', { allow: 'GET' });
    sendDebugAnswer(response, await options.profiles.answer(name, query, signal));
  };

  return {
    async answer(route: ServerRoute, { raw, query }: ServerRequest, response: ServerResponse, signal: AbortSignal): Promise<void> {
      switch (route.kind) {
        case 'checkpoint':
          return checkpoint(route, query, response, signal);
        case 'run':
          return run(route, query, response, signal);
        case 'flagz': {
          const { flagz } = options;
          if (flagz === null) throw new HttpFailure(404, '404: Page Not Found');
          return zPage(raw, response, { kind: 'Flagz', text: () => flagzText('kubelet', flagz), object: () => flagzObject('kubelet', flagz) });
        }
        case 'statusz': {
          if (!options.statusz) throw new HttpFailure(404, '404: Page Not Found');
          const facts = {
            component: 'kubelet',
            startedMs: options.startedMs,
            nowMs: clock.nowMs(),
            engine: `node ${process.version}`,
            version,
            paths: statuszPaths,
          } as const;
          return zPage(raw, response, { kind: 'Statusz', text: () => statuszText(facts), object: () => statuszObject(facts) });
        }
        case 'verbosity':
          return verbosity(raw, response);
        case 'pprof':
          return profile(route.name, raw, query, response, signal);
        default:
          throw new HttpFailure(404, '404: Page Not Found');
      }
    },
  };
}
