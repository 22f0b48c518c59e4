import assert from 'node:assert/strict';
import { after, before, suite, test } from 'node:test';
import { silentLog } from '../../base/log.ts';
import { createSysClient } from '../../base/sys/client.ts';
import type { Op, SetSpec } from '../../netfilter/core/ops.ts';
import { FakeKernel } from '../../netfilter/fake.ts';
import type { NftKernel } from '../../netfilter/io/kernel.ts';
import { createNetlinkKernel } from '../../netfilter/io/nft-netlink.ts';
import { createTextKernel } from '../../netfilter/io/nft-text.ts';
import { missing, sysPath } from './lab.ts';

/** One case table for the table in memory and for the kernel, by netlink and by text: the fake may not be laxer. */

const map: SetSpec = { name: 'verdicts-of', key: ['address', 'protocol', 'port'], verdicts: true };
const plain: SetSpec = { name: 'plain', key: ['address'] };
const sticky: SetSpec = { name: 'affinity-x', key: ['address'], timeoutSeconds: 5 };
const key = ['10.96.0.8', 'tcp', '80'];
const toA = { kind: 'goto', chain: 'lab/a' } as const;
const toB = { kind: 'goto', chain: 'lab/b' } as const;
const goes = (chain: string): Op => ({ op: 'add-rule', chain: 'lab/b', rule: { statements: [{ kind: 'verdict', verdict: { kind: 'goto', chain } }] } });
const reject: Op = { op: 'add-rule', chain: 'lab/a', rule: { statements: [{ kind: 'reject' }] } };
const commented = (length: number): Op => ({ op: 'add-element', set: map, element: { key, verdict: { kind: 'drop' }, comment: 'c'.repeat(length) } });

const start: readonly Op[] = [
  { op: 'add-table', comment: 'rules for kube-proxy' },
  { op: 'delete-table' },
  { op: 'add-table', comment: 'rules for kube-proxy' },
  { op: 'add-chain', chain: 'lab/a' },
  { op: 'add-chain', chain: 'lab/b' },
  { op: 'add-set', set: map },
  { op: 'add-set', set: plain },
  { op: 'add-set', set: sticky },
];

