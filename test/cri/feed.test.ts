import assert from 'node:assert/strict';
import { existsSync } from 'node:fs';
import { readdir, stat, writeFile } from 'node:fs/promises';
import { connect, createServer } from 'node:net';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { realClock } from '../../base/clock.ts';
import { hasCode } from '../../base/errors.ts';
import { createCriClient } from '../../cri/client.ts';
import type { FakeRuntime } from '../../cri/fake.ts';
import { connectRuntime } from '../../cri/grpc.ts';
import { askTap, connectFeed, type FeedEntry } from '../../cri/io/feed.ts';
import { openTap, type Tap, type TapOptions, type TapStatus } from '../../cri/io/tap.ts';
import type { FaultState } from '../../cri/io/tap-faults.ts';
import { runningTaps } from '../../cri/io/tap-registry.ts';
import { sys } from './splice-way.ts';
import { servedFake, type ServedFake } from './served-fake.ts';

let world: ServedFake;
let folder: string;
let fake: FakeRuntime;
let made = 0;
const opened: Tap[] = [];

before(async () => {
  world = await servedFake();
  ({ folder, fake } = world);
});

after(async () => {
  // A test that failed left its tap, which would keep this process for ever.
  await Promise.all(opened.map((tap) => tap.stop()));
  await world[Symbol.asyncDispose]();
});

const never = new AbortController().signal;
const path = (name: string): string => join(folder, `${name}-${++made}`);
const registry = (): string => join(folder, 'registry');

async function started(extra: Partial<TapOptions> = {}): Promise<{ tap: Tap; listen: string; control: string }> {
  const listen = path('tap.sock');
  const tap = await openTap({
    listen,
    upstream: world.socket,
    recorder: 'a test',
    clock: realClock,
    sys,
    control: { registry: registry(), pid: process.pid },
    ...extra,
  });
  opened.push(tap);
  assert.equal(tap.control, `${listen}.tap`);
  return { tap, listen, control: `${listen}.tap` };
}

/** Waits until `done`, for ten seconds at most. */
async function until(done: () => boolean | Promise<boolean>): Promise<void> {
  for (let at = 0; at < 1000; at++) {
    if (await done()) return;
    await delay(10);
  }
  assert.fail(`it did not come in 10 s: ${done.toString()}`);
}

/** Without messages, which are what is large. */
function emptied(entry: FeedEntry): FeedEntry {
  return entry.type === 'call' ? { ...entry, requests: [], responses: [] } : entry;
}

/** A viewer that reads to the end; `seen` grows meanwhile. */
function viewer(control: string, signal = never, keep = (entry: FeedEntry): FeedEntry => entry): { seen: FeedEntry[]; ended: Promise<void> } {
  const seen: FeedEntry[] = [];
  const ended = (async () => {
    for await (const entry of connectFeed(control, signal)) seen.push(keep(entry));
  })();
  return { seen, ended };
}

/** Whether the connection's close is seen before the tap's end depends on the moment. */
const kinds = (entries: readonly FeedEntry[]): string[] =>
  entries.map((entry) => (entry.type === 'call' ? entry.method : entry.type === 'connection' ? entry.event : entry.type)).filter((kind) => kind !== 'close');

test('a viewer gets the header, then what is open, then calls as they are recorded, redacted, to the end', async () => {
  const { tap, listen, control } = await started();
  await using client = createCriClient(connectRuntime(listen));
  const early = viewer(control);
  await until(() => early.seen.length === 1);
  await client.runtime.version({});
  const { podSandboxId } = await client.runtime.runPodSandbox({ config: { metadata: { name: 'web', namespace: 'default', uid: path('u') } } });
  await until(() => early.seen.length === 4);
  const late = viewer(control);
  await until(() => late.seen.length === 2);
  await client.runtime.createContainer({
    podSandboxId,
    config: { metadata: { name: 'c' }, image: { image: 'busybox' }, envs: [{ key: 'PASSWORD', value: Buffer.from('hunter2') }] },
  });
  await until(() => early.seen.length === 5 && late.seen.length === 3);
  await tap.stop();
  await Promise.all([early.ended, late.ended]);
  assert.deepEqual(kinds(early.seen), ['recording', 'open', 'Version', 'RunPodSandbox', 'CreateContainer', 'stop']);
  assert.deepEqual(kinds(late.seen), ['recording', 'open', 'CreateContainer', 'stop']);
  assert.ok(!JSON.stringify(late.seen).includes(Buffer.from('hunter2').toString('base64')));
  assert.ok(!existsSync(control));
});

