import assert from 'node:assert/strict';
import { createServer } from 'node:https';
import { createSecureContext, getCiphers } from 'node:tls';
import { test } from 'node:test';
import { clientCertificateDefaults, serverDefaults, tlsCiphers, tlsMinVersion, tlsCurves } from './server-defaults.ts';

test('idle connections outlive what Go clients keep (90 s), unlike Node’s 5 s', () => {
  const server = createServer(serverDefaults);
  assert.ok(server.keepAliveTimeout > 120_000);
  assert.ok(createServer().keepAliveTimeout <= 65_000);
});

test('a request has a bound, its headers a shorter one, a stream none', () => {
  const server = createServer(serverDefaults);
  assert.equal(server.requestTimeout, 60_000);
  assert.equal(server.headersTimeout, 30_000);
  assert.equal(server.timeout, 0);
});

test('a long exec fits in the headers', () => {
  assert.ok(serverDefaults.maxHeaderSize >= 512 * 1024);
});

test('client certificates are asked for and not demanded', () => {
  assert.deepEqual(clientCertificateDefaults, { requestCert: true, rejectUnauthorized: false });
});

test('TLS versions by Go’s names', () => {
  assert.equal(tlsMinVersion(''), 'TLSv1.2');
  assert.equal(tlsMinVersion('VersionTLS13'), 'TLSv1.3');
  assert.throws(() => tlsMinVersion('TLS1.3'), { code: 'invalid' });
});

test('cipher suites by Go’s names, all known to this OpenSSL', () => {
  assert.equal(tlsCiphers([]), undefined);
  const names = tlsCiphers(['TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256', 'TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256'])?.split(':') ?? [];
  for (const name of names) assert.ok(getCiphers().includes(name.toLowerCase()), name);
  assert.throws(() => tlsCiphers(['RC4']), { code: 'invalid' });
});

test('curves by Go’s numbers, all known to this OpenSSL', () => {
  assert.equal(tlsCurves([]), undefined);
  const all = tlsCurves([4588, 29, 23, 24, 25]) ?? '';
  assert.equal(all, 'X25519MLKEM768:X25519:P-256:P-384:P-521');
  assert.doesNotThrow(() => createSecureContext({ ecdhCurve: all }));
  assert.throws(() => tlsCurves([1]), /1 is none of/);
});
