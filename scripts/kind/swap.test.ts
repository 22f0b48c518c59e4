import assert from 'node:assert/strict';
import { describe, test } from 'node:test';
import { messageOf, OpError } from '../../base/errors.ts';
import type { Progress } from '../../node/mod.ts';
import { FakePlace, type FakeState } from './fake-place.ts';
import { DROP_IN, STATE } from './look.ts';
import { restore, swap, type SwapOptions, type Swapped } from './swap.ts';

const progress: Progress = { step: (_title, work) => work(), note: () => undefined, times: [] };
const ENOUGH_MS = 60 * 60_000;

/** Runs something under the place's own clock. */
async function timed<T>(place: FakePlace, work: Promise<T>): Promise<T> {
  let isOver = false;
  const end = (): void => void (isOver = true);
  work.then(end, end);
  await place.clock.advanceUntil(() => isOver, ENOUGH_MS);
  return work;
}

const options = (proxy: SwapOptions['proxy']): SwapOptions => ({ proxy, release: async () => '/release', progress });
const swapped = (place: FakePlace, proxy: SwapOptions['proxy'] = null): Promise<Swapped> => timed(place, swap(place, options(proxy)));
const restored = (place: FakePlace): Promise<Swapped> => timed(place, restore(place, { progress }));

/** A failure of the call with this number; of all after it too when the command was killed there. */
function failAt(place: FakePlace, at: number, isKilled: boolean): void {
  const first = place.calls.length + at;
  place.onCall = (count, words) => {
    if (count === first || (isKilled && count > first)) throw new OpError('unavailable', words, 'made to fail');
  };
}
const heal = (place: FakePlace): void => void (place.onCall = () => undefined);

const looksLikeFailure = (error: unknown): boolean => error instanceof OpError && error.message.includes('made to fail');

describe('there and back', () => {
  for (const proxy of [null, 'nftables', 'iptables'] as const) {
    test(`a node is as it was before, proxy ${proxy ?? 'kept'}`, async () => {
      const place = new FakePlace();
      const before = place.state;
      const there = await swapped(place, proxy);
      assert.equal(there.to, 'v1.37.2+nodelet.0.1');
      assert.equal(there.isReadyThroughout, true);
      assert.deepEqual(there.containers, { kept: 2, lost: [], added: [] });
      assert.equal(place.state.proxyUnit, proxy !== null);
      assert.equal(place.state.files[DROP_IN]?.includes('ExecStart=/var/lib/nodelet/bin/kubelet $KUBELET_EXTRA_ARGS'), true);
      const back = await restored(place);
      assert.equal(back.to, 'v1.37.2');
      assert.deepEqual(place.state, before);
    });
  }
});

describe('proxies of several nodes', () => {
  /** Both were swapped, and the other node was restored first: its pod is of the changed template. */
  async function lastOfTwo(): Promise<{ place: FakePlace; other: () => number | undefined }> {
    const place = new FakePlace();
    await swapped(place, 'nftables');
    place.set.label('k-worker2', 'iptables');
    assert.deepEqual(place.set.pods, []);
    place.set.label('k-worker2', null);
    return { place, other: () => place.set.pods.find(({ node }) => node === 'k-worker2')?.made };
  }

  test('restoring the last leaves the pods of those restored before it', async () => {
    const { place, other } = await lastOfTwo();
    const made = other();
    assert.notEqual(made, undefined);
    await restored(place);
    assert.deepEqual(place.set.replaced, []);
    assert.equal(other(), made);
    assert.deepEqual(place.state, new FakePlace().state);
    assert.equal(new Set(place.set.pods.map(({ hash }) => hash)).size, 1);
  });

  test('it does so too when it fails or is killed at any call and is begun again', async () => {
    const { place: whole } = await lastOfTwo();
    const before = whole.calls.length;
    await restored(whole);
    const count = whole.calls.length - before;
    for (const isKilled of [false, true])
      for (let at = 1; at <= count; at += 1) {
        const { place, other } = await lastOfTwo();
        const made = other();
        failAt(place, at, isKilled);
        const failed = await restored(place).then(
          () => false,
          () => true,
        );
        heal(place);
        if (failed) await restored(place);
        assert.deepEqual(place.state, new FakePlace().state, `call ${at}`);
        assert.deepEqual([place.set.replaced, other()], [[], made], `call ${at}`);
      }
  });

  test('a template that somebody changed meanwhile is rolled out as ever', async () => {
    const { place } = await lastOfTwo();
    place.set.patch('{"spec":{"template":{"spec":{"containers":[{"image":"another"}]}}}}');
    await restored(place);
    assert.deepEqual(place.set.replaced, ['k-worker2']);
  });
});

