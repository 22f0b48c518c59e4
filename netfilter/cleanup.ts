import type { Log } from '../base/log.ts';
import type { Family } from './core/ip.ts';
import { TABLE_COMMENT } from './core/nft-table.ts';
import type { Op } from './core/ops.ts';
import type { NftKernel } from './io/kernel.ts';

/** Removes our tables and nothing else; returns the exit code. Adding first makes the deletion succeed where there is none. */
export async function removeTables(kernel: NftKernel, families: readonly Family[], log: Log): Promise<number> {
  const ops: readonly Op[] = [{ op: 'add-table', comment: TABLE_COMMENT }, { op: 'delete-table' }];
  let code = 0;
  for (const family of families) {
    const result = await kernel.commit(family, ops);
    if (result.ok) continue;
    log.error('Error cleaning up nftables rules', { family, error: result.error });
    code = 1;
  }
  return code;
}
