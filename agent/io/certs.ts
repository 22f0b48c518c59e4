import { createPrivateKey, X509Certificate } from 'node:crypto';
import { watch } from 'node:fs';
import { mkdir, readFile } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import { messageOf, OpError } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import { replaceFile } from '../../base/replace-file.ts';
import { selfSigned } from '../../base/x509.ts';
import type { TlsMaterial } from './server.ts';

export interface ServingCertOptions {
  clock: Clock;
  log: Log;
  /** `--cert-dir`. */
  certDir: string;
  /** `tlsCertFile`, `tlsPrivateKeyFile`; empty: a self-signed pair in the certificate directory. */
  certFile: string;
  keyFile: string;
  /** `authentication.x509.clientCAFile`; empty: no client certificates. */
  clientCAFile: string;
  hostname: string;
  ipAddresses: readonly string[];
  /** `serverTLSBootstrap`: the certificate that the control plane issued. While it is null there is none to show. */
  issued?: IssuedPair;
}

export interface IssuedPair {
  current(): { certificatePem: string; privateKeyPem: string } | null;
  /** Called by whoever has a new one. */
  onChange: () => void;
}

const none: TlsMaterial = { cert: '', key: '' };

const yearMs = 365 * 86_400_000;
/** A self-signed pair is made anew when it would end within this time. */
const renewBeforeMs = 30 * 86_400_000;
/** fs.watch loses events; the files are looked at this often in any case. */
const rescanMs = 60_000;

/** The material for the HTTPS server. Throws OpError `invalid` for files that do not fit. */
export async function loadServingCert(options: ServingCertOptions): Promise<TlsMaterial> {
  const pair = await pairOf(options);
  if (options.clientCAFile === '') return pair;
  const ca = await read(options.clientCAFile, 'clientCAFile');
  if (!ca.includes('-----BEGIN CERTIFICATE-----')) throw new OpError('invalid', `read clientCAFile ${options.clientCAFile}`, 'no PEM certificate in it');
  return { ...pair, ca };
}

async function pairOf(options: ServingCertOptions): Promise<TlsMaterial> {
  if (options.issued !== undefined) {
    const issued = options.issued.current();
    return issued === null ? none : { cert: issued.certificatePem, key: issued.privateKeyPem };
  }
  return options.certFile === '' ? ownPair(options) : configuredPair(options.certFile, options.keyFile);
}

/** Calls `onChange` with new material whenever one of the files changes to something that fits. Until `signal` is aborted. */
export async function followServingCert(
  options: ServingCertOptions,
  current: TlsMaterial,
  onChange: (material: TlsMaterial) => void,
  signal: AbortSignal,
): Promise<void> {
  const { clock, log } = options;
  const files = [options.certFile, options.keyFile, options.clientCAFile].filter((file) => file !== '');
  let wake: () => void = () => undefined;
  if (options.issued !== undefined) options.issued.onChange = () => wake();
  const watchers = [...new Set(files.map((file) => dirname(file)))].map((directory) => watchQuietly(directory, () => wake()));
  let last = current;
  while (!signal.aborted) {
    const woken = new AbortController();
    wake = () => woken.abort();
    await clock.sleep(rescanMs, AbortSignal.any([signal, woken.signal])).catch(() => undefined);
    if (signal.aborted) break;
    // Certificate and key are two files: wait for the second.
    if (options.issued === undefined && woken.signal.aborted) await clock.sleep(200, signal).catch(() => undefined);
    try {
      const next = await loadServingCert(options);
      if (next.cert === last.cert && next.key === last.key && next.ca === last.ca) continue;
      last = next;
      onChange(next);
      log.info('Loaded a changed serving certificate or client CA');
    } catch (error) {
      log.error('The serving certificate files do not fit; going on with the old ones', { err: messageOf(error) });
    }
  }
  for (const close of watchers) close();
}

function watchQuietly(directory: string, onChange: () => void): () => void {
  try {
    const watcher = watch(directory, { persistent: false }, onChange);
    watcher.on('error', () => watcher.close());
    return () => watcher.close();
  } catch {
    return () => undefined;
  }
}

async function configuredPair(certFile: string, keyFile: string): Promise<TlsMaterial> {
  const cert = await read(certFile, 'tlsCertFile');
  const key = await read(keyFile, 'tlsPrivateKeyFile');
  if (!fits(cert, key)) throw new OpError('invalid', `read tlsCertFile ${certFile}`, `it and tlsPrivateKeyFile ${keyFile} are not a pair`);
  return { cert, key };
}

/** kubelet.crt and kubelet.key, made when absent, unusable, for another name or about to end. */
async function ownPair(options: ServingCertOptions): Promise<TlsMaterial> {
  const { certDir, clock, hostname, ipAddresses, log } = options;
  const certFile = join(certDir, 'kubelet.crt');
  const keyFile = join(certDir, 'kubelet.key');
  const [cert, key] = await Promise.all([readFile(certFile, 'utf8').catch(() => ''), readFile(keyFile, 'utf8').catch(() => '')]);
  if (fits(cert, key) && serves(cert, options)) return { cert, key };
  const nowMs = clock.nowMs();
  const made = selfSigned({
    subject: { commonName: `${hostname}@${Math.floor(nowMs / 1000)}` },
    notBeforeMs: nowMs - 3_600_000,
    notAfterMs: nowMs + yearMs,
    usages: ['serverAuth'],
    dnsNames: [hostname],
    ipAddresses: [...ipAddresses],
  });
  await mkdir(certDir, { recursive: true, mode: 0o755 });
  await replaceFile(keyFile, made.privateKeyPem);
  await replaceFile(certFile, made.certificatePem, 0o644);
  log.info('Using self-signed cert', { certFile, keyFile });
  return { cert: made.certificatePem, key: made.privateKeyPem };
}

function fits(cert: string, key: string): boolean {
  try {
    const [first] = /-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/.exec(cert) ?? [];
    return first !== undefined && new X509Certificate(first).checkPrivateKey(createPrivateKey(key));
  } catch {
    return false;
  }
}

function serves(cert: string, { clock, hostname, ipAddresses }: ServingCertOptions): boolean {
  const parsed = new X509Certificate(cert);
  if (parsed.validToDate.getTime() - clock.nowMs() < renewBeforeMs) return false;
  return parsed.checkHost(hostname) !== undefined && ipAddresses.every((ip) => parsed.checkIP(ip) !== undefined);
}

async function read(path: string, field: string): Promise<string> {
  try {
    return await readFile(path, 'utf8');
  } catch (cause) {
    throw new OpError('invalid', `read ${field} ${path}`, messageOf(cause), { cause });
  }
}
