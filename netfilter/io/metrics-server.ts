import { flagzObject, flagzText, HealthPage, statuszObject, statuszText, type StatuszFacts } from '../../base/component-pages.ts';
import { zPageAnswer, type ZPage } from '../../base/z-page.ts';
import type { Clock } from '../../base/clock.ts';
import { sendDebugAnswer } from '../../base/debug-answer.ts';
import { messageOf } from '../../base/errors.ts';
import { startTimeText } from '../../base/process-metrics.ts';
import { version } from '../../base/version.ts';
import type { IncomingMessage, ServerResponse } from 'node:http';
import type { DebugPages } from './debug-pages.ts';
import { serve } from './http.ts';

export interface MetricsServerOptions {
  /** Some of what it tells is asked from the kernel when somebody looks. */
  readonly page: { text(): string | Promise<string> };
  readonly mode: string;
  /** The configuration, for /configz. */
  readonly document: object;
  /** Flags with their values, for /flagz; null where ComponentFlagz is off. */
  readonly flagz: (() => Readonly<Record<string, string>>) | null;
  /** Whether there is /statusz (ComponentStatusz). */
  readonly statusz: boolean;
  /** What enableProfiling switches on; null where it is off. */
  readonly debug: Pick<DebugPages, 'answer'> | null;
  readonly clock: Pick<Clock, 'nowMs'>;
  readonly startedMs: number;
}

const CHECKS = [{ name: 'ping', trouble: null }];
const PLAIN = 'text/plain; charset=utf-8';
const METRICS = 'text/plain; version=0.0.4; charset=utf-8';

/** Everything on --metrics-bind-address, in upstream's form. */
export async function serveMetrics(at: { host: string; port: number }, options: MetricsServerOptions): Promise<AsyncDisposable & { port: number }> {
  const { page, mode, document, flagz, statusz, debug, clock, startedMs } = options;
  const health = new HealthPage();
  const facts = (): StatuszFacts => ({
    component: 'kube-proxy',
    startedMs,
    nowMs: clock.nowMs(),
    engine: `node ${process.version}`,
    version,
    paths: ['/configz', ...(flagz === null ? [] : ['/flagz']), '/healthz', '/metrics', '/proxyMode'],
  });
  return await serve(at.host, at.port, (request, response) => {
    // Not by URL, which throws at what it takes for none.
    const [path = '', query = ''] = (request.url ?? '/').split('?', 2);
    switch (path) {
      case '/metrics':
        return void Promise.resolve(page.text()).then(
          (body) => answer(response, METRICS, body),
          (error: unknown) => answer(response, PLAIN, `${messageOf(error)}\n`, 500),
        );
      case '/metrics/slis':
        if (request.method !== 'DELETE') return answer(response, METRICS, health.text() + startTimeText(startedMs / 1000));
        health.reset();
        return answer(response, PLAIN, 'metrics reset\n');
      case '/configz':
        return answer(response, 'application/json', JSON.stringify({ 'kubeproxy.config.k8s.io': document }));
      case '/proxyMode':
        return answer(response, PLAIN, mode);
      case '/healthz': {
        const { status, text } = health.answer(CHECKS, new URLSearchParams(query));
        return answer(response, PLAIN, text, status);
      }
      case '/healthz/ping':
        return answer(response, PLAIN, 'ok');
      case '/flagz':
        if (flagz === null) break;
        return zPage(request, response, { kind: 'Flagz', text: () => flagzText('kube-proxy', flagz()), object: () => flagzObject('kube-proxy', flagz()) });
      case '/statusz':
        if (!statusz) break;
        return zPage(request, response, { kind: 'Statusz', text: () => statuszText(facts()), object: () => statuszObject(facts()) });
    }
    const absent = (): void => answer(response, PLAIN, '404 page not found\n', 404);
    if (debug === null || !path.startsWith('/debug/')) return absent();
    const gone = new AbortController();
    response.once('close', () => gone.abort());
    void debug.answer(path, new URLSearchParams(query), request, gone.signal).then(
      (found) => (found === null ? absent() : sendDebugAnswer(response, found)),
      (error: unknown) => answer(response, PLAIN, `${messageOf(error)}\n`, 500),
    );
  });
}

function answer(response: ServerResponse, type: string, body: string, status = 200): void {
  response.writeHead(status, { 'content-type': type, 'x-content-type-options': 'nosniff' }).end(body);
}

function zPage(request: IncomingMessage, response: ServerResponse, page: ZPage): void {
  void zPageAnswer(request.headers.accept ?? '', page).then(({ status, headers, body }) => {
    response.writeHead(status, headers).end(body);
  });
}
