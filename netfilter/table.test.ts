import assert from 'node:assert/strict';
import { test } from 'node:test';
import { setImmediate as turn } from 'node:timers/promises';
import { OpError } from '../base/errors.ts';
import { seededRng, type Rng } from '../base/rng.ts';
import { silentLog } from '../base/log.ts';
import { portKey } from './core/names.ts';
import type { Statement } from './core/ops.ts';
import type { RuleSettings } from './core/settings.ts';
import type { PortRules, Target } from './core/ruleset.ts';
import { FakeKernel } from './fake.ts';
import type { NftKernel } from './io/kernel.ts';
import { Table } from './table.ts';

const settings: RuleSettings = {
  family: 'ip',
  markBits: 0x4000,
  masqueradeAll: false,
  detector: { kind: 'cidr', cidr: '10.244.0.0/16' },
  nodePorts: { kind: 'some', addresses: ['192.0.2.10'] },
  nodeIP: '192.0.2.10',
  serviceCIDRs: [],
};

function someTargets(rng: Rng): Target[] {
  return Array.from({ length: rng.int(4) }, (_, index) => ({ address: `10.244.0.${2 + index * 3 + rng.int(3)}`, port: 8080 }));
}

/** Ports of one of six Services, in any state, some of which claim the same addresses. */
function randomRules(rng: Rng, number: number): PortRules {
  const cluster = someTargets(rng);
  const local = cluster.filter(() => rng.int(2) === 0);
  const externalLocal = rng.int(2) === 0;
  const fate = (policyLocal: boolean): PortRules['internal'] =>
    cluster.length === 0 ? 'reject' : !policyLocal ? 'cluster' : local.length === 0 ? 'drop' : 'local';
  const outside = rng.int(3) > 0;
  return {
    id: { namespace: 'lab', name: `s${number}`, port: '', protocol: rng.pick(['tcp', 'udp'] as const) },
    label: `lab/s${number}`,
    clusterIP: `10.96.0.${number}`,
    port: 80,
    healthCheckNodePort: 0,
    nodePort: outside ? 30080 + rng.int(2) : 0,
    externalIPs: outside && rng.int(2) === 0 ? ['198.51.100.77'] : [],
    loadBalancerIPs: outside && rng.int(2) === 0 ? ['203.0.113.10'] : [],
    sourceRanges: rng.int(2) === 0 ? ['192.0.2.0/26', '10.0.0.0/8', '10.1.0.0/16'] : [],
    affinitySeconds: rng.int(2) === 0 ? rng.pick([5, 10_800]) : null,
    internal: fate(rng.int(2) === 0),
    external: outside ? fate(externalLocal) : null,
    externalLocal,
    cluster,
    local,
    reachable: cluster,
    onNode: local,
    endpointCount: cluster.length,
  };
}

const MAPS = 'service-endpoints-';

/** What the kernel has, in an order of no meaning. Numbers of endpoints mean nothing: what they lead to stands in their place. */
function contents(kernel: FakeKernel): unknown {
  const table = kernel.tables.get('ip')!;
  const endpoints = new Map(
    [...table.sets].flatMap(([name, { elements }]) =>
      name.startsWith(MAPS) ? [...elements].map(([key, element]) => [`${name} ${key}`, element] as const) : [],
    ),
  );
  const drawn = (statement: Statement): unknown =>
    statement.kind === 'dnat-random'
      ? Array.from({ length: statement.count }, (_, index) => endpoints.get(`${statement.map} ${statement.first + index}`)?.target)
      : statement;
  const sorted = <T>(entries: Iterable<[string, T]>): [string, T][] => [...entries].toSorted(([a], [b]) => (a < b ? -1 : 1));
  return {
    chains: sorted(table.chains).map(([name, rules]) => [name, rules.map((rule) => ({ ...rule, statements: rule.statements.map(drawn) }))]),
    endpoints: [...endpoints.values()].map(({ target }) => `${target?.address} ${target?.port}`).toSorted(),
    sets: sorted(table.sets)
      .filter(([name]) => !name.startsWith(MAPS))
      .map(([name, { spec, elements }]) => [name, spec.timeoutSeconds, sorted(elements)]),
  };
}

