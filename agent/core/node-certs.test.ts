import assert from 'node:assert/strict';
import { isIP } from 'node:net';
import { test } from 'node:test';
import { bootstrappedKubeconfig, rotationDeadlineMs, servingTemplate, verdictOf } from './node-certs.ts';

const options = { dnsOnly: false, isIP: (text: string) => isIP(text) !== 0 };

test('a serving certificate is asked for by all names and addresses, in a stable order, and never without an address', () => {
  const template = servingTemplate(
    'n1',
    [
      { type: 'InternalIP', address: '10.0.0.9' },
      { type: 'ExternalIP', address: '10.0.0.10' },
      { type: 'Hostname', address: 'n1' },
      { type: 'InternalIP', address: '10.0.0.9' },
    ],
    options,
  );
  assert.deepEqual(template, { commonName: 'system:node:n1', organizations: ['system:nodes'], dnsNames: ['n1'], ipAddresses: ['10.0.0.10', '10.0.0.9'] });
  assert.deepEqual(servingTemplate('n1', [{ type: 'Hostname', address: '10.0.0.9' }], options)?.ipAddresses, ['10.0.0.9']);
  assert.equal(servingTemplate('n1', [{ type: 'Hostname', address: 'n1' }], options), null);
  assert.deepEqual(servingTemplate('n1', [{ type: 'Hostname', address: 'n1' }], { ...options, dnsOnly: true })?.dnsNames, ['n1']);
});

test('a certificate is renewed between 70 and 90 per cent of its life', () => {
  assert.equal(rotationDeadlineMs(1_000, 2_000, 0), 1_700);
  assert.equal(rotationDeadlineMs(1_000, 2_000, 1), 1_900);
});

test('a request is judged by its UID, its conditions and its certificate', () => {
  const request = (conditions: { type: string; reason?: string; message?: string }[], certificate?: string) => ({
    metadata: { name: 'csr-1', uid: 'u' },
    spec: { request: '', signerName: '' },
    status: { conditions: conditions.map((each) => ({ status: 'True', ...each })), ...(certificate !== undefined && { certificate }) },
  });
  assert.deepEqual(verdictOf(request([]), 'u'), { kind: 'waiting', approved: false });
  assert.deepEqual(verdictOf(request([{ type: 'Approved' }]), 'u'), { kind: 'waiting', approved: true });
  assert.deepEqual(verdictOf(request([], 'QQ=='), 'u'), { kind: 'waiting', approved: false });
  assert.deepEqual(verdictOf(request([{ type: 'Approved' }], 'QQ=='), 'u'), { kind: 'issued', certificateBase64: 'QQ==' });
  assert.deepEqual(verdictOf(request([{ type: 'Denied', reason: 'No', message: 'not you' }], 'QQ=='), 'u'), {
    kind: 'refused',
    why: 'certificate signing request is denied, reason: No, message: not you',
  });
  assert.equal(verdictOf(request([{ type: 'Approved' }, { type: 'Failed' }]), 'u').kind, 'refused');
  assert.deepEqual(verdictOf(request([{ type: 'Approved' }], 'QQ=='), 'other'), { kind: 'refused', why: 'csr "csr-1" changed UIDs' });
});

test('the kubeconfig that is left names the same cluster and the pair in the certificate directory', () => {
  const document = bootstrappedKubeconfig({ server: 'https://10.0.0.1:6443', insecure: false, caDataBase64: 'QQ==' }, '/pki/kubelet-client-current.pem');
  assert.deepEqual(document, {
    apiVersion: 'v1',
    clusters: [{ cluster: { 'certificate-authority-data': 'QQ==', server: 'https://10.0.0.1:6443' }, name: 'default-cluster' }],
    contexts: [{ context: { cluster: 'default-cluster', namespace: 'default', user: 'default-auth' }, name: 'default-context' }],
    'current-context': 'default-context',
    kind: 'Config',
    users: [{ name: 'default-auth', user: { 'client-certificate': '/pki/kubelet-client-current.pem', 'client-key': '/pki/kubelet-client-current.pem' } }],
  });
});
