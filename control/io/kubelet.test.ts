import assert from 'node:assert/strict';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { test } from 'node:test';
import { issueCertificate, selfSigned } from '../../base/x509.ts';
import type { Call } from './kernel.ts';
import { forward, type Target } from './kubelet.ts';
import type { Pki } from './pki.ts';

const times = { notBeforeMs: Date.now() - 60_000, notAfterMs: Date.now() + 3_600_000 };
const authority = (commonName: string) => selfSigned({ subject: { commonName }, isCA: true, ...times });

test('a kubelet is known by the CA that was named, and sees our certificate; a pod does not', async () => {
  const ca = authority('ca');
  const serving = issueCertificate({ subject: { commonName: 'node' }, ipAddresses: ['127.0.0.1'], usages: ['serverAuth'], ...times }, ca);
  const ours = issueCertificate({ subject: { commonName: 'control' }, usages: ['clientAuth'], ...times }, ca);
  const shown: (string | undefined)[] = [];
  const server = createServer(
    { cert: serving.certificatePem, key: serving.privateKeyPem, requestCert: true, rejectUnauthorized: false },
    (request, response) => {
      shown.push((request.socket as unknown as { getPeerCertificate(): { subject?: { CN?: string } } }).getPeerCertificate().subject?.CN);
      response.end('ok');
    },
  );
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const target: Target = {
    isTls: true,
    isKubelet: true,
    host: '127.0.0.1',
    port: (server.address() as AddressInfo).port,
    path: '/healthz',
    takesWebSockets: false,
  };
  const pki = (kubeletCaPem?: string): Pki => ({
    caPem: '',
    serving,
    kubeletClient: ours,
    accountKeyPem: '',
    ...(kubeletCaPem === undefined ? {} : { kubeletCaPem }),
  });
  const call = { method: 'GET', body: { kind: 'none' }, signal: new AbortController().signal } as unknown as Call;
  const ask = async (keys: Pki, to: Target): Promise<number | undefined> => {
    const answer = await forward(keys, to, call, { connection: 'close' });
    answer.resume();
    return answer.statusCode;
  };
  try {
    assert.equal(await ask(pki(ca.certificatePem), target), 200);
    assert.equal(await ask(pki(), target), 200, 'without a CA it is known by its address');
    await assert.rejects(ask(pki(authority('other').certificatePem), target), /certificate/);
    assert.equal(await ask(pki(authority('other').certificatePem), { ...target, isKubelet: false }), 200, 'a pod has a certificate that nobody here can judge');
    assert.deepEqual(shown, ['control', 'control', undefined]);
  } finally {
    server.close();
    server.closeAllConnections();
  }
});
