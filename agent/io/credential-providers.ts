import { createHash } from 'node:crypto';
import { access, constants, readdir, readFile, stat } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import { messageOf, OpError } from '../../base/errors.ts';
import { serviceAccounts } from '../../base/kubeapi/refs.ts';
import type { KubeApi, KubeObject } from '../../base/kubeapi/types.ts';
import type { Log } from '../../base/log.ts';
import type { Sys } from '../../base/sys/types.ts';
import { readYaml } from '../../base/yaml.ts';
import type { Pod } from '../../proto/kube/types.ts';
import {
  cacheKeys,
  isForImage,
  readCredentialProviders,
  readProviderAnswer,
  type CredentialProvider,
  type ProviderAnswer,
} from '../core/credential-provider.ts';
import type { CredentialSource } from '../core/pull-records.ts';
import type { PullEntry } from '../core/pull-secrets.ts';
import type { Tokens } from './tokens.ts';

export interface CredentialProvidersOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly sys: Pick<Sys, 'run'>;
  readonly api: Pick<KubeApi, 'get'>;
  readonly tokens: Pick<Tokens, 'get'>;
  /** `--image-credential-provider-config`: a file, or a folder of them. */
  readonly config: string;
  /** `--image-credential-provider-bin-dir`. */
  readonly binDir: string;
  /** `KubeletServiceAccountTokenForCredentialProviders`. */
  readonly tokensAllowed: boolean;
  /** A program was run for so long. */
  readonly onRun?: (name: string, tookMs: number, failed: boolean) => void;
  /** The agent's own environment, which the programs get too. */
  readonly env: Readonly<Record<string, string | undefined>>;
}

export interface CredentialProviders {
  /** What the programs know for an image; a program that fails is logged and left out. */
  forImage(pod: Pod, repository: string, signal: AbortSignal): Promise<PullEntry[]>;
}

const programMs = 60_000;
const maxAnswerBytes = 1024 * 1024;
/** Answers that nobody asks for again must not stay for ever. */
const keptMax = 1_024;
/** TokenRequest's own default. */
const tokenSeconds = 3_600;

interface Kept {
  readonly entries: readonly PullEntry[];
  readonly untilMs: number;
}

/** Reads the configuration and finds the programs; null where none is configured. Throws OpError `invalid` or `not-found`. */
export async function openCredentialProviders(options: CredentialProvidersOptions): Promise<CredentialProviders | null> {
  const { config, binDir, clock, log } = options;
  if (config === '' && binDir === '') return null;
  const doing = 'set up image credential providers';
  const bad = (why: string): OpError => new OpError('invalid', doing, why);
  if (config === '' || binDir === '') throw bad('--image-credential-provider-config and --image-credential-provider-bin-dir go together');
  if (!(await isFolder(binDir))) throw new OpError('not-found', doing, `plugin binary directory ${binDir} did not exist`);
  const { providers, problems } = readCredentialProviders(await documentsOf(config), options.tokensAllowed);
  if (problems.length > 0) throw bad(problems.join('; '));
  for (const { name } of providers) {
    const path = join(binDir, name);
    await access(path, constants.X_OK).catch(() => {
      throw new OpError('not-found', doing, `plugin binary executable ${path} did not exist`);
    });
  }
  const caches = new Map(providers.map(({ name }) => [name, new Map<string, Kept>()]));
  const asking = new Map<string, Promise<ProviderAnswer>>();

  const ask = async (
    provider: CredentialProvider,
    repository: string,
    token: string,
    annotations: Record<string, string>,
    signal: AbortSignal,
  ): Promise<ProviderAnswer> => {
    const request = {
      kind: 'CredentialProviderRequest',
      apiVersion: provider.apiVersion,
      image: repository,
      ...(token === '' ? {} : { serviceAccountToken: token }),
      ...(Object.keys(annotations).length === 0 ? {} : { serviceAccountAnnotations: annotations }),
    };
    const own = Object.entries(options.env).filter((pair): pair is [string, string] => pair[1] !== undefined);
    const env = Object.fromEntries([...own, ...provider.env.map(({ name, value }) => [name, value] as const)]);
    const argv = [join(binDir, provider.name), ...provider.args];
    const answer = await options.sys.run({ argv, env, stdin: `${JSON.stringify(request)}\n`, timeoutMs: programMs, maxOutputBytes: maxAnswerBytes }, signal);
    if (answer.timedOut || answer.code !== 0) {
      const how = answer.timedOut ? 'context deadline exceeded' : answer.code === null ? `signal ${answer.signal}` : `exit status ${answer.code}`;
      const said = Buffer.from(answer.stderr).toString().trim();
      throw new OpError('failed', `error execing credential provider plugin ${provider.name} for image ${repository}`, `${how}: ${said}`);
    }
    const read = readProviderAnswer(Buffer.from(answer.stdout).toString(), provider.apiVersion);
    if (typeof read === 'string') throw new OpError('failed', `read the answer of credential provider plugin ${provider.name}`, read);
    return read;
  };

  const timed = async <T>(name: string, work: () => Promise<T>): Promise<T> => {
    const beganMs = clock.monoMs();
    let failed = true;
    try {
      const answer = await work();
      failed = false;
      return answer;
    } finally {
      options.onRun?.(name, clock.monoMs() - beganMs, failed);
    }
  };

  const provide = async (provider: CredentialProvider, pod: Pod, repository: string, signal: AbortSignal): Promise<PullEntry[]> => {
    const asWhom = provider.token === null ? { kind: 'node' as const } : await accountOf(options, provider.token, pod, signal);
    if (asWhom === null) return [];
    const { token, annotations, source, cacheKey } = asWhom.kind === 'node' ? { token: '', annotations: {}, source: null, cacheKey: '' } : { ...asWhom };
    const withSource = (entries: readonly PullEntry[]): PullEntry[] => entries.map((entry) => ({ ...entry, source }));
    const cache = caches.get(provider.name);
    const keys = cacheKeys(repository);
    for (const key of [keys.Image, keys.Registry, keys.Global]) {
      const kept = cache?.get(`${key}\n${cacheKey}`);
      if (kept !== undefined && kept.untilMs > clock.monoMs()) return withSource(kept.entries);
    }
    // Equal questions at one time are one run of the program.
    const question = JSON.stringify([provider.name, repository, digest(token), annotations]);
    const present = asking.get(question);
    const running = present ?? timed(provider.name, () => ask(provider, repository, token, annotations, signal));
    if (present === undefined) asking.set(question, running);
    let answer: ProviderAnswer;
    try {
      answer = await running;
    } finally {
      if (present === undefined) asking.delete(question);
    }
    if (token !== '' && provider.token?.cacheType !== 'Token' && answer.entries.some(({ auth }) => auth.password === token))
      throw new OpError(
        'failed',
        `ask credential provider plugin ${provider.name}`,
        'it returned the service account token as the password, which needs cacheType Token',
      );
    const cacheMs = answer.cacheMs ?? provider.defaultCacheMs;
    if (cacheMs > 0 && cache !== undefined) {
      cache.set(`${keys[answer.cacheBy]}\n${cacheKey}`, { entries: answer.entries, untilMs: clock.monoMs() + cacheMs });
      for (const oldest of cache.keys()) {
        if (cache.size <= keptMax) break;
        cache.delete(oldest);
      }
    }
    return withSource(answer.entries);
  };

  return {
    async forImage(pod, repository, signal) {
      const matching = providers.filter((provider) => isForImage(provider, repository));
      const found = await Promise.all(
        matching.map(async (provider) => {
          try {
            return await provide(provider, pod, repository, signal);
          } catch (error) {
            signal.throwIfAborted();
            log.error('Failed to provide credentials for image', { provider: provider.name, image: repository, err: messageOf(error) });
            return [];
          }
        }),
      );
      return found.flat();
    },
  };
}

