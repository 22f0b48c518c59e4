import assert from 'node:assert/strict';
import { link, mkdtemp, readFile, readdir, readlink, rename, rm, stat, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { issueCertificate } from '../../base/x509.ts';
import { openCertStore, templateGap } from './cert-store.ts';
import { authority } from './test-signer.ts';

const issue = (commonName = 'system:node:n1', rest: { dnsNames?: string[]; ipAddresses?: string[] } = {}) =>
  issueCertificate({ subject: { commonName, organizations: ['system:nodes'] }, notBeforeMs: 0, notAfterMs: Date.UTC(2100, 0, 1), ...rest }, authority);

async function setUp(t: TestContext) {
  const dir = await mkdtemp(join(tmpdir(), 'cert-store-'));
  t.after(() => rm(dir, { recursive: true }));
  const clock = createFakeClock();
  return { dir, clock, open: () => openCertStore({ clock, dir: join(dir, 'pki'), prefix: 'kubelet-client' as const }), pki: join(dir, 'pki') };
}

test('a pair lies in a secret file with its time in the name, and a link names the one in use', async (t) => {
  const { clock, open, pki } = await setUp(t);
  const store = await open();
  assert.equal(await store.current(), null);
  const first = issue();
  await store.update(first.certificatePem, first.privateKeyPem);
  await clock.advance(2_000);
  const second = issue();
  const kept = await store.update(second.certificatePem, second.privateKeyPem);
  const names = (await readdir(pki)).toSorted();
  assert.equal(names.length, 3);
  assert.ok(
    names.slice(0, 2).every((name) => /^kubelet-client-\d{4}(-\d\d){5}\.pem$/.test(name)),
    names.join(),
  );
  assert.equal(names[2], 'kubelet-client-current.pem');
  assert.equal(await readlink(store.currentPath), join(pki, names[1] ?? ''));
  assert.equal((await stat(store.currentPath)).mode & 0o777, 0o600);
  assert.equal(await readFile(store.currentPath, 'utf8'), second.certificatePem + second.privateKeyPem);
  assert.deepEqual(await (await open()).current(), kept);
});

test('a crash between the new link and its place is made good at the next start', async (t) => {
  const { open, pki } = await setUp(t);
  const first = issue();
  await (await open()).update(first.certificatePem, first.privateKeyPem);
  await rename(join(pki, 'kubelet-client-current.pem'), join(pki, 'kubelet-client-updated.pem'));
  const store = await open();
  assert.equal((await store.current())?.certificatePem, first.certificatePem);
  // And one whose old link is still there keeps it.
  await symlink(join(pki, 'nothing'), join(pki, 'kubelet-client-updated.pem'));
  assert.equal((await (await open()).current())?.certificatePem, first.certificatePem);
  const second = issue();
  await store.update(second.certificatePem, second.privateKeyPem);
  assert.equal((await (await open()).current())?.certificatePem, second.certificatePem);
});

test('a second pair of the same second takes the name of the first in one step', async (t) => {
  const { open, pki } = await setUp(t);
  const store = await open();
  const [one, two] = [issue(), issue()];
  await store.update(one.certificatePem, one.privateKeyPem);
  // Who has the file open, as a crash would leave it, sees the whole first pair.
  await link(await readlink(store.currentPath), join(pki, 'seen'));
  await store.update(two.certificatePem, two.privateKeyPem);
  assert.equal(await readFile(join(pki, 'seen'), 'utf8'), one.certificatePem + one.privateKeyPem);
  assert.equal((await store.current())?.certificatePem, two.certificatePem);
  assert.equal((await stat(store.currentPath)).mode & 0o777, 0o600);
});

test('what is no pair is refused and changes nothing', async (t) => {
  const { open, pki } = await setUp(t);
  const store = await open();
  const [one, two] = [issue(), issue()];
  await store.update(one.certificatePem, one.privateKeyPem);
  await assert.rejects(store.update(two.certificatePem, one.privateKeyPem), { code: 'invalid' });
  await assert.rejects(store.update('garbage', one.privateKeyPem), { code: 'invalid' });
  assert.equal((await store.current())?.certificatePem, one.certificatePem);
  await rm(store.currentPath);
  await writeFile(store.currentPath, 'a file');
  await assert.rejects(store.current(), { code: 'invalid' });
  await assert.rejects(store.update(two.certificatePem, two.privateKeyPem), /expected .* to be a symlink/);
  assert.equal(await readFile(join(pki, 'kubelet-client-current.pem'), 'utf8'), 'a file');
});

test('a certificate with more names than wanted does, with fewer or for another node it does not', async (t) => {
  const { open } = await setUp(t);
  const { certificatePem, privateKeyPem } = issue('system:node:n1', { dnsNames: ['n1', 'n1.example'], ipAddresses: ['10.0.0.5', 'fd00::5'] });
  const pair = await (await open()).update(certificatePem, privateKeyPem);
  const wanted = { commonName: 'system:node:n1', organizations: ['system:nodes'], dnsNames: ['n1'], ipAddresses: ['10.0.0.5', 'fd00::5'] };
  assert.equal(templateGap(pair, wanted), null);
  assert.match(templateGap(pair, { ...wanted, ipAddresses: ['10.0.0.6'] }) ?? '', /lacks 10\.0\.0\.6/);
  assert.match(templateGap(pair, { ...wanted, organizations: ['system:masters'] }) ?? '', /lacks system:masters/);
  assert.match(templateGap(pair, { ...wanted, commonName: 'system:node:n2' }) ?? '', /is for "system:node:n1"/);
});
