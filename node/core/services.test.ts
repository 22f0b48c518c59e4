import assert from 'node:assert/strict';
import { test } from 'node:test';
import { agentConfig, cniConfig, proxyConfig, type NodeFacts } from './files.ts';
import { kubeadmObjects } from './kubeadm.ts';
import { initSpec } from './launch.ts';
import { planSet, type NodePlan, type SetOptions } from './plan.ts';
import type { RealPrograms } from './real.ts';
import { hubServices, nodeServices, PROXY_FLAGS, type ProgramPaths, type ServiceSpec } from './services.ts';

const paths: ProgramPaths = {
  node: '/node',
  bundle: '/b/nodelet.mjs',
  proxy: '/b/netfilter.cjs',
  sys: '/sys',
  containerd: '/c/containerd',
  path: '/bin',
  images: '/images',
};
const real: RealPrograms = {
  etcd: '/a/etcd',
  apiserver: '/a/kube-apiserver',
  controllerManager: '/a/kube-controller-manager',
  scheduler: '/a/kube-scheduler',
  kubelet: '/a/kubelet',
  kubeProxy: '/a/kube-proxy',
  coredns: '/a/coredns',
};
const facts: NodeFacts = { containerdMajor: 2, cniBinDir: '/cni', cgroupVersion: 1, mayLowerOomScore: false };
const judged = (options: Partial<SetOptions> = {}): ReturnType<typeof planSet> =>
  planSet({ name: 's', index: 0, stateHome: '/x', nodeCount: 2, controlPlane: 'real', agents: ['upstream', 'ours'], join: 'token', ...options });
const nodeOf = (set: ReturnType<typeof planSet>, at: number): NodePlan => {
  const node = set.nodes[at];
  assert.ok(node);
  return node;
};
const names = (services: readonly ServiceSpec[]): string[] => services.map((service) => service.name);
const argvOf = (services: readonly ServiceSpec[], name: string): readonly string[] => services.find((service) => service.name === name)?.argv ?? [];

test('a node runs the programs of the makers that were asked for', () => {
  const set = judged();
  assert.deepEqual(names(nodeServices(set, nodeOf(set, 0), paths, { proxy: 1 }, real)), ['containerd', 'kubelet', 'kube-proxy']);
  assert.deepEqual(names(nodeServices(set, nodeOf(set, 1), paths, { proxy: 1 }, real)), ['containerd', 'agent', 'netfilter']);
});

test('both kubelets have one command line and one configuration, but for the node’s own name and addresses', () => {
  const set = judged();
  const [upstream, ours] = [0, 1].map((at) => nodeServices(set, nodeOf(set, at), paths, { proxy: 1 }, real));
  const flags = argvOf(upstream ?? [], 'kubelet').slice(argvOf(upstream ?? [], 'kubelet').indexOf('/a/kubelet') + 1);
  const own = argvOf(ours ?? [], 'agent').slice(argvOf(ours ?? [], 'agent').indexOf('agent') + 1);
  const plain = (words: readonly string[]): string[] => words.map((word) => word.replaceAll('node-2', 'node-1').replaceAll('.12', '.11'));
  assert.deepEqual(plain(own), plain(flags.filter((word, at) => word !== '--v' && flags[at - 1] !== '--v')));
  assert.ok(flags.includes('--bootstrap-kubeconfig'));
  assert.equal(agentConfig(set, nodeOf(set, 1), facts).replaceAll('node-2', 'node-1'), agentConfig(set, nodeOf(set, 0), facts));
});

test('a kubelet of a set, and one that joins it by kubeadm, starts on a machine with swap and with cgroup v1', () => {
  const set = judged();
  const objects = kubeadmObjects(set, { caBase64: 'UEVN', token: { id: 'abcdef', secret: 'x' }, version: 'v1.37.2', cgroupVersion: 1 });
  const joining = objects.map(({ data }) => (data as { kubelet?: string } | undefined)?.kubelet).find((text) => text !== undefined);
  for (const text of [agentConfig(set, nodeOf(set, 0), facts), agentConfig(set, nodeOf(set, 1), facts), joining ?? '']) {
    assert.match(text, /^\s*"?failSwapOn"?: false,?$/m);
    assert.match(text, /^\s*"?failCgroupV1"?: false,?$/m);
  }
});

test('our kubelet leaves the machine’s kernel alone in a set', () => {
  const set = judged();
  const services = nodeServices(set, nodeOf(set, 1), paths, { proxy: 1 }, real);
  assert.equal(services.find(({ name }) => name === 'agent')?.env['NODELET_SHARED_KERNEL'], '1');
  assert.equal(services.find(({ name }) => name === 'netfilter')?.env['NODELET_SHARED_KERNEL'], undefined);
});

