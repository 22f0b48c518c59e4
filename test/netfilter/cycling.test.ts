import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { realClock } from '../../base/clock.ts';
import { OpError } from '../../base/errors.ts';
import { silentLog } from '../../base/log.ts';
import { seededRng, type Rng } from '../../base/rng.ts';
import { createSysClient } from '../../base/sys/client.ts';
import { compareContents, iptablesContents, nftContents, type Contents } from '../../netfilter/core/compare.ts';
import { proxyConfig } from '../../netfilter/core/config.ts';
import { parseSaved } from '../../netfilter/core/iptables-rules.ts';
import type { Family } from '../../netfilter/core/ip.ts';
import { settingsFor } from '../../netfilter/core/node.ts';
import { portKey } from '../../netfilter/core/names.ts';
import type { PortRules } from '../../netfilter/core/ruleset.ts';
import { parseListing } from '../../netfilter/core/trace-nft.ts';
import { applyService, applySlice, emptyWorld, rulesFor } from '../../netfilter/core/world.ts';
import { wantedIptables, wantedNft } from '../../netfilter/diff-command.ts';
import { FakeApi } from '../../netfilter/fake.ts';
import { ProxyHealth } from '../../netfilter/health.ts';
import { createIptables, type Iptables } from '../../netfilter/io/iptables.ts';
import type { NftKernel } from '../../netfilter/io/kernel.ts';
import { proxyMetrics } from '../../netfilter/io/metrics.ts';
import { createNetlinkKernel } from '../../netfilter/io/nft-netlink.ts';
import { HealthPorts } from '../../netfilter/io/servers.ts';
import { IptablesTable } from '../../netfilter/iptables-table.ts';
import { Proxy } from '../../netfilter/proxy.ts';
import type { ServiceTable } from '../../netfilter/sync.ts';
import { Table } from '../../netfilter/table.ts';
import { caseTable, generated } from './cases.ts';
import { labNode, missing, sysPath } from './lab.ts';
import type { Told } from './zoo.ts';

/**
 * From any set of objects to any other, many times, in the kernel: after each step its rules are those that a first
 * write would make. One write in ten fails.
 */

/** A slice of what docs/netfilter.md tells of: NETFILTER_CYCLES=500. */
const CYCLES = Number(process.env['NETFILTER_CYCLES'] ?? 50);
const SERVICES = 6;
const MACHINE = ['127.0.0.1', '192.0.2.10', '::1', '2001:db8::10'];

const reason = missing(['iptables-save']);
if (reason !== null) console.log(`skipped: cycling through sets of objects ${reason}`);

function shuffled<T>(items: readonly T[], rng: Rng): T[] {
  const left = [...items];
  const out: T[] = [];
  while (left.length > 0) out.push(...left.splice(rng.int(left.length), 1));
  return out;
}

/** Some Services in any state. */
function randomSet(rng: Rng): Told[] {
  const absent = new Set(Array.from({ length: SERVICES }, (_, index) => `c${index + 1}`).filter(() => rng.int(3) === 0));
  const { objects } = caseTable(generated(rng, SERVICES));
  return shuffled(
    objects.filter(({ object }) => !absent.has(object.metadata.name.split('-')[0]!)),
    rng,
  );
}

const key = ({ resource, object }: Told): string => `${resource} ${object.metadata.name}`;

