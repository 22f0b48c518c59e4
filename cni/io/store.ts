import { mkdirSync, readFileSync, statSync } from 'node:fs';
import { DatabaseSync } from 'node:sqlite';
import { setTimeout as sleep } from 'node:timers/promises';
import { OpError, type OpCode } from '../../base/errors.ts';
import { addressText, parseAddress, parseCidr, type Address } from '../core/address.ts';
import type { Attachment } from '../core/config.ts';
import type { HostPort, Masquerade } from '../core/ports.ts';

/** Who has which address and port. One file below the network's data folder; what an earlier boot left is forgotten at the first opening. */

export interface StoredAttachment extends Attachment {
  readonly network: string;
  readonly hostLink: string;
  /** `adding` until ADD has answered: what stays so was interrupted. */
  readonly phase: 'adding' | 'ready';
}

export interface Store extends Disposable {
  /**
   * All or nothing, against other processes too. While one of them writes, this waits its turn without holding up what else
   * this process does; `unavailable` after ten seconds.
   */
  transaction<T>(work: () => T): Promise<T>;
  find(network: string, who: Attachment): StoredAttachment | null;
  all(): StoredAttachment[];
  insert(attachment: StoredAttachment): void;
  /** Whether it is still there; nobody has removed it meanwhile. */
  finish(network: string, who: Attachment): boolean;
  /** With its addresses and ports. */
  remove(network: string, who: Attachment): void;
  isTaken(network: string, address: Address): boolean;
  take(network: string, address: Address, who: Attachment): void;
  addressesOf(network: string, who: Attachment): Address[];
  lastGiven(network: string, set: number): Address | null;
  setLastGiven(network: string, set: number, address: Address): void;
  /** The pod that holds one of these ports, or null. */
  holderOf(ports: readonly HostPort[]): (Attachment & { network: string; port: HostPort }) | null;
  insertPorts(network: string, who: Attachment, ports: readonly HostPort[]): void;
  ports(of?: { network: string; who: Attachment }): HostPort[];
  /** Null: the network has no pod yet since the boot. */
  masquerade(network: string): string | null;
  setMasquerade(network: string, value: string): void;
  masquerades(): Masquerade[];
  /** Grows whenever ports or masquerading change. */
  version(): number;
}

const SCHEMA = `
CREATE TABLE IF NOT EXISTS fact (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS attachment (network TEXT, container TEXT, ifname TEXT, link TEXT NOT NULL, phase TEXT NOT NULL, PRIMARY KEY (network, container, ifname)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS address (network TEXT, address TEXT, container TEXT NOT NULL, ifname TEXT NOT NULL, PRIMARY KEY (network, address)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS address_of ON address (network, container, ifname);
CREATE TABLE IF NOT EXISTS port (family INTEGER, at TEXT, protocol TEXT, number INTEGER, network TEXT NOT NULL, container TEXT NOT NULL, ifname TEXT NOT NULL, pod TEXT NOT NULL, target INTEGER NOT NULL, PRIMARY KEY (family, at, protocol, number)) WITHOUT ROWID;
CREATE INDEX IF NOT EXISTS port_of ON port (network, container, ifname);
CREATE TABLE IF NOT EXISTS masquerade (network TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
`;

/** Another process may be writing: this long, in steps between which everything else goes on. */
const WAIT_MS = 10_000;
const STEP_MS = 10;
/** Within a step nothing else goes on: SQLite itself waits. Writers are done within that, nearly always. */
const BUSY_MS = 5;

/** The machine's boot and the network namespace in it: links of another one are gone. */
function bootOf(): string {
  return `${readFileSync('/proc/sys/kernel/random/boot_id', 'utf8').trim()} ${statSync('/proc/self/ns/net').ino}`;
}

export interface StoreOptions {
  /** How long opening and a transaction wait for their turn, in milliseconds; default ten seconds. */
  readonly waitMs?: number;
  /** Which boot this is; for tests. */
  readonly boot?: string;
}

interface PortRow {
  family: number;
  at: string;
  protocol: 'tcp' | 'udp' | 'sctp';
  number: number;
  network: string;
  container: string;
  ifname: string;
  pod: string;
  target: number;
}

const portOf = (row: PortRow): HostPort => ({
  hostIp: row.at === '' ? null : parseAddress(row.at),
  protocol: row.protocol,
  hostPort: row.number,
  podIp: parseAddress(row.pod)!,
  containerPort: row.target,
});

