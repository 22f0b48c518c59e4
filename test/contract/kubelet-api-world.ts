import { spawn, spawnSync, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { createWriteStream } from 'node:fs';
import { mkdir, writeFile } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { request, type RequestOptions } from 'node:https';
import type { AddressInfo } from 'node:net';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { issueCertificate, selfSigned } from '../../base/x509.ts';
import { freePort } from '../control/control.ts';

/*
 * Two kubelets, upstream's and ours, each with a runtime in memory, before one API server that knows whose token is
 * whose and who may do what. The same request goes to both.
 */

const repo = new URL('../..', import.meta.url).pathname;
const validity = { notBeforeMs: Date.now() - 60_000, notAfterMs: Date.now() + 3_600_000 };
export const ca = selfSigned({ subject: { commonName: 'ca' }, ...validity, isCA: true });
const otherCa = selfSigned({ subject: { commonName: 'other' }, ...validity, isCA: true });
const certificate = (commonName: string, by: typeof ca, from = validity.notBeforeMs, to = validity.notAfterMs) =>
  issueCertificate({ subject: { commonName }, notBeforeMs: from, notAfterMs: to, usages: ['clientAuth'] }, by);
const pairOf = ({ certificatePem: cert, privateKeyPem: key }: ReturnType<typeof certificate>) => ({ cert, key });

/** Who asks. `admin` may do all, `metrics` GET nodes/metrics, `proxy` GET nodes/proxy, `pods` GET nodes/pods, `nobody` nothing. */
export const callers: Readonly<Record<string, RequestOptions>> = {
  'no credentials': {},
  admin: pairOf(certificate('admin', ca)),
  'a certificate of another CA': pairOf(certificate('admin', otherCa)),
  'an expired certificate': pairOf(certificate('admin', ca, Date.now() - 7_200_000, Date.now() - 3_600_000)),
  'an expired token': { headers: { authorization: 'Bearer expired' } },
  'an empty token': { headers: { authorization: 'Bearer ' } },
  'basic authentication': { headers: { authorization: `Basic ${Buffer.from('admin:admin').toString('base64')}` } },
  'no right': { headers: { authorization: 'Bearer nobody' } },
  'a right to metrics': { headers: { authorization: 'Bearer metrics' } },
  'a right to pods': { headers: { authorization: 'Bearer pods' } },
  'a right to proxy': { headers: { authorization: 'Bearer proxy' } },
  'a right to healthz': { headers: { authorization: 'Bearer healthz' } },
  'a right to configz': { headers: { authorization: 'Bearer configz' } },
};

const maySee: Readonly<Record<string, (attributes: { verb?: string; subresource?: string }) => boolean>> = {
  admin: () => true,
  ...Object.fromEntries(
    ['metrics', 'pods', 'proxy', 'healthz', 'configz'].map((name) => [
      name,
      ({ verb, subresource }: { verb?: string; subresource?: string }) => verb === 'get' && subresource === name,
    ]),
  ),
};

interface Review {
  spec: { token?: string; user?: string; resourceAttributes?: { verb?: string; subresource?: string } };
}

async function answer(raw: IncomingMessage, response: ServerResponse): Promise<void> {
  let body = '';
  for await (const piece of raw) body += String(piece);
  const path = (raw.url ?? '').split('?')[0] ?? '';
  const say = (status: number, object: object): void => {
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify(object));
  };
  if (path.endsWith('/tokenreviews')) {
    const { spec } = JSON.parse(body) as Review;
    const known = spec.token !== undefined && spec.token !== 'expired';
    const status = known ? { authenticated: true, user: { username: spec.token, groups: [] } } : { authenticated: false, error: 'token has expired' };
    return say(201, { apiVersion: 'authentication.k8s.io/v1', kind: 'TokenReview', metadata: {}, spec, status });
  }
  if (path.endsWith('/subjectaccessreviews')) {
    const { spec } = JSON.parse(body) as Review;
    const allowed = maySee[spec.user ?? '']?.(spec.resourceAttributes ?? {}) ?? false;
    return say(201, { apiVersion: 'authorization.k8s.io/v1', kind: 'SubjectAccessReview', metadata: {}, spec, status: { allowed } });
  }
  if (raw.method === 'GET' && /\/(pods|services|nodes|configmaps|runtimeclasses|csidrivers)$/.test(path) && !(raw.url ?? '').includes('watch=')) {
    const kinds: Readonly<Record<string, string>> = {
      pods: 'PodList',
      services: 'ServiceList',
      nodes: 'NodeList',
      runtimeclasses: 'RuntimeClassList',
      csidrivers: 'CSIDriverList',
    };
    const last = path.split('/').at(-1) ?? '';
    return say(200, {
      apiVersion: path.startsWith('/api/') ? 'v1' : path.split('/').slice(2, 4).join('/'),
      kind: kinds[last] ?? 'List',
      metadata: { resourceVersion: '1' },
      items: [],
    });
  }
  if (raw.method === 'GET' && (raw.url ?? '').includes('watch=')) {
    response.writeHead(200, { 'content-type': 'application/json' });
    response.flushHeaders();
    return;
  }
  say(404, { kind: 'Status', apiVersion: 'v1', metadata: {}, status: 'Failure', message: 'not found', reason: 'NotFound', code: 404 });
}

export interface Asked {
  readonly status: number;
  readonly text: string;
  readonly headers: Readonly<Record<string, string | string[] | undefined>>;
}

export interface TwoKubelets extends AsyncDisposable {
  ask(which: 'upstream' | 'ours', method: string, path: string, caller: RequestOptions, extra?: Readonly<Record<string, string>>): Promise<Asked>;
}

