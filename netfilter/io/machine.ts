import { access, readFile, writeFile } from 'node:fs/promises';
import { networkInterfaces, release } from 'node:os';
import { messageOf, OpError } from '../../base/errors.ts';
import type { Sys } from '../../base/sys/types.ts';
import type { Log } from '../../base/log.ts';
import type { Family } from '../core/ip.ts';
import { createConntrack, type Conntrack } from './conntrack.ts';
import type { NftKernel } from './kernel.ts';
import { createNetlinkKernel } from './nft-netlink.ts';
import { createTextKernel, nftVersion } from './nft-text.ts';

/** What this machine can do, found out once at start. */

/** Older kernels miss what the rules need; upstream refuses them too. */
const OLDEST_KERNEL = [5, 13] as const;
const OLDEST_NFT = [1, 0, 1] as const;

/** Addresses of all interfaces that are up. */
export function machineAddresses(): string[] {
  return Object.values(networkInterfaces()).flatMap((addresses) => (addresses ?? []).map((address) => address.address));
}

export function checkKernelVersion(text: string = release()): void {
  const [major = 0, minor = 0] = text.split('.').map(Number);
  if (major > OLDEST_KERNEL[0] || (major === OLDEST_KERNEL[0] && minor >= OLDEST_KERNEL[1])) return;
  throw new OpError('unsupported', 'start the proxy', `nftables mode needs Linux ${OLDEST_KERNEL.join('.')} or later, this is ${text}`);
}

export interface Means {
  kernel: NftKernel;
  fallbackKernel: NftKernel | null;
  conntrack: Conntrack;
  families: readonly Family[];
}

function isNewEnough(version: readonly number[]): boolean {
  for (const [index, least] of OLDEST_NFT.entries()) {
    const have = version[index] ?? 0;
    if (have !== least) return have > least;
  }
  return true;
}

const IPV6_DISABLED = '/proc/sys/net/ipv6/conf/all/disable_ipv6';

/** IPv4, and IPv6 unless the kernel lacks it or has it turned off. */
export async function kernelFamilies(log: Log): Promise<Family[]> {
  const disabled = await readFile(IPV6_DISABLED, 'utf8').catch(() => '');
  if (disabled.trim() !== '1' && (await exists('/proc/net/if_inet6'))) return ['ip', 'ip6'];
  log.info('IPv6 is not there or turned off; Services are served over IPv4 alone');
  return ['ip'];
}

/** Netlink where the sys program carries it, else the nft tool; throws when neither works. */
export async function findMeans(sys: Sys, log: Log): Promise<Means> {
  const netlink = createNetlinkKernel(sys);
  const asked = netlink.generation().then(
    () => null,
    (error: unknown) => ({ error }),
  );
  const [families, version, refused] = await Promise.all([kernelFamilies(log), nftVersion(sys), asked]);
  const text = version !== null && isNewEnough(version) ? createTextKernel(sys) : null;
  if (refused === null) {
    return { kernel: netlink, fallbackKernel: text, conntrack: createConntrack(sys), families };
  }
  const { error } = refused;
  if (text === null) {
    throw new OpError(
      'unsupported',
      'start the proxy',
      `nftables cannot be written: ${messageOf(error)}, and there is no nft ${OLDEST_NFT.join('.')} or later`,
      { cause: error, advice: 'Install the nftables package, or build the sys program.' },
    );
  }
  log.warn('Rules are written through the nft program, and stale UDP flows are not deleted', { error });
  return { kernel: text, fallbackKernel: null, conntrack: { deleteStale: async () => 0 }, families };
}

async function exists(path: string): Promise<boolean> {
  return await access(path).then(
    () => true,
    () => false,
  );
}

/** A starving machine should lose anything before its Service traffic. */
export async function setOomScore(pid: number, score: number, log: Log): Promise<void> {
  try {
    await writeFile(`/proc/${pid}/oom_score_adj`, String(score));
  } catch (error) {
    log.debug(1, 'oom_score_adj is left as it is', { error: messageOf(error) });
  }
}
