import ipaddr from 'ipaddr.js';
import { overlap } from './plan.ts';

/** Where clouds answer instances under an address that is not link-local. */
const METADATA = 'fd00:ec2::254';
const CLOSED = new Set(['unspecified', 'loopback', 'linkLocal', 'multicast', 'broadcast']);

/** Whether the way out leads to an address: not to the host's own loopback and not to what only the host may ask of its link. */
export function mayReach(address: string): boolean {
  if (!ipaddr.isValid(address)) return false;
  const parsed = ipaddr.process(address);
  if (parsed.kind() === 'ipv4' && parsed.toByteArray()[0] === 0) return false;
  return !CLOSED.has(parsed.range()) && parsed.toString() !== ipaddr.parse(METADATA).toString();
}

/** Whether a client may use the way out: the runtimes do, from their nodes' addresses; pods and strangers have none of those. */
export function mayAsk(client: string, subnet: string): boolean {
  const parsed = ipaddr.isValid(client) ? ipaddr.process(client) : null;
  return parsed !== null && parsed.kind() === 'ipv4' && overlap(parsed.toString(), subnet);
}
