import type { ContainerConfig } from '../../../proto/cri/types.ts';
import type { DeviceGrants } from './holdings.ts';

/** What a container that is about to be made gets beside its own. */
export interface ContainerGrants extends DeviceGrants {
  /** Empty: where it runs is not our business. */
  readonly cpusetCpus: string;
  readonly cpusetMems: string;
  /** Its CPUs are its own: no quota is put on them (DisableCPUQuotaWithExclusiveCPUs). */
  readonly hasOwnCpus: boolean;
}

/** The configuration with what was granted of CPUs, memory, annotations and CDI devices. */
export function withGrants(config: ContainerConfig, grants: ContainerGrants | null): ContainerConfig {
  if (grants === null) return config;
  const { annotations, cdiDevices, cpusetCpus, cpusetMems, hasOwnCpus } = grants;
  const resources = config.linux?.resources ?? {};
  return {
    ...config,
    annotations: { ...annotations, ...config.annotations },
    ...(cdiDevices.length === 0 ? {} : { CDIDevices: [...(config.CDIDevices ?? []), ...cdiDevices.map(({ name }) => ({ name }))] }),
    linux: {
      ...config.linux,
      resources: {
        ...resources,
        ...(cpusetCpus === '' ? {} : { cpusetCpus }),
        ...(cpusetMems === '' ? {} : { cpusetMems }),
        ...(hasOwnCpus && resources.cpuQuota !== undefined ? { cpuQuota: '-1' } : {}),
      },
    },
  };
}
