import type { Pod } from '../../proto/kube/types.ts';

/** Linux keeps 64 bytes with the final zero for a host name, and 64 without for a whole one. */
const maxLength = 63;
const maxWholeLength = 64;
const label = /^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$/;
const subdomain = /^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*$/;

export type Hostname =
  | { readonly ok: true; readonly host: string; readonly domain: string; readonly kernel: string }
  | { readonly ok: false; readonly message: string };

/** Host name, its domain and what the kernel is told, by spec.hostname, subdomain, hostnameOverride and setHostnameAsFQDN. */
export function hostnameOf(pod: Pod, clusterDomain: string): Hostname {
  const { spec } = pod;
  if (spec.hostnameOverride !== undefined) {
    if (!subdomain.test(spec.hostnameOverride)) return { ok: false, message: `pod HostnameOverride "${spec.hostnameOverride}" is not a valid DNS subdomain` };
    const host = cut(spec.hostnameOverride);
    return { ok: true, host, domain: '', kernel: host };
  }
  if (spec.hostname !== undefined && spec.hostname !== '' && !label.test(spec.hostname))
    return { ok: false, message: `pod Hostname "${spec.hostname}" is not a valid DNS label` };
  if (spec.subdomain !== undefined && spec.subdomain !== '' && !label.test(spec.subdomain))
    return { ok: false, message: `pod Subdomain "${spec.subdomain}" is not a valid DNS label` };
  const host = cut(spec.hostname === undefined || spec.hostname === '' ? (pod.metadata.name ?? '') : spec.hostname);
  const domain = spec.subdomain === undefined || spec.subdomain === '' ? '' : `${spec.subdomain}.${pod.metadata.namespace ?? ''}.svc.${clusterDomain}`;
  if (domain === '' || spec.setHostnameAsFQDN !== true) return { ok: true, host, domain, kernel: host };
  const whole = `${host}.${domain}`;
  if (whole.length > maxWholeLength) {
    return {
      ok: false,
      message: `failed to construct FQDN from pod hostname and cluster domain, FQDN ${whole} is too long (${maxWholeLength} characters is the max, ${whole.length} characters requested)`,
    };
  }
  return { ok: true, host, domain, kernel: whole };
}

function cut(name: string): string {
  return name.length <= maxLength ? name : name.slice(0, maxLength).replace(/[-.]+$/, '');
}
