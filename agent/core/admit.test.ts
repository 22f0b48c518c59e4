import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Node, Pod } from '../../proto/kube/types.ts';
import { admit, countedReason } from './admit.ts';
import type { AdmitInput } from './admit.ts';

const node: Node = {
  metadata: { name: 'n1', labels: { zone: 'a' } },
  spec: {},
  status: { allocatable: { cpu: '4', memory: '8Gi', pods: '3', 'example.com/gpu': '1' } },
};
const pod = (spec: Partial<Pod['spec']> = {}, metadata: Partial<Pod['metadata']> = {}): Pod => ({
  metadata: { name: 'p', namespace: 'n', uid: 'u', ...metadata },
  spec: { containers: [{ name: 'm' }], ...spec },
});
const asks = (requests: Record<string, string>): Partial<Pod['spec']> => ({ containers: [{ name: 'm', resources: { requests } }] });
const sysctl = (name: string, spec: Partial<Pod['spec']> = {}): Pod => pod({ securityContext: { sysctls: [{ name, value: '1' }] }, ...spec });
const tainted = (effect: string): Node => ({ ...node, spec: { taints: [{ key: 'k', value: 'v', effect }] } });
const said = (each: Pod, given: Partial<AdmitInput> = {}): string => {
  const verdict = admit({
    pod: each,
    node,
    others: [],
    allowedUnsafeSysctls: ['kernel.msg*', 'user.max_net_namespaces'],
    pressures: [],
    hasApparmor: false,
    declaredFeatures: ['RestartAllContainersOnContainerExits'],
    ...given,
  });
  return verdict === null ? '' : `${verdict.reason}: ${verdict.message}`;
};

test('taints that are numbers are compared where that is on', () => {
  const of = (value: string): Node => ({ ...node, spec: { taints: [{ key: 'k', value, effect: 'NoExecute' }] } });
  const taken = (operator: string, value: string, taint: string, comparesTaints: boolean): boolean =>
    said(pod({ tolerations: [{ key: 'k', operator, value }] }), { node: of(taint), comparesTaints }) === '';
  assert.deepEqual(
    [taken('Gt', '5', '6', true), taken('Gt', '5', '5', true), taken('Lt', '-1', '-2', true), taken('Lt', '10', '9', true)],
    [true, false, true, true],
  );
  assert.deepEqual([taken('Gt', '5', '6', false), taken('Gt', '05', '6', true), taken('Gt', '5', 'x', true)], [false, false, false]);
});

