import { OpError } from '../../base/errors.ts';
import type { Sys } from '../../base/sys/types.ts';
import { POLICY_TABLE } from '../core/policy-table.ts';

const NFT_TIMEOUT_MS = 60_000;
/** A listing above it is not looked into. */
const LISTING_BYTES = 64 * 1024 * 1024;

/** The seam to the table of policies in the kernel. */
export interface PolicyTable {
  /** One transaction; OpError when the kernel or the tool refused, and nothing of it is done then. */
  write(text: string): Promise<void>;
  /** The table as the tool lists it, `none` where there is none, `unknown` when that cannot be told. */
  read(): Promise<{ readonly state: 'none' } | { readonly state: 'unknown' } | { readonly state: 'there'; readonly listing: string }>;
}

/** `netns` is the node's namespace where that is not this process' own. */
export function createPolicyTable(sys: Sys, options: { netns?: string } = {}): PolicyTable {
  const where = options.netns === undefined ? {} : { netns: options.netns };
  return {
    async write(text) {
      const { code, stderr } = await sys.run({ argv: ['nft', '-f', '-'], stdin: text, timeoutMs: NFT_TIMEOUT_MS, ...where });
      if (code !== 0)
        throw new OpError('failed', 'write the table of policies', Buffer.from(stderr).toString().trim().split('\n')[0] ?? `nft ended with ${code}`, {
          advice: 'policies need the nft program',
        });
    },
    async read() {
      const list = ['nft', 'list', 'table', 'inet', POLICY_TABLE];
      const { code, stdout, stderr, truncated } = await sys.run({ argv: list, timeoutMs: NFT_TIMEOUT_MS, maxOutputBytes: LISTING_BYTES, ...where });
      if (code === 0) return truncated ? { state: 'unknown' } : { state: 'there', listing: Buffer.from(stdout).toString() };
      return { state: Buffer.from(stderr).toString().includes('No such file or directory') ? 'none' : 'unknown' };
    },
  };
}
