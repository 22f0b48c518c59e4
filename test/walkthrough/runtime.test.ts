import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { after, before, test } from 'node:test';
import { Tap } from '../cases/tap.ts';
import { eventually, type TestSet } from '../set.ts';
import { pod } from './manifests.ts';
import { eventList, podNamed, ready, skip, world } from './world.ts';

/* What the node does when its runtime is slow, and when it stands still. */
let set: TestSet;
before(
  async () => {
    if (skip === false) set = await world('wt-runtime');
  },
  { timeout: 180_000 },
);
after(async () => {
  await set?.[Symbol.asyncDispose]();
});

const sleeper = (name: string, image: string): string => pod(name, `containers:\n- { name: m, image: "${image}", command: [sleep, "1000"] }`);

/** The two durations and the size that an Event of a pull tells. */
function pulled(message: string): { ownMs: number; wholeMs: number; bytes: number } {
  const [, own = '', whole = '', bytes = ''] =
    /^Successfully pulled image "[^"]+" in (\S+) \((\S+) including waiting\)\. Image size: (\d+) bytes\.$/.exec(message) ?? [];
  const ms = (text: string): number => (text.endsWith('ms') ? Number.parseFloat(text) : Number.parseFloat(text) * 1000);
  assert.ok(own !== '' && whole !== '', message);
  return { ownMs: ms(own), wholeMs: ms(whole), bytes: Number(bytes) };
}

test('1.23: two pods that want one absent image: its pull once, then the short one with its waiting', { skip, timeout: 180_000 }, async () => {
  const made = await set.nodelet(['image', 'make', 'absent:1', '--from', 'busybox', '--env', 'N=1']);
  assert.equal(made.code, 0, made.err);
  await using tap = await Tap.attach('wt-runtime', `${(await set.status()).nodes[0]?.directory ?? ''}/pulls.crirec`);
  await tap.fault('PullImage image=*absent:1 nth=1 delay 6s');
  await set.k(['apply', '-f', '-'], `${sleeper('pulls-a', 'absent:1')}---\n${sleeper('pulls-b', 'absent:1')}`);
  for (const name of ['pulls-a', 'pulls-b']) await ready(set, 'default', name, 90_000);
  await tap.clear();
  const events = (await eventList(set, 'default')).filter(({ involvedObject }) => involvedObject.name.startsWith('pulls-'));
  assert.equal(events.filter(({ reason }) => reason === 'Pulling').length, 2);
  const [first, second] = events.filter(({ reason }) => reason === 'Pulled').map(({ message }) => pulled(message));
  assert.ok(first !== undefined && second !== undefined);
  assert.ok(first.ownMs >= 6000 && first.wholeMs - first.ownMs < 1000, JSON.stringify(first));
  assert.ok(second.ownMs < 5000 && second.wholeMs - second.ownMs > 1000, JSON.stringify(second));
  assert.ok(first.bytes > 100_000);
  assert.equal(second.bytes, first.bytes);
});

test('1.29: a runtime that stands still makes the Node NotReady after three minutes, and nothing restarts', { skip, timeout: 420_000 }, async () => {
  await set.k(['apply', '-f', '-'], sleeper('stays', 'busybox:1.37'));
  const before = await ready(set, 'default', 'stays', 60_000);
  const { processes, nodes } = await set.status();
  const pid = processes.find(({ place, name }) => place === 'node-1' && name === 'containerd')?.pid ?? null;
  assert.ok(pid !== null);
  const readiness = async () => {
    const node = JSON.parse(await set.k(['get', 'node', 'node-1', '-o', 'json'])) as {
      status: { conditions: { type: string; status: string; reason: string; message: string }[] };
    };
    return node.status.conditions.find(({ type }) => type === 'Ready');
  };
  process.kill(pid, 'SIGSTOP');
  try {
    const told = await eventually('the Node is not ready for its pleg', 300_000, async () => {
      const condition = await readiness();
      return condition?.status === 'False' && condition.message.includes('pleg') ? condition : null;
    });
    assert.equal(told.reason, 'KubeletNotReady');
    assert.match(told.message, /pleg was last seen active 3m\d+(\.\d+)?s ago; threshold is 3m0s/);
    assert.match(await readFile(`${nodes[0]?.directory ?? ''}/log/agent.log`, 'utf8'), /pleg/i);
  } finally {
    process.kill(pid, 'SIGCONT');
  }
  await eventually('the Node is ready again', 60_000, async () => ((await readiness())?.status === 'True' ? true : null));
  const after_ = await podNamed(set, 'default', 'stays');
  const [then, now] = [before.status.containerStatuses?.[0], after_.status.containerStatuses?.[0]];
  assert.deepEqual([now?.restartCount, now?.containerID], [0, then?.containerID]);
});
