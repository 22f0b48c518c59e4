import type { AuthConfig } from '../../proto/cri/types.ts';
import type { Secret } from '../../proto/kube/types.ts';
import { fromBase64 } from './env.ts';
import type { CredentialSource } from './pull-records.ts';

/** Credentials for all images whose name a pattern matches. */
export interface PullEntry {
  /** `host[:port][/path]`, with `*` within a label of the host. */
  readonly pattern: string;
  readonly auth: AuthConfig;
  /** Whose it is; absent: the node's own. */
  readonly source?: CredentialSource;
}

/** The entries of a Secret of either docker type; what cannot be read is left out. */
export function secretEntries(secret: Secret): PullEntry[] {
  const modern = secret.data?.['.dockerconfigjson'];
  const old = secret.data?.['.dockercfg'];
  if (secret.type === 'kubernetes.io/dockerconfigjson' && modern !== undefined) return configEntries(fromBase64(modern) ?? '');
  return secret.type === 'kubernetes.io/dockercfg' && old !== undefined ? configEntries(`{"auths":${fromBase64(old) ?? 'null'}}`) : [];
}

/** The entries of a docker config.json. */
export function configEntries(json: string): PullEntry[] {
  let config: unknown;
  try {
    config = JSON.parse(json);
  } catch {
    return [];
  }
  const auths = isRecord(config) && isRecord(config['auths']) ? config['auths'] : {};
  return Object.entries(auths).flatMap(([server, entry]) => {
    if (!isRecord(entry)) return [];
    const text = (name: string): string => (typeof entry[name] === 'string' ? entry[name] : '');
    const pair = fromBase64(text('auth'));
    const colon = pair?.indexOf(':') ?? -1;
    const username = pair !== null && colon >= 0 ? pair.slice(0, colon) : text('username');
    const password = pair !== null && colon >= 0 ? pair.slice(colon + 1) : text('password');
    const pattern = patternOf(server);
    return pattern === '' ? [] : [{ pattern, auth: { username, password, identityToken: text('identitytoken'), registryToken: text('registrytoken') } }];
  });
}

/** The credentials for a repository, the most specific pattern first. */
export function authsFor(entries: readonly PullEntry[], repository: string): { auth: AuthConfig; source: CredentialSource }[] {
  const matching = entries.filter((entry) => repositoryMatches(entry.pattern, repository));
  // By reverse order of the text, a longer path comes before its prefix.
  return matching
    .toSorted((left, right) => (left.pattern < right.pattern ? 1 : left.pattern > right.pattern ? -1 : 0))
    .map(({ auth, source = null }) => ({ auth, source }));
}

function patternOf(server: string): string {
  const bare = server
    .replace(/^https?:\/\//, '')
    .replace(/\/v[12]\/?$/, '')
    .replace(/\/$/, '');
  return bare === 'index.docker.io' ? 'docker.io' : bare;
}

/** Whether credentials for `pattern` count for a repository (`registry/path`). */
export function repositoryMatches(pattern: string, repository: string): boolean {
  const [patternHost = '', ...patternPath] = pattern.split('/');
  const [host = '', ...path] = repository.split('/');
  const [patternName = '', patternPort = ''] = patternHost.split(':');
  const [name = '', port = ''] = host.split(':');
  const labels = name.split('.');
  const patternLabels = patternName.split('.');
  if (port !== patternPort || labels.length !== patternLabels.length) return false;
  const sameHost = patternLabels.every((label, index) => globMatches(label, labels[index]!));
  return sameHost && path.join('/').startsWith(patternPath.join('/'));
}

function globMatches(glob: string, label: string): boolean {
  return new RegExp(`^${glob.replaceAll(/[^a-zA-Z0-9*-]/g, String.raw`\$&`).replaceAll('*', '.*')}$`).test(label);
}

function isRecord(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value);
}
