import assert from 'node:assert/strict';
import { once } from 'node:events';
import { existsSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { realClock } from '../base/clock.ts';
import { createFakeClock } from '../base/fake-clock.ts';
import { OpError } from '../base/errors.ts';
import { silentLog } from '../base/log.ts';
import { readDaemonConfig } from './core/conflist.ts';
import { runDaemon } from './daemon.ts';
import { Engine } from './engine.ts';
import { FakeKubeApi } from '../base/kubeapi/fake.ts';
import * as refs from '../base/kubeapi/refs.ts';
import type { Node } from '../proto/kube/types.ts';
import { FakeKernel } from './fake.ts';
import { openStore } from './io/store.ts';
import { NodeNetwork } from './node-network.ts';
import { PolicyNetwork } from './policy.ts';

function world(t: TestContext) {
  const dir = mkdtempSync(join(tmpdir(), 'cni-daemon-'));
  const kernel = new FakeKernel();
  const clock = createFakeClock();
  const stop = new AbortController();
  const open = (path: string) => openStore(path, { boot: 'b' });
  const engine = new Engine({ kernel, openStore: open, pid: 1, families: [4], monoMs: () => 0, log: silentLog });
  const { config } = readDaemonConfig({ socket: `${dir}/cni.sock`, dataDir: dir, confFile: '', nodeName: 'n' });
  const table = { write: async () => {}, read: async () => ({ state: 'none' }) as const };
  const policy = new PolicyNetwork({ nodeName: 'n', table, clock, log: silentLog });
  const begin = (): Promise<void> => runDaemon({ config, engine, kernel, policy, api: null, clock, log: silentLog }, stop.signal);
  t.after(() => {
    stop.abort();
    engine[Symbol.dispose]();
    rmSync(dir, { recursive: true });
  });
  const call = async (command: string, netns: string) => {
    const ports = { runtimeConfig: { portMappings: [{ hostPort: 80, containerPort: 8080 }] } };
    const conf = { cniVersion: '1.1.0', name: 'n', type: 'nodelet', ipam: { dataDir: dir, ranges: [[{ subnet: '10.244.0.0/29' }]] }, ...ports };
    return await engine.call({ CNI_COMMAND: command, CNI_CONTAINERID: 'c', CNI_IFNAME: 'eth0', CNI_NETNS: netns }, JSON.stringify(conf));
  };
  const until = async (isSo: () => boolean): Promise<void> => {
    for (let tries = 0; !isSo(); tries += 1) {
      assert.ok(tries < 1000, 'it did not come to that');
      await realClock.sleep(5);
    }
  };
  return { dir, config, kernel, clock, stop, begin, call, until };
}

test('a kernel that does not let go of what a dead pod had does not end the daemon, and is asked again', async (t) => {
  const { dir, kernel, clock, stop, begin, call, until } = world(t);
  const running = begin();
  let isOver = false;
  void running.finally(() => (isOver = true));
  await until(() => existsSync(`${dir}/cni.sock`) && kernel.tables.length > 0);
  kernel.addSpace('/p');
  assert.equal((await call('ADD', '/p')).code, 0);
  kernel.removeSpace('/p');
  let refusals = 0;
  kernel.fault = (what) => (what === 'ports-remove' ? ((refusals += 1), 'EBUSY') : null);
  await until(() => clock.armed > 0);
  await clock.advance(60_000);
  await until(() => refusals > 0 && clock.armed > 0);
  assert.equal(isOver, false);
  assert.equal([...kernel.elements.values()].flatMap((map) => [...map.keys()]).length, 1);
  await clock.advance(60_000);
  await until(() => [...kernel.elements.values()].every((map) => map.size === 0));
  stop.abort();
  await running;
});

test('a caller that asks nothing does not hold up the end', { timeout: 20_000 }, async (t) => {
  const { dir, stop, begin, until } = world(t);
  const running = begin();
  await until(() => existsSync(`${dir}/cni.sock`));
  const idle = connect(`${dir}/cni.sock`);
  await once(idle, 'connect');
  idle.write('CNI_COMMAND=ADD');
  idle.on('error', () => undefined).resume();
  stop.abort();
  await running;
  assert.equal(existsSync(`${dir}/cni.sock`), false);
});

test('a configuration that cannot be written is the disk’s trouble and no defect', async (t) => {
  const { dir, config, kernel, clock } = world(t);
  writeFileSync(`${dir}/file`, '');
  const network = new NodeNetwork({ config: { ...config, confFile: `${dir}/file/below.conflist` }, kernel, clock, log: silentLog });
  network.tell([{ name: 'n', addresses: ['192.0.2.1'], podCIDRs: ['10.244.0.0/24'] }]);
  await assert.rejects(network.sync(), OpError);
});

test('ways to other nodes that could not be looked at are looked at again soon', async (t) => {
  const { config, kernel, clock, stop, until } = world(t);
  const api = new FakeKubeApi({ clock });
  const node = (name: string, address: string, range: string): Node => ({
    apiVersion: 'v1',
    kind: 'Node',
    metadata: { name },
    spec: { podCIDRs: [range] },
    status: { addresses: [{ type: 'InternalIP', address }] },
  });
  api.put(refs.nodes(), node('n', '192.0.2.1', '10.244.0.0/24'));
  let looks = 0;
  const links = kernel.links.bind(kernel);
  kernel.links = async (netns) => {
    looks += 1;
    if (looks <= 2) throw new OpError('deadline', 'read links', 'the kernel did not answer');
    return await links(netns);
  };
  const running = new NodeNetwork({ config, kernel, clock, log: silentLog }).run(api, stop.signal).catch(() => {});
  await until(() => clock.armed > 0);
  await clock.advance(50);
  assert.equal(looks, 1);
  await clock.advance(500);
  assert.equal(looks, 2);
  await clock.advance(1_999);
  assert.equal(looks, 2);
  await clock.advance(1);
  assert.equal(looks, 3);
  await clock.advance(29_000);
  assert.equal(looks, 3);
  stop.abort();
  await running;
});

test('nobody wakes to look after ways while this node is not known, however the last look ended', async (t) => {
  const { config, kernel, clock, stop, until } = world(t);
  // The watch has a clock of its own: what is armed here is armed for looks.
  const api = new FakeKubeApi({ clock: createFakeClock() });
  const node = (name: string): Node => ({ apiVersion: 'v1', kind: 'Node', metadata: { name }, spec: { podCIDRs: ['10.244.0.0/24'] } });
  const gone = (name: string): Promise<unknown> => api.delete({ ...refs.nodes(), name });
  const links = kernel.links.bind(kernel);
  let looks = 0;
  kernel.links = async (netns) => {
    looks += 1;
    if (looks === 1) throw new OpError('deadline', 'read links', 'the kernel did not answer');
    return await links(netns);
  };
  const running = new NodeNetwork({ config, kernel, clock, log: silentLog }).run(api, stop.signal).catch(() => {});
  const nothingIsArmed = async (): Promise<void> => {
    for (let tries = 0; clock.armed > 0; tries += 1) {
      assert.ok(tries < 100, 'a look is armed');
      await clock.advance(50);
      await realClock.sleep(1);
    }
  };
  await nothingIsArmed();
  for (const round of [1, 2]) {
    api.put(refs.nodes(), node('n'));
    await until(() => clock.armed === 1);
    await clock.advance(50);
    await until(() => looks === round && clock.armed === 1);
    api.put(refs.nodes(), node('m'));
    await gone('n');
    await nothingIsArmed();
    await gone('m');
    await until(() => clock.armed === 1);
    await nothingIsArmed();
    looks = round;
  }
  stop.abort();
  await running;
});
