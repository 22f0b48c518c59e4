import type { Sys } from '../base/sys/types.ts';
import type { Log } from '../base/log.ts';
import type { Op } from './core/ops.ts';
import { findMeans } from './io/machine.ts';

/** Removes our tables and nothing else. Adding first makes the deletion succeed where there is none. */
export async function cleanUp(sys: Sys, log: Log): Promise<number> {
  const { kernel, families } = await findMeans(sys, log);
  const ops: readonly Op[] = [{ op: 'add-table', comment: 'rules for kube-proxy' }, { op: 'delete-table' }];
  let code = 0;
  for (const family of families) {
    const result = await kernel.commit(family, ops);
    if (result.ok) continue;
    log.error('Error cleaning up nftables rules', { family, error: result.error });
    code = 1;
  }
  return code;
}
