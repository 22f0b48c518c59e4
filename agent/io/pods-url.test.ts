import assert from 'node:assert/strict';
import { createServer, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test, type TestContext } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { createLog, silentLog } from '../../base/log.ts';
import { createUrlPods } from './pods-url.ts';

const pod = (name: string, image = 'busybox') => ({ metadata: { name, namespace: 'ns' }, spec: { containers: [{ name: 'c', image }] } });
const whole = (name: string, image?: string) => ({ apiVersion: 'v1', kind: 'Pod', ...pod(name, image) });

async function source(t: TestContext, login = '', lines: string[] = []) {
  const answer = { status: 200, body: '' };
  const seen: IncomingMessage[] = [];
  const server = createServer((request, response) => {
    seen.push(request);
    response.writeHead(answer.status).end(answer.body);
  }).listen(0, '127.0.0.1');
  await new Promise((resolve) => server.once('listening', resolve));
  const clock = createFakeClock();
  const stop = new AbortController();
  const pods = createUrlPods({
    clock,
    log: login === '' ? silentLog : createLog({ name: 'test', verbosity: 9, nowMs: () => 0, pid: 1, write: (line) => lines.push(line) }),
    nodeName: 'N1',
    url: `http://${login}127.0.0.1:${(server.address() as AddressInfo).port}/pods`,
    headers: { 'X-Who': ['node', 'kubelet'] },
    periodMs: 20_000,
  });
  const told: string[] = [];
  pods.onUpdate((key) => told.push(key.name));
  let running: Promise<void> | undefined;
  t.after(async () => {
    stop.abort();
    await running;
    server.closeAllConnections();
    server.close();
  });
  /** The next look, whole. */
  const look = async (next: object | string, status = 200): Promise<string[]> => {
    const before = seen.length;
    Object.assign(answer, { status, body: typeof next === 'string' ? next : JSON.stringify(next) });
    if (running === undefined) running = pods.run(stop.signal);
    else await clock.advance(20_000);
    while (seen.length === before) await new Promise((resolve) => setTimeout(resolve, 1));
    // The reading of the answer ends with the next wait.
    while (clock.armed === 0) await new Promise((resolve) => setTimeout(resolve, 1));
    return pods.list().map(({ pod: each }) => `${each.metadata.name} ${each.spec.containers[0]?.image}`);
  };
  return { pods, look, seen, told };
}

test('static pods from a URL: one, a list, the same again, what is none, and nothing', async (t) => {
  const { pods, look, seen, told } = await source(t);
  assert.equal(pods.synced(), false);
  assert.deepEqual(await look('no', 503), []);
  assert.equal(pods.synced(), false);
  assert.deepEqual(await look(whole('a')), ['a-n1 busybox']);
  assert.equal(seen[0]?.headers['x-who'], 'node, kubelet');
  const [view] = pods.list();
  assert.equal(view?.pod.metadata.annotations?.['kubernetes.io/config.source'], 'http');
  assert.equal(view?.pod.spec.tolerations, undefined);
  assert.deepEqual(told, ['a-n1']);
  assert.deepEqual(await look(whole('a')), ['a-n1 busybox']);
  assert.equal(told.length, 1);
  const list = { apiVersion: 'v1', kind: 'PodList', items: [pod('a'), pod('b', 'other')] };
  assert.deepEqual(await look(list), ['a-n1 busybox', 'b-n1 other']);
  // What cannot be used changes nothing.
  for (const bad of ['{', { kind: 'Service' }, whole('../x'), { ...list, items: [pod('c'), pod('UPPER_')] }, whole('c', '')])
    assert.deepEqual(await look(bad), ['a-n1 busybox', 'b-n1 other']);
  assert.deepEqual(await look('gone', 404), ['a-n1 busybox', 'b-n1 other']);
  assert.deepEqual(await look({ ...list, items: [pod('b', 'newer')] }), ['b-n1 newer']);
  assert.deepEqual(await look(''), []);
});

test('who may read the URL can stand in it, and its password in no log', async (t) => {
  const lines: string[] = [];
  const { look, seen } = await source(t, 'node:s%40cret@', lines);
  assert.deepEqual(await look(whole('a')), ['a-n1 busybox']);
  assert.equal(seen[0]?.headers.authorization, `Basic ${Buffer.from('node:s@cret').toString('base64')}`);
  await look('', 200);
  await look('no', 503);
  assert.ok(lines.length >= 3 && lines.some((line) => line.includes('node:xxxxx@')), lines.join(''));
  assert.ok(!lines.some((line) => /s(@|%40)cret/.test(line)), lines.join(''));
});
