import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { text } from 'node:stream/consumers';
import { test, type TestContext } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { silentLog } from '../../base/log.ts';
import { seededRng } from '../../base/rng.ts';
import type { Target } from '../core/ruleset.ts';
import { LoopbackPorts } from './loopback-ports.ts';
import { LISTENER_FAILURES, LISTENERS, proxyMetrics } from './metrics.ts';

const IPV4 = { ip_family: 'IPv4' };

async function listening(t: TestContext, server: Server): Promise<number> {
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  return (server.address() as AddressInfo).port;
}

/** Answers with its name and what it was told, once the client has said all. */
async function pod(t: TestContext, name: string): Promise<Target> {
  const server = createServer({ allowHalfOpen: true }, (socket) => void text(socket).then((said) => socket.end(`${name} ${said}`)));
  return { address: '127.0.0.1', port: await listening(t, server) };
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1');
  await once(server, 'listening');
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, 'close');
  return port;
}

async function say(port: number, what = 'hello'): Promise<string> {
  const socket = connect({ host: '127.0.0.1', port, allowHalfOpen: true });
  socket.end(what);
  return await text(socket);
}

function setUp(t: TestContext, more: { maxConnections?: number } = {}) {
  const clock = createFakeClock();
  const metrics = proxyMetrics();
  const ports = new LoopbackPorts({ clock, rng: seededRng(1), metrics, log: silentLog, ...more });
  t.after(() => ports[Symbol.asyncDispose]());
  return { clock, metrics, ports };
}

test('a connection is carried both ways, either side may end first, and ports close with their Service', async (t) => {
  const { ports, metrics } = setUp(t);
  const [a, b] = [await pod(t, 'a'), await pod(t, 'b')];
  const nodePort = await freePort();
  await ports.update('ip', [{ nodePort, endpoints: [a, b], affinitySeconds: null }]);
  assert.equal(metrics.value(LISTENERS, IPV4), 1);
  const heard = new Set<string>();
  for (let times = 0; times < 40; times++) heard.add(await say(nodePort));
  assert.deepEqual([...heard].toSorted(), ['a hello', 'b hello']);
  await ports.update('ip', [{ nodePort, endpoints: [b], affinitySeconds: null }]);
  assert.equal(await say(nodePort, 'x'.repeat(1_000_000)), `b ${'x'.repeat(1_000_000)}`);
  // The other family's ports are its own matter.
  await ports.update('ip6', []);
  assert.equal(await say(nodePort), 'b hello');
  const open = connect({ host: '127.0.0.1', port: nodePort });
  await once(open, 'connect');
  await ports.update('ip', []);
  await once(open, 'close');
  await assert.rejects(say(nodePort), { code: 'ECONNREFUSED' });
  assert.equal(metrics.value(LISTENERS, IPV4), 0);
});

test('with affinity all go to one endpoint for as long as somebody keeps coming', async (t) => {
  const { ports, clock } = setUp(t);
  const endpoints = [await pod(t, 'a'), await pod(t, 'b')];
  const nodePort = await freePort();
  await ports.update('ip', [{ nodePort, endpoints, affinitySeconds: 10 }]);
  const first = await say(nodePort);
  for (let times = 0; times < 10; times++) {
    await clock.advance(9_000);
    assert.equal(await say(nodePort), first);
  }
  const later = new Set<string>();
  for (let times = 0; times < 40; times++) {
    await clock.advance(11_000);
    later.add(await say(nodePort));
  }
  assert.equal(later.size, 2);
  await ports.update('ip', [{ nodePort, endpoints: endpoints.slice(0, 1), affinitySeconds: 10 }]);
  assert.equal(await say(nodePort), 'a hello');
});

test('a port that is taken is counted and tried again, and a pod that is not there ends the connection', async (t) => {
  const { ports, metrics } = setUp(t);
  const holder = createServer((socket: Socket) => socket.resume().end('other'));
  const nodePort = await listening(t, holder);
  const wanted = { nodePort, endpoints: [{ address: '127.0.0.1', port: await freePort() }], affinitySeconds: null };
  await ports.update('ip', [wanted]);
  assert.deepEqual([metrics.value(LISTENER_FAILURES, IPV4), metrics.value(LISTENERS, IPV4)], [1, 0]);
  assert.equal(await say(nodePort), 'other');
  holder.close();
  await once(holder, 'close');
  await ports.update('ip', [wanted]);
  assert.deepEqual([metrics.value(LISTENER_FAILURES, IPV4), metrics.value(LISTENERS, IPV4)], [1, 1]);
  assert.equal(await say(nodePort).catch(() => ''), '');
});

test('no more connections than may be, of all ports together; one that ends makes room', async (t) => {
  const { ports } = setUp(t, { maxConnections: 2 });
  const endpoints = [await pod(t, 'a')];
  const [one, two] = [await freePort(), await freePort()];
  await ports.update(
    'ip',
    [one, two].map((nodePort) => ({ nodePort, endpoints, affinitySeconds: null })),
  );
  const held = await Promise.all(
    [one, two].map(async (port) => {
      const socket = connect({ host: '127.0.0.1', port });
      await once(socket, 'connect');
      return socket;
    }),
  );
  assert.equal(await say(two).catch(() => ''), '');
  for (const socket of held) socket.end();
  await Promise.all(held.map((socket) => text(socket)));
  let heard = '';
  for (let tries = 0; heard === '' && tries < 100; tries++) heard = await say(two).catch(() => '');
  assert.equal(heard, 'a hello');
});
