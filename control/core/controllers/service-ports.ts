import type { Pod, Service, ServicePort } from '../../../proto/kube/types.ts';
import { isPodTerminal, podCondition, timeMs } from './pods.ts';

export const isHeadless = (service: Service): boolean => !service.spec.clusterIP || service.spec.clusterIP === 'None';

/** The container port behind a service port; undefined when the pod has no port of that name. */
export function targetPort(pod: Pod, port: ServicePort): number | undefined {
  const target = port.targetPort ?? port.port;
  if (typeof target === 'number') return target === 0 ? port.port : target;
  if (/^\d+$/.test(target)) return Number(target);
  const sidecars = (pod.spec.initContainers ?? []).filter((container) => container.restartPolicy === 'Always');
  for (const container of [...pod.spec.containers, ...sidecars]) {
    const found = container.ports?.find((candidate) => candidate.name === target && (candidate.protocol ?? 'TCP') === (port.protocol ?? 'TCP'));
    if (found !== undefined) return found.containerPort;
  }
  return undefined;
}

export function podAddresses(pod: Pod, family: 'IPv4' | 'IPv6'): string[] {
  const all = pod.status?.podIPs?.map((entry) => entry.ip) ?? (pod.status?.podIP ? [pod.status.podIP] : []);
  return all.filter((ip) => ip.includes(':') === (family === 'IPv6'));
}

/** Whether the pod has an address that may stand behind a Service. */
export function belongsInEndpoints(pod: Pod, includeTerminating: boolean): boolean {
  if (isPodTerminal(pod)) return false;
  if (!pod.status?.podIP && (pod.status?.podIPs ?? []).length === 0) return false;
  return includeTerminating || !pod.metadata.deletionTimestamp;
}

/** A pod has a name of its own under a headless Service when it says so. */
export function hostnameIn(pod: Pod, service: Service): string | undefined {
  return pod.spec.hostname && pod.spec.subdomain === service.metadata.name ? pod.spec.hostname : undefined;
}

/** IP families the Service's addresses have. */
export function familiesOf(service: Service): ('IPv4' | 'IPv6')[] {
  const families = (service.spec.ipFamilies ?? []).filter((family): family is 'IPv4' | 'IPv6' => family === 'IPv4' || family === 'IPv6');
  if (families.length > 0) return families;
  return [service.spec.clusterIP?.includes(':') ? 'IPv6' : 'IPv4'];
}

/** When what made the endpoints change happened, as far as pods and Service tell; per Service, remembered between steps. */
export interface TriggerState {
  pods: ReadonlyMap<string, number>;
  serviceMs: number;
}

/** The earliest trigger that is new since `before`; undefined when none is. */
export function triggerTime(service: Service, pods: readonly Pod[], before: TriggerState | undefined): { state: TriggerState; triggerMs: number | undefined } {
  const serviceMs = timeMs(service.metadata.creationTimestamp);
  const times = new Map(
    pods.flatMap((pod) => {
      const readyMs = timeMs(podCondition(pod, 'Ready')?.lastTransitionTime);
      return readyMs === 0 ? [] : [[pod.metadata.name ?? '', readyMs] as const];
    }),
  );
  const state: TriggerState = { pods: times, serviceMs };
  if (before === undefined) return { state, triggerMs: serviceMs };
  const fresh = [...times].filter(([name, atMs]) => atMs > (before.pods.get(name) ?? 0)).map(([, atMs]) => atMs);
  if (serviceMs > before.serviceMs) fresh.push(serviceMs);
  return { state, triggerMs: fresh.length === 0 ? undefined : Math.min(...fresh) };
}