for (const seed of [1, 2, 3, 4]) {
  test(`every change from any state to any other lands clean and equals a fresh table (seed ${seed})`, async () => {
    const rng = seededRng(seed);
    const kernel = new FakeKernel();
    let table = new Table({ kernel, fallback: null, log: silentLog });
    const ports = new Map<string, PortRules>();
    assert.ok((await table.writeWhole(settings, [ports], 0)).ok);
    const empty = contents(kernel);
    for (let step = 0; step < 20; step++) {
      const changes = new Map<string, PortRules | null>();
      for (let count = 1 + rng.int(3); count > 0; count--) {
        const rules = randomRules(rng, 1 + rng.int(6));
        for (const key of ports.keys()) if (key.startsWith(`lab/s${rules.id.name.slice(1)}:`)) changes.set(key, null);
        if (rng.int(4) > 0) changes.set(portKey(rules.id), rules);
      }
      for (const [key, objects] of changes) {
        if (objects === null) ports.delete(key);
        else ports.set(key, objects);
      }
      if (rng.int(8) === 0) {
        // A new start finds what the old one left.
        const opsAtOnce = rng.pick([1, 50, 6000]);
        table = new Table({ kernel, fallback: null, log: silentLog, opsAtOnce });
        const before = kernel.commits.length;
        assert.deepEqual(await table.writeWhole(settings, [ports], step), { ok: true, refused: [] });
        if (opsAtOnce > 1000) assert.equal(kernel.commits.length, before + 1, 'the repair went through at the first try');
        if (opsAtOnce === 1) assert.equal(kernel.commits.length, before + ports.size + 1, 'each port in a transaction of its own');
      } else {
        assert.deepEqual(await table.writeChanges('ip', changes, step), { ok: true, refused: [] });
      }
      assert.ok((await table.deleteStale('ip', step)).ok);
      assert.ok(await table.isIntact(settings));
      const fresh = new FakeKernel();
      assert.ok((await new Table({ kernel: fresh, fallback: null, log: silentLog }).writeWhole(settings, [ports], 0)).ok);
      assert.deepEqual(contents(kernel), contents(fresh), `step ${step}`);
    }
    assert.ok((await table.writeChanges('ip', new Map([...ports.keys()].map((key) => [key, null])), 100)).ok);
    assert.ok((await table.deleteStale('ip', 100)).ok);
    assert.deepEqual(contents(kernel), empty);
  });
}

test('a port that is refused in a later part of a first write is left out, and nobody else', async () => {
  const rng = seededRng(7);
  const all = Array.from({ length: 60 }, (_, index) => randomRules(rng, index));
  const ports = new Map(all.map((rules) => [portKey(rules.id), rules]));
  const bad = portKey(all.slice(40).find(({ cluster }) => cluster.length > 0)!.id);
  const kernel = new FakeKernel();
  kernel.refuse = (op) => (op.op === 'add-chain' && op.chain.includes(`-${bad.replace(/:.*/, '')}/`) ? 'refused by the test' : null);
  async function* inParts(): AsyncGenerator<Map<string, PortRules>> {
    for (const [port, rules] of ports) {
      await Promise.resolve();
      yield new Map([[port, rules]]);
    }
  }
  const table = new Table({ kernel, fallback: null, log: silentLog, opsAtOnce: 100 });
  assert.deepEqual(await table.writeWhole(settings, inParts(), 0), { ok: true, refused: [bad] });
  assert.ok(await table.isIntact(settings));
  const fresh = new FakeKernel();
  const others = new Map([...ports].filter(([port]) => port !== bad));
  assert.ok((await new Table({ kernel: fresh, fallback: null, log: silentLog }).writeWhole(settings, [others], 0)).ok);
  assert.deepEqual(contents(kernel), contents(fresh));
});

for (const code of ['unavailable', 'deadline'] as const) {
  test(`a part of a first write that the kernel may have taken (${code}) is not written a second time in another way`, async () => {
    const rng = seededRng(7);
    const all = Array.from({ length: 60 }, (_, index) => randomRules(rng, index));
    const ports = new Map(all.map((rules) => [portKey(rules.id), rules]));
    const kernel = new FakeKernel();
    let count = 0;
    const breaking: NftKernel = {
      commit: async (family, ops) => {
        const result = await kernel.commit(family, ops);
        return ++count === 3 ? { ok: false, error: new OpError(code, 'write nftables rules', 'broken by the test'), failedOps: [] } : result;
      },
      observe: async (family) => await kernel.observe(family),
      ruleCounts: async (family) => await kernel.ruleCounts(family),
      generation: async () => await kernel.generation(),
    };
    const table = new Table({ kernel: breaking, fallback: kernel, log: silentLog, opsAtOnce: 100 });
    const first = await table.writeWhole(settings, [ports], 0);
    assert.ok(!first.ok && first.error.code === code);
    assert.deepEqual(await table.writeWhole(settings, [ports], 1), { ok: true, refused: [] });
    const fresh = new FakeKernel();
    assert.ok((await new Table({ kernel: fresh, fallback: null, log: silentLog }).writeWhole(settings, [ports], 0)).ok);
    assert.deepEqual(contents(kernel), contents(fresh));
  });
}

