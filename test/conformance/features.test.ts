import assert from 'node:assert/strict';
import { test } from 'node:test';
import { FEATURES, featureSpecs, NETWORK_FEATURES, NODE_FEATURES, SECTION_SPECS } from './features.ts';
import { limitOf } from './limits.ts';

const named = (...names: string[]) => names.map((name) => ({ name, labels: [] }));
const namesOf = (specs: readonly { name: string }[]): string[] => specs.map(({ name }) => name);

test('features are those of nodes and volumes that nobody must turn on, and that are not judged already', () => {
  const chosen = '[sig-node] Pod Level Resources [FeatureGate:PodLevelResources] [Beta] should set limits';
  const specs = named(
    chosen,
    '[sig-node] Sleep action [FeatureGate:PodLifecycleSleepAction] [NodeConformance]',
    '[sig-node] Alpha thing [Alpha] [Feature:OffByDefault] [FeatureGate:Alpha]',
    '[sig-network] Service CIDRs [FeatureGate:MultiCIDRServiceAllocator]',
    '[sig-storage] CSI Volumes [Driver: iscsi] [Feature:Volumes]',
    '[sig-node] Pods should run',
  );
  assert.deepEqual(namesOf(featureSpecs(specs, FEATURES)), [chosen]);
});

test('features of the network are what two nodes with both families can be asked without a cloud', () => {
  const chosen = [
    '[sig-network] Services should be rejected when no endpoints exist',
    '[sig-network] [Feature:IPv6DualStack] should create service with ipv6 cluster ip',
    '[sig-network] DefaultIngressClass should set default value on new IngressClass [Serial]',
  ];
  const specs = named(
    ...chosen,
    '[sig-network] Services should serve a basic endpoint from pods [Conformance]',
    '[sig-network] LoadBalancers [Feature:LoadBalancer] should change the type [Slow]',
    '[sig-network] Networking should provide Internet connection for containers [Feature:Networking-IPv4]',
    '[sig-network] Services should allow creating a basic SCTP service with pod and endpoints [LinuxOnly] [Serial]',
    '[sig-network] Services should work after restarting apiserver [Disruptive]',
    '[sig-node] Pods should run',
  );
  assert.deepEqual(namesOf(featureSpecs(specs, NETWORK_FEATURES)), chosen);
});

test('features of a node are those too that restart its kubelet', () => {
  const chosen = ['[sig-node] CPU Manager [Serial] [Feature:CPUManager] pins', '[sig-node] Restart [Serial] [Slow] [Disruptive] recovers'];
  const specs = named(...chosen, '[sig-node] LockContention [Serial] [Feature:LockContention]', '[sig-node] GC [Serial] [NodeConformance]');
  assert.deepEqual(namesOf(featureSpecs(specs, NODE_FEATURES)), chosen);
  assert.deepEqual(namesOf(SECTION_SPECS['e2e-node'](specs)), ['[sig-node] GC [Serial] [NodeConformance]']);
});

test('a limit is found by a name or by what was said', () => {
  assert.equal(limitOf('[sig-node] AppArmor when running', ''), 'needs AppArmor');
  assert.equal(limitOf('x', 'Skipping CPU Manager tests since NUMA nodes < 2'), 'needs several NUMA nodes or more CPUs');
  assert.equal(limitOf('x', 'cmd [ip link add dummy1 type dummy], stderr "Operation not supported"'), 'needs a dummy network interface');
  assert.equal(
    limitOf('x', 'FATAL ERROR: create *v1beta2.ResourceClaim: the server could not find the requested resource'),
    'needs versions of an API that are off by default',
  );
  assert.equal(limitOf('[sig-node] [DRA] kubelet [Feature:DynamicResourceAllocation] registers plugin', ''), null);
  assert.equal(limitOf('x', 'expected 1, got 2'), null);
});
