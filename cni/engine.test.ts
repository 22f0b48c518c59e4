import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { silentLog } from '../base/log.ts';
import { Engine } from './engine.ts';
import { FakeKernel } from './fake.ts';
import { openStore } from './io/store.ts';

interface World {
  readonly kernel: FakeKernel;
  readonly call: (command: string, container: string, pod: string, extra?: Record<string, unknown>) => Promise<Record<string, unknown> & { ok: boolean }>;
  /** Another process over the same file. */
  readonly restart: (boot?: string) => void;
  readonly remains: () => Promise<string[]>;
}

function world(t: TestContext): World {
  const dir = mkdtempSync(join(tmpdir(), 'cni-engine-'));
  const kernel = new FakeKernel();
  let boot = 'boot-1';
  const make = (): Engine => new Engine({ kernel, openStore: (path) => openStore(path, { boot }), pid: 1, families: [4], monoMs: () => 0, log: silentLog });
  let engine = make();
  t.after(() => {
    engine[Symbol.dispose]();
    rmSync(dir, { recursive: true });
  });
  return {
    kernel,
    async call(command, container, pod, extra = {}) {
      const conf = { cniVersion: '1.1.0', name: 'n', type: 'nodelet', ipam: { dataDir: dir, ranges: [[{ subnet: '10.244.0.0/29' }]] }, ...extra };
      const { code, text } = await engine.call({ CNI_COMMAND: command, CNI_CONTAINERID: container, CNI_IFNAME: 'eth0', CNI_NETNS: pod }, JSON.stringify(conf));
      return { ok: code === 0, ...(text === '' ? {} : (JSON.parse(text) as Record<string, unknown>)) };
    },
    restart(next = boot) {
      engine[Symbol.dispose]();
      boot = next;
      engine = make();
    },
    async remains() {
      const links = (await kernel.links(null)).filter((link) => link.name !== 'lo').map((link) => link.name);
      const { store } = await engine.workshop(dir);
      return [
        ...links,
        ...store.all().map((one) => one.containerId),
        ...store.ports().map((port) => String(port.hostPort)),
        ...[...kernel.elements.values()].flatMap((map) => [...map.keys()]),
      ];
    },
  };
}

const port = { runtimeConfig: { portMappings: [{ hostPort: 80, containerPort: 8080 }] } };
const addressOf = (result: Record<string, unknown>): string | undefined => (result['ips'] as { address: string }[] | undefined)?.[0]?.address;

test('whatever the kernel refuses, an ADD leaves nothing, and the next one works', async (t) => {
  const { kernel, call, remains } = world(t);
  kernel.addSpace('/p');
  for (let nth = 0; ; nth++) {
    let seen = 0;
    kernel.fault = () => (seen++ === nth ? 'EINVAL' : null);
    const result = await call('ADD', `c${nth}`, '/p', port);
    kernel.fault = () => null;
    if (result.ok) {
      assert.ok(nth > 6, `only ${nth} changes could fail`);
      await call('DEL', `c${nth}`, '/p', port);
      break;
    }
    // Host ports are written again as a whole when one write is refused, so that one alone is no failure.
    assert.deepEqual(await remains(), [], `after refusal ${nth}`);
  }
  assert.deepEqual(await remains(), []);
});

test('a DEL that the kernel refuses keeps the address, and works when it is made again', async (t) => {
  const { kernel, call, remains } = world(t);
  kernel.addSpace('/p');
  await call('ADD', 'c', '/p', port);
  kernel.fault = (what) => (what === 'delete-link' ? 'EBUSY' : null);
  assert.equal((await call('DEL', 'c', '/p', port)).ok, false);
  assert.ok((await remains()).includes('c'));
  kernel.fault = () => null;
  assert.equal((await call('DEL', 'c', '/p', port)).ok, true);
  assert.deepEqual(await remains(), []);
});

test('calls for one pod follow each other, those for others do not wait', async (t) => {
  const { kernel, call, remains } = world(t);
  for (const pod of ['/p', '/q']) kernel.addSpace(pod);
  const [first, gone, second] = await Promise.all([call('ADD', 'c', '/p'), call('DEL', 'c', '/p'), call('ADD', 'd', '/q')]);
  assert.deepEqual([first.ok, gone.ok, second.ok], [true, true, true]);
  await call('DEL', 'd', '');
  assert.deepEqual(await remains(), []);
});

