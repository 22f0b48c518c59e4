import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { after, before, describe, test } from 'node:test';
import { readRecording } from '../../cri/io/recording-read.ts';
import type { Event } from '../../proto/kube/types.ts';
import { eventually } from '../set.ts';
import { Tap } from './tap.ts';
import { box, Cases, isRunning, logMount, shell, skip, statusOf } from './world.ts';

/*
 * Cases whose point is what the runtime does: calls are broken and held back between the kubelet and a real containerd.
 * The same calls are broken for upstream's kubelet (NODELET_CASES_KUBELET).
 */
let at: Cases;
let tap: Tap;
let record = '';
before(async () => {
  if (skip !== false) return;
  at = await Cases.open('kc-runtime');
  record = await mkdtemp(`${tmpdir()}/nodelet-cases-`);
  tap = await Tap.attach('kc-runtime', `${record}/calls.crirec`);
});
after(async () => {
  await tap?.[Symbol.asyncDispose]();
  await at?.[Symbol.asyncDispose]();
  if (record !== '') await rm(record, { recursive: true, force: true });
});

const quick = { terminationGracePeriodSeconds: 1 };
const made = async (image: string, ...more: string[]): Promise<void> => {
  const answer = await at.set.nodelet(['image', 'make', image, '--from', 'busybox', ...more]);
  assert.equal(answer.code, 0, answer.err);
};

interface Pull {
  readonly image: string;
  readonly from: number;
  readonly to: number;
}

/** The pulls of these images, as the tap saw them begin and end. The recording is written in the background: each is waited for. */
async function pulls(images: readonly string[], file = 'calls.crirec'): Promise<Pull[]> {
  return eventually('the pulls are in the recording', 20_000, async () => {
    const found = await recorded(images, file);
    return images.every((name) => found.some(({ image, to }) => image === name && Number.isFinite(to))) ? found : null;
  });
}

async function recorded(images: readonly string[], file: string): Promise<Pull[]> {
  const found: Pull[] = [];
  for await (const entry of readRecording(`${record}/${file}`)) {
    if (entry.type !== 'call' || entry.method !== 'PullImage') continue;
    const [request] = entry.requests;
    if (request === undefined || !('fields' in request)) continue;
    const { image } = (request.fields as { image: { image: string } }).image;
    const name = images.find((one) => image.endsWith(one));
    if (name !== undefined) found.push({ image: name, from: entry.start.monoMs, to: entry.end?.monoMs ?? Infinity });
  }
  return found.sort((a, b) => a.from - b.from);
}

/** How many of these were under way at once, at most. */
const atOnce = (all: readonly Pull[]): number => Math.max(0, ...all.map(({ from }) => all.filter((one) => one.from <= from && from < one.to).length));

/** The two times that an Event of a pull tells, in milliseconds. */
async function told(pod: string): Promise<{ own: number; whole: number }> {
  const event: Event = await at.watch.until(`${pod} is pulled`, 60_000, () => at.watch.eventsOf(pod).find(({ reason }) => reason === 'Pulled'));
  const [, own = '', whole = ''] =
    /^Successfully pulled image "[^"]+" in ([\dms.]+) \(([\dms.]+) including waiting\)\. Image size: \d+ bytes\.$/.exec(event.message ?? '') ?? [];
  const ms = (text: string): number => (text.endsWith('ms') ? Number.parseFloat(text) : Number.parseFloat(text.replace(/^0?m?/, '')) * 1000);
  assert.ok(own !== '' && whole !== '', event.message);
  return { own: ms(own), whole: ms(whole) };
}

