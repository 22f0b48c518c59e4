import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OpError } from '../../base/errors.ts';
import type { FakeKernel } from '../../netfilter/fake.ts';
import { makeWorld } from './netfilter-world.ts';

/** The n-th call of the kernel fails, once or from then on for a while, for every n: the table comes out right all the same. */

const echo = (ip: string, more = ''): string => `kind: Service\nmetadata: {namespace: lab, name: echo}\nspec: {clusterIP: ${ip}, ports: [{port: 80}]${more}}\n`;
const slice = (...ips: string[]): string =>
  `kind: EndpointSlice\nmetadata: {namespace: lab, name: echo-1, labels: {kubernetes.io/service-name: echo}}\naddressType: IPv4\nports: [{port: 8080}]\nendpoints: [${ips.map((ip) => `{addresses: [${ip}], nodeName: node-a}`).join(', ')}]\n`;

const script: [string, string][] = [
  ['apply', `${echo('10.96.0.8', ', sessionAffinity: ClientIP')}---\n${slice('10.244.0.3', '10.244.0.4')}`],
  ['start', ''],
  ['tick 5s', ''],
  ['apply', echo('10.96.0.8')],
  ['tick 1s', ''],
  ['apply', slice('10.244.0.4')],
  ['meddle elements', ''],
  ['tick 1s', ''],
  ['stop', ''],
  ['apply', echo('10.96.0.9')],
  ['start', ''],
  ['tick 31s', ''],
];

/** Runs the script with calls `from` to `to` failing; says how many calls there were and what the table ended as. */
async function run(from: number, to: number): Promise<{ calls: number; contents: string }> {
  await using world = await makeWorld();
  let calls = 0;
  const { kernel } = world;
  const fails = (): boolean => {
    calls += 1;
    return calls >= from && calls < to;
  };
  const real: Pick<FakeKernel, 'commit' | 'observe' | 'generation'> = {
    commit: kernel.commit.bind(kernel),
    observe: kernel.observe.bind(kernel),
    generation: kernel.generation.bind(kernel),
  };
  kernel.commit = async (family, ops) =>
    fails() ? { ok: false, error: new OpError('unavailable', 'write nftables rules', 'failed by the test'), failedOps: [] } : await real.commit(family, ops);
  kernel.observe = async (family) => (fails() ? Promise.reject(new OpError('deadline', 'read nftables', 'failed by the test')) : await real.observe(family));
  kernel.generation = async () => (fails() ? Promise.reject(new OpError('deadline', 'read nftables', 'failed by the test')) : await real.generation());
  for (const [line, input] of script) await world.command(line.split(' '), input);
  // Time for retries, for deleting chains, and for one more look.
  await world.command(['tick', '90s'], '');
  const sorted = (entries: Iterable<unknown>): string[] => [...entries].map((entry) => JSON.stringify(entry)).toSorted();
  const contents = [...kernel.tables].map(([family, { chains, sets }]) => [
    family,
    sorted(chains),
    sorted([...sets].map(([name, { elements }]) => [name, sorted(elements.keys())])),
  ]);
  return { calls, contents: JSON.stringify(sorted(contents)) };
}

test('any one call to the kernel may fail, and any few in a row', async () => {
  const good = await run(Infinity, Infinity);
  assert.match(good.contents, /10\.96\.0\.9 \. tcp \. 80/);
  assert.doesNotMatch(good.contents, /affinity|10\.96\.0\.8/);
  for (const length of [1, 6]) {
    for (let call = 1; call <= good.calls; call++) {
      const { contents } = await run(call, call + length);
      assert.equal(contents, good.contents, `calls ${call} to ${call + length - 1} of ${good.calls} fail`);
    }
  }
});
