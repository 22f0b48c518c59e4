import assert from 'node:assert/strict';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { silentLog } from '../base/log.ts';
import { Engine } from './engine.ts';
import { FakeKernel } from './fake.ts';
import { openStore } from './io/store.ts';

/* Whatever a runtime writes to standard input and environment, a call is answered: with a result or with an error of the spec's form. */

const junk: readonly unknown[] = [null, -1, 1.5, '', 'x', [], {}, [null], [[]], [{}], true, '::/0', '__proto__', 2 ** 53, '../../etc'];

const whole = (dataDir: string) => ({
  cniVersion: '1.1.0',
  name: 'n',
  type: 'nodelet',
  mtu: 1400,
  ipMasq: true,
  nonMasqueradeCIDRs: ['10.0.0.0/8'],
  dns: { nameservers: ['192.0.2.1'] },
  ipam: {
    type: 'nodelet',
    dataDir,
    ranges: [[{ subnet: '10.244.0.0/24', rangeStart: '10.244.0.5', rangeEnd: '10.244.0.50', gateway: '10.244.0.1' }], [{ subnet: 'fd00::/64' }]],
    routes: [{ dst: '0.0.0.0/0', gw: '10.244.0.1', mtu: 1 }],
  },
  runtimeConfig: {
    portMappings: [{ hostPort: 80, containerPort: 80, protocol: 'tcp', hostIP: '127.0.0.1' }],
    bandwidth: { ingressRate: 1000, ingressBurst: 1, egressRate: 1, egressBurst: 1 },
    ips: ['10.244.0.9/24'],
    mac: '00:11:22:33:44:55',
  },
  args: { cni: { mac: '00:11:22:33:44:55' } },
  prevResult: { cniVersion: '1.1.0', ips: [{ address: '10.244.0.9/24', interface: 0 }], interfaces: [{ name: 'eth0' }], routes: [] },
  'cni.dev/valid-attachments': [{ containerID: 'c', ifname: 'eth0' }],
});

function pathsOf(value: unknown, at: readonly string[] = []): (readonly string[])[] {
  if (typeof value !== 'object' || value === null) return [at];
  return [at, ...Object.entries(value).flatMap(([key, inner]) => pathsOf(inner, [...at, key]))];
}

function withJunk(value: unknown, [first, ...rest]: readonly string[], put: unknown): unknown {
  if (first === undefined) return put;
  const copy = (Array.isArray(value) ? [...(value as unknown[])] : { ...(value as object) }) as Record<string, unknown>;
  copy[first] = withJunk(copy[first], rest, put);
  return copy;
}

function world(t: TestContext) {
  const dir = mkdtempSync(join(tmpdir(), 'cni-hostile-'));
  const kernel = new FakeKernel();
  kernel.addSpace('/p');
  // One store, wherever a configuration wants it: nothing is to be made outside.
  const engine = new Engine({ kernel, openStore: () => openStore(dir, { boot: 'b' }), pid: 1, families: [4, 6], monoMs: () => 0, log: silentLog });
  t.after(() => {
    engine[Symbol.dispose]();
    rmSync(dir, { recursive: true });
  });
  return { dir, engine };
}

test('a field of any type, everywhere', { timeout: 120_000 }, async (t) => {
  const { dir, engine } = world(t);
  const good = whole(dir);
  let answered = 0;
  for (const path of pathsOf(good)) {
    for (const put of junk) {
      const stdin = JSON.stringify(withJunk(good, path, put));
      for (const command of ['ADD', 'CHECK', 'GC', 'STATUS', 'DEL']) {
        const env = { CNI_COMMAND: command, CNI_CONTAINERID: 'c', CNI_IFNAME: 'eth0', CNI_NETNS: '/p', CNI_ARGS: 'K8S_POD_NAMESPACE=a;K8S_POD_NAME=b' };
        const { code, text } = await engine
          .call(env, stdin)
          .catch((error: unknown) => assert.fail(`${command} ${path.join('.')} ${JSON.stringify(put)}: ${String(error)}`));
        if (code === 0) answered += 1;
        else assert.equal(typeof (JSON.parse(text) as { code?: unknown }).code, 'number');
      }
    }
  }
  assert.ok(answered > 1000, `only ${answered} were results`);
});

test('an environment and an input of any form', async (t) => {
  const { dir, engine } = world(t);
  const pod = { CNI_COMMAND: 'ADD', CNI_CONTAINERID: 'c', CNI_IFNAME: 'eth0', CNI_NETNS: '/p' };
  for (const env of [
    {},
    { CNI_COMMAND: 'ADD' },
    { ...pod, CNI_CONTAINERID: '../x' },
    { ...pod, CNI_IFNAME: '..' },
    { ...pod, CNI_NETNS: '/nowhere' },
    { ...pod, CNI_ARGS: ';;=;IP=x' },
  ])
    for (const stdin of [
      '',
      '{',
      '[]',
      'null',
      '['.repeat(200_000),
      JSON.stringify(whole(dir)),
      JSON.stringify({ ...whole(dir), name: 'x'.repeat(100_000) }),
    ]) {
      const { code, text } = await engine.call(env, stdin);
      if (code === 1) assert.equal(typeof (JSON.parse(text) as { msg?: unknown }).msg, 'string');
    }
});