/** Transactions after `start`; the last one is taken or refused. What some kernels or tools take, the fake refuses. */
const cases: [string, boolean | 'refused by some', ...(readonly Op[])[]][] = [
  [
    'a key twice with the same verdict',
    true,
    [{ op: 'add-element', set: map, element: { key, verdict: toA } }],
    [{ op: 'add-element', set: map, element: { key, verdict: toA } }],
  ],
  [
    'a key again with another verdict',
    false,
    [{ op: 'add-element', set: map, element: { key, verdict: toA } }],
    [{ op: 'add-element', set: map, element: { key, verdict: toB } }],
  ],
  [
    'a key deleted and added with another verdict in one transaction',
    true,
    [{ op: 'add-element', set: map, element: { key, verdict: toA } }],
    [
      { op: 'delete-element', set: map, element: { key, verdict: toA } },
      { op: 'add-element', set: map, element: { key, verdict: toB } },
    ],
  ],
  ['a key that is not there deleted', false, [{ op: 'delete-element', set: plain, element: { key: ['10.0.0.1'] } }]],
  ['a key that leads to no chain', false, [{ op: 'add-element', set: map, element: { key, verdict: { kind: 'goto', chain: 'lab/none' } } }]],
  ['a comment of 128 bytes', true, [commented(128)]],
  ['a comment of 129 bytes', 'refused by some', [commented(129)]],
  ['a chain name of 255 bytes', true, [{ op: 'add-chain', chain: 'x'.repeat(255) }]],
  ['a chain name of 256 bytes', false, [{ op: 'add-chain', chain: 'x'.repeat(256) }]],
  ['a chain twice', true, [{ op: 'add-chain', chain: 'lab/a' }]],
  ['a rule in no chain', false, [{ ...reject, chain: 'lab/none' }]],
  ['a rule that goes to no chain', false, [goes('lab/none')]],
  ['a rule that looks into no set', false, [{ op: 'add-rule', chain: 'lab/a', rule: { statements: [{ kind: 'in-set', fields: ['daddr'], set: 'none' }] } }]],
  ['a rule that counts in no counter', false, [{ op: 'add-rule', chain: 'lab/a', rule: { statements: [{ kind: 'count', counter: 'none' }] } }]],
  [
    'a counter twice, and a rule that counts in it',
    true,
    [{ op: 'add-counter', counter: 'seen' }],
    [
      { op: 'add-counter', counter: 'seen' },
      { op: 'add-rule', chain: 'lab/a', rule: { statements: [{ kind: 'count', counter: 'seen' }, { kind: 'reject' }] } },
    ],
  ],
  ['no chain emptied', false, [{ op: 'flush-chain', chain: 'lab/none' }]],
  ['a chain that a rule goes to deleted', false, [goes('lab/a')], [{ op: 'delete-chain', chain: 'lab/a' }]],
  ['a chain that a key leads to deleted', false, [{ op: 'add-element', set: map, element: { key, verdict: toA } }], [{ op: 'delete-chain', chain: 'lab/a' }]],
  [
    'a chain emptied and deleted once nothing leads to it',
    true,
    [goes('lab/a'), reject],
    [
      { op: 'flush-chain', chain: 'lab/b' },
      { op: 'flush-chain', chain: 'lab/a' },
    ],
    [{ op: 'delete-chain', chain: 'lab/a' }],
  ],
  [
    'a set that a rule looks into deleted',
    false,
    [{ op: 'add-rule', chain: 'lab/a', rule: { statements: [{ kind: 'remember', field: 'saddr', set: 'affinity-x' }] } }],
    [{ op: 'delete-set', set: sticky }],
  ],
  ['a set again with another timeout', 'refused by some', [{ op: 'add-set', set: { ...sticky, timeoutSeconds: 60 } }]],
  [
    'a set replaced by one with another timeout',
    true,
    [
      { op: 'delete-set', set: sticky },
      { op: 'add-set', set: { ...sticky, timeoutSeconds: 60 } },
    ],
  ],
  ['no set deleted', false, [{ op: 'delete-set', set: { name: 'none', key: ['address'] } }]],
  ['a table deleted with all that is in it', true, [goes('lab/a')], [{ op: 'delete-table' }]],
];

function contract(name: string, kernel: () => NftKernel): void {
  for (const [what, expected, ...transactions] of cases) {
    if (expected === 'refused by some' && name !== 'fake') continue;
    const taken = expected === true;
    test(`${name}: ${what} is ${taken ? 'taken' : 'refused'}`, async () => {
      assert.ok((await kernel().commit('ip', start)).ok);
      for (const ops of transactions.slice(0, -1)) {
        const result = await kernel().commit('ip', ops);
        assert.ok(result.ok, result.ok ? '' : result.error.message);
      }
      const before = await kernel().observe('ip');
      const result = await kernel().commit('ip', transactions.at(-1)!);
      assert.equal(result.ok, taken, result.ok ? 'taken' : result.error.message);
      if (!taken) assert.deepEqual(await kernel().observe('ip'), before, 'a refused transaction changes nothing');
    });
  }
}

suite('The table in memory', () => {
  const fake = new FakeKernel();
  contract('fake', () => fake);
});

const reason = missing();
if (reason !== null) console.log(`skipped: the contract of tables against the kernel ${reason}`);

suite('The kernel', { skip: reason ?? false }, () => {
  const name = `nfc-${process.pid}`;
  const sys = createSysClient({ path: sysPath, log: silentLog });
  before(async () => {
    await sys.run({ argv: ['ip', 'netns', 'add', name], timeoutMs: 5000 });
  });
  after(async () => {
    await sys.run({ argv: ['ip', 'netns', 'delete', name], timeoutMs: 5000 });
    await sys[Symbol.asyncDispose]();
  });
  contract('netlink', () => createNetlinkKernel(sys, { netns: `/run/netns/${name}` }));
  contract('text', () => createTextKernel(sys, { netns: `/run/netns/${name}` }));
});
