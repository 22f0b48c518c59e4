import { request as httpRequest } from 'node:http';
import type { IncomingMessage } from 'node:http';
import { request as httpsRequest } from 'node:https';
import type { Clock } from '../../base/clock.ts';
import { OpError, messageOf } from '../../base/errors.ts';
import type { Container, LifecycleHandler, Pod } from '../../proto/kube/types.ts';
import { keyOf, podText } from '../core/containers.ts';
import type { Hooks } from '../seams.ts';
import { rpcErrorText } from './cri.ts';
import { answersInClear } from './probes-http.ts';
import type { Cri } from './cri.ts';
import type { PodMetrics } from './pod-metrics.ts';

type HttpGet = NonNullable<LifecycleHandler['httpGet']>;

const userAgent = 'kube-lifecycle/1.37';

/** postStart and preStop: exec in the container, HTTP from the node, or a pause. */
export function createHooks(deps: {
  cri: Cri;
  clock: Clock;
  tell: (pod: Pod, reason: string, message: string) => void;
  metrics?: Pick<PodMetrics, 'hookFellBack' | 'sleepCutShort'>;
}): Hooks {
  const { cri, clock } = deps;

  /** Upstream gives the runtime no time for it: a command that is not done at `limit` runs on until its container ends. */
  const exec = async (containerId: string, command: readonly string[], limit: AbortSignal, signal: AbortSignal): Promise<string | null> => {
    const call = cri.runtime.execSync({ containerId, cmd: [...command], timeout: 0 }, { signal, timeoutMs: Number.POSITIVE_INFINITY });
    const cut = Promise.withResolvers<never>();
    const late = (): void => cut.reject(limit.reason as Error);
    limit.addEventListener('abort', late);
    call.catch(() => undefined);
    try {
      const answer = await Promise.race([call, cut.promise]);
      if (answer.exitCode === 0) return null;
      const stderr = Buffer.from(answer.stderr).subarray(0, outputMax);
      const output = Buffer.concat([Buffer.from(answer.stdout).subarray(0, outputMax), stderr]).subarray(0, outputMax);
      return `error: command '${command.join(' ')}' exited with ${answer.exitCode}: ${stderr.toString()}, message: ${JSON.stringify(output.toString())}`;
    } catch (error) {
      return `error: ${rpcErrorText(error)}, message: ""`;
    } finally {
      limit.removeEventListener('abort', late);
    }
  };

  const get = async (pod: Pod, container: Container, hook: HttpGet, podIP: string | undefined, signal: AbortSignal): Promise<string | null> => {
    const host = hook.host === undefined || hook.host === '' ? podIP : hook.host;
    const port = portOf(hook.port, container);
    if (host === undefined) return 'failed to find networking container';
    if (port === null) return `invalid port number: ${hook.port}`;
    const secure = hook.scheme === 'HTTPS';
    try {
      await fetchOnce(secure, host, port, hook, signal);
      return null;
    } catch (error) {
      // A plain server behind an HTTPS hook answers in clear text: upstream tries again without TLS.
      if (!secure || !answersInClear(error)) return messageOf(error);
      try {
        await fetchOnce(false, host, port, withoutAuthorization(hook), signal);
        deps.metrics?.hookFellBack();
        deps.tell(pod, 'LifecycleHTTPFallback', `request to HTTPS lifecycle hook ${host}:${port} got HTTP response, retry with HTTP succeeded`);
        return null;
      } catch {
        return messageOf(error);
      }
    }
  };

  return {
    async run(pod, container, containerId, podIPs, handler, timeoutMs, signal) {
      using limited = withDeadline(clock, timeoutMs, signal);
      const limit = limited.signal;
      const where = `for Container "${container.name}" in Pod "${podText(keyOf(pod))}" failed - `;
      if (handler.exec !== undefined) {
        const command = handler.exec.command ?? [];
        const problem = await exec(containerId, command, limit, signal);
        return problem === null ? { ok: true } : { ok: false, message: `Exec lifecycle hook ([${command.join(' ')}]) ${where}${problem}` };
      }
      if (handler.httpGet !== undefined) {
        const problem = await get(pod, container, handler.httpGet, podIPs[0], limit);
        return problem === null ? { ok: true } : { ok: false, message: `HTTP lifecycle hook (${handler.httpGet.path ?? ''}) ${where}error: ${problem}` };
      }
      if (handler.sleep !== undefined) {
        try {
          await clock.sleep(handler.sleep.seconds * 1000, limit);
          return { ok: true };
        } catch (error) {
          deps.metrics?.sleepCutShort();
          return { ok: false, message: `Sleep lifecycle hook (${handler.sleep.seconds}) ${where}error: ${messageOf(error)}` };
        }
      }
      return { ok: false, message: 'Cannot run handler: invalid handler' };
    },
  };
}

/** Of what a hook prints: the text stands in the pod's status, and one that is too large keeps all of it from being written. */
const outputMax = 10 * 1024;

/** `signal`, aborted after `ms` too; 0 is no limit. */
function withDeadline(clock: Clock, ms: number, signal: AbortSignal): Disposable & { signal: AbortSignal } {
  if (ms === 0) return { signal, [Symbol.dispose]: () => undefined };
  const controller = new AbortController();
  const timer = clock.after(ms, () => controller.abort(new OpError('deadline', 'run a lifecycle hook', `not done within ${ms} ms`)));
  return { signal: AbortSignal.any([signal, controller.signal]), [Symbol.dispose]: () => timer[Symbol.dispose]() };
}

function portOf(port: number | string, container: Container): number | null {
  const number = typeof port === 'number' ? port : (container.ports?.find((each) => each.name === port)?.containerPort ?? Number(port));
  return Number.isInteger(number) && number > 0 && number < 65_536 ? number : null;
}

/** What was meant for TLS alone is not sent in clear text. */
function withoutAuthorization(hook: HttpGet): HttpGet {
  return { ...hook, httpHeaders: (hook.httpHeaders ?? []).filter(({ name }) => name.toLowerCase() !== 'authorization') };
}

/** Any answer will do; its status does not matter. */
function fetchOnce(secure: boolean, host: string, port: number, hook: HttpGet, signal: AbortSignal): Promise<void> {
  // Without what every object has: `constructor` is the name of a header as any other.
  const headers = Object.create(null) as Record<string, string | string[]>;
  for (const { name, value } of hook.httpHeaders ?? []) {
    const key = name.toLowerCase();
    headers[key] = headers[key] === undefined ? value : [headers[key], value].flat();
  }
  headers['user-agent'] ??= userAgent;
  headers['accept'] ??= '*/*';
  if (headers['accept'] === '') delete headers['accept'];
  const path = hook.path === undefined || hook.path === '' ? '/' : hook.path.startsWith('/') ? hook.path : `/${hook.path}`;
  return new Promise((resolve, reject) => {
    const answered = (response: IncomingMessage): void => {
      response.destroy();
      resolve();
    };
    const options = { host, port, path, headers, signal, agent: false, method: 'GET' } as const;
    const sent = secure ? httpsRequest({ ...options, rejectUnauthorized: false }, answered) : httpRequest(options, answered);
    sent.on('error', (error) => reject(signal.aborted ? signal.reason : error));
    sent.end();
  });
}