suite('Cycling through sets of objects', { skip: reason ?? false }, () => {
  const netns = `nfy-${process.pid}`;
  const where = { netns: `/run/netns/${netns}` };
  const sys = createSysClient({ path: sysPath, log: silentLog });
  const run = async (argv: string[], inside = true): Promise<string> => {
    const result = await sys.run({ argv, timeoutMs: 60_000, maxOutputBytes: 32 << 20, ...(inside ? where : {}) });
    assert.equal(result.code, 0, Buffer.from(result.stderr).toString());
    return Buffer.from(result.stdout).toString();
  };
  before(async () => {
    await run(['ip', 'netns', 'add', netns], false);
    await run(['ip', 'link', 'set', 'lo', 'up']);
  });
  after(async () => {
    await run(['ip', 'netns', 'delete', netns], false);
    await sys[Symbol.asyncDispose]();
  });

  for (const mode of ['nftables', 'iptables'] as const) {
    test(`${mode}: ${CYCLES} sets`, async () => {
      const rng = seededRng(mode.length);
      const failing = seededRng(99);
      const config = { ...proxyConfig({ mode, clusterCIDR: '10.244.0.0/16,fd00:10:244::/48', iptables: { localhostNodePorts: false } }), minSyncPeriodMs: 1 };
      const metrics = proxyMetrics();
      const options = { localhostNodePorts: false, dropInvalid: true, counters: false };
      let writes = 0;
      let failures = 0;
      /** Before it reaches the kernel, or when the kernel has done it already. */
      const refuse = (): OpError | null => {
        writes += 1;
        if (failing.int(10) > 0) return null;
        failures += 1;
        return new OpError('failed', 'write rules', 'refused by the test');
      };
      const kernel: NftKernel = createNetlinkKernel(sys, where);
      const failingKernel: NftKernel = {
        ...kernel,
        commit: async (family, ops, signal) => {
          if (ops.length === 0) return await kernel.commit(family, ops, signal);
          const error = refuse();
          if (error === null) return await kernel.commit(family, ops, signal);
          if (failing.int(2) === 0) await kernel.commit(family, ops, signal);
          return { ok: false, error, failedOps: [] };
        },
      };
      const iptables = createIptables(sys, where);
      const failingIptables: Iptables = {
        ...iptables,
        // So that even a few Services are written in several transactions.
        linesAtOnce: 25,
        restore: async (family, text, signal) => {
          const error = refuse();
          if (error === null) return await iptables.restore(family, text, signal);
          if (failing.int(2) === 0) await iptables.restore(family, text, signal);
          return { ok: false, error, failedLines: [] };
        },
      };
      const createTable = (): ServiceTable =>
        mode === 'nftables'
          ? new Table({ kernel: failingKernel, fallback: null, log: silentLog, opsAtOnce: 60 })
          : new IptablesTable({ iptables: failingIptables, metrics, log: silentLog, ...options });
      const health = new ProxyHealth({ clock: realClock, timeoutMs: 60_000 });
      const api = new FakeApi();
      const node = labNode({ 'topology.kubernetes.io/zone': 'a' });
      api.put('nodes', node);
      // Health ports are another matter: none is opened here.
      const healthPorts = { update: async () => {}, [Symbol.asyncDispose]: async () => {} } as unknown as HealthPorts;
      const conntrack = { deleteStale: async () => 0 };
      const machineAddresses = (): string[] => MACHINE;
      const facts = { config, nodeName: 'node-a', families: ['ip', 'ip6'] as const, createTable, conntrack, healthPorts, health, metrics };
      const proxy = new Proxy({ ...facts, clock: realClock, log: silentLog, machineAddresses, staleMs: 1, firstRetryMs: 1 });
      const stop = new AbortController();
      const running = proxy.run(api.api, stop.signal);

      const there = async (family: Family): Promise<Contents> =>
        mode === 'nftables'
          ? nftContents(parseListing(await run(['nft', 'list', 'table', family, 'kube-proxy'])))
          : iptablesContents(parseSaved(await run([family === 'ip' ? 'iptables-save' : 'ip6tables-save'])));
      const wanted = (objects: readonly Told[], family: Family): Contents => {
        const world = emptyWorld();
        for (const { resource, object } of objects) {
          if (resource === 'services') applyService(world, object, false);
          else applySlice(world, object, false);
        }
        const settings = settingsFor(family, { config, node, machineAddresses: MACHINE, serviceCIDRs: [] });
        const rules = new Map<string, PortRules>();
        for (const name of world.services.keys())
          for (const rule of rulesFor(world, name, family, { nodeName: 'node-a', zone: 'a' })) rules.set(portKey(rule.id), rule);
        return mode === 'nftables' ? wantedNft({ settings, rules }) : wantedIptables({ settings, rules }, options);
      };

      try {
        let known = new Map<string, Told>();
        for (let cycle = 0; cycle < CYCLES; cycle++) {
          const next = new Map(randomSet(rng).map((told) => [key(told), told]));
          const gone = [...known.values()].filter((told) => !next.has(key(told)));
          for (const { resource, object } of shuffled(gone, rng)) api.remove(resource, object.metadata.namespace, object.metadata.name);
          for (const { resource, object } of next.values()) api.put(resource, object);
          known = next;
          for (let tries = 0; !proxy.isIdle; tries++) {
            assert.ok(tries < 5000, `cycle ${cycle}: the proxy does not come to rest`);
            await realClock.sleep(2);
          }
          for (const family of ['ip', 'ip6'] as const) {
            const differences = compareContents(wanted([...next.values()], family), await there(family));
            assert.deepEqual(differences, [], `cycle ${cycle}, ${family}`);
          }
        }
      } finally {
        stop.abort();
        await running;
      }
      assert.ok(failures > writes / 50, `${failures} of ${writes} writes failed`);
      console.log(`${mode}: ${CYCLES} sets of objects, ${writes} writes, ${failures} of them failed, every table as a first write makes it`);
    });
  }
});
