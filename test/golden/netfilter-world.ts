import { createFakeClock, type FakeClock } from '../../base/fake-clock.ts';
import type { KubeObject } from '../../base/kubeapi/types.ts';
import { createLog } from '../../base/log.ts';
import { readYaml, readYamlAll } from '../../base/yaml.ts';
import { proxyConfig } from '../../netfilter/core/config.ts';
import { planReplace } from '../../netfilter/core/diff.ts';
import type { Family } from '../../netfilter/core/ip.ts';
import { portKey } from '../../netfilter/core/names.ts';
import { portObjects } from '../../netfilter/core/nft-service.ts';
import { settingsFor, topologyOf } from '../../netfilter/core/node.ts';
import type { Op } from '../../netfilter/core/ops.ts';
import { opText, transactionText, verdictText } from '../../netfilter/core/render-nft-text.ts';
import { fateText, trace, type Packet } from '../../netfilter/core/trace.ts';
import { traceText } from '../../netfilter/core/trace-nft.ts';
import { Slots } from '../../netfilter/core/slots.ts';
import { applyService, applySlice, emptyWorld, rulesFor } from '../../netfilter/core/world.ts';
import { FakeApi, FakeKernel } from '../../netfilter/fake.ts';
import { ProxyHealth } from '../../netfilter/health.ts';
import { proxyMetrics } from '../../netfilter/io/metrics.ts';
import { HealthPorts } from '../../netfilter/io/servers.ts';
import { Proxy } from '../../netfilter/proxy.ts';
import { Table } from '../../netfilter/table.ts';
import type { GoldenWorld } from '../golden.ts';

/** The whole proxy on fakes, told what to do by a script. */

const MACHINE = ['127.0.0.1', '192.0.2.10', '198.51.100.10', '::1', '2001:db8::10'];
const RESOURCES: Record<string, string> = { Service: 'services', EndpointSlice: 'endpointslices', Node: 'nodes', ServiceCIDR: 'servicecidrs' };

export interface NetfilterWorld extends GoldenWorld {
  clock: FakeClock;
  kernel: FakeKernel;
  api: FakeApi;
}

