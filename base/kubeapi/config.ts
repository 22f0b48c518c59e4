import { readFile, stat } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { messageOf, OpError } from '../errors.ts';
import type { Log } from '../log.ts';
import { readPlainJson, yamlFault } from '../yaml.ts';

/** Bytes that stand in the configuration itself, or in a file that is read again for each new connection. */
export type Material = { readonly file: string } | { readonly data: Uint8Array };

/** How to reach and trust one API server, and as whom. */
export interface KubeConfig {
  /** `https://host:port`, perhaps with a path, without a slash at the end. */
  readonly server: string;
  /** The context's namespace; `default` when it names none. */
  readonly namespace: string;
  /** Checked against the server's certificate in place of the host. */
  readonly tlsServerName?: string;
  /** The server's certificate is not checked. */
  readonly insecure: boolean;
  /** Without it the system's authorities are trusted. */
  readonly ca?: Material;
  readonly cert?: Material;
  readonly key?: Material;
  readonly token?: string;
  /** Read again every minute; goes before `token`. */
  readonly tokenFile?: string;
}

type Tree = { readonly [key: string]: unknown };

const doing = 'read kubeconfig';

function invalid(where: string, detail: string, advice = ''): OpError {
  return new OpError('invalid', doing, `${where}: ${detail}`, { advice });
}

function isTree(value: unknown): value is Tree {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}

class Reader {
  readonly #where: string;
  readonly #folder: string;

  constructor(where: string, folder: string) {
    this.#where = where;
    this.#folder = folder;
  }

