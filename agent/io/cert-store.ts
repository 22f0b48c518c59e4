import { createPrivateKey, X509Certificate } from 'node:crypto';
import { lstat, mkdir, readFile, rename, rm, stat, symlink } from 'node:fs/promises';
import { join, resolve } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import { messageOf, OpError } from '../../base/errors.ts';
import { replaceFile } from '../../base/replace-file.ts';
import type { CertTemplate } from '../core/node-certs.ts';

/** A certificate with its key, and what of it is asked again and again. */
export interface StoredPair {
  readonly certificatePem: string;
  /** A secret. */
  readonly privateKeyPem: string;
  readonly notBeforeMs: number;
  readonly notAfterMs: number;
}

/**
 * Pairs of one kind in a directory, as the kubelet keeps them: each in a file with its time in the name, and
 * `<prefix>-current.pem`, a link to the one in use, that is replaced in one step.
 */
export interface CertStore {
  readonly currentPath: string;
  /** Null when there is none. Throws OpError `invalid` for files that are there and no pair. */
  current(): Promise<StoredPair | null>;
  /** Keeps a new pair and makes it the current one; on disk before it returns. */
  update(certificatePem: string, privateKeyPem: string): Promise<StoredPair>;
}

export interface CertStoreOptions {
  readonly clock: Clock;
  readonly dir: string;
  readonly prefix: 'kubelet-client' | 'kubelet-server';
  /** Looked at when there is no link. */
  readonly certFile?: string;
  readonly keyFile?: string;
}

/** Opens the store and finishes a replacement that a crash cut short. */
export async function openCertStore(options: CertStoreOptions): Promise<CertStore> {
  const { clock, dir, prefix } = options;
  const currentPath = join(resolve(dir), `${prefix}-current.pem`);
  const updatedPath = join(resolve(dir), `${prefix}-updated.pem`);
  if (!(await isThere(currentPath)) && (await isLink(updatedPath))) await rename(updatedPath, currentPath);

  return {
    currentPath,
    async current() {
      if (await isThere(currentPath)) return pairFrom(await readFile(currentPath, 'utf8'), currentPath);
      for (const [cert, key] of [
        [options.certFile ?? '', options.keyFile ?? ''],
        [join(dir, `${prefix}.crt`), join(dir, `${prefix}.key`)],
      ] as const) {
        if (cert === '' || key === '' || !(await isThere(cert)) || !(await isThere(key))) continue;
        return pairFrom(`${await readFile(cert, 'utf8')}\n${await readFile(key, 'utf8')}`, cert);
      }
      return null;
    },
    async update(certificatePem, privateKeyPem) {
      const path = join(resolve(dir), `${prefix}-${stampOf(clock.nowMs())}.pem`);
      const text = `${ended(certificatePem)}${ended(privateKeyPem)}`;
      const pair = pairFrom(text, path);
      await mkdir(dir, { recursive: true, mode: 0o755 });
      // Beside a link of ours only: a file that somebody put there is not overwritten.
      for (const link of [currentPath, updatedPath]) {
        if (!(await isLink(link)) && (await isThere(link)))
          throw new OpError('invalid', 'store certificate', `expected ${JSON.stringify(link)} to be a symlink but it is a file`);
      }
      // A second pair of the same second has the name of the first, which is in use.
      await replaceFile(path, text);
      await rm(updatedPath, { force: true });
      await symlink(path, updatedPath);
      await rename(updatedPath, currentPath);
      return pair;
    },
  };
}

/** The first certificate of a text is the one that is used, as everywhere in TLS. Throws OpError `invalid`. */
export function pairFrom(text: string, where: string): StoredPair {
  const certificates = text.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
  const [key] = /-----BEGIN ((?:EC |RSA )?PRIVATE KEY)-----[^-]+-----END \1-----/.exec(text) ?? [];
  const [first] = certificates;
  const fail = (why: string, cause?: unknown): OpError => new OpError('invalid', `read ${where}`, `no certificate with its key: ${why}`, { cause });
  if (first === undefined || key === undefined) throw fail(first === undefined ? 'no PEM certificate in it' : 'no PEM private key in it');
  let leaf: X509Certificate;
  try {
    leaf = new X509Certificate(first);
    if (!leaf.checkPrivateKey(createPrivateKey(key))) throw new OpError('invalid', 'compare', 'the key is of another certificate');
  } catch (cause) {
    throw fail(messageOf(cause), cause);
  }
  return {
    certificatePem: certificates.map((each) => `${each}\n`).join(''),
    privateKeyPem: `${key}\n`,
    notBeforeMs: leaf.validFromDate.getTime(),
    notAfterMs: leaf.validToDate.getTime(),
  };
}

/** Why a certificate is not the one that is wanted now; null when it is. More names than wanted are no reason. */
export function templateGap(pair: StoredPair, wanted: CertTemplate): string | null {
  const leaf = new X509Certificate(pair.certificatePem);
  const { subject } = leaf.toLegacyObject() as unknown as { subject: { CN?: string; O?: string | string[] } };
  if (subject.CN !== wanted.commonName) return `it is for ${JSON.stringify(subject.CN ?? '')}, not for ${JSON.stringify(wanted.commonName)}`;
  const organizations = [subject.O ?? []].flat();
  const missing = [
    ...wanted.organizations.filter((each) => !organizations.includes(each)),
    ...wanted.dnsNames.filter((each) => leaf.checkHost(each, { subject: 'never' }) === undefined),
    ...wanted.ipAddresses.filter((each) => leaf.checkIP(each) === undefined),
  ];
  return missing.length === 0 ? null : `it lacks ${missing.join(', ')}`;
}

/** The time of day on this machine's clock. */
function stampOf(ms: number): string {
  const at = new Date(ms);
  const two = (value: number): string => String(value).padStart(2, '0');
  return [at.getFullYear(), at.getMonth() + 1, at.getDate(), at.getHours(), at.getMinutes(), at.getSeconds()].map(two).join('-');
}

const ended = (pem: string): string => (pem.endsWith('\n') ? pem : `${pem}\n`);

async function isThere(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === 'ENOENT') return false;
    throw error;
  }
}

async function isLink(path: string): Promise<boolean> {
  const found = await lstat(path).catch(() => null);
  return found?.isSymbolicLink() === true;
}
