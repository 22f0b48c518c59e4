import { readFile, stat } from 'node:fs/promises';
import { connect as connectTcp, isIP, type Socket } from 'node:net';
import type { ConnectionOptions } from 'node:tls';
import type { Clock } from '../clock.ts';
import { messageOf, OpError } from '../errors.ts';
import type { KubeConfig, Material } from './config.ts';
import type { Connector } from './http-client.ts';

const tokenAgeMs = 60_000;
const connectTimeoutMs = 10_000;

async function bytesOf(material: Material | undefined): Promise<Uint8Array | undefined> {
  if (material === undefined) return undefined;
  return 'data' in material ? material.data : readFile(material.file);
}

/** Certificates and tokens of one configuration; files are read again as they change. */
export class Credentials {
  readonly #config: KubeConfig;
  readonly #clock: Clock;
  #token: { text: string; readAtMs: number } | undefined;
  /** What the certificate files looked like when a connection last read them. */
  #stamp = '';

  constructor(config: KubeConfig, clock: Clock) {
    this.#config = config;
    this.#clock = clock;
  }

  /** The value of the Authorization header. A file that cannot be read keeps the token read before. */
  async authorization(): Promise<string | undefined> {
    const { token, tokenFile } = this.#config;
    if (tokenFile === undefined) return token === undefined ? undefined : `Bearer ${token}`;
    const nowMs = this.#clock.monoMs();
    if (this.#token === undefined || nowMs - this.#token.readAtMs > tokenAgeMs) {
      try {
        this.#token = { text: (await readFile(tokenFile, 'utf8')).trim(), readAtMs: nowMs };
      } catch (cause) {
        if (this.#token === undefined) throw new OpError('denied', 'read token file', messageOf(cause), { cause });
      }
    }
    return `Bearer ${this.#token.text}`;
  }

  /** Called after a 401: the next request reads the token file again. */
  forgetToken(): void {
    this.#token = undefined;
  }

  /** Whether certificate files differ from what the last connection was made with. */
  async changed(): Promise<boolean> {
    return this.#stamp !== '' && (await this.#currentStamp()) !== this.#stamp;
  }

  async #currentStamp(): Promise<string> {
    const parts: string[] = [];
    for (const material of [this.#config.ca, this.#config.cert, this.#config.key]) {
      if (material === undefined || 'data' in material) continue;
      try {
        const { ino, size, mtimeMs } = await stat(material.file);
        parts.push(`${ino}:${size}:${mtimeMs}`);
      } catch {
        // A file that is away for a moment is being replaced: not a change yet.
        return this.#stamp;
      }
    }
    return parts.join(' ');
  }

  async #tlsOptions(): Promise<ConnectionOptions> {
    const { ca, cert, key, insecure, tlsServerName } = this.#config;
    this.#stamp = await this.#currentStamp();
    // One file for both is read once: between two reads it may be replaced by another pair.
    const oneFile = cert !== undefined && key !== undefined && 'file' in cert && 'file' in key && cert.file === key.file;
    const [caBytes, certBytes, otherBytes] = await Promise.all([bytesOf(ca), bytesOf(cert), oneFile ? undefined : bytesOf(key)]).catch((cause: unknown) => {
      throw new OpError('unavailable', 'connect', `the credentials are not there yet: ${messageOf(cause)}`, { cause });
    });
    const keyBytes = oneFile ? certBytes : otherBytes;
    return {
      ...(caBytes !== undefined && { ca: Buffer.from(caBytes) }),
      ...(certBytes !== undefined && { cert: Buffer.from(certBytes) }),
      ...(keyBytes !== undefined && { key: Buffer.from(keyBytes) }),
      ...(tlsServerName !== undefined && { servername: tlsServerName }),
      rejectUnauthorized: !insecure,
      minVersion: 'TLSv1.2',
      ALPNProtocols: ['h2', 'http/1.1'],
    };
  }

  /**
   * Opens sockets, each with the certificates as they are then. `onProtocol` hears what was agreed on; `signal`
   * ends what is being opened, of which the client's own end knows nothing.
   */
  connector(onProtocol: (protocol: 'h2' | 'http/1.1' | undefined) => void, signal: AbortSignal): Connector {
    return (options, callback) => {
      const fail = (error: Error): void => {
        onProtocol(undefined);
        callback(error, null);
      };
      const host = options.hostname;
      const port = Number(options.port) || (options.protocol === 'https:' ? 443 : 80);
      const open = (socketOf: () => Socket, ready: 'connect' | 'secureConnect'): void => {
        if (signal.aborted) return fail(new OpError('aborted', 'connect', 'the client is closed'));
        const socket = socketOf();
        socket.setNoDelay(true).setKeepAlive(true, 30_000);
        const timer = setTimeout(() => socket.destroy(new OpError('unavailable', 'connect', `${host}:${port} does not answer`)), connectTimeoutMs);
        const stop = (): void => void socket.destroy(new OpError('aborted', 'connect', 'the client is closed'));
        const settled = (): void => {
          clearTimeout(timer);
          signal.removeEventListener('abort', stop);
        };
        signal.addEventListener('abort', stop, { once: true });
        socket.once('error', fail);
        socket.once(ready, () => {
          settled();
          socket.off('error', fail);
          onProtocol('alpnProtocol' in socket && socket.alpnProtocol === 'h2' ? 'h2' : 'http/1.1');
          callback(null, socket);
        });
        socket.once('close', settled);
      };
      if (options.protocol !== 'https:') return open(() => connectTcp({ host, port }), 'connect');
      // Loaded where it is needed: it is a tenth of what a small daemon takes.
      Promise.all([import('node:tls'), this.#tlsOptions()]).then(
        ([{ connect }, tls]) => open(() => connect({ ...(isIP(host) === 0 && { servername: host }), ...tls, host, port }), 'secureConnect'),
        fail,
      );
    };
  }
}
