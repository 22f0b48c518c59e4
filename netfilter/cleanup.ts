import { hasCode, messageOf } from '../base/errors.ts';
import type { Log } from '../base/log.ts';
import type { Family } from './core/ip.ts';
import { planRemoval, readSaved } from './core/iptables-plan.ts';
import { OWN_CHAINS, TABLES } from './core/iptables-table.ts';
import { TABLE_COMMENT } from './core/nft-table.ts';
import type { Op } from './core/ops.ts';
import type { Iptables } from './io/iptables.ts';
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

/**
 * Removes what iptables mode left, ours or upstream's, table by table; returns the exit code. Chains of others stay,
 * and the kubelet's. Without the programs there is nothing to remove.
 */
export async function removeChains(iptables: Iptables, log: Log, families: readonly Family[] = ['ip', 'ip6']): Promise<number> {
  let code = 0;
  for (const family of families) {
    let saved: Map<string, string>;
    try {
      saved = savedTables(await iptables.save(family, null));
    } catch (error) {
      if (!hasCode(error, 'not-found')) log.debug(1, 'iptables rules cannot be read and are left', { family, error: messageOf(error) });
      continue;
    }
    for (const table of TABLES) {
      const restore = planRemoval(table, readSaved(saved.get(table) ?? ''), OWN_CHAINS[table]);
      if (restore.isEmpty) continue;
      const result = await iptables.restore(family, restore.input().text);
      if (result.ok) continue;
      log.error('Error cleaning up iptables rules', { family, table, error: result.error });
      code = 1;
    }
  }
  return code;
}

/** What `iptables-save` prints, by table. */
function savedTables(text: string): Map<string, string> {
  const tables = new Map<string, string>();
  for (const part of text.split(/^\*/m).slice(1)) tables.set(part.slice(0, part.indexOf('\n')), part);
  return tables;
}
