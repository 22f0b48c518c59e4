import type { CertificateSigningRequest } from '../../proto/kube/types.ts';
import type { NodeAddress } from './node-status.ts';

/** What a certificate of this node must be for. */
export interface CertTemplate {
  readonly commonName: string;
  readonly organizations: readonly string[];
  readonly dnsNames: readonly string[];
  readonly ipAddresses: readonly string[];
}

export type CertPurpose = 'client' | 'serving';

/** By which signer and for which usages each is asked. Keys are ECDSA, so nothing is ever encrypted to them. */
export const signers: Readonly<Record<CertPurpose, { readonly signerName: string; readonly usages: readonly string[] }>> = {
  client: { signerName: 'kubernetes.io/kube-apiserver-client-kubelet', usages: ['digital signature', 'client auth'] },
  serving: { signerName: 'kubernetes.io/kubelet-serving', usages: ['digital signature', 'server auth'] },
};

/** The subject by which the node authorizer knows a kubelet. */
export function clientTemplate(nodeName: string): CertTemplate {
  return { commonName: `system:node:${nodeName}`, organizations: ['system:nodes'], dnsNames: [], ipAddresses: [] };
}

/** The same subject with the node's names and addresses; null while there is no address, without which none is asked for. */
export function servingTemplate(
  nodeName: string,
  addresses: readonly NodeAddress[],
  options: { dnsOnly: boolean; isIP: (text: string) => boolean },
): CertTemplate | null {
  const given = [...new Set(addresses.map(({ address }) => address))].filter((address) => address !== '').toSorted();
  const ipAddresses = given.filter(options.isIP);
  const dnsNames = given.filter((address) => !options.isIP(address));
  if (ipAddresses.length === 0 && !(options.dnsOnly && dnsNames.length > 0)) return null;
  return { ...clientTemplate(nodeName), dnsNames, ipAddresses };
}

/** When a certificate is renewed: after 70 % of its life and a random share of 20 % more. `chance` is in [0, 1). */
export function rotationDeadlineMs(notBeforeMs: number, notAfterMs: number, chance: number): number {
  return notBeforeMs + (notAfterMs - notBeforeMs) * (0.7 + 0.2 * chance);
}

export type RequestVerdict =
  | { readonly kind: 'waiting'; readonly approved: boolean }
  | { readonly kind: 'issued'; readonly certificateBase64: string }
  | { readonly kind: 'refused'; readonly why: string };

/** What has become of a request of ours that had this UID. */
export function verdictOf(request: CertificateSigningRequest, uid: string): RequestVerdict {
  const name = request.metadata.name ?? '';
  if (request.metadata.uid !== uid) return { kind: 'refused', why: `csr ${JSON.stringify(name)} changed UIDs` };
  let approved = false;
  for (const { type, reason, message } of request.status?.conditions ?? []) {
    if (type === 'Denied') return { kind: 'refused', why: `certificate signing request is denied, reason: ${reason ?? ''}, message: ${message ?? ''}` };
    if (type === 'Failed') return { kind: 'refused', why: `certificate signing request failed, reason: ${reason ?? ''}, message: ${message ?? ''}` };
    if (type === 'Approved') approved = true;
  }
  const certificateBase64 = request.status?.certificate ?? '';
  return approved && certificateBase64 !== '' ? { kind: 'issued', certificateBase64 } : { kind: 'waiting', approved };
}

/** A kubeconfig's cluster as it is written again. */
export interface ClusterToJoin {
  readonly server: string;
  readonly insecure: boolean;
  readonly caFile?: string;
  readonly caDataBase64?: string;
  readonly tlsServerName?: string;
}

/** The kubeconfig that TLS bootstrap leaves behind: the same cluster, and the certificate that `pemPath` points to. */
export function bootstrappedKubeconfig(cluster: ClusterToJoin, pemPath: string): object {
  return {
    apiVersion: 'v1',
    clusters: [
      {
        cluster: {
          ...(cluster.caFile !== undefined && { 'certificate-authority': cluster.caFile }),
          ...(cluster.caDataBase64 !== undefined && { 'certificate-authority-data': cluster.caDataBase64 }),
          ...(cluster.insecure && { 'insecure-skip-tls-verify': true }),
          server: cluster.server,
          ...(cluster.tlsServerName !== undefined && { 'tls-server-name': cluster.tlsServerName }),
        },
        name: 'default-cluster',
      },
    ],
    contexts: [{ context: { cluster: 'default-cluster', namespace: 'default', user: 'default-auth' }, name: 'default-context' }],
    'current-context': 'default-context',
    kind: 'Config',
    users: [{ name: 'default-auth', user: { 'client-certificate': pemPath, 'client-key': pemPath } }],
  };
}
