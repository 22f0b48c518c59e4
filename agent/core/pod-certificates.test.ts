import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { PodCertificateRequest } from '../../proto/kube/types.ts';
import { awaitedRequest, certificateTurn, credentialOf, stateWord, withRequest } from './pod-certificates.ts';
import type { CertificateState } from './pod-certificates.ts';

const minuteMs = 60_000;
const startMs = Date.UTC(2026, 0, 1);
const at = (minutes: number): string => new Date(startMs + minutes * minuteMs).toISOString();

function requestWith(status?: PodCertificateRequest['status']): PodCertificateRequest {
  const spec = {
    nodeName: 'n',
    nodeUID: 'n1',
    podName: 'p',
    podUID: 'u',
    serviceAccountName: 's',
    serviceAccountUID: 's1',
    signerName: 'a/b',
    stubPKCS10Request: '',
  };
  return { metadata: { name: 'req-1', namespace: 'ns' }, spec, ...(status === undefined ? {} : { status }) };
}
const condition = (type: string, reason = 'Why', message = 'because'): NonNullable<NonNullable<PodCertificateRequest['status']>['conditions']>[number] => ({
  type,
  status: 'True',
  reason,
  message,
  lastTransitionTime: at(0),
});
const chain = (body: string): string => `chatter\n-----BEGIN CERTIFICATE-----\nname: value\n\n${body}\n-----END CERTIFICATE-----\n`;
const issued = (body: string): PodCertificateRequest =>
  requestWith({ conditions: [condition('Issued')], certificateChain: chain(body), beginRefreshAt: at(60), notAfter: at(120) });
const asked: CertificateState = withRequest({ is: 'none' }, { keyPem: 'K1', request: 'req-1', madeAtMs: startMs }, 0);

test('a certificate is asked for, issued, and asked for again when it is due', () => {
  assert.equal(certificateTurn({ is: 'none' }, undefined, startMs, 0).mustAsk, true);
  assert.equal(awaitedRequest(asked), 'req-1');
  assert.deepEqual(credentialOf(asked), { error: 'credential bundle is not issued yet' });
  assert.deepEqual(certificateTurn(asked, requestWith(), startMs, 0), { state: asked, events: [], mustAsk: false, isNews: false });
  const first = certificateTurn(asked, issued('QUFB'), startMs, 2 * minuteMs);
  assert.equal(first.isNews, true);
  // What the signer wrote around the certificates is dropped.
  assert.deepEqual(credentialOf(first.state), { keyPem: 'K1', chainPem: '-----BEGIN CERTIFICATE-----\nQUFB\n-----END CERTIFICATE-----\n' });
  assert.equal(certificateTurn(first.state, undefined, startMs + 61 * minuteMs, 0).mustAsk, false);
  const due = certificateTurn(first.state, undefined, startMs + 62 * minuteMs, 0);
  assert.deepEqual([due.mustAsk, due.events], [true, []]);
  const renewing = withRequest(due.state, { keyPem: 'K2', request: 'req-2', madeAtMs: startMs + 62 * minuteMs }, 0);
  assert.deepEqual(credentialOf(renewing), credentialOf(first.state));
  const second = certificateTurn(renewing, issued('QkJC'), startMs + 63 * minuteMs, 0);
  assert.deepEqual(credentialOf(second.state), { keyPem: 'K2', chainPem: '-----BEGIN CERTIFICATE-----\nQkJC\n-----END CERTIFICATE-----\n' });
});

test('a refusal is told once and is final', () => {
  const cases: [string, string, string][] = [
    ['Denied', 'denied', 'was denied'],
    ['Failed', 'failed', 'failed'],
  ];
  for (const [type, word, verb] of cases) {
    const turn = certificateTurn(asked, requestWith({ conditions: [condition(type)] }), startMs, 0);
    assert.deepEqual(turn.events, [{ type: 'Warning', reason: type, message: `PodCertificateRequest ns/req-1 ${verb}, reason="Why", message="because"` }]);
    assert.deepEqual(credentialOf(turn.state), { error: `PodCertificateRequest was permanently ${word}: reason="Why" message="because"` });
    assert.deepEqual(certificateTurn(turn.state, issued('QUFB'), startMs, 0), { state: turn.state, events: [], mustAsk: false, isNews: false });
    assert.equal(stateWord(turn.state, startMs), word);
  }
});

test('a late renewal and an expired certificate are told once each', () => {
  let state = withRequest(certificateTurn(asked, issued('QUFB'), startMs, 0).state, { keyPem: 'K2', request: 'req-2', madeAtMs: startMs + 60 * minuteMs }, 0);
  const told: string[] = [];
  const words: string[] = [];
  for (const minutes of [65, 71, 75, 121, 130]) {
    const turn = certificateTurn(state, requestWith(), startMs + minutes * minuteMs, 0);
    told.push(`${minutes}: ${turn.events.map((event) => `${event.reason} ${event.message}`).join()}`);
    words.push(stateWord(turn.state, startMs + minutes * minuteMs));
    state = turn.state;
  }
  assert.deepEqual(told, [
    '65: ',
    '71: CertificateOverdueForRefresh PodCertificate refresh overdue',
    '75: ',
    '121: CertificateExpired PodCertificate expired',
    '130: ',
  ]);
  assert.deepEqual(words, ['fresh', 'overdue_for_refresh', 'overdue_for_refresh', 'expired', 'expired']);
});

test('a request that is not seen for ten minutes is made again', () => {
  assert.equal(certificateTurn(asked, undefined, startMs + 10 * minuteMs, 0).mustAsk, false);
  assert.deepEqual(certificateTurn(asked, undefined, startMs + 10 * minuteMs + 1, 0), { state: { is: 'none' }, events: [], mustAsk: true, isNews: false });
});

test('an issued certificate without times is kept', () => {
  const turn = certificateTurn(asked, requestWith({ conditions: [condition('Issued')], certificateChain: chain('QUFB') }), startMs, 0);
  assert.equal(certificateTurn(turn.state, undefined, startMs + 1e9 * minuteMs, 0).mustAsk, false);
});
