import type { CertificateSigningRequest } from '../../proto/kube/types.ts';
import type { Clock } from '../../base/clock.ts';
import type { FakeKubeApi } from '../../base/kubeapi/fake.ts';
import type { ResourceRef } from '../../base/kubeapi/types.ts';
import { readCertificateRequest, selfSigned, signCertificate, type SignedPair } from '../../base/x509.ts';

export const csrs: ResourceRef = { group: 'certificates.k8s.io', version: 'v1', resource: 'certificatesigningrequests' };

/** An authority that lives longer than every test. */
export const authority: SignedPair = selfSigned({ subject: { commonName: 'test-ca' }, notBeforeMs: 0, notAfterMs: Date.UTC(2120, 0, 1), isCA: true });

/** What the control plane does with a request: signs it for so long from now. */
export function sign(request: CertificateSigningRequest, clock: Clock, lifeMs: number): CertificateSigningRequest {
  const read = readCertificateRequest(Buffer.from(request.spec.request, 'base64').toString('utf8'));
  const content = { ...read, notBeforeMs: clock.nowMs(), notAfterMs: clock.nowMs() + lifeMs };
  const certificate = signCertificate(content, read.publicKeyPem, authority);
  return {
    ...request,
    status: { conditions: [{ type: 'Approved', status: 'True' }], certificate: Buffer.from(certificate).toString('base64') },
  };
}

/** The requests that nobody has decided yet. */
export const pending = (api: FakeKubeApi): CertificateSigningRequest[] =>
  api.objects<CertificateSigningRequest>(csrs).filter(({ status }) => status?.conditions === undefined);

/** Signs what waits. */
export function signAll(api: FakeKubeApi, clock: Clock, lifeMs: number): void {
  for (const each of pending(api)) api.put({ ...csrs, name: each.metadata.name ?? '' }, sign(each, clock, lifeMs));
}

export function deny(api: FakeKubeApi): void {
  for (const each of pending(api))
    api.put(
      { ...csrs, name: each.metadata.name ?? '' },
      { ...each, status: { conditions: [{ type: 'Denied', status: 'True', reason: 'Test', message: 'not this one' }] } },
    );
}
