import { X509Certificate } from 'node:crypto';
import { chmod, mkdir, readFile, rename, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { realClock } from '../../base/clock.ts';
import { issueCertificate, newPrivateKeyPem, selfSigned } from '../../base/x509.ts';
import type { Issuer, SignedPair } from '../../base/x509.ts';

const DAY_MS = 86_400_000;
const CA_DAYS = 3650;
const LEAF_DAYS = 365;
/** A leaf with less than this left is made anew at the next start. */
const RENEW_BEFORE_DAYS = 60;

export interface Pki {
  caPem: string;
  serving: SignedPair;
  /** What this control plane shows to kubelets. */
  kubeletClient: SignedPair;
  /** Who signed the kubelets' serving certificates; absent: they are not verified, as upstream without the flag. */
  kubeletCaPem?: string;
  /** Signs service account tokens. */
  accountKeyPem: string;
}

export interface PkiOptions {
  directory: string;
  nowMs: number;
  dnsNames: readonly string[];
  ipAddresses: readonly string[];
  /** What admin.kubeconfig says, as `https://host:port`. */
  server: string;
}

/** Writes a secret file so that nobody ever reads half of it or finds it open. */
async function writeSecret(path: string, text: string): Promise<void> {
  const fresh = `${path}.new`;
  await writeFile(fresh, text, { mode: 0o600 });
  await chmod(fresh, 0o600);
  await rename(fresh, path);
}

async function readIfThere(path: string): Promise<string | undefined> {
  try {
    return await readFile(path, 'utf8');
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return undefined;
    throw error;
  }
}

async function pair(directory: string, name: string, make: () => SignedPair, isGood: (certificate: X509Certificate) => boolean): Promise<SignedPair> {
  const certificatePem = await readIfThere(join(directory, `${name}.crt`));
  const privateKeyPem = await readIfThere(join(directory, `${name}.key`));
  if (certificatePem !== undefined && privateKeyPem !== undefined && isGood(new X509Certificate(certificatePem))) return { certificatePem, privateKeyPem };
  const made = make();
  await writeSecret(join(directory, `${name}.key`), made.privateKeyPem);
  await writeSecret(join(directory, `${name}.crt`), made.certificatePem);
  return made;
}

async function loadCa(directory: string, nowMs: number): Promise<Issuer> {
  await mkdir(directory, { recursive: true, mode: 0o700 });
  const content = { subject: { commonName: 'kubernetes-ca' }, notBeforeMs: nowMs - 3_600_000, notAfterMs: nowMs + CA_DAYS * DAY_MS, isCA: true };
  return pair(
    directory,
    'ca',
    () => selfSigned(content),
    (certificate) => Date.parse(certificate.validTo) > nowMs + DAY_MS,
  );
}

const leafTimes = (nowMs: number): { notBeforeMs: number; notAfterMs: number } => ({ notBeforeMs: nowMs - 3_600_000, notAfterMs: nowMs + LEAF_DAYS * DAY_MS });

/** Reads the keys and certificates of a control plane, and makes those that are missing, spent or for other names. */
export async function openPki(options: PkiOptions): Promise<Pki> {
  const { directory, nowMs, dnsNames, ipAddresses } = options;
  const ca = await loadCa(directory, nowMs);
  const issuer = new X509Certificate(ca.certificatePem);
  const isFresh = (certificate: X509Certificate): boolean =>
    certificate.checkIssued(issuer) && Date.parse(certificate.validTo) > nowMs + RENEW_BEFORE_DAYS * DAY_MS;
  const hasNames = (certificate: X509Certificate): boolean =>
    ipAddresses.every((ip) => certificate.checkIP(ip) !== undefined) && dnsNames.every((name) => certificate.checkHost(name) !== undefined);
  const serving = await pair(
    directory,
    'apiserver',
    () => issueCertificate({ subject: { commonName: 'kube-apiserver' }, dnsNames, ipAddresses, usages: ['serverAuth'], ...leafTimes(nowMs) }, ca),
    (certificate) => isFresh(certificate) && hasNames(certificate),
  );
  const kubeletClient = await pair(
    directory,
    'apiserver-kubelet-client',
    () =>
      issueCertificate(
        { subject: { commonName: 'kube-apiserver-kubelet-client', organizations: ['system:masters'] }, usages: ['clientAuth'], ...leafTimes(nowMs) },
        ca,
      ),
    isFresh,
  );
  let accountKeyPem = await readIfThere(join(directory, 'sa.key'));
  if (accountKeyPem === undefined) {
    accountKeyPem = newPrivateKeyPem();
    await writeSecret(join(directory, 'sa.key'), accountKeyPem);
  }
  await issueKubeconfig(directory, {
    user: 'kubernetes-admin',
    groups: ['system:masters'],
    server: options.server,
    out: join(directory, 'admin.kubeconfig'),
    nowMs,
  });
  return { caPem: ca.certificatePem, serving, kubeletClient, accountKeyPem };
}

export interface KubeconfigRequest {
  user: string;
  groups: readonly string[];
  server: string;
  /** File to write, mode 0600. */
  out: string;
  nowMs?: number;
  context?: string;
}

const base64 = (text: string): string => Buffer.from(text).toString('base64');

/** A kubeconfig with a client certificate of its own: for the administrator, nodes (`system:node:<name>` in `system:nodes`) and proxies. */
export async function issueKubeconfig(directory: string, request: KubeconfigRequest): Promise<string> {
  const nowMs = request.nowMs ?? realClock.nowMs();
  const ca = await loadCa(directory, nowMs);
  const client = issueCertificate({ subject: { commonName: request.user, organizations: request.groups }, usages: ['clientAuth'], ...leafTimes(nowMs) }, ca);
  const context = request.context ?? 'nodelet';
  const lines = [
    'apiVersion: v1',
    'kind: Config',
    'clusters:',
    `- name: ${context}`,
    '  cluster:',
    `    server: ${request.server}`,
    `    certificate-authority-data: ${base64(ca.certificatePem)}`,
    'users:',
    `- name: ${JSON.stringify(request.user)}`,
    '  user:',
    `    client-certificate-data: ${base64(client.certificatePem)}`,
    `    client-key-data: ${base64(client.privateKeyPem)}`,
    'contexts:',
    `- name: ${context}`,
    '  context:',
    `    cluster: ${context}`,
    `    user: ${JSON.stringify(request.user)}`,
    `current-context: ${context}`,
    '',
  ];
  await writeSecret(request.out, lines.join('\n'));
  return request.out;
}

export interface ServingRequest {
  cn: string;
  ips: readonly string[];
  dns?: readonly string[];
  groups?: readonly string[];
  nowMs?: number;
}

/** A serving certificate signed by the cluster's CA, for a kubelet's HTTPS port. The key is a secret. */
export async function issueServingCert(directory: string, request: ServingRequest): Promise<SignedPair & { caPem: string }> {
  const nowMs = request.nowMs ?? realClock.nowMs();
  const ca = await loadCa(directory, nowMs);
  const made = issueCertificate(
    {
      subject: { commonName: request.cn, organizations: request.groups ?? [] },
      ipAddresses: request.ips,
      dnsNames: request.dns ?? [],
      usages: ['serverAuth'],
      ...leafTimes(nowMs),
    },
    ca,
  );
  return { ...made, caPem: ca.certificatePem };
}