test('a stream that goes on is told to a late viewer as it began', async () => {
  const { tap, listen, control } = await started();
  await using client = createCriClient(connectRuntime(listen));
  const early = viewer(control);
  const heard: string[] = [];
  const stop = new AbortController();
  const listening = (async () => {
    for await (const event of client.runtime.getContainerEvents({}, { signal: stop.signal })) heard.push(event.containerEventType);
  })().catch(() => {});
  await until(() => fake.sinks.size > 0);
  await client.runtime.runPodSandbox({ config: { metadata: { name: 'a', namespace: 'n', uid: path('u') } } });
  await until(() => kinds(early.seen).filter((kind) => kind === 'message').length === 2);
  // The first call is told when its trailers have passed, which may be after its events: a late viewer must not see it or not.
  await until(() => kinds(early.seen).includes('RunPodSandbox'));
  const late = viewer(control);
  await until(() => late.seen.length === 3);
  await client.runtime.runPodSandbox({ config: { metadata: { name: 'b', namespace: 'n', uid: path('u') } } });
  await until(() => heard.length === 4 && late.seen.length === 6);
  stop.abort();
  await listening;
  await tap.stop();
  await Promise.all([early.ended, late.ended]);
  assert.deepEqual(kinds(late.seen).slice(0, 3), ['recording', 'open', 'opening']);
  assert.equal(kinds(late.seen).filter((kind) => kind === 'message').length, 2);
  assert.equal(kinds(late.seen).filter((kind) => kind === 'opening').length, 1);
});

