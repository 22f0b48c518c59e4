import { hasCode, OpError } from '../base/errors.ts';
import type { Sys } from '../base/sys/types.ts';
import type { Family } from './core/ip.ts';
import { createIptables, detectVariant } from './io/iptables.ts';

/** The rules of a proxy as the kernel has them, for the commands that look at them. */

const NFT_TIMEOUT_MS = 120_000;
const MAX_LISTING_BYTES = 512 << 20;

/** What a proxy left in the kernel: tables of one mode, or of both while one takes over from the other. */
export interface Found {
  nft: string | null;
  iptables: string | null;
  /** Why nft could not be asked; null where it was. */
  trouble: OpError | null;
}

/** Reads what there is of one family. */
export async function readRules(sys: Sys, family: Family): Promise<Found> {
  const nft = await listing(sys, family);
  const trouble = nft === null ? await troubleWithNft(sys, family) : null;
  let iptables: string | null = null;
  try {
    const text = await createIptables(sys, { variant: await detectVariant(sys) }).save(family, null);
    if (/^:KUBE-(SERVICES|SVC-)/m.test(text)) iptables = text;
  } catch (error) {
    if (!(error instanceof OpError)) throw error;
  }
  return { nft, iptables, trouble };
}

/** A table that cannot be listed is not there if the list of all tables can be had. */
async function troubleWithNft(sys: Sys, family: Family): Promise<OpError | null> {
  try {
    const result = await sys.run({ argv: ['nft', 'list', 'tables', family], timeoutMs: NFT_TIMEOUT_MS });
    if (result.code === 0) return null;
    const words = Buffer.from(result.stderr).toString('utf8').trim().split('\n')[0] ?? '';
    return new OpError('failed', 'read the rules', words === '' ? `nft ended with ${result.code}` : words);
  } catch (error) {
    if (hasCode(error, 'not-found')) return null;
    throw error;
  }
}

/** What to throw where nothing of a proxy was found. */
export function nothingThere(troubles: readonly (OpError | null)[], doing: string, advice = ''): OpError {
  const trouble = troubles.find((one) => one !== null);
  return trouble ?? new OpError('not-found', doing, 'there are no rules of a service proxy in this network namespace', { advice });
}

async function listing(sys: Sys, family: Family): Promise<string | null> {
  try {
    const result = await sys.run({ argv: ['nft', 'list', 'table', family, 'kube-proxy'], timeoutMs: NFT_TIMEOUT_MS, maxOutputBytes: MAX_LISTING_BYTES });
    return result.code === 0 ? Buffer.from(result.stdout).toString('utf8') : null;
  } catch (error) {
    if (hasCode(error, 'not-found')) return null;
    throw error;
  }
}

export function refuseWords(detail: string, command: 'trace' | 'diff'): OpError {
  return new OpError('invalid', 'read the command line', detail, { advice: `nodelet netfilter ${command} --help tells how.` });
}

/** Takes a flag out of the arguments. */
export function takeFlag(args: string[], name: string): boolean {
  const at = args.indexOf(name);
  if (at >= 0) args.splice(at, 1);
  return at >= 0;
}