/** SQLite's primary result codes that something can be done about (sqlite.org/rescode.html). */
const SQLITE_BUSY = 5;
const REASONS: Readonly<Record<number, { readonly code: OpCode; readonly advice: string }>> = {
  5: { code: 'unavailable', advice: 'another process writes' },
  11: { code: 'failed', advice: 'the file is damaged: drain the node, remove the folder, start the pods anew' },
  13: { code: 'exhausted', advice: 'make room on its file system' },
  26: { code: 'failed', advice: 'the file is none of ours: drain the node, remove the folder, start the pods anew' },
};

/** What SQLite or the file system refuses is the machine's trouble and no defect. */
function explained(doing: string, cause: unknown): unknown {
  const { code, errcode, message } = cause as { code?: unknown; errcode?: number; message: string };
  if (cause instanceof OpError || typeof code !== 'string' || code.startsWith('ERR_ASSERTION')) return cause;
  const reason = code === 'ERR_SQLITE_ERROR' ? REASONS[(errcode ?? 0) & 0xff] : undefined;
  return new OpError(reason?.code ?? 'failed', doing, message, { cause, advice: reason?.advice ?? '' });
}

function guarded<T>(doing: string, work: () => T): T {
  const thrown = (error: unknown): never => {
    throw explained(doing, error);
  };
  try {
    const result = work();
    return result instanceof Promise ? (result.catch(thrown) as T) : result;
  } catch (error) {
    return thrown(error);
  }
}

function isBusy(error: unknown): boolean {
  return (error as { errcode?: number }).errcode !== undefined && ((error as { errcode: number }).errcode & 0xff) === SQLITE_BUSY;
}

/**
 * Opens `dir`/state.db; while another process has it locked this waits as a transaction does. Acknowledged means: survives
 * the death of any process; a crash of the machine ends the pods too. Throws OpError, as all of it does.
 */
export async function openStore(dir: string, options: StoreOptions = {}): Promise<Store> {
  const { waitMs = WAIT_MS } = options;
  const opened = await inTurn(waitMs, () => {
    let db: DatabaseSync | undefined;
    try {
      mkdirSync(dir, { recursive: true, mode: 0o700 });
      db = new DatabaseSync(`${dir}/state.db`);
      db.exec(`PRAGMA busy_timeout = ${BUSY_MS}; PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL;`);
      return storeOf(db, options.boot ?? bootOf(), waitMs);
    } catch (error) {
      db?.close();
      throw error;
    }
  }).catch((error: unknown) => {
    throw explained(`open ${dir}/state.db`, error);
  });
  return guardedStore(opened, `${dir}/state.db`);
}

/** Tries again for as long as another process writes, in steps between which everything else goes on. */
async function inTurn<T>(waitMs: number, attempt: () => T): Promise<T> {
  for (let waitedMs = 0; ; waitedMs += BUSY_MS + STEP_MS) {
    try {
      return attempt();
    } catch (error) {
      if (!isBusy(error) || waitedMs >= waitMs) throw error;
    }
    await sleep(STEP_MS);
  }
}

function guardedStore(store: Store, path: string): Store {
  const guard = (method: unknown): unknown =>
    typeof method === 'function' ? (...args: unknown[]) => guarded(`use ${path}`, () => (method as (...args: unknown[]) => unknown)(...args)) : method;
  const methods = Object.entries(store).map(([name, method]) => [name, guard(method)] as const);
  return { ...(Object.fromEntries(methods) as unknown as Store), [Symbol.dispose]: () => store[Symbol.dispose]() };
}

