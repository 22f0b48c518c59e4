import { readFile } from 'node:fs/promises';
import type { Log } from '../../base/log.ts';
import { messageOf } from '../../base/errors.ts';
import { authsFor, configEntries, secretEntries } from '../core/pull-secrets.ts';
import type { PullEntry } from '../core/pull-secrets.ts';
import type { EnvSources } from '../seams.ts';
import type { PullCredentials } from './images.ts';

/** From the pod's imagePullSecrets, then from the node's own docker configuration. */
export function createPullCredentials(deps: { sources: Pick<EnvSources, 'secret'>; log: Log; nodeFiles: readonly string[] }): PullCredentials {
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
          else entries.push(...secretEntries(secret));
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
      return { auths: [...authsFor(entries, name.repository), ...authsFor(await nodeEntries(deps.nodeFiles), name.repository)], missing };
    },
  };
}

async function nodeEntries(files: readonly string[]): Promise<PullEntry[]> {
  const texts = await Promise.all(files.map((file) => readFile(file, 'utf8').catch(() => '')));
  return texts.flatMap(configEntries);
}
