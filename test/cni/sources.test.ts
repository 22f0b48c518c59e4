import assert from 'node:assert/strict';
import { execFileSync } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import { describe, test } from 'node:test';
import { ip, Lab, missing, peer } from './lab.ts';

/** Whose addresses a pod may send by, with packets. */

const skip = missing() ?? false;
const HEARD_MS = 20_000;

describe('sources', { skip, concurrency: false, timeout: 300_000 }, () => {
  test('a pod is heard by its own addresses only, and does not reach the node’s loopback', async () => {
    await using lab = new Lab();
    const outside = lab.uplink();
    await lab.daemon();
    const pod = lab.space('a');
    const ipam = { ranges: [[{ subnet: '10.244.1.0/24' }], [{ subnet: 'fd00:1::/64' }]] };
    const mappings = [{ hostPort: 81, containerPort: 8080 }];
    await lab.call('ADD', 'a', pod, { ipam, runtimeConfig: { portMappings: mappings } });
    await lab.call('ADD', 'b', lab.space('b'), { ipam });
    for (const [prefix, via] of [
      ['10.244.1.0/24', '192.0.2.10'],
      ['fd00:1::/64', '2001:db8::10'],
    ] as const)
      ip('-n', outside, 'route', 'add', prefix, 'via', via);
    // Of the other pod, of the node, of nobody.
    const foreign = ['10.244.1.3', '192.0.2.10', '203.0.113.9', 'fd00:1::3', '2001:db8::10', '2001:db8:9::9'];
    for (const address of foreign)
      ip('-n', pod, 'addr', 'add', `${address}/${address.includes(':') ? 128 : 32}`, 'dev', 'eth0', ...(address.includes(':') ? ['nodad'] : []));
    const heard = new Set<string>();
    const listener = lab.start(outside, peer('hear', '7000'));
    listener.child.stdout!.on('data', (chunk: Buffer) =>
      chunk
        .toString()
        .trim()
        .split('\n')
        .forEach((line) => heard.add(line)),
    );
    const until = async (word: string): Promise<void> => {
      for (const deadline = performance.now() + HEARD_MS; !heard.has(word); await delay(20)) assert.ok(performance.now() < deadline, `never heard ${word}`);
    };
    await until('listening');
    const targetOf = (address: string): string => (address.includes(':') ? '2001:db8::200' : '192.0.2.200');
    // Those that must not be heard begin first; whoever is heard last was sent after them.
    const senders = foreign.map((address) => lab.start(pod, peer('send', targetOf(address), '7000', address)));
    await Promise.all(senders.map(({ child }) => new Promise<void>((resolve) => child.once('spawn', resolve))));
    await delay(1_000);
    for (const own of ['10.244.1.2', 'fd00:1::2']) {
      lab.start(pod, peer('send', targetOf(own), '7000', own));
      await until(own);
    }
    assert.deepEqual([...heard].sort(), ['10.244.1.2', 'fd00:1::2', 'listening']);

    // The link of a pod with host ports lets the kernel route to 127.0.0.1.
    const server = lab.start(lab.node, peer('serve', 'loopback', '7009'));
    await new Promise<void>((resolve) => server.child.stdout!.once('data', () => resolve()));
    const local = (await lab.start(lab.node, peer('ask', 'tcp', '127.0.0.1', '7009')).ended).out;
    assert.match(local, /^loopback/);
    for (const route of ['127.0.0.0/8', '127.0.0.1']) {
      try {
        execFileSync('ip', ['-n', pod, 'route', 'delete', 'local', route, 'dev', 'lo', 'table', 'local'], { stdio: 'ignore' });
      } catch {
        // It was not there: the pod's loopback is down.
      }
    }
    ip('-n', pod, 'route', 'add', '127.0.0.1', 'via', '10.244.1.1', 'dev', 'eth0', 'src', '10.244.1.2');
    execFileSync('nsenter', [`--net=${lab.netns(pod)}`, 'sh', '-c', 'echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet']);
    const { out: answer } = await lab.start(pod, peer('ask', 'tcp', '127.0.0.1', '7009')).ended;
    assert.equal(answer, 'none');
  });
});