test('an interrupted ADD is cleared away by the next one and by DEL', async (t) => {
  const { kernel, call, restart } = world(t);
  for (const pod of ['/p', '/q']) kernel.addSpace(pod);
  const died = new Error('killed');
  kernel.fault = (what) => {
    if (what === 'set-up' || what === 'delete-link') throw died;
    return null;
  };
  await assert.rejects(call('ADD', 'c', '/p'), died);
  kernel.fault = () => null;
  restart();
  const again = await call('ADD', 'c', '/p');
  assert.equal(again.ok, true, JSON.stringify(again));
  assert.equal((await call('ADD', 'c', '/p')).ok, false);
});

test('what dead pods hold is taken back when a range is full or a port taken', async (t) => {
  const { kernel, call } = world(t);
  const pods = [2, 3, 4, 5, 6].map((at) => `/p${at}`);
  for (const pod of pods) {
    kernel.addSpace(pod);
    assert.equal((await call('ADD', `c${pod.slice(2)}`, pod, pod === '/p2' ? port : {})).ok, true);
  }
  kernel.addSpace('/new');
  const full = await call('ADD', 'new', '/new');
  assert.deepEqual([full.ok, full['code']], [false, 100]);
  kernel.removeSpace('/p2');
  const result = await call('ADD', 'new', '/new', port);
  assert.equal(addressOf(result), '10.244.0.2/29');
  kernel.addSpace('/other');
  kernel.removeSpace('/p3');
  const taken = await call('ADD', 'other', '/other', port);
  assert.deepEqual([taken.ok, taken['code']], [false, 101]);
});

test('another boot knows no pod of the last one; DEL of one is success', async (t) => {
  const { kernel, call, restart, remains } = world(t);
  kernel.addSpace('/p');
  await call('ADD', 'c', '/p');
  kernel.removeSpace('/p');
  restart('boot-2');
  assert.equal((await call('DEL', 'c', '/p')).ok, true);
  assert.deepEqual(await remains(), []);
});

test('GC takes what the runtime does not name, and links that nobody has', async (t) => {
  const { kernel, call, remains } = world(t);
  for (const pod of ['/p', '/q']) kernel.addSpace(pod);
  await call('ADD', 'keep', '/p');
  await call('ADD', 'lost', '/q');
  assert.equal((await call('GC', '', '', { 'cni.dev/valid-attachments': [{ containerID: 'keep', ifname: 'eth0' }] })).ok, true);
  assert.equal((await remains()).filter((name) => name === 'keep' || name === 'lost').join(), 'keep');
  assert.equal((await kernel.links(null)).length, 2);
});

test('a pod that loses something is told by CHECK', async (t) => {
  const { kernel, call } = world(t);
  kernel.addSpace('/p');
  const added = await call('ADD', 'c', '/p');
  assert.equal((await call('CHECK', 'c', '/p', { prevResult: added })).ok, true);
  const other = { ...added, ips: [{ address: '10.9.9.9/24' }] };
  assert.equal((await call('CHECK', 'c', '/p', { prevResult: other }))['code'], 102);
  await kernel.apply('/p', [{ op: 'delete-route', dst: { family: 4, value: 0n, prefix: 0 }, gateway: null, link: 0, protocol: 0 }]);
  assert.equal((await call('CHECK', 'c', '/p'))['code'], 102);
  kernel.removeSpace('/p');
  assert.equal((await call('CHECK', 'c', '/p'))['code'], 102);
});

test('GC that names a pod in its environment takes that very pod, and waits for nobody', { timeout: 10_000 }, async (t) => {
  const { kernel, call, remains } = world(t);
  kernel.addSpace('/p');
  assert.equal((await call('ADD', 'c', '/p')).ok, true);
  assert.equal((await call('GC', 'c', '/p', { 'cni.dev/valid-attachments': [] })).ok, true);
  assert.deepEqual(await remains(), []);
});

test('but for the first pod of a boot, a pod without ports has no program started', async (t) => {
  const { kernel, call } = world(t);
  for (const pod of ['/p', '/q']) kernel.addSpace(pod);
  assert.equal((await call('ADD', 'c', '/p')).ok, true);
  const written = kernel.tables.length;
  let asked = 0;
  kernel.fault = (what) => {
    if (what.startsWith('ports-')) asked += 1;
    return null;
  };
  assert.equal((await call('ADD', 'd', '/q')).ok, true);
  for (const [container, pod] of [
    ['c', '/p'],
    ['d', ''],
  ] as const)
    assert.equal((await call('DEL', container, pod)).ok, true);
  assert.deepEqual([kernel.tables.length, asked], [written, 0]);
});
