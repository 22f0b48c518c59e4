import assert from 'node:assert/strict';
import { mkdtemp, rename, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { realClock, type Clock } from '../clock.ts';
import { silentLog } from '../log.ts';
import { seededRng } from '../rng.ts';
import { createKubeApi } from './client.ts';
import { followKubeConfig, parseKubeConfig, type KubeConfig } from './config.ts';
import { pods } from './refs.ts';
import { authority, clientPair, TestServer } from './test-server.ts';

/** A million times faster, so that what is looked at every ten seconds is looked at by every request. */
const quick: Clock = { ...realClock, monoMs: () => realClock.monoMs() * 1_000_000 };

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

test('a request that waits for a token while the server changes goes to the new server with the new token', async (t) => {
  const path = join(await folder(t), 'kubeconfig');
  await using one = new TestServer();
  await using two = new TestServer();
  const found = (): { body: unknown } => ({ body: { kind: 'Pod', metadata: { name: 'p' } } });
  one.handler = found;
  two.handler = found;
  const [first, second] = [await one.listen(), await two.listen()];
  await put(path, kubeconfig(first, { token: 'old' }));
  const { config } = await followKubeConfig(path, silentLog);
  await put(path, kubeconfig(second, { token: 'new' }));
  const { config: next } = await followKubeConfig(path, silentLog);
  const renewal = Promise.withResolvers<KubeConfig | undefined>();
  let asked = 0;
  // The first request asks for the change; the second, which does not ask, is on its way meanwhile.
  const clock: Clock = { ...realClock, monoMs: () => 60_000 };
  const reload = (): Promise<KubeConfig | undefined> => (asked++ === 0 ? renewal.promise : Promise.resolve(undefined));
  await using api = createKubeApi({ config, reload, log: silentLog, clock, rng: seededRng(1), userAgent: 'test/1' });
  const slow = api.get(pods('a', 'p'));
  const fast = api.get(pods('a', 'p'));
  renewal.resolve(next);
  await Promise.all([slow, fast]);
  const tokens = (server: TestServer): (string | undefined)[] => server.requests.map(({ headers }) => headers['authorization']?.toString());
  assert.ok(!tokens(two).includes('Bearer old'), 'the old token is none of the new server’s business');
  assert.ok(!tokens(one).includes('Bearer new'));
  assert.ok(tokens(two).includes('Bearer new'));
});

test('what is wrong with a kubeconfig is said without what is in it', async () => {
  const text = 'users:\n- name: u\n  user:\n    token: hunter2\n   x: [';
  await assert.rejects(parseKubeConfig(text, 'there', '/'), (error: Error) => {
    assert.match(error.message, /there: .*line 5, column \d+/);
    assert.doesNotMatch(error.message, /hunter2/);
    return true;
  });
});
