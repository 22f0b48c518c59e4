import { readFile } from 'node:fs/promises';
import { messageOf } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import type { Container, Pod } from '../../proto/kube/types.ts';
import { hostnameOf } from '../core/hostname.ts';
import { hostNetworkHosts, managedHosts } from '../core/hosts.ts';
import type { Failure } from '../core/types.ts';
import { planMounts } from '../core/volumes-mounts.ts';
import type { MountPlan, MountsInput } from '../core/volumes-mounts.ts';
import { podPaths } from '../core/volumes-paths.ts';
import { planVolumes } from '../core/volumes-plan.ts';
import type { VolumeGates } from '../core/volumes-plan.ts';
import type { ContainerMount } from '../seams.ts';
import type { VolumeDisk } from './volumes-disk.ts';
import { isExpected } from './volumes-inputs.ts';

export interface MountsOptions {
  readonly rootDir: string;
  readonly clusterDomain: string;
  readonly disk: VolumeDisk;
  readonly log: Log;
  readonly allocatable: () => Readonly<Record<string, string>>;
  readonly supportsRecursiveReadOnly?: () => boolean;
  readonly gates?: VolumeGates;
  /** The node's own hosts file, for host-network pods. */
  readonly hostsFile?: string;
}

/** The mounts of one container with everything behind them in place: subPaths bound, the managed /etc/hosts written. */
export async function mountsFor(
  options: MountsOptions,
  pod: Pod,
  container: Container,
  podIPs: readonly string[],
  given: Pick<MountsInput, 'env' | 'claims'>,
): Promise<{ ok: true; mounts: readonly ContainerMount[] } | Failure> {
  const uid = pod.metadata.uid ?? '';
  const plan = planMounts({
    ...given,
    container,
    plans: planVolumes(pod, options.allocatable(), options.gates),
    podDir: podPaths(options.rootDir, uid).pod,
    supportsRecursiveReadOnly: options.supportsRecursiveReadOnly?.() ?? false,
  });
  if (!plan.ok) return configError(plan.message);
  const mounts: ContainerMount[] = [];
  for (const mount of plan.mounts) {
    if (mount.image !== undefined) {
      const { name, containerPath, readonly, recursiveReadOnly, propagation, image, subPath } = mount;
      mounts.push({
        name,
        hostPath: '',
        containerPath,
        readonly,
        recursiveReadOnly,
        propagation,
        image,
        ...(subPath === null ? {} : { imageSubPath: subPath }),
      });
      continue;
    }
    const hostPath = await pathOf(options, uid, container.name, mount);
    if (typeof hostPath !== 'string') return hostPath;
    const { name, containerPath, readonly, recursiveReadOnly, propagation, options: mountOptions } = mount;
    mounts.push({
      name,
      hostPath,
      containerPath,
      readonly,
      recursiveReadOnly,
      propagation,
      ...(mount.relabels ? { selinuxRelabel: true } : {}),
      ...(mountOptions === undefined ? {} : { mountOptions }),
    });
  }
  const isManaged = pod.spec.hostNetwork === true || podIPs.length > 0;
  if (!isManaged || plan.mountsEtcHosts) return { ok: true, mounts };
  const hosts = await hostsMount(options, pod, podIPs);
  return 'ok' in hosts ? hosts : { ok: true, mounts: [...mounts, hosts] };
}

async function pathOf(options: MountsOptions, uid: string, container: string, mount: MountPlan): Promise<string | Failure> {
  if (mount.subPath === null) return mount.volumePath;
  try {
    const path = await options.disk.bindSubPath(uid, {
      volume: mount.name,
      container,
      index: mount.index,
      volumePath: mount.volumePath,
      subPath: mount.subPath,
    });
    if (path !== null) return path;
    options.log.warn('A subPath leads out of its volume', { uid, volume: mount.name, container });
  } catch (error) {
    if (!isExpected(error)) throw error;
    // The pod's owner must not learn from the message what lies on the node.
    options.log.warn('A subPath could not be bound', { uid, volume: mount.name, container, err: messageOf(error) });
  }
  return configError(`failed to prepare subPath for volumeMount ${JSON.stringify(mount.name)} of container ${JSON.stringify(container)}`);
}

async function hostsMount(options: MountsOptions, pod: Pod, podIPs: readonly string[]): Promise<ContainerMount | Failure> {
  const uid = pod.metadata.uid ?? '';
  const aliases = pod.spec.hostAliases ?? [];
  const name = hostnameOf(pod, options.clusterDomain);
  if (!name.ok) return configError(name.message);
  const text =
    pod.spec.hostNetwork === true
      ? hostNetworkHosts(await readFile(options.hostsFile ?? '/etc/hosts', 'utf8'), aliases)
      : managedHosts({ podIPs, hostname: name.host, domain: name.domain, aliases });
  await options.disk.writeHosts(uid, text);
  const hostPath = podPaths(options.rootDir, uid).etcHosts;
  return { name: 'k8s-managed-etc-hosts', hostPath, containerPath: '/etc/hosts', readonly: false, selinuxRelabel: true, propagation: 'PROPAGATION_PRIVATE' };
}

function configError(message: string): Failure {
  return { ok: false, reason: 'CreateContainerConfigError', message };
}
