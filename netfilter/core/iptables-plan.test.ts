import assert from 'node:assert/strict';
import { test } from 'node:test';
import { planChanges, planWhole, readSaved, WholePlan, type SavedTable } from './iptables-plan.ts';
import { SHARED_CHAINS, type PortChains } from './iptables-service.ts';
import { fixedRules } from './iptables-table.ts';

const settings = {
  family: 'ip',
  markBits: 0x4000,
  masqueradeAll: false,
  detector: { kind: 'none' },
  nodePorts: { kind: 'all' },
  nodeIP: '192.0.2.10',
  serviceCIDRs: [],
} as const;
const fixed = fixedRules(settings, { localhostNodePorts: true, dropInvalid: true, counters: false });
const BUILTIN = ['PREROUTING', 'INPUT', 'FORWARD', 'OUTPUT', 'POSTROUTING'];
const AT_ONCE = 20;

/** A table that refuses what iptables refuses: rules and jumps without their chain, and deleting what is in use. */
class Model {
  readonly chains = new Map<string, string[]>(['mangle', 'filter', 'nat'].flatMap((table) => BUILTIN.map((chain) => [`${table} ${chain}`, []])));
  /** Called between two transactions. */
  between: () => void = () => {};
  longest = 0;

  run(text: string): void {
    let table = '';
    let lines = 0;
    for (const line of text.trimEnd().split('\n')) {
      lines++;
      if (line.startsWith('*')) [table, lines] = [line.slice(1), 0];
      else if (line.startsWith(':')) this.chains.set(`${table} ${line.slice(1).split(' ')[0]}`, []);
      else if (line === 'COMMIT') {
        this.longest = Math.max(this.longest, lines);
        this.between();
      } else this.#rule(table, line);
    }
  }

  #rule(table: string, line: string): void {
    const [, verb, chain = ''] = /^(-[AIX]) (\S+)/.exec(line) ?? assert.fail(line);
    const key = `${table} ${chain}`;
    const rules = this.chains.get(key) ?? assert.fail(`no chain for: ${line}`);
    if (verb === '-X') {
      assert.deepEqual(rules, [], `not empty: ${line}`);
      const users = [...this.chains].filter(([, others]) => others.some((rule) => rule.endsWith(` -j ${chain}`)));
      assert.deepEqual(users, [], `in use: ${line}`);
      this.chains.delete(key);
      return;
    }
    const target = / -j (KUBE-\S+)/.exec(line)?.[1];
    if (target !== undefined) assert.ok(this.chains.has(`${table} ${target}`), `no target for: ${line}`);
    rules.push(line.replace(/^-I (\S+) 1/, '-A $1'));
  }

  sorted(): [string, string[]][] {
    return [...this.chains].toSorted(([one], [other]) => (one < other ? -1 : 1));
  }

  saved(): Record<'filter' | 'nat', SavedTable> {
    const of = (table: string): SavedTable => {
      const own = [...this.chains].filter(([key]) => key.startsWith(`${table} `));
      return readSaved([...own.map(([key]) => `:${key.split(' ')[1]} - [0:0]`), ...own.flatMap(([, rules]) => rules)].join('\n'));
    };
    return { filter: of('filter'), nat: of('nat') };
  }
}

/** A Service port with a firewall, a way in, a choice and two endpoints; `round` replaces one of them. */
function port(number: number, round: number): [string, PortChains] {
  const [fw, ext, svc, one, two] = ['FW', 'EXT', 'SVC', 'SEP', 'SEP'].map((kind, index) => `KUBE-${kind}-${number}-${index}${index === 4 ? `-${round}` : ''}`);
  const chains = new Map([
    [ext!, [`-j ${svc}`]],
    [fw!, [`-j ${ext}`]],
    [svc!, [`-j ${one}`, `-j ${two}`]],
    [one!, [`-j KUBE-MARK-MASQ`, '-j DNAT']],
    [two!, [`-j KUBE-MARK-MASQ`, '-j DNAT']],
  ]);
  return [`lab/s${number}:/tcp`, { chains, shared: new Map([['nat KUBE-SERVICES', [`-d 10.96.0.${number} -j ${svc}`, `-d 192.0.2.${number} -j ${fw}`]]]) }];
}

const ports = (from: number, to: number, round = 0): Map<string, PortChains> =>
  new Map(Array.from({ length: to - from }, (_, index) => port(from + index, round)));

