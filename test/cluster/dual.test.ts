import assert from 'node:assert/strict';
import { readFile } from 'node:fs/promises';
import { test } from 'node:test';
import { watchLeaks } from '../leaks.ts';
import { eventually, kubectlProblem, setProblem, testSet, type TestSet } from '../set.ts';
import { clusterProblem } from './programs.ts';

const NAME = 'dualtest';
const IMAGE = 'nodelet.test/dual:1';
const wants = { agents: ['ours'], proxies: [], containerd: '2.3' } as const;
const skip = (await setProblem()) ?? (await kubectlProblem()) ?? (await clusterProblem(process.env, wants)) ?? false;

const UP = ['--agent', 'ours', '--nodes', '2', '--cni', 'nodelet', '--dual-stack', '--containerd', '2.3', '--images', 'basic'];
const WAIT_MS = 60_000;

const pod = (name: string, node: string, script: string): object => ({
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name, labels: { name } },
  spec: { nodeName: node, terminationGracePeriodSeconds: 0, containers: [{ name: 'main', image: IMAGE, command: ['sh', '-c', script] }] },
});

const service = (name: string, spec: object): object => ({
  apiVersion: 'v1',
  kind: 'Service',
  metadata: { name },
  spec: { selector: { name: 'server' }, ports: [{ port: 80, targetPort: 8080 }], ...spec },
});

interface Addressed {
  readonly items: readonly { readonly metadata: { readonly name: string }; readonly status: { readonly podIPs: readonly { readonly ip: string }[] } }[];
}

/** A pod's addresses, IPv4 first. */
async function addressesOf(set: TestSet): Promise<Map<string, [string, string]>> {
  const { items } = JSON.parse(await set.k(['get', 'pods', '-o', 'json'])) as Addressed;
  return new Map(items.map(({ metadata, status }) => [metadata.name, [status.podIPs[0]?.ip ?? '', status.podIPs[1]?.ip ?? '']]));
}

const urlOf = (ip: string, port = 80): string => `http://${ip.includes(':') ? `[${ip}]` : ip}:${port}/`;

/** What a pod is answered at each address: who answers and whom it takes the caller for, or nothing. */
async function ask(set: TestSet, from: string, urls: readonly string[]): Promise<string[]> {
  const each = urls.map((url, at) => `(timeout 3 wget -q -O - '${url}cgi-bin/who' || echo none) > /tmp/said-${at} 2>/dev/null &`);
  const script = `mkdir -p /tmp\n${each.join('\n')}\nwait\ncat ${urls.map((_, at) => `/tmp/said-${at}`).join(' ')}`;
  return (await set.k(['exec', from, '--', 'sh', '-c', script])).split('\n').map((line) => line.replace('::ffff:', '').replaceAll(/[[\]]/g, ''));
}

/** The same from the switch between the nodes, by a program of this machine. */
async function askFromOutside(set: TestSet, urls: readonly string[]): Promise<string[]> {
  const script = `for (const url of ${JSON.stringify(urls)}) console.log(await fetch(url + 'cgi-bin/who', { signal: AbortSignal.timeout(2000) }).then((answer) => answer.text(), () => 'none'));`;
  const { code, out, err } = await set.nodelet(['exec', '--node', 'hub', '--', process.execPath, '--input-type=module', '-e', script]);
  assert.equal(code, 0, err);
  return out.split('\n').filter((line) => line !== '');
}

interface Plugin {
  /** The containers that have addresses of a node. */
  containers(): Promise<string[]>;
  /** Starts the plugin in the node as a runtime does; its exit status. */
  call(command: string, container: string, more?: object): Promise<number>;
}

/** The plugin of a node, as its runtime finds it. */
async function pluginOf(set: TestSet, node: string): Promise<Plugin> {
  const { pid } = (await set.status()).nodes.find((one) => one.name === node) ?? { pid: null };
  const root = `/proc/${pid}/root`;
  const { plugins, cniVersion, name } = JSON.parse(await readFile(`${root}/var/lib/cni/net.d/10-nodelet.conflist`, 'utf8')) as {
    plugins: object[];
    cniVersion: string;
    name: string;
  };
  const folder = `${process.env['NODELET_STATE'] ?? '/var/lib/nodelet'}/${NAME}/cni`;
  return {
    async containers() {
      // Through /proc the file has another path than its log has: it is read where it lies.
      const script = `import { DatabaseSync } from 'node:sqlite';
        const rows = new DatabaseSync('/run/nodelet/cni/state.db', { readOnly: true }).prepare('SELECT container FROM attachment ORDER BY container').all();
        console.log(JSON.stringify(rows.map((row) => row.container)));`;
      const { code, out, err } = await set.nodelet(['exec', '--node', node, '--', process.execPath, '--input-type=module', '-e', script]);
      assert.equal(code, 0, err);
      return JSON.parse(out) as string[];
    },
    async call(command, container, more = {}) {
      const words = { CNI_COMMAND: command, CNI_CONTAINERID: container, CNI_NETNS: `/run/netns/${container}`, CNI_IFNAME: 'eth0', CNI_PATH: folder };
      const env = Object.entries(words).map(([key, value]) => `${key}=${value}`);
      const input = JSON.stringify({ cniVersion, name, ...plugins[0], ...more });
      return (await set.nodelet(['exec', '--node', node, '--', 'env', ...env, `${folder}/nodelet`], { input })).code;
    },
  };
}

