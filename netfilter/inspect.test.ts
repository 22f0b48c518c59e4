import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer } from 'node:http';
import type { AddressInfo } from 'node:net';
import { test, type TestContext } from 'node:test';
import type { Host } from '../base/host.ts';
import { createFakeSys, fakeRunResult } from '../base/sys/fake.ts';
import { inspect } from './inspect.ts';
import { main } from './main.ts';

const service = {
  metadata: { namespace: 'lab', name: 'echo' },
  spec: { clusterIP: '10.96.0.8', clusterIPs: ['10.96.0.8'], ports: [{ port: 80, protocol: 'TCP' }] },
};

/** What commands say, beside an API server with one Service of IPv4. */
async function world(t: TestContext): Promise<{ host: (...args: string[]) => Host; said: { out: string; err: string }; master: string[] }> {
  const server = createServer((request, response) => {
    const items = request.url?.includes('/services') === true ? [service] : [];
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify({ kind: 'List', metadata: {}, items }));
  });
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => server.close());
  const said = { out: '', err: '' };
  const host = (...args: string[]): Host => ({
    args,
    env: {},
    pid: 1,
    stdout: (text) => void (said.out += text),
    stderr: (text) => void (said.err += text),
    signal: new AbortController().signal,
    isTerminal: false,
  });
  return { host, said, master: ['--master', `http://127.0.0.1:${(server.address() as AddressInfo).port}`] };
}

/** A kernel whose nft knows these tables, or refuses with a code and words; there are no iptables. */
function machine(tables: Readonly<Record<string, string>>, refusal = { code: 1, stderr: 'Error: No such file or directory\n' }) {
  const sys = createFakeSys();
  sys.onRun = async ({ argv }) => {
    const listing = argv[0] === 'nft' ? tables[argv[3] ?? ''] : undefined;
    return fakeRunResult(listing === undefined ? refusal : { stdout: listing });
  };
  return sys;
}

test('a table that is not there while the other family’s is differs in all that it should have', async (t) => {
  const { host, said, master } = await world(t);
  const code = await inspect(host('diff', ...master, '--proxy-mode', 'nftables'), machine({ ip6: 'table ip6 kube-proxy {\n}\n' }));
  assert.equal(code, 1);
  assert.match(said.out, /^nftables, IPv4: 1 differences .*\n {2}table kube-proxy\n {2}- all of it\nnftables, IPv6: /);
  said.out = '';
  await inspect(host('diff', ...master, '--proxy-mode', 'nftables'), machine({ ip: 'table ip kube-proxy {\n}\n' }));
  assert.doesNotMatch(said.out, /IPv6/, 'no Service has it');
});

test('who may not read the rules is told so, not that there are none', async (t) => {
  for (const command of [['diff', '--proxy-mode', 'nftables'], ['trace', '10.244.0.2', '10.96.0.8:80'] as const]) {
    const { host, said, master } = await world(t);
    const refused = machine({}, { code: 1, stderr: 'Error: Operation not permitted (you must be root)\n' });
    assert.notEqual(await inspect(host(...command, ...(command[0] === 'diff' ? master : [])), refused), 0);
    assert.match(said.err, /Operation not permitted/);
  }
});

test('diff tells apart what differs and what it cannot tell', async (t) => {
  const { host, said } = await world(t);
  assert.equal(await inspect(host('diff', '--config', '/nowhere/config'), machine({})), 2);
  assert.match(said.err, /^nodelet netfilter diff: .*\/nowhere\/config/);
});

test('a configuration that cannot be written ends in a message', async (t) => {
  const { host, said } = await world(t);
  assert.equal(await main(host('--write-config-to', '/nowhere/config')), 1);
  assert.equal(said.err, 'nodelet netfilter: write the configuration: /nowhere/config: ENOENT\n');
});