/** Starts both in `folder`, whose programs and files all lie there; ours alone where there is no `kubelet`. `config` goes into both configuration files. */
export async function startBoth(folder: string, kubelet: string | null, config: object = {}): Promise<TwoKubelets> {
  const kinds = kubelet === null ? (['ours'] as const) : (['upstream', 'ours'] as const);
  const ports = { upstream: await freePort(), ours: await freePort() };
  const api = createServer((raw, response) => void answer(raw, response).catch(() => response.destroy())).listen(0, '127.0.0.1');
  await once(api, 'listening');
  const children: ChildProcess[] = [];
  const start = (name: string, argv: readonly string[], env: Readonly<Record<string, string>> = {}): ChildProcess => {
    const log = createWriteStream(join(folder, `${name}.log`));
    const child = spawn(argv[0] ?? '', argv.slice(1), { env: { ...process.env, ...env }, stdio: ['ignore', 'pipe', 'pipe'] });
    child.stdout?.pipe(log);
    child.stderr?.pipe(log);
    children.push(child);
    return child;
  };
  await writeFile(join(folder, 'ca.crt'), ca.certificatePem);
  const server = `http://127.0.0.1:${(api.address() as AddressInfo).port}`;
  const kubeconfig = join(folder, 'kubeconfig');
  await writeFile(
    kubeconfig,
    JSON.stringify({
      apiVersion: 'v1',
      kind: 'Config',
      clusters: [{ name: 'c', cluster: { server } }],
      users: [{ name: 'u', user: {} }],
      contexts: [{ name: 'x', context: { cluster: 'c', user: 'u' } }],
      'current-context': 'x',
    }),
  );
  for (const which of kinds) {
    const own = join(folder, which);
    await mkdir(join(own, 'manifests'), { recursive: true });
    await writeFile(
      join(own, 'manifests/p.yaml'),
      JSON.stringify({
        apiVersion: 'v1',
        kind: 'Pod',
        metadata: { name: 'p', namespace: 'ns' },
        spec: { hostNetwork: true, containers: [{ name: 'c', image: 'busybox:1', imagePullPolicy: 'IfNotPresent' }] },
      }),
    );
    const socket = join(own, 'cri.sock');
    const runtime = start(`${which}-runtime`, [process.execPath, join(repo, 'test/cri/fake-runtime.ts'), socket, 'pulls']);
    await once(runtime.stdout ?? runtime, 'data');
    await writeFile(
      join(own, 'kubelet.yaml'),
      JSON.stringify({
        apiVersion: 'kubelet.config.k8s.io/v1beta1',
        kind: 'KubeletConfiguration',
        address: '127.0.0.1',
        port: ports[which],
        healthzPort: 0,
        authentication: { anonymous: { enabled: false }, webhook: { enabled: true }, x509: { clientCAFile: join(folder, 'ca.crt') } },
        authorization: { mode: 'Webhook' },
        cgroupsPerQOS: false,
        enforceNodeAllocatable: [],
        cgroupDriver: 'cgroupfs',
        failCgroupV1: false,
        failSwapOn: false,
        makeIPTablesUtilChains: false,
        containerRuntimeEndpoint: `unix://${socket}`,
        staticPodPath: join(own, 'manifests'),
        podLogsDir: join(own, 'logs'),
        contentType: 'application/json',
        localStorageCapacityIsolation: false,
        ...config,
      }),
    );
    const args = [
      `--config=${join(own, 'kubelet.yaml')}`,
      `--kubeconfig=${kubeconfig}`,
      '--hostname-override=n1',
      `--root-dir=${join(own, 'root')}`,
      `--cert-dir=${join(own, 'certs')}`,
    ];
    start(which, which === 'upstream' ? [kubelet ?? '', ...args] : [process.execPath, join(repo, 'node/main.ts'), 'agent', ...args]);
  }
  const ask: TwoKubelets['ask'] = async (which, method, path, caller, extra = {}) => {
    const sent = request({
      host: '127.0.0.1',
      port: ports[which],
      path,
      method,
      rejectUnauthorized: false,
      agent: false,
      timeout: 20_000,
      ...caller,
      headers: { ...(caller.headers as object), ...extra },
    });
    sent.on('timeout', () => sent.destroy(new Error('no answer')));
    sent.end();
    const [response] = (await Promise.race([once(sent, 'response'), once(sent, 'upgrade')])) as [IncomingMessage];
    let text = '';
    if (response.statusCode === 101) sent.destroy();
    else for await (const piece of response) text += String(piece);
    return { status: response.statusCode ?? 0, text, headers: response.headers };
  };
  const stop = async (): Promise<void> => {
    for (const child of children) child.kill('SIGKILL');
    // Upstream mounts its own root over itself.
    for (const which of ['upstream', 'ours']) spawnSync('umount', ['-l', join(folder, which, 'root')]);
    await Promise.all(children.filter((child) => child.exitCode === null && child.signalCode === null).map((child) => once(child, 'exit')));
    api.closeAllConnections();
    api.close();
  };
  try {
    for (const which of kinds) {
      const untilMs = Date.now() + 240_000;
      for (;;) {
        const up = await ask(which, 'GET', '/pods', callers['admin'] ?? {}).catch(() => null);
        if (up !== null && up.status === 200 && up.text.includes('"Running"')) break;
        if (Date.now() > untilMs)
          throw new Error(`the kubelet ${which} does not answer with a running pod: ${up?.status ?? 'no answer'} ${up?.text ?? ''}; see ${folder}`);
        await delay(250);
      }
    }
  } catch (error) {
    await stop();
    throw error;
  }
  return { ask, [Symbol.asyncDispose]: stop };
}