  fail(detail: string, advice?: string): OpError {
    return invalid(this.#where, detail, advice);
  }

  text(tree: Tree, key: string): string | undefined {
    const value = tree[key];
    if (value === undefined || value === null || value === '') return undefined;
    if (typeof value !== 'string') throw this.fail(`${key} must be a string`);
    return value;
  }

  flag(tree: Tree, key: string): boolean {
    const value = tree[key];
    if (value === undefined || value === null) return false;
    if (value === true || value === 'true') return true;
    if (value === false || value === 'false') return false;
    throw this.fail(`${key} must be true or false`);
  }

  path(tree: Tree, key: string): string | undefined {
    const path = this.text(tree, key);
    return path === undefined ? undefined : resolve(this.#folder, path);
  }

  /** The inline data goes before the file, as in client-go. */
  material(tree: Tree, key: string): Material | undefined {
    const inline = this.text(tree, `${key}-data`);
    if (inline !== undefined) {
      const data = Buffer.from(inline, 'base64');
      if (data.length === 0 || !/^[A-Za-z0-9+/=\s]+$/.test(inline)) throw this.fail(`${key}-data is not base64`);
      return { data };
    }
    const file = this.path(tree, key);
    return file === undefined ? undefined : { file };
  }

  /** The body of the entry called `name` in a list of {name, <field>}. */
  named(tree: Tree, list: string, field: string, name: string): Tree {
    const entries = tree[list] ?? [];
    if (!Array.isArray(entries)) throw this.fail(`${list} must be a list`);
    const names: string[] = [];
    for (const entry of entries) {
      if (!isTree(entry)) throw this.fail(`an entry of ${list} is not a mapping`);
      if (entry['name'] !== name) {
        names.push(String(entry['name']));
        continue;
      }
      const body = entry[field] ?? {};
      if (!isTree(body)) throw this.fail(`${list} "${name}": ${field} must be a mapping`);
      return body;
    }
    throw this.fail(`${list} has no entry "${name}"`, names.length === 0 ? '' : `there: ${names.join(', ')}`);
  }
}

function readUser(reader: Reader, user: Tree, name: string): Pick<KubeConfig, 'cert' | 'key' | 'token' | 'tokenFile'> {
  for (const key of ['exec', 'auth-provider', 'username', 'as']) {
    const value = user[key];
    if (value !== undefined && value !== null && value !== '') {
      throw reader.fail(`user "${name}": ${key} is not supported`, 'use a client certificate, token or tokenFile');
    }
  }
  const cert = reader.material(user, 'client-certificate');
  const key = reader.material(user, 'client-key');
  if ((cert === undefined) !== (key === undefined)) throw reader.fail(`user "${name}": client-certificate and client-key belong together`);
  const token = reader.text(user, 'token');
  const tokenFile = reader.path(user, 'tokenFile');
  return {
    ...(cert !== undefined && { cert }),
    ...(key !== undefined && { key }),
    ...(token !== undefined && { token }),
    ...(tokenFile !== undefined && { tokenFile }),
  };
}

function readServer(reader: Reader, cluster: Tree, name: string): string {
  const text = reader.text(cluster, 'server');
  if (text === undefined) throw reader.fail(`cluster "${name}" has no server`);
  const withScheme = /^[a-z]+:\/\//.test(text) ? text : `https://${text}`;
  if (!URL.canParse(withScheme)) throw reader.fail(`cluster "${name}": server "${text}" is not a URL`);
  const url = new URL(withScheme);
  if (url.protocol !== 'https:' && url.protocol !== 'http:') throw reader.fail(`cluster "${name}": server "${text}" must be http or https`);
  return `${url.origin}${url.pathname.replace(/\/+$/, '')}`;
}

/**
 * The connection that a kubeconfig's context (default: its current-context) describes. `where` names the source in
 * messages, relative paths are below `folder`. Throws OpError `invalid`.
 */
export function kubeConfigFrom(tree: unknown, where: string, folder: string, contextName?: string): KubeConfig {
  const reader = new Reader(where, folder);
  if (!isTree(tree)) throw reader.fail('not a mapping');
  if (tree['kind'] !== undefined && tree['kind'] !== 'Config') throw reader.fail(`kind is ${JSON.stringify(tree['kind'])}, not "Config"`);
  const context = contextName ?? reader.text(tree, 'current-context');
  if (context === undefined) throw reader.fail('no current-context', 'set current-context to one of its contexts');
  const { cluster: clusterName, user: userName, namespace } = reader.named(tree, 'contexts', 'context', context);
  if (typeof clusterName !== 'string' || clusterName === '') throw reader.fail(`context "${context}" names no cluster`);
  const cluster = reader.named(tree, 'clusters', 'cluster', clusterName);
  if (reader.text(cluster, 'proxy-url') !== undefined) throw reader.fail(`cluster "${clusterName}": proxy-url is not supported`);
  const user = typeof userName === 'string' && userName !== '' ? readUser(reader, reader.named(tree, 'users', 'user', userName), userName) : {};
  const insecure = reader.flag(cluster, 'insecure-skip-tls-verify');
  const ca = reader.material(cluster, 'certificate-authority');
  if (insecure && ca !== undefined) throw reader.fail(`cluster "${clusterName}": insecure-skip-tls-verify and certificate-authority exclude each other`);
  const tlsServerName = reader.text(cluster, 'tls-server-name');
  return {
    server: readServer(reader, cluster, clusterName),
    namespace: typeof namespace === 'string' && namespace !== '' ? namespace : 'default',
    insecure,
    ...(ca !== undefined && { ca }),
    ...(tlsServerName !== undefined && { tlsServerName }),
    ...user,
  };
}

/** Parses a kubeconfig's text: YAML or JSON. Throws OpError `invalid`. */
export async function parseKubeConfig(text: string, where: string, folder: string, contextName?: string): Promise<KubeConfig> {
  // Only strings and flags occur, so no scalar is guessed at: a token of digits stays text.
  if (readPlainJson(text) !== undefined) {
    const json: unknown = JSON.parse(text, (_key, value: unknown) => (typeof value === 'number' ? String(value) : value));
    return kubeConfigFrom(json, where, folder, contextName);
  }
  const { FAILSAFE_SCHEMA, load } = await import('js-yaml');
  let tree: unknown;
  try {
    tree = load(text, { schema: FAILSAFE_SCHEMA });
  } catch (cause) {
    throw invalid(where, yamlFault(cause), 'a kubeconfig is YAML or JSON');
  }
  return kubeConfigFrom(tree, where, folder, contextName);
}

/** Reads a kubeconfig file. Throws OpError `not-found`, `denied` or `invalid`. */
export async function readKubeConfig(path: string, contextName?: string): Promise<KubeConfig> {
  let text: string;
  try {
    text = await readFile(path, 'utf8');
  } catch (cause) {
    const code = (cause as NodeJS.ErrnoException).code;
    if (code === 'ENOENT') throw new OpError('not-found', doing, `${path} does not exist`, { cause });
    throw new OpError(code === 'EACCES' ? 'denied' : 'invalid', doing, messageOf(cause), { cause });
  }
  return parseKubeConfig(text, path, dirname(resolve(path)), contextName);
}

/**
 * A kubeconfig file and what it says from then on: `config` now, and `reload` for the API client, which gives the new
 * configuration once when the file has changed. A file that is away or cannot be read keeps the one before.
 */
export async function followKubeConfig(path: string, log: Log): Promise<{ config: KubeConfig; reload: () => Promise<KubeConfig | undefined> }> {
  const stampNow = async (): Promise<string> => {
    try {
      const { ino, size, mtimeMs } = await stat(path);
      return `${ino}:${size}:${mtimeMs}`;
    } catch {
      return '';
    }
  };
  let stamp = await stampNow();
  const config = await readKubeConfig(path);
  let last = JSON.stringify(config);
  return {
    config,
    async reload() {
      const now = await stampNow();
      if (now === stamp || now === '') return undefined;
      stamp = now;
      try {
        const next = await readKubeConfig(path);
        if (JSON.stringify(next) === last) return undefined;
        last = JSON.stringify(next);
        return next;
      } catch (error) {
        log.error('The changed kubeconfig cannot be used; going on with the one before', { path, err: messageOf(error) });
        return undefined;
      }
    },
  };
}
