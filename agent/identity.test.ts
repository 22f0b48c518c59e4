import assert from 'node:assert/strict';
import { mkdtemp, readdir, readFile, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { CertificateSigningRequest } from '../proto/kube/types.ts';
import { realClock, type Clock } from '../base/clock.ts';
import { readKubeConfig } from '../base/kubeapi/config.ts';
import { pods } from '../base/kubeapi/refs.ts';
import { authority as serverAuthority, clientPair, TestServer, type TestRequest } from '../base/kubeapi/test-server.ts';
import { silentLog } from '../base/log.ts';
import { seededRng } from '../base/rng.ts';
import { readConfiguration, type KubeletConfiguration } from './core/config.ts';
import { openIdentity, type Identity } from './identity.ts';
import { createCertMetrics } from './io/cert-metrics.ts';
import { sign } from './io/test-signer.ts';

const hour = 3_600_000;
const quick: Clock = { ...realClock, sleep: (ms, signal) => realClock.sleep(ms / 50, signal) };

function configuration(rotateCertificates: boolean): KubeletConfiguration {
  return readConfiguration({ apiVersion: 'kubelet.config.k8s.io/v1beta1', kind: 'KubeletConfiguration', rotateCertificates }).config;
}

/** An API server that knows requests for certificates, and signs them when told to. */
class Signing {
  readonly server = new TestServer();
  readonly requests: CertificateSigningRequest[] = [];
  readonly users: string[] = [];
  #watchers: ((event: unknown) => void)[] = [];
  #version = 1;

  constructor() {
    this.server.handler = (request) => this.#answer(request);
  }

  #answer(request: TestRequest): ReturnType<TestServer['handler']> {
    this.users.push(`${request.user ?? request.headers['authorization'] ?? 'nobody'} ${request.method} ${request.path}`);
    if (!request.path.includes('certificatesigningrequests')) return { body: { kind: 'Pod', metadata: { name: 'p' } } };
    if (request.method === 'POST') return this.#create(JSON.parse(request.body) as CertificateSigningRequest);
    const name = request.path.split('/')[5];
    if (name !== undefined) return { body: this.requests.find(({ metadata }) => metadata.name === name) };
    return {
      live: (write) => {
        for (const object of this.requests) write({ type: 'ADDED', object });
        const metadata = { resourceVersion: String(this.#version), annotations: { 'k8s.io/initial-events-end': 'true' } };
        write({ type: 'BOOKMARK', object: { kind: 'CertificateSigningRequest', metadata } });
        this.#watchers.push(write);
      },
    };
  }

  #create(body: CertificateSigningRequest): ReturnType<TestServer['handler']> {
    const name = body.metadata.name ?? `csr-${this.requests.length}`;
    if (this.requests.some(({ metadata }) => metadata.name === name))
      return { status: 409, body: { kind: 'Status', status: 'Failure', code: 409, reason: 'AlreadyExists', message: 'it exists' } };
    const made = { ...body, metadata: { ...body.metadata, name, uid: `uid-${name}`, resourceVersion: String(++this.#version) } };
    this.requests.push(made);
    return { status: 201, body: made };
  }

  /** Signs the request of that index, or denies it. */
  decide(index: number, how: 'sign' | 'deny', lifeMs = hour): void {
    const before = this.requests[index];
    assert.ok(before !== undefined);
    const signed =
      how === 'sign' ? sign(before, realClock, lifeMs) : { ...before, status: { conditions: [{ type: 'Denied', status: 'True', reason: 'Test' }] } };
    signed.metadata = { ...signed.metadata, resourceVersion: String(++this.#version) };
    this.requests[index] = signed;
    for (const write of this.#watchers) write({ type: 'MODIFIED', object: signed });
  }
}

async function setUp(t: TestContext, rotate: boolean) {
  const dir = await mkdtemp(join(tmpdir(), 'identity-'));
  t.after(() => rm(dir, { recursive: true }));
  const signing = new Signing();
  const port = await signing.server.listen();
  t.after(() => signing.server[Symbol.asyncDispose]());
  const document = (user: object): string =>
    JSON.stringify({
      kind: 'Config',
      'current-context': 'c',
      contexts: [{ name: 'c', context: { cluster: 'k', user: 'u' } }],
      clusters: [
        {
          name: 'k',
          cluster: { server: `https://127.0.0.1:${port}`, 'certificate-authority-data': Buffer.from(serverAuthority.certificatePem).toString('base64') },
        },
      ],
      users: [{ name: 'u', user }],
    });
  const flags = { kubeconfig: join(dir, 'etc', 'kubelet.conf'), bootstrapKubeconfig: join(dir, 'bootstrap.conf'), certDir: join(dir, 'pki') };
  await writeFile(flags.bootstrapKubeconfig, document({ token: 'abcdef.0123456789abcdef' }));
  const stop = new AbortController();
  t.after(() => stop.abort());
  const open = (signal = stop.signal, bootstrapKubeconfig = flags.bootstrapKubeconfig, clock = quick): Promise<Identity> =>
    openIdentity(
      {
        clock,
        rng: seededRng(1),
        log: silentLog,
        config: configuration(rotate),
        flags: { ...flags, bootstrapKubeconfig },
        nodeName: 'n1',
        certificates: createCertMetrics(quick),
      },
      signal,
    );
  return { dir, flags, signing, document, open, stop };
}

async function until(condition: () => boolean | Promise<boolean>, what: string): Promise<void> {
  for (let waited = 0; !(await condition()); waited += 10) {
    assert.ok(waited < 10_000, `not in time: ${what}`);
    await delay(10);
  }
}

const works = (identity: Identity) => async (): Promise<boolean> =>
  identity.api.get(pods('a', 'p')).then(
    () => true,
    () => false,
  );

test('with rotation the kubeconfig is written first, and the certificate comes in the background', async (t) => {
  const { flags, open, signing, stop } = await setUp(t, true);
  await using identity = await open();
  const config = await readKubeConfig(flags.kubeconfig);
  assert.deepEqual(config.cert, { file: join(flags.certDir, 'kubelet-client-current.pem') });
  assert.equal((await stat(flags.kubeconfig)).mode & 0o777, 0o600);
  assert.match(await readFile(flags.kubeconfig, 'utf8'), /^apiVersion: v1\nclusters:\n +- cluster:\n/);
  await assert.rejects(identity.api.get(pods('a', 'p')), { code: 'unavailable' });
  const running = identity.run(stop.signal);
  await until(() => signing.requests.length === 1, 'a request');
  signing.decide(0, 'sign');
  await until(works(identity), 'a certificate');
  assert.ok(signing.users.includes('Bearer abcdef.0123456789abcdef POST /apis/certificates.k8s.io/v1/certificatesigningrequests'));
  assert.equal(signing.users.at(-1), 'system:node:n1 GET /api/v1/namespaces/a/pods/p');
  stop.abort();
  await running;
  // The next start needs neither the bootstrap kubeconfig nor another request.
  await rm(flags.bootstrapKubeconfig);
  await using next = await open(new AbortController().signal);
  assert.ok(await works(next)());
  assert.equal(signing.requests.length, 1);
});

test('without rotation the bootstrap is waited for; a process that was killed finds its key and its request again', async (t) => {
  const { dir, flags, open, signing } = await setUp(t, false);
  const killed = new AbortController();
  const first = open(killed.signal);
  await until(() => signing.requests.length === 1, 'a request');
  killed.abort();
  await assert.rejects(first, { code: 'aborted' });
  const key = await readFile(join(flags.certDir, 'kubelet-client.key.tmp'), 'utf8');
  assert.match(signing.requests[0]?.metadata.name ?? '', /^node-csr-[\w-]{43}$/);
  await assert.rejects(stat(flags.kubeconfig), { code: 'ENOENT' });
  signing.decide(0, 'sign');
  await using identity = await open();
  assert.ok(await works(identity)());
  assert.equal(signing.requests.length, 1);
  assert.deepEqual(
    (await readdir(flags.certDir)).filter((name) => !/^kubelet-client-(current|[-\d]+)\.pem$/.test(name)),
    [],
  );
  assert.ok((await readFile(join(flags.certDir, 'kubelet-client-current.pem'), 'utf8')).includes(key.trim()));
  assert.deepEqual((await readdir(dir)).toSorted(), ['bootstrap.conf', 'etc', 'pki']);
});

test('a bootstrap that is denied ends the start with the reason', async (t) => {
  const { open, signing } = await setUp(t, false);
  const start = open();
  await until(() => signing.requests.length === 1, 'a request');
  signing.decide(0, 'deny');
  await assert.rejects(start, { code: 'denied', message: /certificate signing request is denied, reason: Test/ });
});

test('a kubeconfig that is valid skips the bootstrap, and what is carried in it is put in the store and renewed at once', async (t) => {
  const { document, flags, open, signing, stop } = await setUp(t, true);
  const { certificatePem, privateKeyPem } = clientPair('system:admin');
  const base64 = (text: string): string => Buffer.from(text).toString('base64');
  await writeFile(flags.bootstrapKubeconfig, document({ 'client-certificate-data': base64(certificatePem), 'client-key-data': base64(privateKeyPem) }));
  flags.kubeconfig = flags.bootstrapKubeconfig;
  await using identity = await open(stop.signal, '/nowhere');
  assert.ok(await works(identity)());
  assert.equal(signing.users.at(-1), 'system:admin GET /api/v1/namespaces/a/pods/p');
  const running = identity.run(stop.signal);
  await until(() => signing.requests.length === 1, 'a request');
  signing.decide(0, 'sign');
  await until(async () => {
    const text = await readFile(join(flags.certDir, 'kubelet-client-current.pem'), 'utf8');
    return !text.includes(certificatePem.trim());
  }, 'the new certificate');
  stop.abort();
  await running;
});

test('a token in the kubeconfig is used as it is', async (t) => {
  const { document, flags, open, signing, stop } = await setUp(t, true);
  await writeFile(flags.bootstrapKubeconfig, document({ token: 'mine' }));
  flags.kubeconfig = flags.bootstrapKubeconfig;
  await using identity = await open(stop.signal, '');
  assert.ok(await works(identity)());
  assert.equal(signing.users.at(-1), 'Bearer mine GET /api/v1/namespaces/a/pods/p');
  assert.equal(signing.requests.length, 0);
});

test('without a certificate and with a server that refuses, the agent ends after five minutes, so that a new start reads new credentials', async (t) => {
  const { open, signing, stop } = await setUp(t, true);
  let nowMs = 0;
  signing.server.handler = () => ({ status: 401, body: { kind: 'Status', status: 'Failure', code: 401, reason: 'Unauthorized', message: 'Unauthorized' } });
  const jumping: Clock = { ...quick, monoMs: () => nowMs, sleep: (ms, signal) => ((nowMs += ms), realClock.sleep(1, signal)) };
  await using identity = await open(stop.signal, undefined, jumping);
  await assert.rejects(identity.run(stop.signal), { code: 'denied', message: /no valid client certificate is found and the server is responsive/ });
  assert.ok(nowMs > 300_000, String(nowMs));
});
