import assert from 'node:assert/strict';
import { after, before, describe, test } from 'node:test';
import type { Container, Pod } from '../../proto/kube/types.ts';
import { box, Cases, conditionOf, deaf, isRunning, logMount, shell, skip, statusOf, untilTerm } from './world.ts';

/* From creation to the end of pods on one real set; the pods of all cases live side by side. */
let at: Cases;
before(async () => {
  if (skip === false) at = await Cases.open('kc-life');
});
after(() => at?.[Symbol.asyncDispose]());

const exec = (...command: string[]) => ({ exec: { command } });
const seconds = (time: string | undefined): number => Date.parse(time ?? '') / 1000;

describe('the life of pods', { skip, concurrency: true, timeout: 240_000 }, () => {
  test('KB-04: a sidecar is signalled although the next sidecar never started', async () => {
    await at.create('kb04', {
      terminationGracePeriodSeconds: 60,
      initContainers: [
        box('s1', untilTerm('echo TERM >> /log/s1; exit 0'), { restartPolicy: 'Always', volumeMounts: [logMount] }),
        box('block', untilTerm('exit 0')),
        box('s2', ['sleep', '3600'], { restartPolicy: 'Always' }),
      ],
      containers: [box('m', ['sleep', '3600'])],
    });
    await at.watch.pod('kb04', 'blocked', 60_000, (pod) => isRunning(pod, 's1') && isRunning(pod, 'block'));
    await at.remove('kb04');
    const { pod } = await at.watch.gone('kb04', 40_000);
    assert.deepEqual(at.log('kb04', 's1'), ['TERM']);
    assert.equal(statusOf(pod, 's1')?.state?.terminated?.exitCode, 0);
    assert.deepEqual(
      at
        .calls('kb04')
        .filter((call) => call.method === 'CreateContainer')
        .map((call) => call.container),
      ['s1', 'block'],
    );
  });

  test('KB-07: readiness goes on while the pod ends, liveness does not', async () => {
    const probes: Partial<Container> = {
      readinessProbe: { ...exec('cat', '/tmp/ok'), periodSeconds: 1, failureThreshold: 1, timeoutSeconds: 10 },
      livenessProbe: { ...exec('cat', '/tmp/ok'), periodSeconds: 1, failureThreshold: 1, timeoutSeconds: 10 },
    };
    await at.create('kb07', {
      terminationGracePeriodSeconds: 60,
      containers: [box('m', untilTerm('rm /tmp/ok; sleep 12; exit 0', 'touch /tmp/ok'), probes)],
    });
    await at.create('kb07-good', { terminationGracePeriodSeconds: 60, containers: [box('m', untilTerm('sleep 6; exit 0', 'touch /tmp/ok'), probes)] });
    await at.ready('kb07');
    await at.ready('kb07-good');
    const before = at.watch.events.length;
    await at.remove('kb07');
    await at.remove('kb07-good');
    const unready = await at.watch.pod(
      'kb07',
      'not ready while it ends',
      10_000,
      (pod) => pod.metadata?.deletionTimestamp !== undefined && statusOf(pod)?.ready === false && isRunning(pod),
    );
    assert.deepEqual([conditionOf(unready, 'Ready')?.status, conditionOf(unready, 'Ready')?.reason], ['False', 'ContainersNotReady']);
    const { pod } = await at.watch.gone('kb07', 60_000);
    const end = statusOf(pod)?.state?.terminated;
    assert.equal(end?.exitCode, 0);
    assert.equal(statusOf(pod)?.restartCount, 0);
    const stop = at.calls('kb07').find((call) => call.method === 'StopContainer');
    assert.ok(seconds(end?.finishedAt) - (stop?.atMs ?? 0) / 1000 > 10, 'it gets the time it takes');
    const liveness = at.watch.events.slice(before).filter(({ event }) => event.involvedObject.name === 'kb07' && /Liveness/.test(event.message ?? ''));
    assert.deepEqual(liveness, []);
    await at.watch.gone('kb07-good', 30_000);
    const going = at.watch.history('kb07-good').filter((seen) => seen.pod.metadata?.deletionTimestamp !== undefined && isRunning(seen.pod));
    assert.ok(going.length > 0 && going.every((seen) => conditionOf(seen.pod, 'Ready')?.status === 'True'), 'a readiness that passes stays');
  });

  for (const kind of ['startup', 'liveness'] as const) {
    test(`KB-08: a ${kind} probe kills with its own grace period, raised to two seconds`, async () => {
      const name = `kb08-${kind}`;
      await at.create(name, {
        terminationGracePeriodSeconds: 60,
        containers: [
          box('m', deaf, {
            [`${kind}Probe`]: { ...exec('false'), periodSeconds: 1, failureThreshold: 1, terminationGracePeriodSeconds: 1, initialDelaySeconds: 1 },
          }),
        ],
      });
      const again = await at.watch.pod(name, 'restarted', 60_000, (pod) => statusOf(pod)?.restartCount === 1);
      assert.equal(statusOf(again)?.lastState?.terminated?.exitCode, 137);
      assert.equal(at.calls(name).find((call) => call.method === 'StopContainer')?.timeoutS, 2);
      const reasons = await at.watch.until('the events', 10_000, () => {
        const events = at.watch.eventsOf(name);
        return events.some((event) => event.reason === 'Killing') && events.some((event) => event.reason === 'Unhealthy') ? events : null;
      });
      const word = kind === 'startup' ? 'Startup' : 'Liveness';
      assert.ok(reasons.some((event) => event.reason === 'Unhealthy' && event.message?.startsWith(`${word} probe failed`)));
      assert.ok(reasons.some((event) => event.reason === 'Killing' && event.message === `Container m failed ${kind} probe, will be restarted`));
      await at.remove(name, '--grace-period=0', '--force');
    });
  }

  test('KB-08: an ordinary delete uses the grace period of the pod, whatever the probes say', async () => {
    await at.create('kb08-delete', {
      terminationGracePeriodSeconds: 8,
      containers: [
        box('m', untilTerm('exit 0'), { livenessProbe: { ...exec('true'), periodSeconds: 1, timeoutSeconds: 10, terminationGracePeriodSeconds: 1 } }),
      ],
    });
    await at.ready('kb08-delete');
    await at.remove('kb08-delete');
    await at.watch.gone('kb08-delete', 30_000);
    assert.equal(at.calls('kb08-delete').find((call) => call.method === 'StopContainer')?.timeoutS, 8);
  });

  test('KB-09: an exec probe that runs longer than its second has failed', async () => {
    const slow = { ...exec('sleep', '5'), periodSeconds: 2, failureThreshold: 2 };
    await at.create('kb09-live', { terminationGracePeriodSeconds: 1, containers: [box('m', untilTerm('exit 0'), { livenessProbe: slow })] });
    await at.create('kb09-ready', { terminationGracePeriodSeconds: 1, containers: [box('m', untilTerm('exit 0'), { readinessProbe: slow })] });
    await at.watch.pod('kb09-live', 'restarted', 60_000, (pod) => statusOf(pod)?.restartCount === 1);
    // On a busy machine the other container may start much later, and an answer in other words is an Event of its own.
    const events = await at.watch.until('the events', 60_000, () => {
      const unhealthy = at.watch.eventsOf('kb09-ready').filter((one) => one.reason === 'Unhealthy');
      return unhealthy.reduce((sum, one) => sum + (one.count ?? 0), 0) >= 2 ? unhealthy : undefined;
    });
    for (const { message } of events) assert.match(message ?? '', /^Readiness probe (failed|errored)/);
    const ready = at.watch.history('kb09-ready');
    assert.ok(ready.every((seen) => statusOf(seen.pod)?.ready !== true && (statusOf(seen.pod)?.restartCount ?? 0) === 0));
    await at.remove('kb09-live');
    await at.remove('kb09-ready');
  });

  test('KB-11: the grace period begins before the hook; a hook that outlives it is cut off', async () => {
    const spec = (hookSeconds: string) => ({
      terminationGracePeriodSeconds: 6,
      containers: [box('m', untilTerm('date +%s >> /log/term'), { lifecycle: { preStop: exec('sleep', hookSeconds) }, volumeMounts: [logMount] })],
    });
    await at.create('kb11-long', spec('600'));
    await at.create('kb11-short', spec('2'));
    await at.ready('kb11-long');
    await at.ready('kb11-short');
    await at.remove('kb11-long');
    await at.remove('kb11-short');
    const stops = async (name: string): Promise<{ timeoutS: number; afterMs: number }> => {
      const { pod } = await at.watch.gone(name, 40_000);
      // The API server's own moment, in whole seconds: a busy client's is not to be trusted.
      const deletedMs = 1000 * (seconds(pod.metadata?.deletionTimestamp) - 6);
      const stop = at.calls(name).find((call) => call.method === 'StopContainer');
      return { timeoutS: stop?.timeoutS ?? -1, afterMs: (stop?.atMs ?? 0) - deletedMs };
    };
    const long = await stops('kb11-long');
    assert.equal(long.timeoutS, 2);
    assert.ok(long.afterMs > 5_500 && long.afterMs < 12_000, `TERM came ${long.afterMs} ms after the delete`);
    const short = await stops('kb11-short');
    assert.ok(short.timeoutS <= 4 && short.timeoutS >= 2, `stop with ${short.timeoutS} s`);
    assert.ok(short.afterMs > 1_500 && short.afterMs < 7_500, `TERM came ${short.afterMs} ms after the delete`);
    assert.equal(at.log('kb11-long', 'term').length, 1);
    assert.equal(at.log('kb11-short', 'term').length, 1);
  });

  test('KB-12: a failed pod stays Failed while it is deleted', async () => {
    await at.create(
      'kb12',
      { restartPolicy: 'Never', containers: [box('a', shell('exit 3')), box('b', untilTerm('exit 0'))] },
      { finalizers: ['example.com/keep'] },
    );
    await at.watch.pod('kb12', 'with a ended', 60_000, (pod) => statusOf(pod, 'a')?.state?.terminated !== undefined && isRunning(pod, 'b'));
    await at.remove('kb12');
    const failed = await at.watch.pod('kb12', 'Failed', 60_000, (pod) => pod.status?.phase === 'Failed' && statusOf(pod, 'b')?.state?.terminated !== undefined);
    assert.equal(statusOf(failed, 'a')?.state?.terminated?.exitCode, 3);
    assert.equal(statusOf(failed, 'b')?.state?.terminated?.exitCode, 0);
    await at.k('patch', 'pod', 'kb12', '--type=merge', '-p', '{"metadata":{"finalizers":null}}');
    await at.watch.gone('kb12', 20_000);
    const phases = at.watch.history('kb12').map((seen) => seen.pod.status?.phase);
    assert.ok(
      phases.slice(phases.indexOf('Failed')).every((phase) => phase === 'Failed'),
      phases.join(' '),
    );
  });

  test('KB-14: the first restart comes at once, the next after 10, then 20 seconds', async () => {
    await at.create('kb14', { containers: [box('m', shell('exit 1'))] });
    await at.watch.pod('kb14', 'third restart', 90_000, (pod) => statusOf(pod)?.restartCount === 3);
    const starts = at
      .calls('kb14')
      .filter((call) => call.method === 'StartContainer')
      .map((call) => call.atMs);
    const gaps = starts.slice(1).map((ms, index) => (ms - (starts[index] ?? 0)) / 1000);
    const [first = 0, second = 0, third = 0] = gaps;
    assert.ok(first < 8 && second > 9 && second < 20 && third > 19 && third < 35, gaps.join(' '));
    const waits = at.watch
      .history('kb14')
      .map((seen) => statusOf(seen.pod)?.state?.waiting)
      .filter((waiting) => waiting?.reason === 'CrashLoopBackOff');
    assert.match(waits[0]?.message ?? '', /^back-off 10s restarting failed container=m pod=kb14_cases\([0-9a-f-]+\)$/);
    assert.ok(at.watch.eventsOf('kb14').some((event) => event.reason === 'BackOff'));
    await at.remove('kb14');
  });

  test('KB-15: the back-off of a pull keeps the cause, and heals with no new object', async () => {
    const image = 'cases/late:x';
    await at.set.nodelet(['image', 'remove', image]);
    await at.create('kb15', { restartPolicy: 'Never', containers: [{ ...box('m', ['true']), image: 'localhost:1/none:x' }] });
    await at.create('kb15-late', { restartPolicy: 'Never', containers: [{ ...box('m', ['true']), image }] });
    await at.create('kb15-never', { containers: [{ ...box('m', ['true']), image: 'localhost:1/absent:x', imagePullPolicy: 'Never' }] });
    const waitingOf = (pod: Pod) => statusOf(pod)?.state?.waiting;
    await at.watch.pod('kb15', 'pull error', 60_000, (pod) => waitingOf(pod)?.reason === 'ErrImagePull');
    const backOff = await at.watch.pod('kb15', 'back-off', 60_000, (pod) => waitingOf(pod)?.reason === 'ImagePullBackOff');
    assert.match(waitingOf(backOff)?.message ?? '', /^Back-off pulling image "localhost:1\/none:x": ErrImagePull: .*localhost:1\/none:x/s);
    assert.ok(at.watch.history('kb15').every((seen) => seen.pod.status?.phase === 'Pending'));
    const never = await at.watch.pod('kb15-never', 'refused', 60_000, (pod) => waitingOf(pod)?.reason === 'ErrImageNeverPull');
    assert.match(waitingOf(never)?.message ?? '', /^Container image "localhost:1\/absent:x" is not present with pull policy of Never$/);
    await at.watch.pod('kb15-late', 'back-off', 60_000, (pod) => waitingOf(pod)?.reason === 'ImagePullBackOff');
    const made = await at.set.nodelet(['image', 'make', image, '--from', 'busybox']);
    assert.equal(made.code, 0, made.err);
    await at.watch.pod('kb15-late', 'Succeeded', 120_000, (pod) => pod.status?.phase === 'Succeeded');
    await at.set.nodelet(['image', 'remove', image]);
    await at.remove('kb15');
    assert.ok(!at.watch.eventsOf('kb15-never').some((event) => event.reason === 'Pulling'));
    await at.remove('kb15-never');
  });

  test('KB-18: readiness gates are told by their present value, and conditions of others are never touched', async () => {
    await at.create('kb18', {
      terminationGracePeriodSeconds: 1,
      readinessGates: [{ conditionType: 'example.com/gate' }],
      containers: [box('m', ['sleep', '3618'])],
    });
    const ready = (pod: Pod) => conditionOf(pod, 'Ready');
    const missing = await at.watch.pod('kb18', 'running', 60_000, (pod) => conditionOf(pod, 'ContainersReady')?.status === 'True');
    assert.deepEqual([ready(missing)?.status, ready(missing)?.reason], ['False', 'ReadinessGatesNotReady']);
    assert.match(ready(missing)?.message ?? '', /"example\.com\/gate" does not exist/);
    const set = async (...conditions: object[]): Promise<void> =>
      void (await at.k('patch', 'pod', 'kb18', '--subresource=status', '-p', JSON.stringify({ status: { conditions } })));
    const note = { type: 'example.com/note', status: 'True', lastTransitionTime: '2020-01-01T00:00:00Z' };
    await set(note, { type: 'example.com/gate', status: 'False', lastTransitionTime: '2020-01-01T00:00:00Z' });
    const closed = await at.watch.pod('kb18', 'told of False', 15_000, (pod) => /is not "True", but False/.test(ready(pod)?.message ?? ''));
    assert.equal(conditionOf(closed, 'ContainersReady')?.status, 'True');
    await at.inNode('sh', '-c', 'kill -9 $(pgrep -fx "sleep 3618")');
    await at.watch.pod('kb18', 'restarted', 60_000, (pod) => statusOf(pod)?.restartCount === 1 && statusOf(pod)?.ready);
    await set({ type: 'example.com/gate', status: 'True', lastTransitionTime: '2020-01-02T00:00:00Z' });
    const open = await at.ready('kb18', 30_000);
    assert.deepEqual(conditionOf(open, 'example.com/note')?.lastTransitionTime, note.lastTransitionTime);
    assert.deepEqual(conditionOf(open, 'example.com/gate')?.lastTransitionTime, '2020-01-02T00:00:00Z');
    await at.remove('kb18', '--grace-period=1');
  });

  test('KB-21: when the sandbox dies the old container ends before its successor starts', async () => {
    // The port is the lock: while the first holds it the second could not listen, and would fail.
    await at.create('kb21', { hostNetwork: true, terminationGracePeriodSeconds: 2, containers: [box('m', ['httpd', '-f', '-p', '127.0.0.1:18099'])] });
    await at.ready('kb21');
    const sandbox = (await at.sandboxes('kb21'))[0];
    assert.ok(sandbox !== undefined);
    const { info } = await at.cri.runtime.podSandboxStatus({ podSandboxId: sandbox.id, verbose: true });
    const { pid } = JSON.parse(info['info'] ?? '{}') as { pid: number };
    await at.inNode('kill', '-9', String(pid));
    const again = await at.watch.pod('kb21', 'restarted', 60_000, (pod) => statusOf(pod)?.restartCount === 1 && isRunning(pod));
    assert.equal(statusOf(again)?.lastState?.terminated !== undefined, true);
    const calls = at.calls('kb21').map((call) => `${call.method}#${call.attempt}`);
    assert.ok(calls.indexOf('StopPodSandbox#0') < calls.indexOf('CreateContainer#1'), calls.join(' '));
    assert.equal((await at.containers('kb21')).filter((one) => one.running).length, 1);
    await at.remove('kb21', '--grace-period=1');
  });

  test('KB-31: a pod that fills its emptyDir beyond the limit is evicted and never started again', async () => {
    const fill = (code: number): string[] => ['sh', '-c', `trap 'exit ${code}' TERM; dd if=/dev/zero of=/d/f bs=1M count=30; while :; do sleep 0.2; done`];
    const spec = (code: number) => ({
      terminationGracePeriodSeconds: 30,
      containers: [box('m', fill(code), { volumeMounts: [{ name: 'd', mountPath: '/d' }] })],
      volumes: [{ name: 'd', emptyDir: { sizeLimit: '10Mi' } }],
    });
    await at.create('kb31', spec(5));
    await at.create('kb31-zero', spec(0));
    const evicted = await at.watch.pod('kb31', 'Failed', 180_000, (pod) => pod.status?.phase === 'Failed');
    assert.equal(evicted.status?.reason, 'Evicted');
    assert.match(evicted.status?.message ?? '', /^Usage of EmptyDir volume "d" exceeds the limit "10Mi"/);
    assert.equal(statusOf(evicted)?.state?.terminated?.exitCode, 5);
    assert.equal(conditionOf(evicted, 'DisruptionTarget'), undefined);
    assert.ok(
      await at.watch.until('the event', 10_000, () => at.watch.eventsOf('kb31').some((event) => event.reason === 'Evicted' && event.type === 'Warning')),
    );
    assert.equal(at.calls('kb31').find((call) => call.method === 'StopContainer')?.timeoutS, 2);
    const zero = await at.watch.pod('kb31-zero', 'ended', 60_000, (pod) => pod.status?.phase === 'Failed' || pod.status?.phase === 'Succeeded');
    assert.equal(statusOf(zero)?.state?.terminated?.exitCode, 0);
    for (const name of ['kb31', 'kb31-zero']) assert.equal(at.calls(name).filter((call) => call.method === 'CreateContainer').length, 1);
  });

  test('KB-40: a child out of memory dies alone on cgroup v1, and takes its container along on v2', async () => {
    const hog = 'x=a; while :; do x=$x$x; done';
    await at.create('kb40', {
      terminationGracePeriodSeconds: 20,
      containers: [
        box('m', ['sh', '-c', `trap 'exit 143' TERM; sleep 1; sh -c '${hog}'; echo child=$? >> /log/child; while :; do sleep 0.2; done`], {
          resources: { limits: { memory: '64Mi' } },
          volumeMounts: [logMount],
        }),
      ],
    });
    const isUnified = (await at.inNode('sh', '-c', 'test -e /sys/fs/cgroup/cgroup.controllers && echo 2 || echo 1')) === '2';
    if (isUnified) {
      const killed = await at.watch.pod('kb40', 'killed', 60_000, (pod) => (statusOf(pod)?.restartCount ?? 0) > 0);
      assert.deepEqual([statusOf(killed)?.lastState?.terminated?.exitCode, statusOf(killed)?.lastState?.terminated?.reason], [137, 'OOMKilled']);
      await at.remove('kb40');
      return;
    }
    await at.watch.until('the child’s end', 60_000, () => at.log('kb40', 'child').length > 0);
    assert.deepEqual(at.log('kb40', 'child'), ['child=137']);
    await at.remove('kb40');
    const { pod } = await at.watch.gone('kb40', 40_000);
    assert.equal(statusOf(pod)?.restartCount, 0);
    assert.equal(statusOf(pod)?.state?.terminated?.exitCode, 143);
  });

  test('KB-42: who must not be root is refused before anything is created, with the true reason', async () => {
    const make = async (image: string, user: string): Promise<void> => {
      const answer = await at.set.nodelet(['image', 'make', image, '--from', 'busybox', '--user', user]);
      assert.equal(answer.code, 0, answer.err);
    };
    await make('cases/named:1', 'app');
    await make('cases/number:1', '1000');
    const one = async (name: string, image: string, container: object, pod: object = {}): Promise<void> =>
      at.create(name, {
        securityContext: pod,
        terminationGracePeriodSeconds: 1,
        containers: [{ name: 'm', image, command: shell('id -u; sleep 3600'), securityContext: { runAsNonRoot: true, ...container } }],
      });
    await one('kb42-none', 'busybox:1.37', {});
    await one('kb42-named', 'cases/named:1', {});
    await one('kb42-number', 'cases/number:1', {});
    await one('kb42-named-as', 'cases/named:1', { runAsUser: 1000 });
    await one('kb42-zero', 'busybox:1.37', { runAsUser: 0 });
    await one('kb42-pod', 'busybox:1.37', {}, { runAsUser: 1000 });
    for (const [name, reason] of [
      ['kb42-none', /^container has runAsNonRoot and image will run as root/],
      ['kb42-named', /^container has runAsNonRoot and image has non-numeric user \(app\), cannot verify user is non-root/],
      ['kb42-zero', /^container's runAsUser breaks non-root policy/],
    ] as const) {
      const refused = await at.watch.pod(name, 'refused', 60_000, (pod) => statusOf(pod)?.state?.waiting?.reason === 'CreateContainerConfigError');
      assert.match(statusOf(refused)?.state?.waiting?.message ?? '', reason);
      assert.equal(statusOf(refused)?.restartCount, 0);
      await at.watch.until('the event', 10_000, () => at.watch.eventsOf(name).some((event) => event.reason === 'Failed' && event.type === 'Warning'));
      assert.deepEqual(
        at.calls(name).filter((call) => call.method === 'CreateContainer'),
        [],
      );
    }
    for (const name of ['kb42-number', 'kb42-named-as', 'kb42-pod']) {
      await at.ready(name);
      assert.equal(await at.k('exec', name, '--', 'id', '-u'), '1000');
    }
    await at.k('delete', 'pod', '--wait=false', ...['none', 'named', 'number', 'named-as', 'zero', 'pod'].map((name) => `kb42-${name}`));
    for (const image of ['cases/named:1', 'cases/number:1']) await at.set.nodelet(['image', 'remove', image]);
  });
});