test("why pods are refused, in upstream's words", () => {
  const gpu = pod(asks({ 'example.com/gpu': '1' }), { uid: 'g' });
  const port = pod({ containers: [{ name: 'm', ports: [{ containerPort: 80, hostPort: 8080 }] }] }, { uid: 'h' });
  const claimed = {
    extendedResourceClaimStatus: { resourceClaimName: 'c', requestMappings: [{ containerName: 'm', resourceName: 'example.com/gpu', requestName: 'r' }] },
  };
  const lacks = (name: string, requested: number, used: number, capacity: number): string =>
    `OutOf${name}: Node didn't have enough resource: ${name}, requested: ${requested}, used: ${used}, capacity: ${capacity}`;
  const cases: [string, string, string][] = [
    ['fits', said(pod(asks({ cpu: '4', memory: '8Gi' }))), ''],
    ['cpu', said(pod(asks({ cpu: '3' })), { others: [pod(asks({ cpu: '1500m' }), { uid: 'o' })] }), lacks('cpu', 3000, 1500, 4000)],
    ['overhead counts', said(pod({ ...asks({ cpu: '3900m' }), overhead: { cpu: '200m' } })), lacks('cpu', 4100, 0, 4000)],
    ['pods', said(pod(), { others: ['1', '2', '3'].map((uid) => pod({}, { uid })) }), lacks('pods', 1, 3, 3)],
    ['an extended resource', said(pod(asks({ 'example.com/gpu': '1' })), { others: [gpu] }), lacks('example.com/gpu', 1, 1, 1)],
    ['one that the node does not have', said(pod(asks({ 'example.com/fpga': '1' }))), ''],
    ['hugepages that the node does not have', said(pod(asks({ 'hugepages-2Mi': '4Mi' }))), lacks('hugepages-2Mi', 4_194_304, 0, 0)],
    ['selector', said(pod({ nodeSelector: { zone: 'b' } })), "NodeAffinity: Predicate NodeAffinity failed: node(s) didn't match Pod's node affinity/selector"],
    [
      'ports',
      said(port, { others: [{ ...port, metadata: { ...port.metadata, uid: 'o' } }] }),
      "NodePorts: Predicate NodePorts failed: node(s) didn't have free ports for the requested pod ports",
    ],
    [
      'taint',
      said(pod(), { node: tainted('NoExecute') }),
      "TaintToleration: Predicate TaintToleration failed: node(s) had taints that the pod didn't tolerate",
    ],
    ['taint that is no business of the kubelet', said(pod(), { node: tainted('NoSchedule') }), ''],
    ['tolerated', said(pod({ tolerations: [{ key: 'k', operator: 'Exists' }] }), { node: tainted('NoExecute') }), ''],
    [
      'an operator behind a gate',
      said(pod({ tolerations: [{ key: 'k', operator: 'Gt', value: 'v' }] }), { node: tainted('NoExecute') }).slice(0, 15),
      'TaintToleration',
    ],
    ['a static pod and a taint', said(pod({}, { annotations: { 'kubernetes.io/config.source': 'http' } }), { node: tainted('NoExecute') }), ''],
    ['os', said(pod({ os: { name: 'windows' } })), "PodOSNotSupported: Failed to admit pod as the OS field doesn't match node OS"],
    [
      'os label',
      said(pod({}, { labels: { 'kubernetes.io/os': 'windows' } })),
      "PodOSSelectorNodeLabelDoesNotMatch: Failed to admit pod as the `kubernetes.io/os` label doesn't match node label",
    ],
    [
      'groups',
      said(pod({ securityContext: { supplementalGroupsPolicy: 'Strict' } })),
      'SupplementalGroupsPolicyNotSupported: SupplementalGroupsPolicy=Strict is not supported in this node',
    ],
    ['sysctl', said(sysctl('kernel.panic')), 'SysctlForbidden: forbidden sysctl: "kernel.panic" not allowlisted'],
    ['sysctl with slashes', said(sysctl('net/ipv4/tcp_syncookies')), ''],
    [
      "sysctl of the host's network",
      said(sysctl('net.ipv4.tcp_syncookies', { hostNetwork: true })),
      'SysctlForbidden: forbidden sysctl: "net.ipv4.tcp_syncookies" not allowed with host Net enabled',
    ],
    [
      "sysctl of the host's IPC",
      said(sysctl('kernel.msgmax', { hostIPC: true })),
      'SysctlForbidden: forbidden sysctl: "kernel.msgmax" not allowed with host IPC enabled',
    ],
    [
      "sysctl of the host's users",
      said(sysctl('user.max_net_namespaces')),
      'SysctlForbidden: forbidden sysctl: "user.max_net_namespaces" not allowed with host User enabled',
    ],
    ['sysctl allowed by prefix', said(sysctl('kernel.msgmax')), ''],
    [
      'apparmor',
      said(pod({ securityContext: { appArmorProfile: { type: 'RuntimeDefault' } } })),
      'AppArmor: Cannot enforce AppArmor: AppArmor is not enabled on the host',
    ],
    ['apparmor where it is', said(pod({ securityContext: { appArmorProfile: { type: 'RuntimeDefault' } } }), { hasApparmor: true }), ''],
    [
      'a feature that is not declared',
      said(pod({ hostNetwork: true, hostUsers: false })),
      'PodFeatureUnsupported: Pod requires node features that are not available: UserNamespacesHostNetworkSupport',
    ],
    [
      'an amount for the whole pod where its gate is off',
      said(pod({ resources: { requests: { cpu: '1' } } }), { refusesPodResources: true }),
      'PodLevelResourcesNotSupported: PodLevelResources feature gate is disabled',
    ],
    ['an amount for the whole pod', said(pod({ resources: { requests: { cpu: '5' } } })), lacks('cpu', 5000, 0, 4000)],
    ['an extended resource that a claim stands in for', said({ ...pod(asks({ 'example.com/gpu': '2' })), status: claimed }), ''],
    ['unconfined', said(pod({ securityContext: { appArmorProfile: { type: 'Unconfined' } } })), ''],
  ];
  for (const [what, is, wanted] of cases) assert.equal(is, wanted, what);
});

test('under pressure only those come in that the node can bear', () => {
  const burstable = pod(asks({ memory: '1Mi' }));
  const memory = { pressures: ['MemoryPressure'] } as const;
  const both = { pressures: ['MemoryPressure', 'DiskPressure'] } as const;
  const tolerates = pod({ tolerations: [{ key: 'node.kubernetes.io/memory-pressure', operator: 'Exists' }] });
  assert.equal(said(pod(), memory), 'Evicted: The node had condition: [MemoryPressure]. ');
  assert.equal(said(burstable, memory), '');
  assert.equal(said(tolerates, memory), '');
  assert.equal(said(burstable, both), 'Evicted: The node had condition: [MemoryPressure DiskPressure]. ');
  assert.equal(said(tolerates, both).slice(0, 8), 'Evicted:');
  assert.equal(said(pod({ priority: 2_000_000_000 }), both), '');
});

test('refusals are counted under few names', () => {
  assert.deepEqual(['OutOfcpu', 'OutOfexample.com/gpu', 'NodeAffinity', 'Evicted'].map(countedReason), [
    'OutOfcpu',
    'OutOfExtendedResources',
    'Other',
    'Evicted',
  ]);
});
