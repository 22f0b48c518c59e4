import assert from 'node:assert/strict';
import { X509Certificate } from 'node:crypto';
import { mkdtemp, rm, stat, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { silentLog } from '../../base/log.ts';
import { selfSigned } from '../../base/x509.ts';
import { followServingCert, loadServingCert, type ServingCertOptions } from './certs.ts';

async function setUp(t: TestContext, rest: Partial<ServingCertOptions> = {}): Promise<ServingCertOptions & { clock: ReturnType<typeof createFakeClock> }> {
  const certDir = await mkdtemp(join(tmpdir(), 'certs-'));
  t.after(() => rm(certDir, { recursive: true }));
  const clock = createFakeClock();
  return { log: silentLog, certDir, certFile: '', keyFile: '', clientCAFile: '', hostname: 'n1', ipAddresses: ['10.0.0.5'], ...rest, clock };
}

test('a pair is made once, for the name and the addresses, and the key is secret', async (t) => {
  const options = await setUp(t);
  const first = await loadServingCert(options);
  const cert = new X509Certificate(first.cert);
  assert.equal(cert.checkHost('n1'), 'n1');
  assert.equal(cert.checkIP('10.0.0.5'), '10.0.0.5');
  assert.equal((await stat(join(options.certDir, 'kubelet.key'))).mode & 0o777, 0o600);
  assert.deepEqual(await loadServingCert(options), first);
});

test('it is made anew for another name, near its end, and when the files are damaged', async (t) => {
  const options = await setUp(t);
  const first = await loadServingCert(options);
  const second = await loadServingCert({ ...options, hostname: 'n2' });
  assert.notEqual(second.cert, first.cert);
  options.clock.jumpWall(350 * 86_400_000);
  const third = await loadServingCert({ ...options, hostname: 'n2' });
  assert.notEqual(third.cert, second.cert);
  await writeFile(join(options.certDir, 'kubelet.key'), 'garbage');
  assert.notEqual((await loadServingCert({ ...options, hostname: 'n2' })).cert, third.cert);
});

test('configured files must be a pair, and are loaded again when they change', async (t) => {
  const base = await setUp(t);
  const options = { ...base, certFile: join(base.certDir, 'a.crt'), keyFile: join(base.certDir, 'a.key') };
  await assert.rejects(loadServingCert(options), { code: 'invalid' });
  const make = () => selfSigned({ subject: { commonName: 'x' }, notBeforeMs: 0, notAfterMs: Date.UTC(2100, 0, 1) });
  const [one, two] = [make(), make()];
  await writeFile(options.certFile, one.certificatePem);
  await writeFile(options.keyFile, two.privateKeyPem);
  await assert.rejects(loadServingCert(options), { code: 'invalid' });
  await writeFile(options.keyFile, one.privateKeyPem);
  const current = await loadServingCert(options);
  const stop = new AbortController();
  const seen: string[] = [];
  let arrived: () => void = () => undefined;
  const next = new Promise<void>((resolve) => (arrived = resolve));
  const following = followServingCert(
    options,
    current,
    ({ cert }) => {
      seen.push(cert);
      arrived();
    },
    stop.signal,
  );
  await options.clock.settle();
  await writeFile(options.certFile, two.certificatePem);
  await writeFile(options.keyFile, two.privateKeyPem);
  await options.clock.advance(61_000);
  await options.clock.advance(61_000);
  await next;
  assert.deepEqual(seen, [two.certificatePem]);
  stop.abort();
  await following;
});