test('upstream’s kubelet reads the kernel settings that it wants from files of its own', () => {
  const set = judged();
  const words = argvOf(nodeServices(set, nodeOf(set, 0), paths, { proxy: 1 }, real), 'kubelet');
  assert.deepEqual(words.slice(0, 5), ['unshare', '--mount', '--propagation', 'unchanged', '/bin/sh']);
  assert.match(
    words[6] ?? '',
    /mount --make-rprivate \/proc; mount --bind '\/x\/s\/nodes\/node-1\/kernel\/vm\.overcommit_memory' \/proc\/sys\/vm\/overcommit_memory/,
  );
  assert.equal(words[8], '/a/kubelet');
  // PID 1 reads one argument a line.
  const place = { hostname: 'n', dir: '/d', folders: [], files: [], cgroupDirs: [], binds: [], tmpfs: [] };
  const spec = initSpec({ ...place, services: nodeServices(set, nodeOf(set, 0), paths, { proxy: 1 }, real) });
  for (const line of spec.split('\n')) assert.match(line, /^(|(state|control|service|argv|env|nice|log|delay|cap) .+)$/);
});

test('the proxy’s mode is in its file', () => {
  const mode = (set: ReturnType<typeof planSet>): unknown => (JSON.parse(proxyConfig(set, nodeOf(set, 0))) as { mode: string }).mode;
  assert.equal(mode(judged()), 'nftables');
  assert.equal(mode(judged({ proxies: ['upstream-iptables'] })), 'iptables');
});

test('CoreDNS takes the place of our name server, and an audit log is written where it was asked for', () => {
  const hub = (set: ReturnType<typeof planSet>, programs: RealPrograms): ServiceSpec[] => hubServices(set, paths, '/net', programs);
  const all = ['egress', 'etcd', 'kube-apiserver', 'kube-controller-manager', 'kube-scheduler'];
  assert.deepEqual(names(hub(judged(), real)), all);
  const { coredns: _, ...without } = real;
  assert.deepEqual(names(hub(judged(), without)), [...all, 'dns']);
  const audited = (audit: boolean): boolean => argvOf(hub(judged({ audit }), real), 'kube-apiserver').some((word) => word.startsWith('--audit-log-path'));
  assert.deepEqual([audited(false), audited(true)], [false, true]);
});

test('our pod network’s daemon lives in our proxy’s process, and beside upstream’s in one of its own', () => {
  const set = judged({ cni: 'nodelet' });
  const [upstream, ours] = [0, 1].map((at) => nodeServices(set, nodeOf(set, at), paths, { proxy: 1 }, real));
  assert.deepEqual(names(upstream ?? []), ['containerd', 'kubelet', 'kube-proxy', 'cni']);
  assert.deepEqual(names(ours ?? []), ['containerd', 'agent', 'netfilter']);
  assert.ok(
    argvOf(ours ?? [], 'netfilter')
      .join(' ')
      .includes(`--cni-config ${nodeOf(set, 1).dir}/cni.json`),
  );
  assert.ok(!argvOf(nodeServices(judged(), nodeOf(judged(), 1), paths, { proxy: 1 }, real), 'netfilter').includes('--cni-config'));
});

test('both families reach each program that asks for ranges or addresses', () => {
  const set = judged({ dualStack: true, cni: 'nodelet' });
  const node = nodeOf(set, 0);
  const both = (argv: readonly string[], flag: string): string => argv.find((word) => word.startsWith(`${flag}=`))?.slice(flag.length + 1) ?? '';
  const hub = hubServices(set, paths, '/net', real);
  assert.equal(both(argvOf(hub, 'kube-apiserver'), '--service-cluster-ip-range'), '10.96.0.0/16,fd00:96:1::/112');
  assert.equal(both(argvOf(hub, 'kube-controller-manager'), '--cluster-cidr'), '10.244.0.0/16,fd00:244:1::/48');
  const kubelet = argvOf(nodeServices(set, node, paths, { proxy: 1 }, real), 'kubelet');
  assert.equal(kubelet[kubelet.indexOf('--node-ip') + 1], '10.89.0.11,fd00:89:1::b');
  assert.equal((JSON.parse(proxyConfig(set, node)) as { clusterCIDR: string }).clusterCIDR, '10.244.0.0/16,fd00:244:1::/48');
  const ipam = (JSON.parse(cniConfig(node)) as { plugins: { ipam: { ranges: { subnet: string }[][]; routes: { dst: string }[] } }[] }).plugins[0]!.ipam;
  assert.deepEqual(
    ipam.ranges.flat().map((range) => range.subnet),
    ['10.244.1.0/24', 'fd00:244:1:1::/64'],
  );
  assert.deepEqual(
    ipam.routes.map((route) => route.dst),
    ['0.0.0.0/0', '::/0'],
  );
});

test('the service proxy is a program of its own, with flags of its own and code kept for itself', () => {
  const set = planSet({ name: 's', index: 0, stateHome: '/x', nodeCount: 1, controlPlane: 'embedded' });
  const proxy = nodeServices(set, nodeOf(set, 0), paths, { proxy: 1 }, null).find(({ name }) => name === 'netfilter');
  const flags = proxy?.argv.slice(1, proxy.argv.indexOf('/b/netfilter.cjs')) ?? [];
  assert.equal(proxy?.argv[proxy.argv.indexOf('/b/netfilter.cjs') + 1], 'netfilter');
  for (const flag of PROXY_FLAGS) assert.ok(flags.includes(flag), flag);
  assert.equal(proxy?.env['NODE_COMPILE_CACHE'], '/b/cache/netfilter');
});
