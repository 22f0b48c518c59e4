import type { OpError } from '../../base/errors.ts';
import type { Observed } from '../core/diff.ts';
import type { Family } from '../core/ip.ts';
import type { Op } from '../core/ops.ts';

/** The seam to one nftables table. Real: netlink and `nft`; fake: `fake.ts`. */
export interface NftKernel {
  /** Does ahead what a `commit` of these operations begins with; it need not be called, nor be there. */
  prepare?(family: Family, ops: readonly Op[]): Promise<void>;
  /** Runs operations as one transaction: all or nothing. A refusal is a value; throws only when aborted. */
  commit(family: Family, ops: readonly Op[], signal?: AbortSignal): Promise<CommitResult>;
  /** What is in the table; `absent` without a table, `unknown` when this way cannot read it back. */
  observe(family: Family, signal?: AbortSignal): Promise<Observed | 'absent' | 'unknown'>;
  /** How many rules each chain of the table has that has any; null when this way cannot tell. */
  ruleCounts(family: Family, signal?: AbortSignal): Promise<ReadonlyMap<string, number> | null>;
  /**
   * A number that changes when somebody else changes any table of this namespace, and at most by the way when `commit`
   * does; null when this way cannot tell.
   */
  generation(signal?: AbortSignal): Promise<number | null>;
}

export type CommitResult = { ok: true } | { ok: false; error: OpError; failedOps: readonly number[] };