test('status, stop, fault rules and what is no request', async () => {
  const { tap, listen, control } = await started();
  assert.equal((await stat(control)).mode & 0o777, 0o600);
  await using client = createCriClient(connectRuntime(listen));
  await client.runtime.version({});
  await until(async () => ((await askTap(control, { do: 'status' }, never)) as TapStatus).calls === 1);
  const status = (await askTap(control, { do: 'status' }, never)) as TapStatus;
  assert.equal(`${status.listen} ${status.connections} ${status.viewers} ${status.recording === null}`, `${listen} 1 0 true`);
  const armed = await askTap(control, { do: 'fault', rules: ['Status hang'] }, never);
  assert.match(JSON.stringify(armed), /"text":"Status hang"/);
  assert.deepEqual(((await askTap(control, { do: 'faults' }, never)) as FaultState).rules, (armed as FaultState).rules);
  await assert.rejects(askTap(control, { do: 'fault', rules: ['x'] }, never), (error) => hasCode(error, 'invalid'));
  await assert.rejects(askTap(control, { do: 'dance' }, never), (error) => hasCode(error, 'invalid'));
  const rude = connect({ path: control });
  rude.write('nonsense\n[]\n{"do":"status"}\n');
  rude.setEncoding('utf8');
  let said = '';
  rude.on('data', (text: string) => (said += text));
  await until(() => said.split('\n').length === 4);
  assert.match(said, /^\{"error":.*\n\{"error":.*\n\{"listen":/);
  rude.destroy();
  await askTap(control, { do: 'stop' }, never);
  await tap.stopAsked;
  await tap.stop();
  await assert.rejects(askTap(control, { do: 'status' }, never), (error) => hasCode(error, 'unavailable'));
});

test('a tap is found while it runs, and what dead ones left is taken away', async () => {
  const first = await started();
  const second = await started();
  await writeFile(join(registry(), '1.json'), JSON.stringify({ pid: 1, control: path('nobody'), listen: '', upstream: '', startedAt: '' }));
  await writeFile(join(registry(), '2.json'), 'half a f');
  const found = await runningTaps(registry());
  assert.deepEqual(
    found.map(({ control, pid }) => [control, pid]),
    [
      [first.control, process.pid],
      [second.control, process.pid],
    ],
  );
  await first.tap.stop();
  await second.tap.stop();
  assert.deepEqual(await readdir(registry()), []);
});

test('what is at a socket that is no tap’s is said, and is no feed that has ended', async () => {
  // What a gRPC server says first, words of another kind, and nothing at all.
  for (const words of [Buffer.from([0, 0, 6, 4, 0, 0, 0, 0, 0]), Buffer.from('220 ready\n'), Buffer.alloc(0)]) {
    const other = createServer((socket) => {
      socket.resume().write(words);
      if (words.length === 0) socket.end();
    });
    const at = path('other.sock');
    await new Promise<void>((resolve) => other.listen(at, resolve));
    await assert.rejects(viewer(at).ended, (error) => hasCode(error, 'invalid'));
    if (words.length > 0) await assert.rejects(askTap(at, { do: 'status' }, never), (error) => hasCode(error, 'invalid'));
    await new Promise((resolve) => other.close(resolve));
  }
});

test('a control socket that a dead tap left is replaced; a living one is not', async () => {
  const first = await started();
  const other = path('other.sock');
  await writeFile(`${other}.tap`, '');
  await assert.rejects(started({ listen: other }), (error) => hasCode(error, 'exists'));
  assert.ok(!existsSync(other));
  await first.tap.stop();
});

test('who reads slowly or not at all loses entries and is told; calls, other viewers and memory do not feel it', async () => {
  // All of it finds room before the decoder, which is not what is tried here.
  const { tap, listen, control } = await started({ bufferBytes: 128 * 1024 ** 2 });
  await using client = createCriClient(connectRuntime(listen));
  const { podSandboxId } = await client.runtime.runPodSandbox({ config: { metadata: { name: 'big', namespace: 'n', uid: path('u') } } });
  const { containerId } = await client.runtime.createContainer({ podSandboxId, config: { metadata: { name: 'c' }, image: { image: 'busybox' } } });
  await client.runtime.startContainer({ containerId });
  fake.onExec = () => ({ stdout: 'x'.repeat(100_000) });
  const reading = viewer(control, never, emptied);
  const gate = Promise.withResolvers<void>();
  const slowly: FeedEntry[] = [];
  const slow = (async () => {
    for await (const entry of connectFeed(control, never)) {
      if (slowly.length === 1) await gate.promise;
      slowly.push(emptied(entry));
    }
  })();
  const silent = connect({ path: control });
  silent.write('{"do":"feed"}\n');
  const killed = connect({ path: control });
  killed.write('{"do":"feed"}\n');
  killed.once('data', () => killed.destroy());
  await until(() => reading.seen.length > 0 && slowly.length > 0 && killed.destroyed);
  const rssBefore = process.memoryUsage().rss;
  // 80 MB as JSON, with three who look and two who do not read.
  for (let done = 0; done < 600; done += 20) await Promise.all(Array.from({ length: 20 }, () => client.runtime.execSync({ containerId, cmd: ['x'] })));
  const grownMiB = (process.memoryUsage().rss - rssBefore) / 1024 ** 2;
  // The client, the runtime and the reader of this test are in it, too.
  assert.ok(grownMiB < 400, `${grownMiB} MiB more`);
  gate.resolve();
  await tap.stop();
  await Promise.all([reading.ended, slow]);
  silent.destroy();
  const execs = (entries: readonly FeedEntry[]): number => entries.filter((entry) => entry.type === 'call' && entry.method === 'ExecSync').length;
  const lost = (entries: readonly FeedEntry[]): number => entries.reduce((sum, entry) => sum + (entry.type === 'lost' ? entry.entries : 0), 0);
  assert.ok(lost(slowly) > 100, `${lost(slowly)} lost`);
  // Its own losses and what it saw make all calls; the last entries may wait for a reader that the end does not wait for.
  assert.ok(execs(slowly) + lost(slowly) >= 600, `${execs(slowly)} seen, ${lost(slowly)} lost`);
  assert.ok(execs(reading.seen) + lost(reading.seen) >= 600);
});

test('calls with nobody there cost no more than numbers; a viewer afterwards sees what comes then', async () => {
  const { tap, listen, control } = await started();
  await using client = createCriClient(connectRuntime(listen));
  for (let done = 0; done < 2_000; done += 100) await Promise.all(Array.from({ length: 100 }, () => client.runtime.version({})));
  await until(async () => ((await askTap(control, { do: 'status' }, never)) as TapStatus).calls === 2_000);
  const late = viewer(control);
  await until(() => late.seen.length === 2);
  await client.runtime.version({});
  await until(() => late.seen.length === 3);
  assert.deepEqual(kinds(late.seen), ['recording', 'open', 'Version']);
  await tap.stop();
  await late.ended;
});

test('a viewer that stops, stops; a tap that is not there is said to be away', async () => {
  const { tap, control } = await started();
  const stop = new AbortController();
  const looking = viewer(control, stop.signal);
  await until(() => looking.seen.length === 1);
  stop.abort();
  await looking.ended;
  await until(async () => ((await askTap(control, { do: 'status' }, never)) as TapStatus).viewers === 0);
  await tap.stop();
  await assert.rejects(viewer(control).ended, (error) => hasCode(error, 'unavailable'));
});
