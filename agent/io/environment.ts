import type { Sys } from '../../base/sys/types.ts';
import type { Container, Pod, Service } from '../../proto/kube/types.ts';
import { envNeeds, envOf } from '../core/env.ts';
import type { EnvResult } from '../core/env.ts';
import { envFileValue } from '../core/env-file.ts';
import { isStatic } from '../core/static-pod.ts';
import { isSafeName, podPaths, volumeDir } from '../core/volumes-paths.ts';
import type { EnvSources, NodeInfo } from '../seams.ts';

export interface EnvironmentDeps {
  readonly sources: EnvSources;
  readonly node: NodeInfo;
  readonly rootDir: string;
  readonly sys: Pick<Sys, 'readBeneath'>;
}

/** The environment of a container, from all that it names. */
export type Environment = (pod: Pod, container: Container, podIPs: readonly string[], signal: AbortSignal) => Promise<EnvResult>;

const maxFileBytes = 64 * 1024;

export function createEnvironment(deps: EnvironmentDeps): Environment {
  const { sources, node } = deps;
  return async (pod, container, podIPs, signal) => {
    const namespace = pod.metadata.namespace ?? '';
    const needs = envNeeds(container);
    // A static pod may be what the API server runs in: it starts without the Services that nobody can tell yet.
    const services = (name: string): Promise<readonly Service[]> => {
      const known = sources.services(name, signal);
      return isStatic(pod) ? known.catch(() => []) : known;
    };
    const [configMaps, secrets, own, master] = await Promise.all([
      byName(needs.configMaps, (name) => sources.configMap(namespace, name, signal)),
      byName(needs.secrets, (name) => sources.secret(namespace, name, signal)),
      services(namespace),
      namespace === 'default' ? [] : services('default'),
    ]);
    const fileKeys: Record<string, string | null> = {};
    for (const { name, valueFrom } of container.env ?? []) {
      if (valueFrom?.fileKeyRef === undefined) continue;
      const { volumeName, path, key } = valueFrom.fileKeyRef;
      const text = await readEnvFile(deps, pod, volumeName, path);
      const value = text === null ? null : envFileValue(text, key);
      if (value?.ok === false) return { ok: false, message: `couldn't parse env file` };
      fileKeys[name] = value?.value === '' ? null : (value?.value ?? null);
    }
    return envOf({
      pod,
      container,
      podIPs,
      hostIPs: node.hostIPs(),
      configMaps,
      secrets,
      services: [...own, ...master],
      fileKeys,
      allocatable: node.node()?.status?.allocatable ?? {},
    });
  };
}

/** A file that an init container left in an emptyDir; nothing outside the volume can be reached. */
async function readEnvFile(deps: EnvironmentDeps, pod: Pod, volume: string, path: string): Promise<string | null> {
  const isOwn = pod.spec.volumes?.some((each) => each.name === volume && each.emptyDir !== undefined) === true;
  if (!isOwn || !isSafeName(volume)) return null;
  try {
    const root = `${podPaths(deps.rootDir, pod.metadata.uid ?? '').pod}/${volumeDir('empty-dir', volume)}`;
    const bytes = await deps.sys.readBeneath(root, path, { maxBytes: maxFileBytes });
    return new TextDecoder().decode(bytes);
  } catch {
    return null;
  }
}

async function byName<T>(names: readonly string[], read: (name: string) => Promise<T>): Promise<Record<string, T>> {
  return Object.fromEntries(await Promise.all(names.map(async (name) => [name, await read(name)] as const)));
}