describe('what the runtime does', { skip, timeout: 600_000 }, () => {
  test('KB-06: a sandbox that cannot be made is tried again, with restart policy Never too', async () => {
    await tap.fault('RunPodSandbox pod=cases/kb06 nth=1 error unknown "no address is left"');
    await at.create('kb06', { ...quick, restartPolicy: 'Never', containers: [box('m', shell('exit 0'))] });
    const pod = await at.watch.pod('kb06', 'has succeeded', 90_000, ({ status }) => status?.phase === 'Succeeded');
    await tap.clear();
    assert.equal(statusOf(pod)?.state?.terminated?.exitCode, 0);
    assert.equal(statusOf(pod)?.restartCount, 0);
    const event = at.watch.eventsOf('kb06').find(({ reason }) => reason === 'FailedCreatePodSandBox');
    assert.equal(event?.type, 'Warning');
    assert.match(event?.message ?? '', /^Failed to create pod sandbox: rpc error: code = Unknown desc = no address is left$/);
  });

  test('KB-06: a sandbox lost between create and start is made anew, and a finished init container does not run again', async () => {
    await tap.fault('StartContainer pod=cases/kb06-b container=m nth=1 delay 6s');
    await at.create('kb06-b', {
      ...quick,
      restartPolicy: 'Never',
      initContainers: [box('i', shell('echo init >> /log/order'), { volumeMounts: [logMount] })],
      containers: [box('m', shell('echo main >> /log/order'), { volumeMounts: [logMount] })],
    });
    await eventually('m is created', 60_000, async () => ((await at.containers('kb06-b', 'm')).length > 0 ? true : null));
    const [sandbox] = await at.sandboxes('kb06-b');
    await at.cri.runtime.stopPodSandbox({ podSandboxId: sandbox?.id ?? '' });
    const pod = await at.watch.pod('kb06-b', 'has ended', 120_000, ({ status }) => status?.phase === 'Succeeded' || status?.phase === 'Failed');
    await tap.clear();
    console.log(`kb06-b: ${pod.status?.phase}, order ${at.log('kb06-b', 'order').join(',')}, ${JSON.stringify(statusOf(pod)?.state)}`);
    assert.ok(at.log('kb06-b', 'order').filter((line) => line === 'main').length <= 1, 'no container ran twice');
  });

  test('KB-16: the Event of a pull tells its own time and that with waiting; pulls come one at a time', async () => {
    await made('slow:1', '--env', 'N=1');
    await made('fast:1', '--env', 'N=2');
    await tap.fault('PullImage image=*slow:1 delay 6s', 'PullImage image=*fast:1 delay 1s');
    const wants = (image: string) => ({ ...quick, containers: [{ ...box('m', ['sleep', '3600']), image }] });
    await at.create('kb16-slow', wants('slow:1'));
    await at.watch.until('the slow pull begins', 30_000, () => at.watch.eventsOf('kb16-slow').find(({ reason }) => reason === 'Pulling'));
    await at.create('kb16-fast', wants('fast:1'));
    for (const name of ['kb16-slow', 'kb16-fast']) await at.ready(name, 90_000);
    const [slow, fast] = [await told('kb16-slow'), await told('kb16-fast')];
    await tap.clear();
    console.log(`kb16: slow ${JSON.stringify(slow)}, fast ${JSON.stringify(fast)}`);
    assert.ok(slow.own >= 6000 && fast.own >= 1000 && fast.own < 5000, 'each its own time');
    assert.ok(fast.whole >= fast.own + 2000, 'the waiting counts for the second only');
    const seen = await pulls(['slow:1', 'fast:1']);
    assert.deepEqual(
      seen.map(({ image }) => image),
      ['slow:1', 'fast:1'],
    );
    assert.equal(atOnce(seen), 1);
  });

  test('KB-21: while a container of unknown state cannot be stopped, no other of its name is made', async () => {
    await at.create('kb21', { ...quick, containers: [box('m', ['sleep', '3600'])] });
    await at.ready('kb21');
    const [sandbox] = await at.sandboxes('kb21');
    const { info } = await at.cri.runtime.podSandboxStatus({ podSandboxId: sandbox?.id ?? '', verbose: true });
    const { pid } = JSON.parse(info['info'] ?? '{}') as { pid: number };
    await tap.fault('StopContainer,StopPodSandbox pod=cases/kb21 first=3 error unknown "the shim is busy"');
    await at.inNode('kill', '-9', String(pid));
    const pod = await at.watch.pod('kb21', 'runs anew', 120_000, (one) => isRunning(one) && (statusOf(one)?.restartCount ?? 0) === 1);
    await tap.clear();
    assert.equal(pod.status?.phase, 'Running');
    const running = (await at.containers('kb21', 'm')).filter((one) => one.running);
    assert.equal(running.length, 1);
    const calls = at.calls('kb21').map((call) => `${call.method}#${call.attempt}`);
    assert.ok(calls.indexOf('StopPodSandbox#0') < calls.indexOf('CreateContainer#1'), calls.join(' '));
  });

  test('KB-06: each further try of a start that fails comes 10 to 15 seconds after the last, with one Event each', async () => {
    await tap.fault('RunPodSandbox pod=cases/kb06-c error unknown "no address is left"');
    const idle = ['sleep', '3600'];
    await at.create('kb06-c', { ...quick, containers: [box('m', idle)] });
    await at.create('kb15-never', { ...quick, containers: [{ ...box('m', idle), image: 'absent:1', imagePullPolicy: 'Never' }] });
    await at.create('kb15-name', { ...quick, containers: [{ ...box('m', idle), image: 'Busybox:1.37' }] });
    const fromMs = performance.now();
    await at.watch.until('fifty seconds', 70_000, () => performance.now() - fromMs > 50_000);
    await tap.clear();
    /** Seconds between the Events of a reason, as they were counted up. */
    const gaps = (pod: string, reason: string): number[] => {
      const times = at.watch.events.filter(({ event }) => event.involvedObject.name === pod && event.reason === reason).map(({ atMs }) => atMs / 1000);
      return times.slice(1).map((time, index) => Math.round((time - (times[index] ?? 0)) * 10) / 10);
    };
    const sandbox = gaps('kb06-c', 'FailedCreatePodSandBox');
    const [never, name] = [gaps('kb15-never', 'ErrImageNeverPull'), gaps('kb15-name', 'InspectFailed')];
    console.log(`tries: ${JSON.stringify({ sandbox, never, name })}`);
    // A second later than the sandbox comes the look that its listing brings; a busy machine adds seconds of its own.
    for (const gap of [...sandbox, ...never.slice(1), ...name.slice(1)]) assert.ok(gap > 8 && gap < 25, JSON.stringify({ sandbox, never, name }));
    assert.ok(sandbox.length >= 2 && never.length >= 2 && name.length >= 2);
    const words = at.watch.eventsOf('kb15-name').find(({ reason }) => reason === 'InspectFailed')?.message;
    assert.equal(
      words,
      'Failed to apply default image tag "Busybox:1.37": couldn\'t parse image name "Busybox:1.37": invalid reference format: repository name (library/Busybox) must be lowercase',
    );
    for (const pod of ['kb06-c', 'kb15-never', 'kb15-name']) await at.remove(pod, '--grace-period=0', '--force');
  });

  test('KB-16: two pulls at once where the configuration says so, never three, and never two of one pod', async () => {
    await tap[Symbol.asyncDispose]();
    await at.configure({ serializeImagePulls: false, maxParallelImagePulls: 2 });
    tap = await Tap.attach('kc-runtime', `${record}/parallel.crirec`);
    const images = ['slow:2', 'slow2:2', 'fast:2', 'slow:3', 'fast:3'];
    for (const image of images) await made(image, '--env', `N=${image}`);
    await tap.fault('PullImage image=*slow*:2 delay 8s', 'PullImage image=*slow:3 delay 4s', 'PullImage image=*fast* delay 1s');
    const wants = (...names: string[]) => ({ ...quick, containers: names.map((image, index) => ({ ...box(`m${index}`, ['sleep', '3600']), image })) });
    await at.create('kb16-slow-a', wants('slow:2'));
    await at.create('kb16-slow-b', wants('slow2:2'));
    for (const name of ['kb16-slow-a', 'kb16-slow-b'])
      await at.watch.until(`${name} pulls`, 30_000, () => at.watch.eventsOf(name).find(({ reason }) => reason === 'Pulling'));
    await at.create('kb16-third', wants('fast:2'));
    for (const name of ['kb16-slow-a', 'kb16-slow-b', 'kb16-third']) await at.ready(name, 90_000);
    const third = await told('kb16-third');
    await at.create('kb16-both', wants('slow:3', 'fast:3'));
    await at.ready('kb16-both', 90_000);
    await tap.clear();
    const seen = await pulls(images, 'parallel.crirec');
    console.log(`kb16 parallel: third ${JSON.stringify(third)}, at once ${atOnce(seen)}`);
    assert.equal(atOnce(seen), 2);
    assert.ok(third.own >= 1000 && third.own < 5000 && third.whole >= third.own + 1000, JSON.stringify(third));
    assert.equal(atOnce(seen.filter(({ image }) => image.endsWith(':3'))), 1);
  });
});
