import { tryDurationMs } from '../../base/duration.ts';
import { repositoryMatches, type PullEntry } from './pull-secrets.ts';

/** `tokenAttributes`: the program gets a token of the pod's service account (KEP-4412). */
export interface TokenAttributes {
  readonly audience: string;
  readonly requireServiceAccount: boolean;
  readonly requiredAnnotationKeys: readonly string[];
  readonly optionalAnnotationKeys: readonly string[];
  readonly cacheType: 'ServiceAccount' | 'Token';
}

/** One program that knows credentials (kubelet.config.k8s.io/v1 CredentialProviderConfig). */
export interface CredentialProvider {
  readonly name: string;
  readonly matchImages: readonly string[];
  readonly defaultCacheMs: number;
  /** credentialprovider.kubelet.k8s.io/v1, v1beta1 or v1alpha1. */
  readonly apiVersion: string;
  readonly args: readonly string[];
  readonly env: readonly { readonly name: string; readonly value: string }[];
  readonly token: TokenAttributes | null;
}

const configVersions = ['v1', 'v1beta1', 'v1alpha1'].map((version) => `kubelet.config.k8s.io/${version}`);
const execVersions = ['v1', 'v1alpha1', 'v1beta1'].map((version) => `credentialprovider.kubelet.k8s.io/${version}`);
const cacheTypes = ['ServiceAccount', 'Token'];
const qualifiedName = /^([a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\/)?([a-z0-9]|[a-z0-9][-\w.]{0,61}[a-z0-9])$/i;

const isRecord = (value: unknown): value is Record<string, unknown> => typeof value === 'object' && value !== null && !Array.isArray(value);
const textsOf = (value: unknown): string[] => (Array.isArray(value) ? value.filter((each) => typeof each === 'string') : []);
const textOf = (value: unknown): string => (typeof value === 'string' ? value : '');

/** Reads the documents of all files; the problems are upstream's words, and empty exactly when the providers can be used. */
export function readCredentialProviders(documents: readonly unknown[], tokensAllowed: boolean): { providers: CredentialProvider[]; problems: string[] } {
  const problems: string[] = [];
  const providers: CredentialProvider[] = [];
  const names = new Set<string>();
  for (const document of documents) {
    if (!isRecord(document) || document['kind'] !== 'CredentialProviderConfig' || !configVersions.includes(textOf(document['apiVersion']))) {
      problems.push(`failed to decode CredentialProviderConfig: kind ${JSON.stringify(isRecord(document) ? document['kind'] : document)}`);
      continue;
    }
    for (const each of Array.isArray(document['providers']) ? (document['providers'] as unknown[]) : []) {
      if (!isRecord(each)) {
        problems.push('providers: Invalid value: an entry is no map');
        continue;
      }
      const provider = readProvider(each, tokensAllowed, problems);
      if (names.has(provider.name)) problems.push(`duplicate provider name ${JSON.stringify(provider.name)} found in configuration file(s)`);
      names.add(provider.name);
      providers.push(provider);
    }
  }
  if (providers.length === 0 && problems.length === 0) problems.push('providers: Required value: at least 1 item in plugins is required');
  return { providers, problems };
}

function readProvider(each: Record<string, unknown>, tokensAllowed: boolean, problems: string[]): CredentialProvider {
  const name = textOf(each['name']);
  const invalid = (field: string, value: string, why: string): void =>
    void problems.push(`providers.${field}: Invalid value: ${JSON.stringify(value)}: ${why}`);
  if (name.includes('/')) invalid('name', name, "provider name cannot contain '/'");
  if (name.includes(' ')) invalid('name', name, 'provider name cannot contain spaces');
  if (name === '.' || name === '..') invalid('name', name, `provider name cannot be '${name}'`);
  const apiVersion = textOf(each['apiVersion']);
  if (apiVersion === '') problems.push('providers.apiVersion: Required value');
  else if (!execVersions.includes(apiVersion))
    problems.push(
      `providers.apiVersion: Unsupported value: ${JSON.stringify(apiVersion)}: supported values: ${execVersions.map((known) => JSON.stringify(known)).join(', ')}`,
    );
  const matchImages = textsOf(each['matchImages']);
  if (matchImages.length === 0) problems.push('providers.matchImages: Required value: at least 1 item in matchImages is required');
  const cache = each['defaultCacheDuration'];
  const defaultCacheMs = typeof cache === 'string' ? tryDurationMs(cache) : null;
  if (cache === undefined || cache === null) problems.push('providers.defaultCacheDuration: Required value');
  else if (defaultCacheMs === null || defaultCacheMs < 0) invalid('defaultCacheDuration', textOf(cache), 'must be greater than or equal to 0');
  const env = (Array.isArray(each['env']) ? (each['env'] as unknown[]) : []).filter(isRecord);
  return {
    name,
    apiVersion,
    matchImages,
    defaultCacheMs: defaultCacheMs ?? 0,
    args: textsOf(each['args']),
    env: env.map((pair) => ({ name: textOf(pair['name']), value: textOf(pair['value']) })),
    token: isRecord(each['tokenAttributes']) ? readTokenAttributes(each['tokenAttributes'], apiVersion, tokensAllowed, problems) : null,
  };
}

function readTokenAttributes(given: Record<string, unknown>, apiVersion: string, allowed: boolean, problems: string[]): TokenAttributes {
  const at = 'providers.tokenAttributes';
  const audience = textOf(given['serviceAccountTokenAudience']);
  const requireServiceAccount = given['requireServiceAccount'];
  const requiredAnnotationKeys = textsOf(given['requiredServiceAccountAnnotationKeys']);
  const optionalAnnotationKeys = textsOf(given['optionalServiceAccountAnnotationKeys']);
  const cacheType = textOf(given['cacheType']);
  if (!allowed)
    problems.push(`${at}: Forbidden: tokenAttributes is not supported when KubeletServiceAccountTokenForCredentialProviders feature gate is disabled`);
  if (audience === '') problems.push(`${at}.serviceAccountTokenAudience: Required value`);
  if (typeof requireServiceAccount !== 'boolean') problems.push(`${at}.requireServiceAccount: Required value`);
  if (apiVersion !== execVersions[0]) problems.push(`${at}: Forbidden: tokenAttributes is only supported for ${execVersions[0]} API version`);
  if (requireServiceAccount === false && requiredAnnotationKeys.length > 0)
    problems.push(
      `${at}.requiredServiceAccountAnnotationKeys: Forbidden: requireServiceAccount cannot be false when requiredServiceAccountAnnotationKeys is set`,
    );
  for (const keys of [requiredAnnotationKeys, optionalAnnotationKeys])
    for (const key of keys) if (!qualifiedName.test(key)) problems.push(`${at}: Invalid value: ${JSON.stringify(key)}: is no qualified name`);
  if (requiredAnnotationKeys.some((key) => optionalAnnotationKeys.includes(key)))
    problems.push(`${at}: Invalid value: annotation keys cannot be both required and optional`);
  if (cacheType === '')
    problems.push(
      `${at}.cacheType: Required value: cacheType is required to be set when tokenAttributes is specified. Supported values are: ${cacheTypes.join(', ')}`,
    );
  else if (!cacheTypes.includes(cacheType))
    problems.push(`${at}.cacheType: Unsupported value: ${JSON.stringify(cacheType)}: supported values: "ServiceAccount", "Token"`);
  return {
    audience,
    requireServiceAccount: requireServiceAccount === true,
    requiredAnnotationKeys,
    optionalAnnotationKeys,
    cacheType: cacheType === 'Token' ? 'Token' : 'ServiceAccount',
  };
}

/** Whether the program is asked for that image (`registry/path`). */
export function isForImage(provider: Pick<CredentialProvider, 'matchImages'>, repository: string): boolean {
  return provider.matchImages.some((pattern) => repositoryMatches(pattern, repository));
}

export interface ProviderAnswer {
  readonly entries: readonly PullEntry[];
  readonly cacheBy: 'Image' | 'Registry' | 'Global';
  /** 0: not at all; null: as the configuration says. */
  readonly cacheMs: number | null;
}

/** Reads CredentialProviderResponse; a text is why it is none, and never holds what it said: that may be a password. */
export function readProviderAnswer(text: string, apiVersion: string): ProviderAnswer | string {
  let answer: unknown;
  try {
    answer = JSON.parse(text);
  } catch {
    return 'error decoding credential provider plugin response from stdout';
  }
  if (!isRecord(answer)) return 'error decoding credential provider plugin response from stdout';
  if (answer['apiVersion'] !== apiVersion)
    return `apiVersion from credential plugin response did not match expected apiVersion:${apiVersion}, actual apiVersion:${textOf(answer['apiVersion'])}`;
  const cacheBy = answer['cacheKeyType'];
  if (answer['kind'] !== 'CredentialProviderResponse') return 'error decoding credential provider plugin response from stdout';
  if (cacheBy !== 'Image' && cacheBy !== 'Registry' && cacheBy !== 'Global')
    return `credential provider plugin did not return a valid cacheKeyType: ${textOf(cacheBy)}`;
  const duration = answer['cacheDuration'];
  const cacheMs = duration === undefined || duration === null ? null : typeof duration === 'string' ? tryDurationMs(duration) : null;
  if (typeof duration === 'string' && cacheMs === null) return 'error decoding credential provider plugin response from stdout';
  const auth = isRecord(answer['auth']) ? answer['auth'] : {};
  const entries = Object.entries(auth).flatMap(([pattern, each]): PullEntry[] =>
    isRecord(each) ? [{ pattern, auth: { username: textOf(each['username']), password: textOf(each['password']) } }] : [],
  );
  return { entries, cacheBy, cacheMs };
}

/** The keys under which an answer may be kept for an image, in the order in which they are looked for. */
export function cacheKeys(repository: string): { readonly Image: string; readonly Registry: string; readonly Global: string } {
  return { Image: repository, Registry: repository.split('/')[0] ?? '', Global: '<global>' };
}
