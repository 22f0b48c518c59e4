import { Nap } from '../base/abort.ts';
import { messageOf, OpError } from '../base/errors.ts';
import { replaceFile } from '../base/replace-file.ts';
import type { Clock } from '../base/clock.ts';
import * as refs from '../base/kubeapi/refs.ts';
import type { KubeApi } from '../base/kubeapi/types.ts';
import type { Log } from '../base/log.ts';
import type { Node } from '../proto/kube/types.ts';
import { mkdir, readFile } from 'node:fs/promises';
import { dirname } from 'node:path';
import { conflist, type DaemonConfig } from './core/conflist.ts';
import { OVERLAY_LINK, planWays, tunnelOps, wayOps, type NodeFacts } from './core/node-routes.ts';
import type { Kernel } from './io/kernel.ts';

/** Routes that somebody removed are back after this. */
const LOOK_MS = 30_000;
/** What failed is done again after this, and from then on with each look. */
const RETRY_MS = [500, 2_000, 10_000];
/** Nodes register together: one look for all of them. */
const GATHER_MS = 50;

export interface NodeNetworkOptions {
  readonly config: DaemonConfig;
  readonly kernel: Kernel;
  readonly clock: Clock;
  readonly log: Log;
}

/** The node's part: ways to other nodes' pods, and the runtime's configuration once this node's range is known. */
export class NodeNetwork {
  readonly #options: NodeNetworkOptions;
  readonly #nodes = new Map<string, NodeFacts>();
  readonly #nap = new Nap();
  #isChanged = true;
  #lastTrouble = '';

  constructor(options: NodeNetworkOptions) {
    this.#options = options;
  }

  /** Writes the runtime's configuration from what is known beforehand; pods need not wait for the API server then. */
  async begin(): Promise<void> {
    const { config } = this.#options;
    if (config.podCIDRs.length > 0) await this.#writeConf(config.podCIDRs, config.mtu);
  }

  async run(api: KubeApi, signal: AbortSignal): Promise<void> {
    const { log } = this.#options;
    const watching = api.reflect<Node>(
      refs.nodes(),
      {},
      {
        replaced: (nodes) => {
          this.#nodes.clear();
          for (const node of nodes) this.#nodes.set(node.metadata.name ?? '', factsOf(node));
          this.#changed();
        },
        changed: (type, node) => {
          const name = node.metadata.name ?? '';
          const before = JSON.stringify(this.#nodes.get(name));
          if (type === 'DELETED') this.#nodes.delete(name);
          else this.#nodes.set(name, factsOf(node));
          if (JSON.stringify(this.#nodes.get(name)) !== before) this.#changed();
        },
        trouble: (error) => log.debug(1, 'Watch interrupted', { what: 'nodes', error }),
        trim: (node) => ({
          metadata: { name: node.metadata.name },
          spec: { podCIDR: node.spec?.podCIDR, podCIDRs: node.spec?.podCIDRs },
          status: { addresses: node.status?.addresses },
        }),
      },
      signal,
    );
    await Promise.all([watching, this.#loop(signal)]);
  }

  #changed(): void {
    this.#isChanged = true;
    this.#nap.wake();
  }

  async #loop(signal: AbortSignal): Promise<void> {
    const { clock, config, log } = this.#options;
    for (let failures = 0; !signal.aborted;) {
      if (this.#isChanged) await clock.sleep(GATHER_MS, signal);
      this.#isChanged = false;
      const isKnown = this.#nodes.has(config.nodeName);
      try {
        if (isKnown) await this.sync();
        failures = 0;
        this.#lastTrouble = '';
      } catch (error) {
        if (!(error instanceof OpError)) throw error;
        failures += 1;
        if (messageOf(error) !== this.#lastTrouble) log.error('The ways to other nodes are not as they should be', { error: messageOf(error) });
        this.#lastTrouble = messageOf(error);
      }
      if (this.#isChanged) continue;
      // As long as this node is not known there is nothing to look after.
      await this.#nap.take(clock, isKnown ? (RETRY_MS[failures - 1] ?? LOOK_MS) : null, signal);
    }
  }

  /** Tells the nodes, for tests; `run` does it from the API. */
  tell(nodes: readonly NodeFacts[]): void {
    this.#nodes.clear();
    for (const node of nodes) this.#nodes.set(node.name, node);
  }

  /** Makes the kernel's routes and tunnel what the nodes need, then the runtime's configuration. */
  async sync(): Promise<void> {
    const { config, kernel, log } = this.#options;
    const own = this.#nodes.get(config.nodeName);
    if (own === undefined) return;
    const others = [...this.#nodes.values()].filter((node) => node.name !== config.nodeName).sort((a, b) => a.name.localeCompare(b.name));
    const overlay = { mode: config.overlay, vni: config.vni, port: config.vxlanPort };
    let links = await kernel.links(null);
    const wanted = planWays(own, others, { addresses: await kernel.addresses(null), links }, overlay);
    const before = tunnelOps(wanted, links, overlay);
    if (before.length > 0) {
      const refused = await kernel.apply(null, before);
      if (refused !== null)
        throw new OpError('unsupported', 'make the tunnel between nodes', `${refused.errno} ${refused.detail}`.trim(), { advice: 'the kernel needs vxlan' });
      links = await kernel.links(null);
    }
    const tunnel = links.find((link) => link.name === OVERLAY_LINK)?.index ?? 0;
    const none = tunnel === 0;
    const observed = {
      routes: await kernel.routes(null),
      neighbours: none ? [] : await kernel.neighbours('neighbours'),
      forwards: none ? [] : await kernel.neighbours('forwards'),
      tunnel,
    };
    // One by one: a way that the kernel refuses keeps no other one away.
    const troubles = [...wanted.unreachable];
    const ops = wayOps(wanted, observed);
    for (const op of ops) {
      const refused = await kernel.apply(null, [op]);
      if (refused !== null && !(op.op.startsWith('delete') && refused.errno === 'ESRCH')) troubles.push(`${op.op}: ${refused.errno} ${refused.detail}`.trim());
    }
    if (ops.length > 0) log.info('Routes to other nodes written', { changes: ops.length, nodes: others.length, overlay: wanted.tunnel !== null });
    const ranges = config.podCIDRs.length > 0 ? config.podCIDRs : own.podCIDRs;
    if (ranges.length > 0) await this.#writeConf(ranges, config.mtu > 0 || wanted.tunnel === null ? config.mtu : wanted.tunnel.mtu);
    if (troubles.length > 0) throw new OpError('failed', 'lead to other nodes’ pods', troubles.join('; '));
  }

  async #writeConf(podCIDRs: readonly string[], mtu: number): Promise<void> {
    const { config, log } = this.#options;
    if (config.confFile === '') return;
    const text = conflist(config, podCIDRs, mtu);
    if ((await readFile(config.confFile, 'utf8').catch(() => '')) === text) return;
    try {
      await mkdir(dirname(config.confFile), { recursive: true });
      await replaceFile(config.confFile, text);
    } catch (cause) {
      throw new OpError('failed', `write ${config.confFile}`, messageOf(cause), { cause });
    }
    log.info('The runtime’s network configuration is written', { file: config.confFile, podCIDRs: podCIDRs.join(',') });
  }
}

function factsOf(node: Node): NodeFacts {
  const addresses = (node.status?.addresses ?? []).filter((address) => address.type === 'InternalIP').map((address) => address.address);
  const podCIDRs = node.spec?.podCIDRs ?? (node.spec?.podCIDR === undefined ? [] : [node.spec.podCIDR]);
  return { name: node.metadata.name ?? '', addresses, podCIDRs };
}
