import type { ContainerStatus, Pod, PodStatus } from '../../../proto/kube/types.ts';
import { claimsOf } from './claims.ts';
import type { ClaimInfo } from './claims.ts';

export interface DeviceHealth {
  readonly health: 'Healthy' | 'Unhealthy' | 'Unknown';
  readonly message: string;
  /** Monotonic: until when the word counts. */
  readonly untilMs: number;
}

export type ResourceStatus = NonNullable<ContainerStatus['allocatedResourcesStatus']>[number];

const maxMessage = 1024;

/** A driver's own words, as long as a status may have them. */
export function healthMessage(text: string): string {
  return text.length <= maxMessage ? text : `${text.slice(0, maxMessage - 3)}...`;
}

/** The status with the health of the devices that containers have by claims (KEP-4680). */
export function withClaimHealth(
  pod: Pod,
  status: PodStatus,
  claimNamed: (namespace: string, name: string) => ClaimInfo | undefined,
  healthOf: (driver: string, pool: string, device: string) => DeviceHealth | null,
): PodStatus {
  const found = claimsOf(pod);
  if (!found.ok || status.containerStatuses === undefined || (pod.spec.resourceClaims ?? []).length === 0) return status;
  const names = new Map(found.claims.map(({ podClaim, name }) => [podClaim, name]));
  const containerStatuses = status.containerStatuses.map((each) => {
    const uses = pod.spec.containers.find(({ name }) => name === each.name)?.resources?.claims ?? [];
    const own: ResourceStatus[] = [];
    for (const { name, request = '' } of uses) {
      const info = claimNamed(pod.metadata.namespace ?? '', names.get(name) ?? '');
      const resources = info === undefined ? [] : devicesOf(info, request, healthOf);
      if (resources.length > 0) own.push({ name: request === '' ? `claim:${name}` : `claim:${name}/${request}`, resources });
    }
    if (own.length === 0) return each;
    const others = (each.allocatedResourcesStatus ?? []).filter(({ name }) => !own.some((one) => one.name === name));
    return { ...each, allocatedResourcesStatus: [...others, ...own] };
  });
  return { ...status, containerStatuses };
}

function devicesOf(
  info: ClaimInfo,
  request: string,
  healthOf: (driver: string, pool: string, device: string) => DeviceHealth | null,
): NonNullable<ResourceStatus['resources']> {
  const resources = new Map<string, NonNullable<ResourceStatus['resources']>[number]>();
  const [base = ''] = request.split('/');
  for (const [driver, { devices }] of info.drivers) {
    for (const { poolName, deviceName, requestNames, cdiDeviceIds } of devices) {
      if (base !== '' && requestNames.length > 0 && !requestNames.includes(base)) continue;
      const resourceID = cdiDeviceIds[0] ?? `${driver}/${poolName}/${deviceName}`;
      const told = healthOf(driver, poolName, deviceName);
      if (!resources.has(resourceID))
        resources.set(resourceID, {
          resourceID,
          health: told?.health ?? 'Unknown',
          ...(told === null || told.message === '' ? {} : { message: told.message }),
        });
    }
  }
  return [...resources.values()];
}
