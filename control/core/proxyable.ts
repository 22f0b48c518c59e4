import ipaddr from 'ipaddr.js';

const CLOSED = new Set(['unspecified', 'loopback', 'linkLocal', 'multicast', 'broadcast']);

/** Whether a pod's or endpoint's address may be asked on behalf of a client (the API server's proxy rule). */
export function isProxyable(address: string): boolean {
  if (!ipaddr.isValid(address)) return false;
  const parsed = ipaddr.process(address);
  if (parsed.kind() === 'ipv4' && parsed.toByteArray()[0] === 0) return false;
  return !CLOSED.has(parsed.range());
}