test('a first write goes in short transactions, and nothing leads to the Services before all are there', () => {
  const model = new Model();
  model.between = () => {
    if (!model.chains.get('nat PREROUTING')!.some((rule) => rule.includes('KUBE-SERVICES'))) return;
    assert.equal(model.chains.get('nat KUBE-SERVICES')?.length, 81);
  };
  model.run(planWhole(ports(0, 40), fixed, model.saved(), AT_ONCE).input().text);
  assert.equal(model.chains.get('nat KUBE-SERVICES')?.at(-1)?.endsWith('KUBE-NODEPORTS'), true);
  assert.equal([...model.chains.keys()].filter((key) => key.includes('KUBE-SEP-')).length, 80);
  assert.ok(model.longest <= 2 * AT_ONCE, `${model.longest} lines in one transaction`);
});

test('a whole write over a table that is there never leaves a Service without its way', () => {
  const model = new Model();
  model.run(planWhole(ports(0, 40), fixed, model.saved(), AT_ONCE).input().text);
  model.between = () => {
    for (let number = 10; number < 40; number++) {
      const ways = model.chains.get('nat KUBE-SERVICES')!.filter((rule) => rule.endsWith(` -j KUBE-SVC-${number}-2`));
      assert.equal(ways.length, 1, `Service ${number}`);
      assert.equal(model.chains.get(`nat KUBE-SVC-${number}-2`)?.length, 2);
    }
  };
  model.run(planWhole(ports(10, 50, 1), fixed, model.saved(), AT_ONCE).input().text);
  model.between = () => {};
  const fresh = new Model();
  fresh.run(planWhole(ports(10, 50, 1), fixed, fresh.saved()).input().text);
  assert.deepEqual(model.sorted(), fresh.sorted());
});

test('many changes at once land as one after the other would, in short transactions', () => {
  const model = new Model();
  const before = ports(0, 40);
  model.run(planWhole(before, fixed, model.saved(), AT_ONCE).input().text);
  model.longest = 0;
  const gone = new Map([...before.keys()].slice(0, 10).map((key) => [key, null]));
  const changes = new Map<string, PortChains | null>([...gone, ...ports(10, 30, 1), ...ports(40, 45)]);
  model.run(planChanges(before, changes, fixed, AT_ONCE).input().text);
  const fresh = new Model();
  const after = new Map([...before].filter(([key]) => !gone.has(key)));
  for (const [key, chains] of changes) if (chains !== null) after.set(key, chains);
  fresh.run(planWhole(after, fixed, fresh.saved()).input().text);
  assert.deepEqual(model.sorted(), fresh.sorted());
});

test('a large write goes to the program in pieces, with the owner of each line', () => {
  const restore = planWhole(ports(0, 40), fixed, new Model().saved(), AT_ONCE);
  restore.cut();
  const pieces = [];
  for (let piece = restore.take(4); piece !== null; piece = restore.take(4)) pieces.push(piece);
  assert.ok(pieces.length > 3);
  const model = new Model();
  for (const { text, owners } of pieces) {
    const lines = text.trimEnd().split('\n');
    assert.ok(lines.length < 8 * AT_ONCE, `${lines.length} lines`);
    assert.equal(lines.length, owners.length);
    for (const [index, line] of lines.entries()) {
      const number = /^-A KUBE-(?:FW|EXT|SVC|SEP)-(\d+)-/.exec(line)?.[1];
      if (number !== undefined) assert.equal(owners[index], `lab/s${number}:/tcp`);
    }
    model.run(text);
  }
  const whole = new Model();
  whole.run(planWhole(ports(0, 40), fixed, new Model().saved(), AT_ONCE).input().text);
  assert.deepEqual(model.sorted(), whole.sorted());
});

test('where a transaction costs a whole table there is one for each table', () => {
  const { text } = planWhole(ports(0, 40), fixed, new Model().saved()).input();
  assert.deepEqual(
    text.split('\n').filter((line) => line.startsWith('*')),
    ['*mangle', '*filter', '*nat'],
  );
  assert.equal(SHARED_CHAINS.length, 6);
});

test('what is complete can be written while the rest is planned', () => {
  const model = new Model();
  const saved = model.saved();
  const plan = new WholePlan(fixed, AT_ONCE);
  let early = 0;
  for (const [name, chains] of ports(0, 40)) {
    plan.add(name, chains);
    const taken = plan.restore.take(2);
    if (taken === null) continue;
    early++;
    assert.ok(!taken.text.includes('KUBE-SERVICES'));
    assert.equal(taken.owners.length, taken.text.trimEnd().split('\n').length);
    model.run(taken.text);
  }
  assert.ok(early > 5, `${early} parts`);
  plan.finish(ports(0, 40), saved);
  model.run(plan.restore.input().text);
  const whole = planWhole(ports(0, 40), fixed, new Model().saved());
  assert.equal(plan.restore.ruleCount('nat'), whole.ruleCount('nat'));
  const fresh = new Model();
  fresh.run(whole.input().text);
  assert.deepEqual(model.sorted(), fresh.sorted());
});
