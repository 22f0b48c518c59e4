import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OpError } from '../base/errors.ts';
import { silentLog } from '../base/log.ts';
import { portKey } from './core/names.ts';
import type { PortRules } from './core/ruleset.ts';
import type { RuleSettings } from './core/settings.ts';
import type { Iptables, RestoreResult } from './io/iptables.ts';
import { proxyMetrics } from './io/metrics.ts';
import { IptablesTable } from './iptables-table.ts';

const settings: RuleSettings = {
  family: 'ip',
  markBits: 0x4000,
  masqueradeAll: false,
  detector: { kind: 'cidr', cidr: '10.244.0.0/16' },
  nodePorts: { kind: 'all' },
  nodeIP: '192.0.2.10',
  serviceCIDRs: [],
};
const ALL = 200;

function rules(number: number): PortRules {
  const targets = [{ address: `10.244.0.${number}`, port: 8080 }];
  return {
    id: { namespace: 'lab', name: `s${number}`, port: '', protocol: 'tcp' },
    label: `lab/s${number}`,
    clusterIP: `10.96.0.${number}`,
    port: 80,
    healthCheckNodePort: 0,
    nodePort: 0,
    externalIPs: [],
    loadBalancerIPs: [],
    sourceRanges: [],
    affinitySeconds: null,
    internal: 'cluster',
    external: null,
    externalLocal: false,
    cluster: targets,
    local: [],
    reachable: targets,
    onNode: [],
    endpointCount: 1,
  };
}

const ports = (): Map<string, PortRules> => new Map(Array.from({ length: ALL }, (_, index) => [portKey(rules(index + 1).id), rules(index + 1)]));

const aborted = (): OpError => new OpError('aborted', 'write', 'stopped by the caller');

interface Scene {
  table: IptablesTable;
  inputs: string[];
  /** When what is there was asked for, the answer comes once this is called. */
  answer: () => void;
  /** The same, for an answer that does not come. */
  refuse: (why: OpError) => void;
  metrics: ReturnType<typeof proxyMetrics>;
}

/** @param onRestore what becomes of a part of the input; by default it is written */
function scene(onRestore: (text: string) => Promise<RestoreResult> = async () => ({ ok: true })): Scene {
  const inputs: string[] = [];
  const { promise: answered, resolve: answer, reject: refuse } = Promise.withResolvers<void>();
  const iptables: Iptables = {
    linesAtOnce: 50,
    restore: async (_family, input) => {
      let lines = 0;
      for await (const text of typeof input === 'string' ? [input] : input) {
        inputs.push(text);
        const result = await onRestore(text);
        // As the program counts them: over all that it read.
        if (!result.ok) return { ...result, failedLines: result.failedLines.map((line) => line + lines) };
        lines += text.trimEnd().split('\n').length;
      }
      return { ok: true };
    },
    save: async () => {
      await answered;
      return '';
    },
    hasChain: async () => true,
  };
  const metrics = proxyMetrics();
  const table = new IptablesTable({ iptables, metrics, log: silentLog, localhostNodePorts: true, dropInvalid: true, counters: false });
  return { table, inputs, answer, refuse, metrics };
}

/** The line with which a Service's cluster IP leads to it. */
const wayTo = (number: number): RegExp => new RegExp(`^-A KUBE-SERVICES .*-d 10\\.96\\.0\\.${number} `, 'm');

test('a whole write begins before all is worked out and known, part after part, and nothing leads to a Service before its end', async () => {
  let running = 0;
  let most = 0;
  const begun = Promise.withResolvers<void>();
  const { table, inputs, answer } = scene(async () => {
    most = Math.max(most, ++running);
    begun.resolve();
    await new Promise((resolve) => setImmediate(resolve));
    running--;
    return { ok: true };
  });
  const writing = table.writeWhole(settings, [ports()], 0);
  await begun.promise;
  assert.ok(inputs[0]!.split('\n').length < 500, 'the first input is a part');
  answer();
  assert.deepEqual(await writing, { ok: true, refused: [] });
  assert.equal(most, 1);
  assert.ok(inputs.length > 3, `${inputs.length} inputs`);
  const all = inputs.join('');
  assert.ok(all.lastIndexOf('-j DNAT') < all.indexOf('-A KUBE-SERVICES '), 'endpoints after the ways to them');
  for (let number = 1; number <= ALL; number++) assert.match(all, wayTo(number));
  assert.equal(table.portCount, ALL);
});

test('a port that is refused in an early part is left out of all, and the rest is written', async () => {
  const { table, inputs, answer } = scene(async (text) => {
    const line = text.split('\n').findIndex((one) => one.endsWith('--to-destination 10.244.0.7:8080'));
    return line < 0 ? { ok: true } : { ok: false, error: new OpError('failed', 'write', 'refused'), failedLines: [line] };
  });
  answer();
  assert.deepEqual(await table.writeWhole(settings, [ports()], 0), { ok: true, refused: ['lab/s7:/tcp'] });
  const again = inputs.slice(inputs.findIndex((text) => text.includes('10.244.0.7:8080')) + 1).join('');
  assert.doesNotMatch(again, wayTo(7));
  for (const number of [1, 6, 8, ALL]) assert.match(again, wayTo(number));
});

test('how many rules were written is counted whether they went early or late', async () => {
  const { table, answer, metrics } = scene();
  answer();
  await table.writeWhole(settings, [ports()], 0);
  const count = (name: string): string =>
    new RegExp(`^kubeproxy_sync_proxy_rules_iptables_${name}\\{.*table="nat".*\\} (\\d+)$`, 'm').exec(metrics.text())?.[1] ?? '';
  assert.ok(Number(count('total')) > 4 * ALL);
  assert.equal(count('last'), count('total'));
});

test('a write that is aborted while the rest is worked out throws once, and nothing is written after it', async () => {
  const { table, inputs, answer } = scene(async () => {
    throw aborted();
  });
  answer();
  await assert.rejects(table.writeWhole(settings, [ports()], 0), { code: 'aborted' });
  assert.equal(inputs.length, 1);
});

test('an end that comes while the rest is worked out is thrown by the write alone, also by what is read', async () => {
  const { table, refuse } = scene();
  const writing = table.writeWhole(settings, [ports()], 0);
  const ended = assert.rejects(writing, { code: 'aborted' });
  refuse(aborted());
  await ended;
});

test('what is there cannot be read: what was begun ends, the write fails, and the next one is whole', async () => {
  const { table, inputs, refuse } = scene();
  refuse(new OpError('failed', 'read', 'no answer'));
  const result = await table.writeWhole(settings, [ports()], 0);
  assert.equal(result.ok, false);
  assert.ok(inputs.length > 0, 'something was begun');
  assert.doesNotMatch(inputs.join(''), /-A KUBE-SERVICES /);
  assert.equal((await table.writeChanges('ip', new Map(), 0)).ok, false, 'changes to what is not there');
});

test('a program that ends well and did not read all has written nothing that counts', async () => {
  const iptables: Iptables = { linesAtOnce: 50, restore: async () => ({ ok: true }), save: async () => '', hasChain: async () => true };
  const table = new IptablesTable({ iptables, metrics: proxyMetrics(), log: silentLog, localhostNodePorts: true, dropInvalid: true, counters: false });
  const result = await table.writeWhole(settings, [ports()], 0);
  assert.equal(result.ok, false);
  assert.equal(table.portCount, 0);
});