function storeOf(db: DatabaseSync, boot: string, waitMs: number): Store {
  const begun = <T>(work: () => T): T => {
    try {
      const result = work();
      db.exec('COMMIT');
      return result;
    } catch (error) {
      // A full disk has ended it already.
      if (db.isTransaction) db.exec('ROLLBACK');
      throw error;
    }
  };
  const transaction = <T>(work: () => T): Promise<T> =>
    inTurn(waitMs, () => {
      db.exec('BEGIN IMMEDIATE');
      // In the same turn of the loop: in between, another caller of this process would be inside of this transaction.
      return begun(work);
    });
  const known = (): boolean => {
    try {
      return (db.prepare("SELECT value FROM fact WHERE name = 'boot'").get() as { value: string } | undefined)?.value === boot;
    } catch (error) {
      // Without a table yet nothing is known.
      if (isBusy(error)) throw error;
      return false;
    }
  };
  if (!known()) {
    db.exec('BEGIN IMMEDIATE');
    begun(() => {
      db.exec(SCHEMA);
      if (known()) return;
      db.exec('DELETE FROM attachment; DELETE FROM address; DELETE FROM port; DELETE FROM masquerade;');
      db.prepare("INSERT OR REPLACE INTO fact VALUES ('boot', ?)").run(boot);
    });
  }
  const cache = new Map<string, ReturnType<DatabaseSync['prepare']>>();
  const sql = (text: string): ReturnType<DatabaseSync['prepare']> => {
    let statement = cache.get(text);
    if (statement === undefined) cache.set(text, (statement = db.prepare(text)));
    return statement;
  };
  const ids = (network: string, who: Attachment): [string, string, string] => [network, who.containerId, who.ifname];
  const grow = (): void => void sql("INSERT INTO fact VALUES ('version', '1') ON CONFLICT DO UPDATE SET value = CAST(value AS INTEGER) + 1").run();
  const attachments = (rows: unknown): StoredAttachment[] =>
    (rows as { network: string; container: string; ifname: string; link: string; phase: 'adding' | 'ready' }[]).map(
      ({ network, container, ifname, link, phase }) => ({
        network,
        containerId: container,
        ifname,
        hostLink: link,
        phase,
      }),
    );
  const ofWho = 'WHERE network = ? AND container = ? AND ifname = ?';
  return {
    transaction,
    find: (network, who) => attachments(sql(`SELECT * FROM attachment ${ofWho}`).all(...ids(network, who)))[0] ?? null,
    all: () => attachments(sql('SELECT * FROM attachment').all()),
    insert: (one) => void sql('INSERT INTO attachment VALUES (?, ?, ?, ?, ?)').run(...ids(one.network, one), one.hostLink, one.phase),
    finish: (network, who) => Number(sql(`UPDATE attachment SET phase = 'ready' ${ofWho}`).run(...ids(network, who)).changes) === 1,
    remove(network, who) {
      if (Number(sql(`DELETE FROM port ${ofWho}`).run(...ids(network, who)).changes) > 0) grow();
      sql(`DELETE FROM address ${ofWho}`).run(...ids(network, who));
      sql(`DELETE FROM attachment ${ofWho}`).run(...ids(network, who));
    },
    isTaken: (network, address) => sql('SELECT 1 FROM address WHERE network = ? AND address = ?').get(network, addressText(address)) !== undefined,
    take: (network, address, who) => void sql('INSERT INTO address VALUES (?, ?, ?, ?)').run(network, addressText(address), who.containerId, who.ifname),
    addressesOf: (network, who) =>
      (sql(`SELECT address FROM address ${ofWho}`).all(...ids(network, who)) as { address: string }[]).flatMap((row) => parseAddress(row.address) ?? []),
    lastGiven(network, set) {
      const row = sql('SELECT value FROM fact WHERE name = ?').get(`last ${set} ${network}`) as { value: string } | undefined;
      return row === undefined ? null : parseAddress(row.value);
    },
    setLastGiven: (network, set, address) => void sql('INSERT OR REPLACE INTO fact VALUES (?, ?)').run(`last ${set} ${network}`, addressText(address)),
    holderOf(ports) {
      for (const port of ports) {
        const key = [port.podIp.family, port.hostIp === null ? '' : addressText(port.hostIp), port.protocol, port.hostPort] as const;
        const row = sql('SELECT * FROM port WHERE family = ? AND at = ? AND protocol = ? AND number = ?').get(...key) as unknown as PortRow | undefined;
        if (row !== undefined) return { network: row.network, containerId: row.container, ifname: row.ifname, port: portOf(row) };
      }
      return null;
    },
    insertPorts(network, who, ports) {
      for (const port of ports)
        sql('INSERT INTO port VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)').run(
          port.podIp.family,
          port.hostIp === null ? '' : addressText(port.hostIp),
          port.protocol,
          port.hostPort,
          ...ids(network, who),
          addressText(port.podIp),
          port.containerPort,
        );
      if (ports.length > 0) grow();
    },
    ports(of) {
      const rows = of === undefined ? sql('SELECT * FROM port').all() : sql(`SELECT * FROM port ${ofWho}`).all(...ids(of.network, of.who));
      return (rows as unknown as PortRow[]).map(portOf);
    },
    masquerade: (network) => (sql('SELECT value FROM masquerade WHERE network = ?').get(network) as { value: string } | undefined)?.value ?? null,
    setMasquerade(network, value) {
      sql('INSERT OR REPLACE INTO masquerade VALUES (?, ?)').run(network, value);
      grow();
    },
    masquerades: () =>
      (sql('SELECT value FROM masquerade').all() as { value: string }[]).flatMap(({ value }) => {
        if (value === '') return [];
        const { from, except } = JSON.parse(value) as { from: string[]; except: string[] };
        const cidrs = (list: string[]): Masquerade['from'] => list.flatMap((text) => parseCidr(text) ?? []);
        return [{ from: cidrs(from), except: cidrs(except) }];
      }),
    version: () => Number((sql("SELECT value FROM fact WHERE name = 'version'").get() as { value: string } | undefined)?.value ?? 0),
    [Symbol.dispose]: () => db.close(),
  };
}