/** Tells who asks. */
const WHO = ['#!/bin/sh', 'printf "Content-type: text/plain\\r\\n\\r\\n"', 'echo "server $REMOTE_ADDR"'].join('\n');
const SERVE = `mkdir -p /tmp/w/cgi-bin\ncat > /tmp/w/cgi-bin/who <<'END'\n${WHO}\nEND\nchmod +x /tmp/w/cgi-bin/who\nexec httpd -f -p 8080 -h /tmp/w`;

test('both families: Services and policies between pods of two nodes, and from outside', { skip, timeout: 300_000 }, async (t) => {
  await using _leaks = watchLeaks({ owns: NAME });
  await using set = await testSet(NAME, UP, ['cluster', 'up']);
  const made = await set.nodelet(['image', 'make', IMAGE, '--from', 'busybox']);
  assert.equal(made.code, 0, made.err);
  const objects = [
    pod('server', 'node-2', SERVE),
    pod('near', 'node-2', 'sleep 3600'),
    pod('far', 'node-1', 'sleep 3600'),
    pod('other', 'node-1', 'sleep 3600'),
    service('both', { type: 'NodePort', ipFamilyPolicy: 'PreferDualStack' }),
    service('reverse', { ipFamilyPolicy: 'RequireDualStack', ipFamilies: ['IPv6', 'IPv4'] }),
    service('six', { ipFamilyPolicy: 'SingleStack', ipFamilies: ['IPv6'] }),
  ];
  await set.k(['apply', '-f', '-'], JSON.stringify({ apiVersion: 'v1', kind: 'List', items: objects }));
  await set.k(['wait', '--for=condition=Ready', 'pod', '--all', '--timeout=60s']);
  const ips = await addressesOf(set);
  const [far4, far6] = ips.get('far') ?? ['', ''];
  const [near4, near6] = ips.get('near') ?? ['', ''];
  const clusterIps = async (name: string): Promise<string[]> =>
    JSON.parse(await set.k(['get', 'service', name, '-o', 'jsonpath={.spec.clusterIPs}'])) as string[];
  const both = await clusterIps('both');
  assert.deepEqual(
    both.map((ip) => ip.includes(':')),
    [false, true],
  );

  await t.test('a ClusterIP of either family leads to the pod of another node, which sees the caller by its own address', async () => {
    const urls = both.map((ip) => urlOf(ip));
    await eventually('rules of both families stand', WAIT_MS, async () => {
      assert.deepEqual(await ask(set, 'far', urls), [`server ${far4}`, `server ${far6}`]);
      return true;
    });
    assert.deepEqual(await ask(set, 'near', urls), [`server ${near4}`, `server ${near6}`]);
    const reverse = await clusterIps('reverse');
    assert.deepEqual(
      reverse.map((ip) => ip.includes(':')),
      [true, false],
    );
    assert.deepEqual(
      await ask(
        set,
        'far',
        reverse.map((ip) => urlOf(ip)),
      ),
      [`server ${far6}`, `server ${far4}`],
    );
  });

  await t.test('a Service of IPv6 alone has one address, one slice, and answers by its name', async () => {
    const [ip = '', ...more] = await clusterIps('six');
    assert.ok(ip.includes(':') && more.length === 0, ip);
    assert.equal(await set.k(['get', 'endpointslices', '-l', 'kubernetes.io/service-name=six', '-o', 'jsonpath={.items[*].addressType}']), 'IPv6');
    assert.deepEqual(await ask(set, 'far', [urlOf(ip), 'http://six.default.svc.cluster.local/']), [`server ${far6}`, `server ${far6}`]);
  });

  await t.test('a node port answers outside at both families of every node, by way of the other node too', async () => {
    const port = Number(await set.k(['get', 'service', 'both', '-o', 'jsonpath={.spec.ports[0].nodePort}']));
    const nodes = (await set.k(['get', 'nodes', '-o', 'jsonpath={.items[*].status.addresses[?(@.type=="InternalIP")].address}'])).split(' ');
    assert.equal(nodes.length, 4);
    const answers = await askFromOutside(
      set,
      nodes.map((ip) => urlOf(ip, port)),
    );
    for (const [at, answer] of answers.entries()) assert.match(answer, /^server /, nodes[at]);
    // Between nodes the first one stands for the caller, so that answers come back by it.
    const node1 = nodes.find((ip) => ip.includes(':')) ?? '';
    assert.ok(answers.some((answer) => answer.replaceAll(/[[\]]/g, '') === `server ${node1}`));
  });

  await t.test('an ipBlock of IPv6 lets in whom it names, without its exceptions, and nobody by IPv4', async () => {
    const [server4, server6] = ips.get('server') ?? ['', ''];
    const [, other6] = ips.get('other') ?? ['', ''];
    const urls = [urlOf(server6, 8080), urlOf(both[1] ?? ''), urlOf(server4, 8080)];
    const block = { cidr: far6.replace(/[^:]*$/, '/64'), except: [`${other6}/128`] };
    const policy = {
      apiVersion: 'networking.k8s.io/v1',
      kind: 'NetworkPolicy',
      metadata: { name: 'block' },
      spec: { podSelector: { matchLabels: { name: 'server' } }, policyTypes: ['Ingress'], ingress: [{ from: [{ ipBlock: block }] }] },
    };
    await set.k(['apply', '-f', '-'], JSON.stringify(policy));
    await eventually('the policy stands', WAIT_MS, async () => {
      assert.deepEqual(await ask(set, 'other', urls), ['none', 'none', 'none']);
      return true;
    });
    assert.deepEqual(await ask(set, 'far', urls), [`server ${far6}`, `server ${far6}`, 'none']);
    assert.deepEqual(await ask(set, 'near', urls), ['none', 'none', 'none']);
    await set.k(['delete', 'networkpolicy', 'block']);
    await eventually('the policy is gone', WAIT_MS, async () => {
      assert.deepEqual(await ask(set, 'near', urls), [`server ${near6}`, `server ${near6}`, `server ${near4}`]);
      return true;
    });
  });

  await t.test('containerd dies and comes back: pods keep their addresses, new ones get others, and GC takes what is no pod’s', async () => {
    const before = await addressesOf(set);
    const runtime = async () => (await set.status()).processes.find((one) => one.place === 'node-1' && one.name === 'containerd');
    const pid = (await runtime())?.pid;
    assert.ok(typeof pid === 'number');
    process.kill(pid, 'SIGKILL');
    await eventually('containerd runs again', WAIT_MS, async () => ((await runtime())?.pid ?? pid) !== pid || null);
    await set.k(['apply', '-f', '-'], JSON.stringify(pod('late', 'node-1', 'sleep 3600')));
    await set.k(['wait', '--for=condition=Ready', 'pod/late', '--timeout=60s']);
    const [late4 = '', late6 = ''] = (await addressesOf(set)).get('late') ?? [];
    assert.deepEqual(
      [...(await addressesOf(set))].filter(([name]) => name !== 'late'),
      [...before],
    );
    assert.ok(![...before.values()].flat().some((ip) => ip === late4 || ip === late6), `${late4} ${late6}`);
    const urls = both.map((ip) => urlOf(ip));
    assert.deepEqual(await ask(set, 'late', urls), [`server ${late4}`, `server ${late6}`]);
    assert.deepEqual(await ask(set, 'far', urls), [`server ${far4}`, `server ${far6}`]);

    const plugin = await pluginOf(set, 'node-1');
    const pods = await plugin.containers();
    assert.ok(pods.length >= 3, 'far, other and late at least: names are answered by pods of either node');
    await set.nodelet(['exec', '--node', 'node-1', '--', 'ip', 'netns', 'add', 'left']);
    try {
      assert.equal(await plugin.call('ADD', 'left'), 0);
      assert.deepEqual(await plugin.containers(), [...pods, 'left'].sort());
      assert.equal(await plugin.call('GC', '', { 'cni.dev/valid-attachments': pods.map((containerID) => ({ containerID, ifname: 'eth0' })) }), 0);
      assert.deepEqual(await plugin.containers(), pods);
      assert.notEqual((await set.nodelet(['exec', '--node', 'node-1', '--', 'ip', '-n', 'left', 'link', 'show', 'eth0'])).code, 0);
      assert.deepEqual(await ask(set, 'late', urls), [`server ${late4}`, `server ${late6}`]);
    } finally {
      await set.nodelet(['exec', '--node', 'node-1', '--', 'ip', 'netns', 'delete', 'left']);
    }
  });
});
