import { copyFileSync, existsSync, mkdtempSync, readdirSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { DatabaseSync } from 'node:sqlite';

/** Addresses and host ports that pods of a node have, in the files of either pod network: host-local's names, our store's rows. */
export function addressesBelow(path: (inNode: string) => string): string[] {
  const folder = path('/run/cni/networks/nodelet');
  const files = existsSync(folder) ? readdirSync(folder) : [];
  return [...files.filter((name) => /^\d+(\.\d+){3}$|^[0-9a-f]*:[0-9a-f:]*$/.test(name)), ...storedBelow(path('/run/nodelet/cni/state.db'))];
}

function storedBelow(file: string): string[] {
  if (!existsSync(file)) return [];
  // SQLite follows /proc/<pid>/root as the symbolic link that it also is, and would look outside of the node.
  const copies = mkdtempSync(join(tmpdir(), 'churn-'));
  try {
    const copy = join(copies, 'state.db');
    for (const end of ['', '-wal']) if (existsSync(`${file}${end}`)) copyFileSync(`${file}${end}`, `${copy}${end}`);
    return rowsOf(copy);
  } finally {
    rmSync(copies, { recursive: true });
  }
}

function rowsOf(file: string): string[] {
  using store = new DatabaseSync(file);
  const rows = (sql: string): string[] => (store.prepare(sql).all() as { what: string }[]).map(({ what }) => what);
  return [
    ...rows("SELECT address || ' of ' || container AS what FROM address"),
    ...rows("SELECT protocol || ' ' || number || ' of ' || container AS what FROM port"),
    ...rows("SELECT link || ' of ' || container AS what FROM attachment"),
  ];
}