export async function makeWorld(): Promise<NetfilterWorld> {
  const clock = createFakeClock();
  const kernel = new FakeKernel();
  const api = new FakeApi();
  const objects = new Map<string, KubeObject>();
  const logLines: string[] = [];
  const log = createLog({
    name: 'netfilter',
    verbosity: 0,
    nowMs: () => clock.nowMs(),
    pid: 1,
    write: (line) => logLines.push(line.replace(/^(.).*?\] /, '$1 ').trimEnd()),
  });
  let config = proxyConfig({ mode: 'nftables', clusterCIDR: '10.244.0.0/16,fd00:10:244::/48' });
  const conntrackRuns: string[] = [];
  const health = new ProxyHealth({ clock, timeoutMs: 2 * config.syncPeriodMs });
  const metrics = proxyMetrics();
  let stop: AbortController | null = null;
  let running: Promise<void> = Promise.resolve();

  const put = (object: KubeObject): void => {
    const resource = RESOURCES[object.kind ?? '']!;
    objects.set(`${resource} ${object.metadata.namespace ?? ''}/${object.metadata.name ?? ''}`, object);
    api.put(resource, object);
  };
  put({
    kind: 'Node',
    metadata: { name: 'node-a' },
    spec: {},
    status: {
      addresses: [
        { type: 'InternalIP', address: '192.0.2.10' },
        { type: 'InternalIP', address: '2001:db8::10' },
      ],
    },
  } as KubeObject);

  const start = (): void => {
    stop = new AbortController();
    const proxy = new Proxy({
      config,
      nodeName: 'node-a',
      families: ['ip', 'ip6'],
      createTable: () => new Table({ kernel, fallback: null, log }),
      conntrack: {
        deleteStale: async (family) => {
          conntrackRuns.push(family);
          return 0;
        },
      },
      healthPorts: new HealthPorts({ log, isHealthy: () => health.healthy }),
      health,
      metrics,
      clock,
      log,
      machineAddresses: () => MACHINE,
    });
    running = proxy.run(api.api, stop.signal);
  };

  const halt = async (): Promise<void> => {
    stop?.abort();
    stop = null;
    await running;
  };

  /** What a packet meets, asked of the ruleset and of its rendering; they must agree. */
  const traced = (words: readonly string[]): string => {
    const [protocol = '', src = '', , dstPort = '', ...flags] = words;
    const at = dstPort.lastIndexOf(':');
    const dst = dstPort.slice(0, at).replace(/^\[(.*)\]$/, '$1');
    const family: Family = dst.includes(':') ? 'ip6' : 'ip';
    const node = objects.get('nodes /node-a');
    const world = emptyWorld();
    for (const [key, object] of objects) {
      if (key.startsWith('services ')) applyService(world, object, false);
      if (key.startsWith('endpointslices ')) applySlice(world, object, false);
    }
    const settings = settingsFor(family, { config, node: node ?? null, machineAddresses: MACHINE, serviceCIDRs: [] });
    const ruleset = [...world.services.keys()].flatMap((key) => rulesFor(world, key, family, topologyOf(node ?? null, 'node-a')));
    const packet: Packet = {
      protocol: protocol as Packet['protocol'],
      src,
      dst,
      port: Number(dstPort.slice(at + 1)),
      fromNode: flags.includes('from-node'),
      inputInterface: '',
      nodeAddresses: MACHINE,
    };
    const meant = fateText(trace(ruleset, packet, settings));
    const slots = new Slots();
    const text = transactionText({
      family,
      ops: planReplace(settings, new Map(ruleset.map((rules) => [portKey(rules.id), portObjects(rules, settings, slots)]))).ops,
    });
    const rendered = fateText(traceText(text, packet));
    return meant === rendered ? meant : `ruleset: ${meant}\nrendering: ${rendered}`;
  };

  const commands: Record<string, (words: readonly string[], input: string) => Promise<string> | string> = {
    config: async (_words, input) => {
      config = proxyConfig(await readYaml(input, 'the script'));
      return '';
    },
    start: async () => {
      start();
      await clock.settle();
      return '';
    },
    stop: async () => {
      await halt();
      return '';
    },
    apply: async (_words, input) => {
      for (const object of await readYamlAll(input, 'the script')) put(object as KubeObject);
      await clock.settle();
      return '';
    },
    delete: async ([kind = '', name = '']) => {
      const resource = RESOURCES[kind]!;
      objects.delete(`${resource} ${name}`);
      api.remove(resource, name.split('/')[0]!, name.split('/')[1]!);
      await clock.settle();
      return '';
    },
    tick: async ([time = '']) => {
      await clock.advance(Number(time.replace(/(ms|s|m)$/, '')) * (time.endsWith('ms') ? 1 : time.endsWith('m') ? 60_000 : 1000));
      return '';
    },
    // Transactions since the last `nft`, the fixed part of the table left out unless asked for.
    nft: ([which = 'services']) => {
      const lines = kernel.commits.splice(0).flatMap(({ family, ops }) => {
        const shown = which === 'all' ? ops : ops.filter(isOfServices);
        return shown.length === 0
          ? []
          : [`-- ${family}, ${ops.length} operations`, ...shown.map((op) => opText(op, family).replace(` ${family} kube-proxy`, ''))];
      });
      return lines.join('\n');
    },
    elements: ([set = '', family = 'ip']) => {
      const elements =
        kernel.tables
          .get(family as Family)
          ?.sets.get(set)
          ?.elements.values() ?? [];
      return [...elements]
        .map((element) => `${element.key.join(' . ')}${element.verdict === undefined ? '' : ` : ${verdictText(element.verdict)}`}`)
        .toSorted()
        .join('\n');
    },
    count: () => [...kernel.tables].map(([family, table]) => `${family}: ${table.chains.size} chains, ${table.sets.size} sets`).join('\n'),
    // What Services cost: chains, rules in them, keys of maps and sets.
    budget: ([family = 'ip']) => {
      const table = kernel.tables.get(family as Family)!;
      const chains = [...table.chains].filter(([name]) => name.includes('/'));
      const rules = chains.reduce((sum, [, list]) => sum + list.length, 0);
      const keys = [...table.sets.values()].filter(({ spec }) => spec.name !== 'nodeport-ips').reduce((sum, { elements }) => sum + elements.size, 0);
      const sets = [...table.sets.keys()].filter((name) => name.includes('/')).length;
      return `${chains.length} chains, ${rules} rules, ${sets} sets, ${keys} keys`;
    },
    trace: (words) => traced(words),
    refuse: ([op = '', text = '']) => {
      kernel.refuse = (candidate, family) => (op !== '' && candidate.op === op && opText(candidate, family).includes(text) ? 'refused by the script' : null);
      return '';
    },
    meddle: ([what = '']) => {
      kernel.meddle((tables) => {
        if (what === 'table') tables.delete('ip');
        else tables.get('ip')!.sets.get('service-ips')!.elements.clear();
      });
      return '';
    },
    log: () => logLines.splice(0).join('\n'),
    conntrack: () => conntrackRuns.splice(0).join(' '),
    healthz: () => `healthy=${health.healthy} eligible=${health.nodeEligible}`,
    metric: ([name = '', ...labels]) =>
      String(metrics.value(`kubeproxy_${name}`, Object.fromEntries(labels.map((label) => label.split('='))) as Record<string, string>)),
  };

  return {
    clock,
    kernel,
    api,
    async command([name = '', ...words], input) {
      const run = commands[name];
      if (run === undefined) throw new Error(`no command "${name}"`);
      return await run(words, input);
    },
    async [Symbol.asyncDispose]() {
      await halt();
    },
  };
}

function isOfServices(op: Op): boolean {
  if (op.op === 'add-set' || op.op === 'delete-set' || op.op === 'flush-set') return op.set.name.includes('/');
  if (op.op === 'add-element' || op.op === 'delete-element' || op.op === 'add-targets') return op.set.name !== 'nodeport-ips';
  return 'chain' in op && op.chain.includes('/');
}