function digest(text: string): string {
  return text === '' ? '' : createHash('sha256').update(text).digest('hex');
}

/** As whom a program in token mode is asked; null: it is not asked for this pod. */
async function accountOf(
  options: CredentialProvidersOptions,
  wanted: NonNullable<CredentialProvider['token']>,
  pod: Pod,
  signal: AbortSignal,
): Promise<{ kind: 'node' } | { kind: 'account'; token: string; annotations: Record<string, string>; source: CredentialSource; cacheKey: string } | null> {
  const { namespace = '' } = pod.metadata;
  const name = pod.spec.serviceAccountName ?? '';
  if (name === '') return wanted.requireServiceAccount ? null : { kind: 'node' };
  const account = await options.api.get<KubeObject>(serviceAccounts(namespace, name), {}, signal);
  const had = account.metadata.annotations ?? {};
  const annotations: Record<string, string> = {};
  for (const key of wanted.requiredAnnotationKeys) {
    const value = had[key];
    // The annotation is how a workload opts in.
    if (value === undefined) return null;
    annotations[key] = value;
  }
  for (const key of wanted.optionalAnnotationKeys) if (had[key] !== undefined) annotations[key] = had[key];
  const token = await options.tokens.get(pod, { audience: wanted.audience, expirationSeconds: tokenSeconds }, signal);
  const uid = account.metadata.uid ?? '';
  const identity = [namespace, name, uid, annotations, ...(wanted.cacheType === 'Token' ? [digest(token)] : [])];
  return { kind: 'account', token, annotations, source: { kind: 'serviceAccount', uid, namespace, name }, cacheKey: JSON.stringify(identity) };
}

async function isFolder(path: string): Promise<boolean> {
  return (await stat(path).catch(() => null))?.isDirectory() ?? false;
}

async function documentsOf(path: string): Promise<unknown[]> {
  const doing = 'read image credential provider config';
  try {
    if (!(await stat(path)).isDirectory()) return [await readYaml(await readFile(path, 'utf8'), path)];
    const names = (await readdir(path)).filter((name) => /\.(json|ya?ml)$/.test(name)).toSorted();
    if (names.length === 0) throw new OpError('invalid', doing, `no configuration files found in directory "${path}"`);
    return await Promise.all(names.map(async (name) => readYaml(await readFile(join(path, name), 'utf8'), join(path, name))));
  } catch (error) {
    if (error instanceof OpError) throw error;
    throw new OpError('not-found', doing, messageOf(error), { cause: error });
  }
}
