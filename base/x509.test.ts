import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { createPrivateKey, generateKeyPairSync, X509Certificate } from 'node:crypto';
import { once } from 'node:events';
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { createServer } from 'node:https';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { connect } from 'node:tls';
import { certificateRequest, issueCertificate, newPrivateKeyPem, readCertificateRequest, selfSigned, signCertificate, unpem } from './x509.ts';

const day = 86_400_000;
const from = Date.UTC(2026, 0, 1);
const root = selfSigned({ subject: { commonName: 'test-ca' }, notBeforeMs: from, notAfterMs: from + 3650 * day, isCA: true });
const leafContent = {
  subject: { commonName: 'system:node:n1', organizations: ['system:nodes'] },
  notBeforeMs: from,
  notAfterMs: from + 365 * day,
  usages: ['serverAuth', 'clientAuth'] as const,
  dnsNames: ['localhost', 'n1'],
  ipAddresses: ['127.0.0.1', 'fd00::1', '::ffff:10.0.0.1'],
};

function openssl(args: string[], input: string): string | undefined {
  try {
    return execFileSync('openssl', args, { input, encoding: 'utf8', stdio: ['pipe', 'pipe', 'pipe'] });
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

test('a root signs itself and is a CA', () => {
  const cert = new X509Certificate(root.certificatePem);
  assert.equal(cert.ca, true);
  assert.equal(cert.subject, 'CN=test-ca');
  assert.ok(cert.verify(cert.publicKey));
  assert.ok(cert.checkPrivateKey(createPrivateKey(root.privateKeyPem)));
  assert.equal(cert.validToDate.getTime(), from + 3650 * day);
});

test('a leaf carries its names and is signed by the root', () => {
  const leaf = issueCertificate(leafContent, root);
  const cert = new X509Certificate(leaf.certificatePem);
  const ca = new X509Certificate(root.certificatePem);
  assert.equal(cert.subject, 'O=system:nodes\nCN=system:node:n1');
  assert.ok(cert.checkIssued(ca));
  assert.ok(cert.verify(ca.publicKey));
  assert.equal(cert.ca, false);
  assert.equal(cert.checkHost('n1'), 'n1');
  assert.equal(cert.checkIP('127.0.0.1'), '127.0.0.1');
  assert.equal(cert.checkIP('fd00::1'), 'fd00::1');
  assert.match(cert.subjectAltName ?? '', /10\.0\.0\.1|FFFF:A00:1/i);
  assert.deepEqual(cert.keyUsage, ['1.3.6.1.5.5.7.3.1', '1.3.6.1.5.5.7.3.2']);
});

test('every leaf has a serial number of its own, positive and at most 20 octets', () => {
  const serials = Array.from({ length: 20 }, () => new X509Certificate(issueCertificate(leafContent, root).certificatePem).serialNumber);
  assert.equal(new Set(serials).size, 20);
  for (const serial of serials) assert.ok(serial.length <= 40 && Number.parseInt(serial.slice(0, 2), 16) < 0x80);
});

test('openssl verifies the chain and prints the extensions', (t) => {
  const dir = mkdtempSync(join(tmpdir(), 'x509-'));
  t.after(() => rmSync(dir, { recursive: true }));
  writeFileSync(join(dir, 'ca.pem'), root.certificatePem);
  const leaf = issueCertificate(leafContent, root);
  const verified = openssl(
    ['verify', '-x509_strict', '-purpose', 'sslserver', '-attime', String(from / 1000 + 60), '-CAfile', join(dir, 'ca.pem')],
    leaf.certificatePem,
  );
  if (verified === undefined) return t.skip('openssl is not installed');
  assert.match(verified, /OK/);
  const text = openssl(['x509', '-noout', '-text'], leaf.certificatePem) ?? '';
  assert.match(text, /X509v3 Key Usage: critical\s+Digital Signature/);
  assert.match(text, /TLS Web Server Authentication, TLS Web Client Authentication/);
  assert.match(text, /DNS:localhost, DNS:n1, IP Address:127\.0\.0\.1/);
  assert.match(text, /Signature Algorithm: ecdsa-with-SHA256/);
  return undefined;
});

test('a request is accepted by openssl and read back', (t) => {
  const key = newPrivateKeyPem();
  const request = certificateRequest({ subject: leafContent.subject, dnsNames: ['n1'], ipAddresses: ['10.1.2.3', 'fd00::1'] }, key);
  const read = readCertificateRequest(request);
  assert.deepEqual(read.subject, { commonName: 'system:node:n1', organizations: ['system:nodes'] });
  assert.deepEqual([read.dnsNames, read.ipAddresses], [['n1'], ['10.1.2.3', 'fd00:0:0:0:0:0:0:1']]);
  const cert = new X509Certificate(signCertificate(leafContent, read.publicKeyPem, root));
  assert.ok(cert.checkPrivateKey(createPrivateKey(key)));
  if (openssl(['req', '-verify', '-noout'], request) === undefined) t.diagnostic('openssl is not installed');
});

test('a request whose signature does not fit is refused', () => {
  const request = certificateRequest({ subject: { commonName: 'a' } }, newPrivateKeyPem());
  const der = Buffer.from(unpem('CERTIFICATE REQUEST', request)[0] ?? []);
  const at = der.indexOf('a', 10, 'ascii');
  const forged = Buffer.from(der);
  forged[at] = 'b'.charCodeAt(0);
  assert.throws(() => readCertificateRequest(`-----BEGIN CERTIFICATE REQUEST-----\n${forged.toString('base64')}\n-----END CERTIFICATE REQUEST-----\n`), {
    code: 'invalid',
  });
  assert.throws(() => readCertificateRequest('nothing'), { code: 'invalid' });
  assert.throws(() => readCertificateRequest('-----BEGIN CERTIFICATE REQUEST-----\nMIIB\n-----END CERTIFICATE REQUEST-----\n'), { code: 'invalid' });
});

test('an RSA CA signs too, and dates after 2049 are written in the long form', () => {
  const { privateKey } = generateKeyPairSync('rsa', { modulusLength: 2048 });
  const far = Date.UTC(2060, 5, 1);
  const ca = selfSigned(
    { subject: { commonName: 'rsa-ca' }, notBeforeMs: from, notAfterMs: far, isCA: true },
    privateKey.export({ type: 'pkcs8', format: 'pem' }).toString(),
  );
  const cert = new X509Certificate(ca.certificatePem);
  assert.equal(cert.validToDate.getTime(), far);
  const leaf = new X509Certificate(issueCertificate(leafContent, ca).certificatePem);
  assert.ok(leaf.verify(cert.publicKey) && leaf.checkIssued(cert));
});

test('a TLS client that trusts the root accepts the leaf', async (t) => {
  const now = Date.now();
  const ca = selfSigned({ subject: { commonName: 'live-ca' }, notBeforeMs: now - day, notAfterMs: now + day, isCA: true });
  const leaf = issueCertificate({ ...leafContent, notBeforeMs: now - day, notAfterMs: now + day }, ca);
  const server = createServer({ cert: leaf.certificatePem, key: leaf.privateKeyPem }).listen(0, '127.0.0.1');
  t.after(() => server.close());
  await once(server, 'listening');
  const socket = connect({ port: (server.address() as AddressInfo).port, host: '127.0.0.1', ca: ca.certificatePem });
  await once(socket, 'secureConnect');
  assert.equal(socket.authorized, true);
  socket.destroy();
});

test('a request may be signed with any key that Kubernetes takes', () => {
  const keys = {
    p256: generateKeyPairSync('ec', { namedCurve: 'P-256' }),
    p384: generateKeyPairSync('ec', { namedCurve: 'P-384' }),
    p521: generateKeyPairSync('ec', { namedCurve: 'P-521' }),
    ed25519: generateKeyPairSync('ed25519'),
    rsa: generateKeyPairSync('rsa', { modulusLength: 2048 }),
  };
  for (const [name, { privateKey }] of Object.entries(keys)) {
    const request = certificateRequest({ subject: { commonName: '' } }, privateKey.export({ type: 'pkcs8', format: 'pem' }).toString());
    assert.deepEqual(readCertificateRequest(request).subject, { commonName: '', organizations: [] }, name);
    assert.notEqual(openssl(['req', '-verify', '-noout'], request), null, name);
  }
});