/** How many calls a swap or a restore makes when all goes well. */
async function callsOf(proxy: SwapOptions['proxy'], what: 'swap' | 'restore'): Promise<number> {
  const place = new FakePlace();
  await swapped(place, proxy);
  const ofSwap = place.calls.length;
  if (what === 'swap') return ofSwap;
  await restored(place);
  return place.calls.length - ofSwap;
}

describe('a failure of each call that a swap makes', () => {
  for (const proxy of [null, 'nftables'] as const) {
    test(`is taken back, proxy ${proxy ?? 'kept'}`, async () => {
      const count = await callsOf(proxy, 'swap');
      assert.ok(count > 15, `${count} calls`);
      let failures = 0;
      for (let at = 1; at <= count; at += 1) {
        const place = new FakePlace();
        const before = place.state;
        failAt(place, at, false);
        const error: unknown = await swapped(place, proxy).then(
          () => null,
          (reason: unknown) => reason,
        );
        heal(place);
        // A look that is tried again anyway may fail once.
        if (error === null) {
          await restored(place);
        } else {
          failures += 1;
          assert.ok(looksLikeFailure(error), `call ${at}: ${messageOf(error)}`);
        }
        assert.deepEqual(place.state, before, `call ${at}: ${place.calls[at - 1] ?? ''}`);
      }
      assert.ok(failures >= count - 3, `${failures} of ${count} calls made it fail`);
    });

    test(`is mended by restore or another swap when the command is killed there, proxy ${proxy ?? 'kept'}`, async () => {
      const count = await callsOf(proxy, 'swap');
      for (let at = 1; at <= count; at += 1) {
        const place = new FakePlace();
        const before = place.state;
        failAt(place, at, true);
        await assert.rejects(swapped(place, proxy), (error: unknown) => error instanceof OpError);
        heal(place);
        if (place.state.files[STATE] === undefined) await swapped(place, proxy);
        await restored(place);
        assert.deepEqual(place.state, before, `call ${at}: ${place.calls[at - 1] ?? ''}`);
      }
    });
  }
});

describe('a failure of each call that a restore makes', () => {
  for (const proxy of [null, 'nftables'] as const) {
    test(`leaves ours there or the node whole, proxy ${proxy ?? 'kept'}`, async () => {
      const count = await callsOf(proxy, 'restore');
      let failures = 0;
      for (let at = 1; at <= count; at += 1) {
        const place = new FakePlace();
        const before = place.state;
        await swapped(place, proxy);
        const ours = place.state;
        failAt(place, at, false);
        const error: unknown = await restored(place).then(
          () => null,
          (reason: unknown) => reason,
        );
        heal(place);
        if (error !== null) {
          failures += 1;
          assert.ok(looksLikeFailure(error), `call ${at}: ${messageOf(error)}`);
          if (place.state.kubelet.includes('+nodelet')) assert.deepEqual(place.state, ours, `call ${at} of the restore`);
          await restored(place);
        }
        assert.deepEqual(place.state, before, `call ${at} of the restore`);
      }
      assert.ok(failures >= count - 5, `${failures} of ${count} calls made it fail`);
    });

    test(`is mended by another restore when the command is killed there, proxy ${proxy ?? 'kept'}`, async () => {
      const count = await callsOf(proxy, 'restore');
      for (let at = 1; at <= count; at += 1) {
        const place = new FakePlace();
        const before = place.state;
        await swapped(place, proxy);
        failAt(place, at, true);
        await assert.rejects(restored(place));
        heal(place);
        await restored(place);
        assert.deepEqual(place.state, before, `call ${at} of the restore`);
      }
    });
  }
});

