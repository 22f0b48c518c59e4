import { messageOf, OpError } from '../base/errors.ts';
import type { Log } from '../base/log.ts';
import { Turns } from '../base/turns.ts';
import { DATA_DIR, readCall, readInput, readNetConf, versionOf, type Call, type NetConf } from './core/config.ts';
import { CniError, CODE, errorJson } from './core/errors.ts';
import { loopbackResult } from './core/plan.ts';
import { resultJson, versionJson, type Result } from './core/result.ts';
import type { Address } from './core/address.ts';
import { add, check, remove, type Workshop } from './attach.ts';
import { HostTable } from './host-table.ts';
import type { Kernel } from './io/kernel.ts';
import type { Store } from './io/store.ts';
import { reconcile } from './reconcile.ts';
import { Uplink } from './uplink.ts';

/** One call of the plugin as the runtime makes it: environment and standard input, then standard output and exit code. */
export interface Answer {
  readonly code: 0 | 1;
  readonly text: string;
}

export interface EngineOptions {
  readonly kernel: Kernel;
  readonly openStore: (dataDir: string) => Promise<Store>;
  /** A process in the node's network namespace. */
  readonly pid: number;
  readonly families: readonly (4 | 6)[];
  readonly monoMs: () => number;
  readonly log: Log;
  /** What keeps other processes away from a data folder meanwhile; absent: calls come through this process alone. */
  readonly takeTurn?: (dataDir: string) => Disposable;
  /** Told of pods' addresses before a pod may begin, and once they are free; absent: nobody asks. */
  readonly gate?: Gate;
}

/** `key` is the pod's `namespace/name`. */
export interface Gate {
  admit(key: string, containerId: string, addresses: readonly Address[]): Promise<void>;
  release(key: string, containerId: string): void;
}

/** Answers calls; the same in the daemon and in the process that stands in for it. Calls for one pod follow each other. */
export class Engine implements Disposable {
  readonly #options: EngineOptions;
  readonly #workshops = new Map<string, Promise<Workshop>>();
  readonly #stores = new Set<Store>();
  #isOver = false;
  /** What was asked before for the same pod is done first. */
  readonly #turns = new Turns();
  readonly #uplink: Uplink;

  constructor(options: EngineOptions) {
    this.#options = options;
    this.#uplink = new Uplink(options.kernel, options.monoMs);
  }

