import { createPrivateKey, X509Certificate } from 'node:crypto';
import { mkdir, readFile, rm, stat } from 'node:fs/promises';
import { dirname, join } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import { hasCode, messageOf, OpError } from '../../base/errors.ts';
import { readKubeConfig, type KubeConfig, type Material } from '../../base/kubeapi/config.ts';
import type { KubeApi } from '../../base/kubeapi/types.ts';
import type { Log } from '../../base/log.ts';
import { replaceFile } from '../../base/replace-file.ts';
import type { Rng } from '../../base/rng.ts';
import { newPrivateKeyPem } from '../../base/x509.ts';
import { printYaml } from '../../base/yaml.ts';
import { bootstrappedKubeconfig, clientTemplate } from '../core/node-certs.ts';
import type { CertStore } from './cert-store.ts';
import { awaitCertificate, digestedName, postRequest } from './csr.ts';

/** Holds the key of a request that is not yet signed, so that a new process asks for the same. */
const keyFileName = 'kubelet-client.key.tmp';
const issueTimeoutMs = 3_600_000;
const serverWaitMs = 60_000;
const serverPollMs = 2_000;

/**
 * Whether a kubeconfig is there and has a client certificate, with its key, that has not ended. What else is there is
 * worth a line in the log and is replaced by a bootstrap. Throws OpError `denied` for a file that may not be looked at.
 */
export async function isStillValid(path: string, clock: Clock, log: Log): Promise<boolean> {
  try {
    await stat(path);
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT') return false;
    throw new OpError('denied', 'start the agent', `error reading existing bootstrap kubeconfig ${path}: ${messageOf(cause)}`, { cause });
  }
  try {
    const pair = await clientPairOf(await readKubeConfig(path));
    if (pair === null) throw new OpError('invalid', 'read it', 'it has no client certificate');
    const certificates = pair.certificatePem.match(/-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----/g) ?? [];
    const [first] = certificates;
    if (first === undefined || !new X509Certificate(first).checkPrivateKey(createPrivateKey(pair.privateKeyPem)))
      throw new OpError('invalid', 'read it', 'its client certificate and key are no pair');
    for (const each of certificates) {
      const { validToDate } = new X509Certificate(each);
      if (clock.nowMs() > validToDate.getTime())
        throw new OpError('invalid', 'read it', `part of its client certificate is expired: ${validToDate.toISOString()}`);
    }
    return true;
  } catch (error) {
    log.error('The existing kubeconfig cannot be used', { path, err: messageOf(error) });
    return false;
  }
}

/** The client certificate and key that a configuration names; null when it names none. Throws what reading throws. */
export async function clientPairOf(config: KubeConfig): Promise<{ certificatePem: string; privateKeyPem: string } | null> {
  if (config.cert === undefined || config.key === undefined) return null;
  return { certificatePem: await textOf(config.cert), privateKeyPem: await textOf(config.key) };
}

async function textOf(material: Material): Promise<string> {
  return 'data' in material ? Buffer.from(material.data).toString('utf8') : readFile(material.file, 'utf8');
}

/** Writes the kubeconfig of the cluster that `bootstrap` describes, whose user is the pair that `pemPath` points to. */
export async function writeBootstrapped(path: string, bootstrap: KubeConfig, pemPath: string): Promise<void> {
  const { ca, insecure, server, tlsServerName } = bootstrap;
  const document = bootstrappedKubeconfig(
    {
      server,
      insecure,
      ...(ca !== undefined && ('file' in ca ? { caFile: ca.file } : { caDataBase64: Buffer.from(ca.data).toString('base64') })),
      ...(tlsServerName !== undefined && { tlsServerName }),
    },
    pemPath,
  );
  await mkdir(dirname(path), { recursive: true, mode: 0o755 });
  await replaceFile(path, await printYaml(document));
}

export interface BootstrapOptions {
  readonly clock: Clock;
  readonly rng: Rng;
  readonly log: Log;
  readonly store: CertStore;
  readonly certDir: string;
  readonly nodeName: string;
  readonly kubeconfig: string;
  /** What the bootstrap kubeconfig says, and a client that speaks by it. */
  readonly config: KubeConfig;
  readonly api: KubeApi;
}

/**
 * Asks for the client certificate and waits for it, then writes the kubeconfig: what happens before anything else where
 * certificates are not rotated. Throws OpError `denied` when the request is refused, `deadline` after an hour.
 */
export async function bootstrapClientCertificate(options: BootstrapOptions, signal: AbortSignal): Promise<void> {
  const { api, clock, log, store } = options;
  log.info('Using bootstrap kubeconfig to generate TLS client cert, key and kubeconfig file');
  const keyFile = join(options.certDir, keyFileName);
  const before = await store.current().catch(() => null);
  const privateKeyPem = before?.privateKeyPem ?? (await keptKey(keyFile));
  await waitForServer(options, signal);
  const template = clientTemplate(options.nodeName);
  const name = digestedName(privateKeyPem, template, 'client');
  const request = await postRequest({ clock, log, api, purpose: 'client', template, privateKeyPem, name }, signal);
  log.info('Waiting for client certificate to be issued', { csr: request.name });
  await store.update(await awaitCertificate({ clock, log, api }, request, issueTimeoutMs, signal), privateKeyPem);
  await rm(keyFile, { force: true });
  await writeBootstrapped(options.kubeconfig, options.config, store.currentPath);
}

/** The key in the file, or a new one that is in it before anybody is asked to sign it. */
async function keptKey(path: string): Promise<string> {
  const text = await readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return '';
    throw error;
  });
  if (text !== '') {
    try {
      createPrivateKey(text);
      return text;
    } catch (cause) {
      throw new OpError('invalid', `read ${path}`, `error loading key: ${messageOf(cause)}`, { cause, advice: 'Remove it: a new one is made.' });
    }
  }
  const made = newPrivateKeyPem('sec1');
  await mkdir(dirname(path), { recursive: true, mode: 0o755 });
  await replaceFile(path, made);
  return made;
}

/** A minute at most: what comes after says by itself that nobody answers. */
async function waitForServer({ api, clock, log, rng }: BootstrapOptions, signal: AbortSignal): Promise<void> {
  const untilMs = clock.monoMs() + serverWaitMs;
  while (clock.monoMs() < untilMs) {
    try {
      await api.raw('GET', '/healthz', { timeoutMs: 1_000 }, signal);
      return;
    } catch (error) {
      if (hasCode(error, 'aborted')) throw error;
      log.info('Failed to connect to apiserver', { err: messageOf(error) });
    }
    await clock.sleep(serverPollMs * (1 + 0.2 * rng.float()), signal);
  }
  log.info('Error waiting for apiserver to come up', { err: 'timed out waiting to connect to apiserver' });
}
