import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { realClock } from '../clock.ts';
import { hasCode } from '../errors.ts';
import { parseKubeConfig, readKubeConfig } from './config.ts';
import { Credentials } from './credentials.ts';

const whole = `
apiVersion: v1
kind: Config
current-context: b
contexts:
- {name: a, context: {cluster: one, user: u}}
- {name: b, context: {cluster: two, user: v, namespace: kube-system}}
clusters:
- {name: one, cluster: {server: 'http://127.0.0.1:8080/', insecure-skip-tls-verify: false}}
- name: two
  cluster:
    server: https://10.0.0.1:6443/prefix/
    certificate-authority: pki/ca.crt
    tls-server-name: kubernetes
users:
- {name: u, user: {token: 0123}}
- name: v
  user:
    client-certificate-data: ${Buffer.from('CERT').toString('base64')}
    client-key: /etc/key.pem
    tokenFile: token
`;

test('a context is followed to its server and credentials', async () => {
  const config = await parseKubeConfig(whole, 'f', '/etc/kubernetes');
  assert.deepEqual(config, {
    server: 'https://10.0.0.1:6443/prefix',
    namespace: 'kube-system',
    insecure: false,
    ca: { file: '/etc/kubernetes/pki/ca.crt' },
    tlsServerName: 'kubernetes',
    cert: { data: Buffer.from('CERT') },
    key: { file: '/etc/key.pem' },
    tokenFile: '/etc/kubernetes/token',
  });
  assert.deepEqual(await parseKubeConfig(whole, 'f', '/', 'a'), { server: 'http://127.0.0.1:8080', namespace: 'default', insecure: false, token: '0123' });
});

const broken: [change: (text: string) => string, message: RegExp][] = [
  [() => '- a list', /f: not a mapping/],
  [() => 'a: [', /f: /],
  [(text) => text.replace('kind: Config', 'kind: Pod'), /kind is "Pod", not "Config"/],
  [(text) => text.replace('current-context: b\n', ''), /no current-context/],
  [(text) => text.replace('current-context: b', 'current-context: c'), /contexts has no entry "c"/],
  [(text) => text.replace('cluster: two,', 'cluster: three,'), /clusters has no entry "three"/],
  [(text) => text.replace('https://10.0.0.1:6443/prefix/', 'ftp://x'), /server "ftp:\/\/x" must be http or https/],
  [(text) => text.replace('client-key: /etc/key.pem', 'x: y'), /client-certificate and client-key belong together/],
  [(text) => text.replace(/client-certificate-data: .*/, 'client-certificate-data: "@@"'), /client-certificate-data is not base64/],
  [(text) => text.replace('tokenFile: token', 'exec: {command: aws}'), /user "v": exec is not supported/],
  [(text) => text.replace('tls-server-name: kubernetes', 'insecure-skip-tls-verify: true'), /exclude each other/],
];

for (const [change, message] of broken) {
  test(`a kubeconfig is refused with ${message.source}`, async () => {
    await assert.rejects(parseKubeConfig(change(whole), 'f', '/'), (error: Error) => {
      assert.ok(hasCode(error, 'invalid'), String(error));
      assert.match(error.message, message);
      return true;
    });
  });
}

test('a file that is not there is not-found', async () => {
  await assert.rejects(readKubeConfig('/nowhere/kubeconfig'), (error) => hasCode(error, 'not-found'));
});

test('a token file is read again after a minute and after a refusal, and an unreadable one keeps the token', async () => {
  const folder = await mkdtemp(join(tmpdir(), 'kubeapi-'));
  try {
    const tokenFile = join(folder, 'token');
    await writeFile(tokenFile, 'one\n');
    let nowMs = 0;
    const credentials = new Credentials({ server: 'https://x', namespace: 'default', insecure: false, tokenFile }, { ...realClock, monoMs: () => nowMs });
    assert.equal(await credentials.authorization(), 'Bearer one');
    await writeFile(tokenFile, 'two\n');
    assert.equal(await credentials.authorization(), 'Bearer one');
    nowMs = 61_000;
    assert.equal(await credentials.authorization(), 'Bearer two');
    await writeFile(tokenFile, 'three\n');
    credentials.forgetToken();
    assert.equal(await credentials.authorization(), 'Bearer three');
    await rm(tokenFile);
    nowMs = 200_000;
    assert.equal(await credentials.authorization(), 'Bearer three');
  } finally {
    await rm(folder, { recursive: true });
  }
});

test('a kubeconfig that a program wrote as JSON means what it means as YAML', async () => {
  const tree = {
    'current-context': 'x',
    clusters: [{ name: 'c', cluster: { server: 'https://10.0.0.1:6443', 'insecure-skip-tls-verify': true } }],
    users: [{ name: 'u', user: { token: 1234 } }],
    contexts: [{ name: 'x', context: { cluster: 'c', user: 'u', namespace: 'n' } }],
  };
  const text = JSON.stringify(tree, null, 2);
  const read = await parseKubeConfig(text, 'here', '/');
  assert.deepEqual(read, await parseKubeConfig(`# words\n${text}`, 'here', '/'));
  assert.deepEqual([read.token, read.insecure], ['1234', true]);
});