  /** What belongs to one data folder; opened at its first use, and anew where that failed. */
  workshop(dataDir: string): Promise<Workshop> {
    const known = this.#workshops.get(dataDir);
    if (known !== undefined) return known;
    const opening = this.#open(dataDir);
    this.#workshops.set(dataDir, opening);
    opening.catch(() => this.#workshops.delete(dataDir));
    return opening;
  }

  async #open(dataDir: string): Promise<Workshop> {
    const { kernel, openStore, pid, families, log } = this.#options;
    const store = await openStore(dataDir);
    if (this.#isOver) {
      store[Symbol.dispose]();
      throw new OpError('aborted', `open ${dataDir}`, 'this process ends');
    }
    this.#stores.add(store);
    const table = new HostTable({ kernel, store, families, dataDir, usualDir: DATA_DIR });
    return { dataDir, kernel, store, pid, families, log, uplink: this.#uplink, table };
  }

  /** Never throws for what a caller or the kernel did: that is an answer too. */
  async call(env: Readonly<Record<string, string | undefined>>, stdin: string): Promise<Answer> {
    let version: string = '1.1.0';
    try {
      const call = readCall(env);
      const input = call.command === 'VERSION' && stdin.trim() === '' ? {} : readInput(stdin);
      version = versionOf(input);
      if (call.command === 'VERSION') return answer(versionJson(typeof input['cniVersion'] === 'string' ? input['cniVersion'] : version));
      const conf = readNetConf(input, call);
      const result = await this.#turns.take(`${conf.name} ${call.containerId}`, () => this.#run(call, conf));
      return result === null ? { code: 0, text: '' } : answer(result);
    } catch (error) {
      const known = error instanceof CniError ? error : error instanceof OpError ? new CniError(codeOf(error), messageOf(error), error.advice) : null;
      if (known === null) throw error;
      this.#options.log.warn('A call failed', { command: env['CNI_COMMAND'], container: env['CNI_CONTAINERID'], error: known.message, details: known.details });
      return { code: 1, text: `${JSON.stringify(errorJson(known, version))}\n` };
    }
  }

  async #run(call: Call, conf: NetConf): Promise<Record<string, unknown> | null> {
    if (conf.type === 'loopback') return await this.#loopback(call, conf);
    using _turn = this.#options.takeTurn?.(conf.dataDir);
    const workshop = await this.workshop(conf.dataDir);
    switch (call.command) {
      case 'ADD':
        return resultJson(await this.#admitted(call, await add(workshop, call, conf)), conf.version);
      case 'DEL':
        await remove(workshop, call, conf.name);
        this.#options.gate?.release(podOf(call), call.containerId);
        return null;
      case 'CHECK':
        await check(workshop, call, conf);
        return null;
      case 'GC':
        await this.#collect(workshop, conf);
        return null;
      case 'STATUS':
        await status(workshop, conf);
        return null;
      case 'VERSION':
        return versionJson(conf.version);
    }
  }

  /** The pod begins when its ADD is answered: what guards it stands by then. */
  async #admitted(call: Call, result: Result): Promise<Result> {
    await this.#options.gate?.admit(
      podOf(call),
      call.containerId,
      result.ips.map((one) => one.address),
    );
    return result;
  }

  async #loopback(call: Call, conf: NetConf): Promise<Record<string, unknown> | null> {
    const { kernel } = this.#options;
    if (call.command === 'ADD') {
      const refused = await kernel.apply(call.netns, [{ op: 'set-up', link: call.ifname }]);
      if (refused !== null) throw new CniError(CODE.kernel, `cannot set ${call.ifname} up: ${refused.errno}`);
      return resultJson(loopbackResult(call.netns), conf.version);
    }
    if (call.command === 'CHECK' && (await kernel.link(call.netns, call.ifname))?.isUp !== true) throw new CniError(CODE.differs, `${call.ifname} is not up`);
    return null;
  }

  /** Removes the network's pods that the runtime does not name, and what nobody has. */
  async #collect(workshop: Workshop, conf: NetConf): Promise<void> {
    if (conf.valid !== null) {
      const valid = new Set(conf.valid.map((one) => `${one.containerId} ${one.ifname}`));
      for (const one of workshop.store.all()) {
        if (one.network !== conf.name || valid.has(`${one.containerId} ${one.ifname}`)) continue;
        await this.#turns.take(`${conf.name} ${one.containerId}`, () => remove(workshop, { ...one, netns: '' }, conf.name));
      }
    }
    await reconcile(workshop);
  }

  [Symbol.dispose](): void {
    this.#isOver = true;
    for (const store of this.#stores) store[Symbol.dispose]();
    this.#stores.clear();
    this.#workshops.clear();
  }
}

/** As the runtime names it in CNI_ARGS. */
const podOf = ({ args }: Call): string => `${args.get('K8S_POD_NAMESPACE') ?? ''}/${args.get('K8S_POD_NAME') ?? ''}`;

function answer(value: Record<string, unknown>): Answer {
  return { code: 0, text: `${JSON.stringify(value)}\n` };
}

function codeOf(error: OpError): number {
  switch (error.code) {
    case 'deadline':
    case 'unavailable':
      return CODE.tryAgain;
    case 'exhausted':
    case 'denied':
    case 'not-found':
    case 'failed':
    case 'unsupported':
      return CODE.io;
    default:
      return CODE.kernel;
  }
}

/** Whether an ADD could be served: there are ranges, the file of addresses and the kernel answer. */
async function status({ store, kernel }: Workshop, conf: NetConf): Promise<void> {
  if (conf.rangeSets.length === 0) throw new CniError(CODE.notAvailable, 'no "ranges" are configured');
  try {
    store.version();
    await kernel.link(null, 'lo');
  } catch (error) {
    throw new CniError(CODE.notAvailable, 'pods cannot be connected', messageOf(error));
  }
}