test('what the kernel refuses in one way is written in the other, part by part', async () => {
  const rng = seededRng(7);
  const all = Array.from({ length: 60 }, (_, index) => randomRules(rng, index));
  const ports = new Map(all.map((rules) => [portKey(rules.id), rules]));
  const kernel = new FakeKernel();
  const refusing: NftKernel = {
    commit: async () => ({ ok: false, error: new OpError('failed', 'write nftables rules', 'refused by the test'), failedOps: [0] }),
    observe: async (family) => await kernel.observe(family),
    ruleCounts: async (family) => await kernel.ruleCounts(family),
    generation: async () => await kernel.generation(),
  };
  const table = new Table({ kernel: refusing, fallback: kernel, log: silentLog, opsAtOnce: 100 });
  assert.deepEqual(await table.writeWhole(settings, [ports], 0), { ok: true, refused: [] });
  const fresh = new FakeKernel();
  assert.ok((await new Table({ kernel: fresh, fallback: null, log: silentLog }).writeWhole(settings, [ports], 0)).ok);
  assert.deepEqual(contents(kernel), contents(fresh));
});

/** A table with four Services, and those. */
async function written(): Promise<{ kernel: FakeKernel; table: Table; ports: Map<string, PortRules> }> {
  const rng = seededRng(3);
  const ports = new Map<string, PortRules>();
  for (const number of [1, 2, 3, 4]) {
    const targets = [`10.244.0.${number}`, `10.244.1.${number}`].map((address) => ({ address, port: 8080 }));
    const rules: PortRules = { ...randomRules(rng, number), internal: 'cluster', affinitySeconds: null, cluster: targets, reachable: targets };
    ports.set(portKey(rules.id), rules);
  }
  const kernel = new FakeKernel();
  const table = new Table({ kernel, fallback: null, log: silentLog });
  assert.ok((await table.writeWhole(settings, [ports], 0)).ok);
  return { kernel, table, ports };
}

test('whatever somebody else takes out of the table is found and put back', async () => {
  const damages: Record<string, (kernel: FakeKernel) => void> = {
    'all rules': (kernel) => kernel.tables.get('ip')!.chains.forEach((rules) => (rules.length = 0)),
    'the rules of a Service': (kernel) => {
      const [, rules] = [...kernel.tables.get('ip')!.chains].find(([name]) => name.startsWith('service-'))!;
      rules.length = 0;
    },
    'a rule of a base chain': (kernel) => void kernel.tables.get('ip')!.chains.get('nat-prerouting')!.pop(),
    'an address for node ports': (kernel) => kernel.tables.get('ip')!.sets.get('nodeport-ips')!.elements.clear(),
    'the key of a Service': (kernel) => kernel.tables.get('ip')!.sets.get('cluster-ips')!.elements.clear(),
  };
  for (const [what, damage] of Object.entries(damages)) {
    const { kernel, table, ports } = await written();
    const before = contents(kernel);
    assert.ok(await table.isIntact(settings));
    kernel.meddle(() => damage(kernel));
    assert.equal(await table.isIntact(settings), false, what);
    assert.ok((await table.writeWhole(settings, [ports], 1)).ok);
    assert.deepEqual(contents(kernel), before, what);
    assert.ok(await table.isIntact(settings), what);
  }
});

test('rules are not read back where there are more than an answer holds', async () => {
  const { kernel, ports } = await written();
  const rules = [...kernel.tables.get('ip')!.chains.values()].flat().length;
  for (const rulesReadMax of [rules - 1, rules]) {
    const table = new Table({ kernel, fallback: null, log: silentLog, rulesReadMax });
    assert.ok((await table.writeWhole(settings, [ports], 0)).ok);
    kernel.meddle((tables) => tables.get('ip')!.chains.forEach((chain) => (chain.length = 0)));
    assert.equal(await table.isIntact(settings), rulesReadMax < rules);
  }
});

