import { existsSync, readdirSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';

/** Addresses and host ports that pods of a node have, in the files of either pod network: host-local's names, our store's rows. */
export function addressesBelow(path: (inNode: string) => string): string[] {
  const folder = path('/run/cni/networks/nodelet');
  const files = existsSync(folder) ? readdirSync(folder) : [];
  return [...files.filter((name) => /^\d+(\.\d+){3}$|^[0-9a-f]*:[0-9a-f:]*$/.test(name)), ...storedBelow(path('/run/nodelet/cni/state.db'))];
}

function storedBelow(file: string): string[] {
  if (!existsSync(file)) return [];
  const store = new DatabaseSync(file, { readOnly: true });
  try {
    const rows = (sql: string): string[] => (store.prepare(sql).all() as { what: string }[]).map(({ what }) => what);
    return [
      ...rows("SELECT address || ' of ' || container AS what FROM address"),
      ...rows("SELECT protocol || ' ' || number || ' of ' || container AS what FROM port"),
      ...rows("SELECT link || ' of ' || container AS what FROM attachment"),
    ];
  } finally {
    store.close();
  }
}
