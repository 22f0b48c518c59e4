import type { ServerOptions } from 'node:https';
import type { TlsOptions } from 'node:tls';
import { OpError } from '../../base/errors.ts';

/**
 * Where Node's HTTPS server differs from Go's, and what is set instead. Each value has its reason here and its case
 * in server-defaults.test.ts, so that nobody tidies one away.
 */
export const serverDefaults = {
  /**
   * Node closes an idle connection after 5 s; Go clients (the API server among them) reuse it for 90 s and then fail
   * with a reset in the middle of `kubectl logs`. Longer than any client's own bound, so that the client closes.
   */
  keepAliveTimeout: 150_000,
  /** Node adds 1 s of grace before it enforces; part of the same bound. */
  keepAliveTimeoutBuffer: 1_000,
  /** Node allows 300 s for a whole request; bodies here are tiny, and a slow one must not hold a connection for minutes. */
  requestTimeout: 60_000,
  /** Go has 0 (no bound); a client that never finishes its headers must not keep a descriptor. Node: 60 s. */
  headersTimeout: 30_000,
  /** Followed logs and execs are silent for hours; Node's own default, made explicit. */
  timeout: 0,
  /** Go allows 1 MiB of headers; an exec of a long command is one long URL. Node: 16 KiB. */
  maxHeaderSize: 1024 * 1024,
  /** Small writes of an interactive session must not wait for more. Node's default, made explicit. */
  noDelay: true,
  /** Finds peers that vanished, as Go's listener does. Node: off. */
  keepAlive: true,
  keepAliveInitialDelay: 15_000,
} as const satisfies ServerOptions & Record<string, unknown>;

/** Node counts no connections by default; one runaway client must not take every descriptor. */
export const maxConnections = 4_096;

/**
 * A client may show a certificate or send a token: asked for, never demanded in the handshake, and judged
 * afterwards by `socket.authorized`.
 */
export const clientCertificateDefaults = { requestCert: true, rejectUnauthorized: false } as const satisfies TlsOptions;

const minVersions: Readonly<Record<string, 'TLSv1' | 'TLSv1.1' | 'TLSv1.2' | 'TLSv1.3'>> = {
  VersionTLS10: 'TLSv1',
  VersionTLS11: 'TLSv1.1',
  VersionTLS12: 'TLSv1.2',
  VersionTLS13: 'TLSv1.3',
};

/** `tlsMinVersion` in Go's words; Go's default is 1.2. Throws OpError `invalid`. */
export function tlsMinVersion(goName: string): 'TLSv1' | 'TLSv1.1' | 'TLSv1.2' | 'TLSv1.3' {
  if (goName === '') return 'TLSv1.2';
  const found = minVersions[goName];
  if (found === undefined) throw new OpError('invalid', 'read tlsMinVersion', `${JSON.stringify(goName)} is none of ${Object.keys(minVersions).join(', ')}`);
  return found;
}

/** `tlsCurvePreferences`: Go's numbers of curves (TLS's own) by OpenSSL's names. */
const curveNames: Readonly<Record<number, string>> = { 23: 'P-256', 24: 'P-384', 25: 'P-521', 29: 'X25519', 4588: 'X25519MLKEM768' };

/** Undefined: OpenSSL's own choice. Throws OpError `invalid`. */
export function tlsCurves(ids: readonly number[]): string | undefined {
  const names = ids.map((id) => {
    const name = curveNames[id];
    if (name === undefined) throw new OpError('invalid', 'read tlsCurvePreferences', `${id} is none of ${Object.keys(curveNames).join(', ')}`);
    return name;
  });
  return names.length === 0 ? undefined : names.join(':');
}

/** Go's cipher suites (IANA names) by OpenSSL's. TLS 1.3 suites are not configurable in Go and are always on. */
const opensslNames: Readonly<Record<string, string>> = {
  TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256: 'ECDHE-ECDSA-AES128-GCM-SHA256',
  TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256: 'ECDHE-RSA-AES128-GCM-SHA256',
  TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384: 'ECDHE-ECDSA-AES256-GCM-SHA384',
  TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384: 'ECDHE-RSA-AES256-GCM-SHA384',
  TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256: 'ECDHE-ECDSA-CHACHA20-POLY1305',
  TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256: 'ECDHE-RSA-CHACHA20-POLY1305',
  TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305: 'ECDHE-ECDSA-CHACHA20-POLY1305',
  TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305: 'ECDHE-RSA-CHACHA20-POLY1305',
  TLS_ECDHE_ECDSA_WITH_AES_128_CBC_SHA: 'ECDHE-ECDSA-AES128-SHA',
  TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA: 'ECDHE-RSA-AES128-SHA',
  TLS_ECDHE_ECDSA_WITH_AES_256_CBC_SHA: 'ECDHE-ECDSA-AES256-SHA',
  TLS_ECDHE_RSA_WITH_AES_256_CBC_SHA: 'ECDHE-RSA-AES256-SHA',
  TLS_RSA_WITH_AES_128_GCM_SHA256: 'AES128-GCM-SHA256',
  TLS_RSA_WITH_AES_256_GCM_SHA384: 'AES256-GCM-SHA384',
  TLS_RSA_WITH_AES_128_CBC_SHA: 'AES128-SHA',
  TLS_RSA_WITH_AES_256_CBC_SHA: 'AES256-SHA',
  TLS_AES_128_GCM_SHA256: 'TLS_AES_128_GCM_SHA256',
  TLS_AES_256_GCM_SHA384: 'TLS_AES_256_GCM_SHA384',
  TLS_CHACHA20_POLY1305_SHA256: 'TLS_CHACHA20_POLY1305_SHA256',
};

/** `tlsCipherSuites`; undefined is OpenSSL's default. Throws OpError `invalid` for a name nobody knows. */
export function tlsCiphers(goNames: readonly string[]): string | undefined {
  if (goNames.length === 0) return undefined;
  const names = goNames.map((goName) => {
    const found = opensslNames[goName];
    if (found === undefined) throw new OpError('invalid', 'read tlsCipherSuites', `cipher suite ${goName} is not supported or does not exist`);
    return found;
  });
  return ['TLS_AES_128_GCM_SHA256', 'TLS_AES_256_GCM_SHA384', 'TLS_CHACHA20_POLY1305_SHA256', ...names].join(':');
}
