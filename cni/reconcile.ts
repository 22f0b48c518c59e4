import { linkPrefix } from './core/names.ts';
import type { Workshop } from './attach.ts';

/**
 * Makes store and kernel agree: a finished pod whose link is gone (its namespace died, the machine rebooted) gives
 * back its addresses and ports; a link that nobody has in the store goes. Returns how many of each.
 */
export async function reconcile({ store, kernel, table, dataDir, log }: Workshop): Promise<{ pods: number; links: number }> {
  // The store first: an ADD that runs meanwhile has its row before its link.
  const links = new Set((await kernel.links(null)).map((link) => link.name));
  const gone = await store.transaction(() => {
    const lost = store.all().filter((one) => one.phase === 'ready' && !links.has(one.hostLink));
    const ports = lost.flatMap((one) => store.ports({ network: one.network, who: one }));
    for (const one of lost) store.remove(one.network, one);
    return { lost, ports };
  });
  await table.remove(gone.ports);
  const owned = new Set(store.all().map((one) => one.hostLink));
  const orphans = [...links].filter((name) => name.startsWith(linkPrefix(dataDir)) && name.length === 15 && !owned.has(name));
  for (const link of orphans) await kernel.apply(null, [{ op: 'delete-link', link }]);
  if (gone.lost.length > 0 || orphans.length > 0) log.info('Took back what pods left', { pods: gone.lost.length, links: orphans.length });
  return { pods: gone.lost.length, links: orphans.length };
}
