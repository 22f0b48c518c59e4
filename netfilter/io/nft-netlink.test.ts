import assert from 'node:assert/strict';
import { test } from 'node:test';
import { hasCode } from '../../base/errors.ts';
import { messagesOf, MessageWriter, NLMSG_DONE, NLMSG_ERROR } from '../../base/netlink.ts';
import { errnoError } from '../../base/sys/errno.ts';
import { OpError } from '../../base/errors.ts';
import { createFakeSys } from '../../base/sys/fake.ts';
import { messageType, NFT } from '../core/encode-netlink.ts';
import { createConntrack } from './conntrack.ts';
import { createNetlinkKernel } from './nft-netlink.ts';

/** The end of a dump, without an error. */
function done(): Uint8Array {
  const writer = new MessageWriter();
  writer.end(writer.open(NLMSG_DONE, 0, 1, new Uint8Array(4)));
  return writer.finish();
}

test('the generation says what others changed, and nothing of our own commits', async () => {
  const sys = createFakeSys();
  const kernel = createNetlinkKernel(sys);
  let generation = 7;
  sys.onNetlink = ({ messages }) => {
    const writer = new MessageWriter();
    const isBatch = [...messagesOf([messages])].length > 1;
    if (isBatch) generation += 1;
    const token = isBatch ? writer.open(NLMSG_ERROR, 0, 1, new Uint8Array(4)) : writer.begin(messageType(NFT.newGeneration), 0, 1, 0);
    if (!isBatch) writer.u32(1, generation);
    writer.end(token);
    return [writer.finish()];
  };
  const before = await kernel.generation();
  for (const family of ['ip', 'ip6'] as const) assert.ok((await kernel.commit(family, [{ op: 'add-chain', chain: 'a' }])).ok);
  assert.equal(await kernel.generation(), before);
  generation += 1;
  assert.notEqual(await kernel.generation(), before);
});

test('what is asked by a child of sys that dies may be in the kernel, which is not what a refusal says', async () => {
  const sys = createFakeSys();
  sys.onNetlink = () => {
    throw errnoError('netlink', 'EIO', 'child died');
  };
  const result = await createNetlinkKernel(sys).commit('ip', [{ op: 'add-chain', chain: 'a' }]);
  assert.ok(!result.ok && hasCode(result.error, 'unavailable'));
});

/** What the kernel answers about a message. */
function acknowledged(seq: number, errno: number): Uint8Array {
  const writer = new MessageWriter();
  const body = new Uint8Array(20);
  new DataView(body.buffer).setInt32(0, -errno, true);
  writer.end(writer.open(NLMSG_ERROR, 0, seq, body));
  return writer.finish();
}

for (const [what, refusals, ok] of [
  ['that was refused for a moment is written', 1, true],
  ['that is refused again and again, with nothing wrong in it, fails', Infinity, false],
] as const) {
  test(`a transaction ${what}, and asking for the culprit writes nothing`, async () => {
    const EBUSY = 16;
    const sys = createFakeSys();
    const kernel = createNetlinkKernel(sys);
    let written = 0;
    let refused = 0;
    sys.onNetlink = ({ messages, expectAnswers }) => {
      const seqs = [...messagesOf([messages])].map(({ seq }) => seq);
      // The chain that is last in a question is there for nobody.
      if (seqs.length > 4) return [acknowledged(seqs.at(-2)!, 2)];
      assert.equal(expectAnswers, 1, 'nobody waits for more answers than come');
      if (refused++ < refusals) return [acknowledged(1, EBUSY), acknowledged(2, 0)];
      written += 1;
      return [acknowledged(2, 0)];
    };
    const result = await kernel.commit('ip', [
      { op: 'delete-chain', chain: 'a' },
      { op: 'delete-chain', chain: 'b' },
    ]);
    assert.deepEqual([result.ok, written], [ok, ok ? 1 : 0]);
    if (!result.ok) assert.deepEqual([result.failedOps, result.error.code], [[], 'failed']);
  });
}

test('every culprit of a refused transaction is named', async () => {
  const sys = createFakeSys();
  const kernel = createNetlinkKernel(sys);
  sys.onNetlink = ({ messages }) => {
    const seqs = [...messagesOf([messages])].slice(1, -1).map(({ seq }) => seq);
    return [acknowledged(1, 17), ...(seqs.length > 3 ? [acknowledged(3, 17), acknowledged(4, 2)] : [])];
  };
  const chains = ['a', 'b', 'c'].map((chain) => ({ op: 'add-chain', chain }) as const);
  const result = await kernel.commit('ip', chains);
  assert.ok(!result.ok);
  assert.deepEqual(result.failedOps, [0, 2]);
  assert.match(result.error.message, /add-chain refused with EEXIST/);
});

test('who may not write or read the rules is told what that takes', async () => {
  const sys = createFakeSys();
  const kernel = createNetlinkKernel(sys);
  sys.onNetlink = () => [acknowledged(1, 1)];
  const result = await kernel.commit('ip', [{ op: 'add-chain', chain: 'a' }]);
  assert.ok(!result.ok);
  assert.match(`${result.error.message}; ${result.error.advice}`, /EPERM; .*CAP_NET_ADMIN/);
  await assert.rejects(kernel.observe('ip'), (error) => error instanceof OpError && /EPERM/.test(error.message) && /CAP_NET_ADMIN/.test(error.advice));
});

const CUT_OFF: Record<string, () => Uint8Array[]> = {
  nothing: () => [],
  timeout: () => {
    throw errnoError('netlink', 'ETIMEDOUT');
  },
};

for (const [what, answer] of Object.entries(CUT_OFF)) {
  test(`a table whose list was cut off by a deadline (${what}) is asked for again, and never taken for absent`, async () => {
    const sys = createFakeSys();
    const kernel = createNetlinkKernel(sys);
    let asked = 0;
    sys.onNetlink = () => (++asked === 1 ? answer() : [done()]);
    // Chains and sets at once, and once more the one that was cut off.
    assert.deepEqual([await kernel.observe('ip'), asked], ['absent', 3]);
    asked = 0;
    sys.onNetlink = () => (asked++, answer());
    await assert.rejects(kernel.observe('ip'), (error) => hasCode(error, 'deadline'));
    assert.equal(asked, 4);
  });

  test(`flows whose list was cut off by a deadline (${what}) are asked for again, and never taken for none`, async () => {
    const sys = createFakeSys();
    const conntrack = createConntrack(sys);
    const ports = [{ addresses: ['10.96.0.10'], port: 53, nodePort: 0, endpoints: [] }] as never;
    let asked = 0;
    sys.onNetlink = () => (++asked === 1 ? answer() : [done()]);
    assert.deepEqual([await conntrack.deleteStale('ip', ports, new Set()), asked], [0, 2]);
    asked = 0;
    sys.onNetlink = () => (asked++, answer());
    await assert.rejects(conntrack.deleteStale('ip', ports, new Set()), (error) => hasCode(error, 'deadline'));
    assert.equal(asked, 2);
  });
}
