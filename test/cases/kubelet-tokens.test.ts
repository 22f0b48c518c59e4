import assert from 'node:assert/strict';
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { existsSync, readFileSync, writeFileSync } from 'node:fs';
import { after, before, describe, test } from 'node:test';
import { eventually } from '../set.ts';
import type { TokenAnswer, TokenProxyOptions } from './token-proxy.ts';
import { box, Cases, logMount, shell, skip } from './world.ts';

/* KB-26 with tokens that live 60 s, as no API server gives them: a proxy in the node's network says so of them. */
const port = 17443;
let at: Cases;
let proxy: ChildProcess | undefined;
let log = '';
before(
  async () => {
    if (skip !== false) return;
    at = await Cases.open('kc-tokens');
    const path = `${at.folder}/agent.kubeconfig`;
    const config = readFileSync(path, 'utf8');
    const field = (name: string): string => new RegExp(`${name}: "?([^"\\s]+)`).exec(config)?.[1] ?? '';
    const file = (name: string, data: string): string => {
      writeFileSync(`${at.folder}/${name}`, Buffer.from(data, 'base64'), { mode: 0o600 });
      return `${at.folder}/${name}`;
    };
    const [servingCert, servingKey] = [`${at.folder}/proxy.crt`, `${at.folder}/proxy.key`];
    const subject = ['-subj', '/CN=proxy', '-addext', 'subjectAltName=IP:127.0.0.1', '-days', '2'];
    const key = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
    execFileSync('openssl', ['req', '-x509', ...key, ...subject, '-keyout', servingKey, '-out', servingCert], { stdio: 'ignore' });
    log = `${at.folder}/tokens.log`;
    const options: TokenProxyOptions = {
      server: field('server'),
      port,
      ca: file('tokens-ca.crt', field('certificate-authority-data')),
      cert: file('tokens-node.crt', field('client-certificate-data')),
      key: file('tokens-node.key', field('client-key-data')),
      servingCert,
      servingKey,
      pod: 'kb26-life',
      lifeSeconds: 60,
      refuse: [40, 90],
      log,
    };
    const program = new URL('token-proxy.ts', import.meta.url).pathname;
    proxy = spawn('nsenter', ['-t', String(at.pid), '-n', '--', process.execPath, '--disable-warning=ExperimentalWarning', program, JSON.stringify(options)], {
      stdio: ['ignore', 'inherit', 'inherit'],
    });
    await at.configure({}, async () => {
      const ca = readFileSync(servingCert).toString('base64');
      writeFileSync(path, config.replace(field('server'), `https://127.0.0.1:${port}`).replace(field('certificate-authority-data'), ca));
    });
  },
  { timeout: 240_000 },
);
after(async () => {
  proxy?.kill();
  await at?.[Symbol.asyncDispose]();
});

const answers = (): TokenAnswer[] =>
  (existsSync(log) ? readFileSync(log, 'utf8') : '')
    .split('\n')
    .filter((line) => line !== '')
    .map((line) => JSON.parse(line) as TokenAnswer);
/** What the container has seen in its file, each once, in order. */
const seen = (): string[] => [...new Set(at.log('kb26-life', 'seen'))];

describe('tokens', { skip, timeout: 900_000 }, () => {
  test('KB-26: a token that was refused for a while is renewed afterwards, and the container sees it', async () => {
    await at.create('kb26-life', {
      terminationGracePeriodSeconds: 1,
      automountServiceAccountToken: false,
      containers: [box('m', shell('while :; do md5sum < /tok/t >> /log/seen; sleep 1; done'), { volumeMounts: [logMount, { name: 't', mountPath: '/tok' }] })],
      volumes: [{ name: 't', projected: { sources: [{ serviceAccountToken: { path: 't', expirationSeconds: 600 } }] } }],
    });
    await at.ready('kb26-life', 120_000);
    await eventually('the container sees a second token', 240_000, async () => (seen().length > 1 ? true : null));
    const all = answers();
    console.log(`kb26: ${all.map(({ at: second, code }) => `${code} at ${Math.round(second)}`).join(', ')}`);
    const renewed = all.find(({ at: second, code }) => second >= 40 && code < 300);
    assert.ok(renewed !== undefined && renewed.at >= 90 && renewed.at < 90 + 120, 'renewed within two minutes of the refusals’ end');
    // Upstream tries again after half a second, then twice as long each time; never two minutes without a try once one is due.
    const due = [48, ...all.map(({ at: second }) => second).filter((second) => second > 0 && second <= renewed.at)];
    for (const [index, second] of due.slice(1).entries()) assert.ok(second - (due[index] ?? 0) < 120, JSON.stringify(all));
    const tried = all.map(({ at: second }) => second);
    for (const [index, second] of tried.slice(1).entries()) assert.ok(second - (tried[index] ?? 0) > 0.4, JSON.stringify(all));
    assert.equal(at.watch.last('kb26-life')?.status?.phase, 'Running');
  });

  test('KB-26: after a restart the container sees the next token, by one mount', async () => {
    const uid = at.watch.last('kb26-life')?.metadata?.uid ?? '';
    await at.configure({});
    const [count, fromMs] = [seen().length, performance.now()];
    await eventually('the container sees another token', 240_000, async () => (seen().length > count ? true : null));
    console.log(`kb26: another token ${Math.round((performance.now() - fromMs) / 1000)} s after the restart`);
    const path = `/var/lib/kubelet/pods/${uid}/volumes/kubernetes.io~projected/t`;
    assert.deepEqual(at.mounts(path), [path]);
  });
});