test('Ctrl-C in the middle is taken back', async () => {
  const place = new FakePlace();
  const before = place.state;
  place.onCall = (_count, words) => {
    if (words === 'systemctl restart kubelet.service' && place.state.kubelet === 'v1.37.2') queueMicrotask(() => place.stop());
  };
  await assert.rejects(swapped(place, 'nftables'), (error: unknown) => error instanceof OpError && error.code === 'aborted');
  assert.deepEqual(place.state, before);
});

test('a kubelet of ours that ends at once is taken back before the node is missed', async () => {
  const place = new FakePlace();
  const before: FakeState = place.state;
  place.ours = 'dies';
  const begunAt = place.clock.monoMs();
  await assert.rejects(
    swapped(place),
    (error: unknown) => error instanceof OpError && error.message.endsWith('it ended 3 times; its last words: it cannot run here'),
  );
  assert.deepEqual(place.state, before);
  // A Node whose kubelet is silent turns NotReady after 40 s (kube-controller-manager's --node-monitor-grace-period).
  assert.ok(place.clock.monoMs() - begunAt < 40_000);
});

test('a kubelet of the node’s own that does not come back leaves ours there', async () => {
  const place = new FakePlace();
  await swapped(place, 'nftables');
  const ours = place.state;
  place.upstream = 'dies';
  await assert.rejects(restored(place), (error: unknown) => error instanceof OpError && error.message.includes('it ended 3 times'));
  assert.deepEqual(place.state, ours);
});

describe('what is not as expected is refused, and nothing is changed', () => {
  const refusals: readonly [string, (place: FakePlace) => void, RegExp][] = [
    [
      'two command lines',
      (place) => place.setFile('/etc/systemd/system/kubelet.service.d/10-kubeadm.conf', '[Service]\nExecStart=/a\n'),
      /starts not exactly one program/,
    ],
    ['no program', (place) => place.setFile('/usr/bin/kubelet', null), /\/usr\/bin\/kubelet, which its unit starts, is no program there/],
    ['a drop-in of nobody’s', (place) => place.setFile(DROP_IN, '[Service]\n'), /nothing says what was before/],
    [
      'a later drop-in',
      (place) => place.setFile('/etc/systemd/system/kubelet.service.d/99-own.conf', '[Service]\nExecStart=\nExecStart=/x\n'),
      /99-own\.conf counts after ours/,
    ],
    ['a record that is none', (place) => place.setFile(STATE, '{'), /swap\.json is no JSON/],
  ];
  for (const [name, change, words] of refusals) {
    test(name, async () => {
      const place = new FakePlace();
      change(place);
      const before = place.state;
      await assert.rejects(swapped(place), (error: unknown) => error instanceof OpError && error.code === 'unsupported' && words.test(error.message));
      assert.deepEqual(place.state, before);
    });
  }

  test('a control plane, without a release made for it', async () => {
    const place = new FakePlace();
    place.role = 'control-plane';
    const release = (): Promise<string> => assert.fail('asked for the release');
    await assert.rejects(timed(place, swap(place, { ...options(null), release })), /it is a control plane/);
    assert.deepEqual(place.calls, []);
  });

  test('twice, and back without a swap', async () => {
    const place = new FakePlace();
    await assert.rejects(restored(place), (error: unknown) => error instanceof OpError && error.code === 'not-found');
    await swapped(place);
    await assert.rejects(swapped(place), (error: unknown) => error instanceof OpError && error.code === 'exists' && error.advice.includes('restore k-worker'));
  });
});
