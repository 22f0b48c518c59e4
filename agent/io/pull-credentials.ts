import { readFile } from 'node:fs/promises';
import type { Log } from '../../base/log.ts';
import { messageOf } from '../../base/errors.ts';
import type { CredentialSource } from '../core/pull-records.ts';
import { authsFor, configEntries, secretEntries } from '../core/pull-secrets.ts';
import type { PullEntry } from '../core/pull-secrets.ts';
import type { EnvSources } from '../seams.ts';
import type { CredentialProviders } from './credential-providers.ts';
import type { PullCredentials, TrackedAuth } from './images.ts';
import { authHash } from './pull-records.ts';

export interface PullCredentialsDeps {
  readonly sources: Pick<EnvSources, 'secret'>;
  readonly log: Log;
  readonly nodeFiles: readonly string[];
  readonly providers: CredentialProviders | null;
}

/** From the pod's imagePullSecrets, then from the node's own docker configuration, then from credential provider programs. */
export function createPullCredentials(deps: PullCredentialsDeps): PullCredentials {
  return {
    async forImage(pod, name, signal) {
      const namespace = pod.metadata.namespace ?? '';
      const entries: PullEntry[] = [];
      const missing: string[] = [];
      for (const { name: secretName = '' } of pod.spec.imagePullSecrets ?? []) {
        if (secretName === '') continue;
        try {
          const secret = await deps.sources.secret(namespace, secretName, signal);
          if (secret === null) missing.push(secretName);
          else {
            const source: CredentialSource = { kind: 'secret', uid: secret.metadata.uid ?? '', namespace, name: secretName };
            entries.push(...secretEntries(secret).map((entry) => ({ ...entry, source })));
          }
        } catch (error) {
          signal.throwIfAborted();
          missing.push(secretName);
          deps.log.warn('Unable to retrieve pull secret, the image pull may not succeed.', {
            pod: `${namespace}/${pod.metadata.name}`,
            secret: secretName,
            err: messageOf(error),
          });
        }
      }
      const provided = (await deps.providers?.forImage(pod, name.repository, signal)) ?? [];
      const auths = [entries, await nodeEntries(deps.nodeFiles), provided].flatMap((each) => authsFor(each, name.repository));
      return { auths: auths.map(({ auth, source }): TrackedAuth => ({ auth, source, hash: authHash(auth) })), missing };
    },
  };
}

async function nodeEntries(files: readonly string[]): Promise<PullEntry[]> {
  const texts = await Promise.all(files.map((file) => readFile(file, 'utf8').catch(() => '')));
  return texts.flatMap(configEntries);
}