test('what somebody else changed is found after any number of our own writes', async () => {
  for (const count of [0, 1, 2, 3]) {
    const { kernel, table, ports } = await written();
    const [other, rules] = [...ports].at(-1)!;
    kernel.meddle((tables) => tables.get('ip')!.sets.get('cluster-ips')!.elements.delete('10.96.0.1'));
    for (let write = 0; write < count; write++) {
      assert.ok((await table.writeChanges('ip', new Map([[other, write % 2 === 0 ? null : rules]]), write)).ok);
    }
    assert.equal(await table.isIntact(settings), false, `${count} writes`);
  }
});

test('what somebody else changed while all was written is found, too', async () => {
  const { kernel, ports } = await written();
  const commit = kernel.commit.bind(kernel);
  kernel.commit = async (family, ops) => {
    kernel.meddle((tables) => tables.get('ip')!.sets.get('cluster-ips')!.elements.delete('10.96.0.1'));
    return await commit(family, ops);
  };
  const table = new Table({ kernel, fallback: null, log: silentLog });
  assert.ok((await table.writeWhole(settings, [ports], 0)).ok);
  assert.equal(await table.isIntact(settings), false);
});

test('an end, or a defect, while the rest is worked out waits for what the kernel has', async () => {
  const { ports } = await written();
  const kernel = new FakeKernel();
  const may = Promise.withResolvers<void>();
  const kernelHas = { begun: false, ended: false };
  const slow: NftKernel = {
    commit: async (family, ops) => {
      kernelHas.begun = true;
      await may.promise;
      const result = await kernel.commit(family, ops);
      kernelHas.ended = true;
      return result;
    },
    observe: async (family) => await kernel.observe(family),
    ruleCounts: async (family) => await kernel.ruleCounts(family),
    generation: async () => await kernel.generation(),
  };
  async function* rules(): AsyncGenerator<Map<string, PortRules>> {
    yield new Map([...ports].slice(0, 1));
    for (; !kernelHas.begun; await turn()) yield new Map();
    setImmediate(() => may.resolve());
    throw new OpError('aborted', 'work rules out', 'stopped by the caller');
  }
  const table = new Table({ kernel: slow, fallback: null, log: silentLog, opsAtOnce: 1 });
  await assert.rejects(table.writeWhole(settings, rules(), 0), { code: 'aborted' });
  assert.ok(kernelHas.ended);
});

test('what an earlier configuration refused on loopback addresses, and how, is gone once it does not', async () => {
  const kernel = new FakeKernel();
  const rules: PortRules = {
    ...randomRules(seededRng(1), 1),
    nodePort: 30080,
    internal: 'reject',
    external: 'reject',
    cluster: [],
    local: [],
    reachable: [],
    onNode: [],
  };
  const ports = new Map((['tcp', 'udp'] as const).map((protocol) => [portKey({ ...rules.id, protocol }), { ...rules, id: { ...rules.id, protocol } }]));
  const things = (of: FakeKernel): unknown => {
    const { chains, sets, counters } = of.tables.get('ip')!;
    return [chains.keys(), sets.keys(), counters, sets.get('localhost-nodeport-reject-ports')?.elements.keys() ?? []].map((names) => [...names].toSorted());
  };
  const all = ['tcp', 'udp', 'sctp'] as const;
  for (const refusedOnLocalhost of [all, ['udp', 'sctp'] as const, undefined, all, undefined]) {
    const now = { ...settings, ...(refusedOnLocalhost === undefined ? {} : { refusedOnLocalhost }) };
    const before = kernel.commits.length;
    assert.deepEqual(await new Table({ kernel, fallback: null, log: silentLog }).writeWhole(now, [ports], 0), { ok: true, refused: [] });
    assert.equal(kernel.commits.length, before + 1, 'the repair went through at the first try');
    const fresh = new FakeKernel();
    assert.ok((await new Table({ kernel: fresh, fallback: null, log: silentLog }).writeWhole(now, [ports], 0)).ok);
    assert.deepEqual(things(kernel), things(fresh), `refused: ${String(refusedOnLocalhost)}`);
  }
});
