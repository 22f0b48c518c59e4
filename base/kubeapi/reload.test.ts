import assert from 'node:assert/strict';
import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { realClock, type Clock } from '../clock.ts';
import { silentLog } from '../log.ts';
import { seededRng } from '../rng.ts';
import { createKubeApi } from './client.ts';
import { followKubeConfig } from './config.ts';
import { pods } from './refs.ts';
import { authority, clientPair, TestServer } from './test-server.ts';

/** A thousand times faster, so that what is looked at every ten seconds is looked at now. */
const quick: Clock = { ...realClock, monoMs: () => realClock.monoMs() * 1000 };

async function folder(t: TestContext): Promise<string> {
  const path = await mkdtemp(join(tmpdir(), 'reload-'));
  t.after(() => rm(path, { recursive: true }));
  return path;
}

function kubeconfig(port: number, user: object): string {
  return JSON.stringify({
    kind: 'Config',
    'current-context': 'c',
    contexts: [{ name: 'c', context: { cluster: 'k', user: 'u' } }],
    clusters: [
      { name: 'k', cluster: { server: `https://127.0.0.1:${port}`, 'certificate-authority-data': Buffer.from(authority.certificatePem).toString('base64') } },
    ],
    users: [{ name: 'u', user }],
  });
}

async function put(path: string, text: string): Promise<void> {
  await writeFile(`${path}.new`, text);
  await rename(`${path}.new`, path);
}

test('a changed kubeconfig changes server and identity; a broken or missing one changes nothing', async (t) => {
  const path = join(await folder(t), 'kubeconfig');
  await using one = new TestServer();
  await using two = new TestServer();
  const found = (): { body: unknown } => ({ body: { kind: 'Pod', metadata: { name: 'p' } } });
  one.handler = found;
  two.handler = found;
  const [first, second] = [await one.listen(), await two.listen()];
  await put(path, kubeconfig(first, { token: 'old' }));
  const { config, reload } = await followKubeConfig(path, silentLog);
  await using api = createKubeApi({ config, reload, log: silentLog, clock: quick, rng: seededRng(1), userAgent: 'test/1' });
  await api.get(pods('a', 'p'));
  await put(path, '{ this is no kubeconfig');
  await api.get(pods('a', 'p'));
  await rm(path);
  await api.get(pods('a', 'p'));
  await put(path, kubeconfig(first, { token: 'new' }));
  await api.get(pods('a', 'p'));
  assert.deepEqual(
    one.requests.map(({ headers }) => headers['authorization']),
    ['Bearer old', 'Bearer old', 'Bearer old', 'Bearer new'],
  );
  await put(path, kubeconfig(second, { token: 'new' }));
  await api.get(pods('a', 'p'));
  assert.deepEqual([one.requests.length, two.requests.length], [4, 1]);
});

test('a certificate and key in one file that is replaced are taken up by the next connection', async (t) => {
  const path = join(await folder(t), 'pair.pem');
  const pair = (name: string): string => {
    const { certificatePem, privateKeyPem } = clientPair(name);
    return `${certificatePem}${privateKeyPem}`;
  };
  await using server = new TestServer();
  server.handler = () => ({ body: { kind: 'Pod', metadata: { name: 'p' } } });
  const port = await server.listen();
  const config = { server: `https://127.0.0.1:${port}`, namespace: 'd', insecure: false, ca: { data: Buffer.from(authority.certificatePem) } };
  await using api = createKubeApi({
    config: { ...config, cert: { file: path }, key: { file: path } },
    log: silentLog,
    clock: quick,
    rng: seededRng(1),
    userAgent: 'test/1',
  });
  await assert.rejects(api.get(pods('a', 'p')), { code: 'unavailable' }, 'there is no certificate yet');
  await put(path, pair('first'));
  await api.get(pods('a', 'p'));
  await put(path, pair('second'));
  await api.get(pods('a', 'p'));
  assert.deepEqual(
    server.requests.map(({ user }) => user),
    ['first', 'second'],
  );
});
