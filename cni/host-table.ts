import { cidrText } from './core/address.ts';
import type { NetConf } from './core/config.ts';
import { CniError, CODE } from './core/errors.ts';
import { tableName, tableText, type HostPort } from './core/ports.ts';
import type { Kernel } from './io/kernel.ts';
import type { Store } from './io/store.ts';

/** A rebuild that another process overtakes is done again this often. */
const TRIES = 10;

export interface HostTableOptions {
  readonly kernel: Kernel;
  readonly store: Store;
  readonly families: readonly (4 | 6)[];
  readonly dataDir: string;
  readonly usualDir: string;
}

/** The nftables table of host ports, masquerading and pods' sources: written whole from the store, changed by elements. */
export class HostTable {
  readonly #options: HostTableOptions;
  readonly #name: string;
  #rebuilding: Promise<void> | null = null;

  constructor(options: HostTableOptions) {
    this.#options = options;
    this.#name = tableName(options.dataDir, options.usualDir);
  }

  /** Writes what the store says; again when the store changed meanwhile. */
  async rebuild(): Promise<void> {
    this.#rebuilding ??= this.#write().finally(() => (this.#rebuilding = null));
    await this.#rebuilding;
  }

  async #write(): Promise<void> {
    const { kernel, store, families, dataDir } = this.#options;
    for (let tries = 0; tries < TRIES; tries++) {
      const version = store.version();
      await kernel.table(tableText(this.#name, dataDir, families, store.ports(), store.masquerades()));
      if (store.version() === version) return;
    }
  }

  /** Makes the network's masquerading what its configuration says; nearly always it is already. The first pod of a boot has the table written. */
  async setMasquerade(conf: NetConf): Promise<void> {
    const { store } = this.#options;
    const wanted = masqueradeText(conf);
    if (store.masquerade(conf.name) === wanted) return;
    await store.transaction(() => store.setMasquerade(conf.name, wanted));
    await this.rebuild();
  }

  async add(ports: readonly HostPort[]): Promise<void> {
    if (ports.length === 0) return;
    const { kernel } = this.#options;
    let errno = await kernel.ports(this.#name, 'add', ports);
    // The store says whose they are: what stands there is a leftover.
    if (errno === 'EEXIST') errno = await kernel.ports(this.#name, 'replace', ports);
    // Never written, or somebody flushed the ruleset. The store has these ports already.
    if (errno !== null) await this.rebuild();
    await kernel.forgetFlows(ports, 'added');
  }

  async remove(ports: readonly HostPort[]): Promise<void> {
    if (ports.length === 0) return;
    const { kernel } = this.#options;
    const errno = await kernel.ports(this.#name, 'remove', ports);
    // ENOENT: no table, so no rule; EEXIST: another pod's by now.
    if (errno !== null && errno !== 'ENOENT' && errno !== 'EEXIST') throw new CniError(CODE.kernel, `cannot remove host ports: ${errno}`);
    await kernel.forgetFlows(ports, 'removed');
  }
}

/** A network's masquerading as it is kept; '' is none. */
export function masqueradeText(conf: NetConf): string {
  if (!conf.masquerade) return '';
  const from = conf.rangeSets.flatMap((set) => set.map((range) => cidrText(range.subnet)));
  return JSON.stringify({ from: [...new Set(from)], except: conf.notMasqueraded.map(cidrText) });
}
