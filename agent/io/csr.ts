import { createHash, createPrivateKey, createPublicKey, X509Certificate } from 'node:crypto';
import type { CertificateSigningRequest } from '../../proto/kube/types.ts';
import type { Clock } from '../../base/clock.ts';
import { messageOf, OpError } from '../../base/errors.ts';
import { isApiError } from '../../base/kubeapi/errors.ts';
import type { KubeApi, ResourceRef } from '../../base/kubeapi/types.ts';
import type { Log } from '../../base/log.ts';
import { certificateRequest, publicKeyPemOf, readCertificateRequest } from '../../base/x509.ts';
import { signers, verdictOf, type CertPurpose, type CertTemplate } from '../core/node-certs.ts';

const requests: ResourceRef = { group: 'certificates.k8s.io', version: 'v1', resource: 'certificatesigningrequests' };

export interface CsrOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly api: KubeApi;
  readonly purpose: CertPurpose;
  readonly template: CertTemplate;
  readonly privateKeyPem: string;
  /** Follows from key, subject and usages, so that a new process finds its own request; absent: a new one each time. */
  readonly name?: string;
}

/** Posts a request, or finds the one of that name, and says which it is. Throws ApiError, or OpError `conflict` for another's. */
export async function postRequest(options: CsrOptions, signal: AbortSignal): Promise<{ name: string; uid: string }> {
  const { api, log, name, privateKeyPem, purpose, template } = options;
  const { signerName, usages } = signers[purpose];
  const { commonName, organizations, dnsNames, ipAddresses } = template;
  const pem = certificateRequest(
    { subject: { commonName, organizations: [...organizations] }, dnsNames: [...dnsNames], ipAddresses: [...ipAddresses] },
    privateKeyPem,
  );
  const body: CertificateSigningRequest = {
    apiVersion: 'certificates.k8s.io/v1',
    kind: 'CertificateSigningRequest',
    metadata: name === undefined ? { generateName: 'csr-' } : { name },
    spec: { request: Buffer.from(pem).toString('base64'), signerName, usages: [...usagesFor(privateKeyPem, usages)] },
  };
  try {
    const made = await api.create<CertificateSigningRequest>(requests, body, {}, signal);
    log.info('Certificate signing request created', { csr: made.metadata.name });
    return { name: made.metadata.name ?? '', uid: made.metadata.uid ?? '' };
  } catch (error) {
    if (name === undefined || !isApiError(error, 409)) throw error;
  }
  log.info('csr for this node already exists, reusing', { csr: name });
  const found = await api.get<CertificateSigningRequest>({ ...requests, name }, {}, signal);
  const gap = requestGap(found, template, signerName, privateKeyPem, options.clock.nowMs());
  if (gap !== null) throw new OpError('conflict', 'request a certificate', `retrieved csr is not compatible: ${gap}`);
  log.info('csr for this node is still valid', { csr: name });
  return { name, uid: found.metadata.uid ?? '' };
}

/** Waits for the certificate of a request. Throws OpError `denied` when it is refused or deleted, `deadline` after `timeoutMs`. */
export async function awaitCertificate(
  options: Pick<CsrOptions, 'clock' | 'log' | 'api'>,
  request: { name: string; uid: string },
  timeoutMs: number,
  signal: AbortSignal,
): Promise<string> {
  const { api, clock, log } = options;
  const doing = `wait for certificate signing request ${request.name}`;
  const stop = new AbortController();
  using _timer = clock.after(timeoutMs, () => stop.abort());
  let end: { certificatePem: string } | { refused: string } | null = null;
  let approved = false;
  let seen = false;
  const look = (object: CertificateSigningRequest): void => {
    seen = true;
    const verdict = verdictOf(object, request.uid);
    if (verdict.kind === 'issued') end = { certificatePem: Buffer.from(verdict.certificateBase64, 'base64').toString('utf8') };
    else if (verdict.kind === 'refused') end = { refused: verdict.why };
    else if (verdict.approved && !approved) {
      approved = true;
      log.info('Certificate signing request is approved, waiting to be issued', { csr: request.name });
    }
    if (end !== null) stop.abort();
  };
  const deleted = (): void => {
    end ??= { refused: `csr ${JSON.stringify(request.name)} was deleted` };
    stop.abort();
  };
  await api.reflect<CertificateSigningRequest>(
    requests,
    { fieldSelector: `metadata.name=${request.name}` },
    {
      replaced(items) {
        const own = items.find(({ metadata }) => metadata.name === request.name);
        if (own !== undefined) look(own);
        else if (seen) deleted();
      },
      changed(type, object) {
        if (object.metadata.name !== request.name) return;
        if (type === 'DELETED') deleted();
        else look(object);
      },
      trouble: (error) => log.debug(2, 'Error fetching certificate signing request', { csr: request.name, err: messageOf(error) }),
    },
    AbortSignal.any([signal, stop.signal]),
  );
  const result = end as { certificatePem: string } | { refused: string } | null;
  if (result === null)
    throw new OpError(signal.aborted ? 'aborted' : 'deadline', doing, signal.aborted ? 'stopped by the caller' : 'timed out waiting for the condition');
  if ('refused' in result) throw new OpError('denied', doing, result.refused);
  log.info('Certificate signing request is issued', { csr: request.name });
  return result.certificatePem;
}

/** The name of a request that follows from what is in it, as the kubelet digests it. */
export function digestedName(privateKeyPem: string, template: CertTemplate, purpose: CertPurpose): string {
  const hash = createHash('sha512-256');
  const spki = createPublicKey(privateKeyPem).export({ type: 'spki', format: 'der' });
  for (const part of [spki, template.commonName, ...template.organizations, ...usagesFor(privateKeyPem, signers[purpose].usages)])
    hash.update(`${Buffer.from(part as string).toString('base64url')}|`);
  return `node-csr-${hash.digest('base64url')}`;
}

/** To an RSA key, which somebody else may have made, things are encrypted as well. */
function usagesFor(privateKeyPem: string, usages: readonly string[]): readonly string[] {
  const [first = '', ...rest] = usages;
  if (createPrivateKey(privateKeyPem).asymmetricKeyType !== 'rsa') return usages;
  // In this order upstream names them for a kubelet's bootstrap, and the order is part of the digest.
  return [first, ...rest, 'key encipherment'];
}

/** Why a request that is there cannot be used for our key and subject; null when it can. */
function requestGap(found: CertificateSigningRequest, template: CertTemplate, signerName: string, privateKeyPem: string, nowMs: number): string | null {
  let read: ReturnType<typeof readCertificateRequest>;
  try {
    read = readCertificateRequest(Buffer.from(found.spec.request, 'base64').toString('utf8'));
  } catch (error) {
    return messageOf(error);
  }
  const { commonName, organizations } = read.subject;
  if (commonName !== template.commonName || organizations.join('|') !== template.organizations.join('|')) return `csr subjects differ: it is for ${commonName}`;
  if (found.spec.signerName !== signerName) return `csr signerNames differ: it is for ${found.spec.signerName}`;
  if (read.publicKeyPem !== publicKeyPemOf(privateKeyPem)) return 'it was signed by another key';
  const issued = found.status?.certificate ?? '';
  if (issued === '') return null;
  const { validToDate } = new X509Certificate(Buffer.from(issued, 'base64'));
  return validToDate.getTime() < nowMs ? `one of the certificates for the CSR has expired: ${validToDate.toISOString()}` : null;
}
