import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OpError } from '../../base/errors.ts';
import { tryDurationMs } from '../../base/duration.ts';
import { proxyConfig } from './config.ts';
import { unknownFields } from './config-fields.ts';
import { listensOnLoopback, nodeAddress, settingsFor, wantsLocalhostNodePorts } from './node.ts';

test('Go durations', () => {
  for (const [text, ms] of [
    ['30s', 30_000],
    ['1m30s', 90_000],
    ['250ms', 250],
    ['24h0m0s', 86_400_000],
    ['0s', 0],
    ['0', 0],
    ['1.5s', 1500],
  ] as const)
    assert.equal(tryDurationMs(text), ms, text);
  for (const text of ['', '5', 's', '1x']) assert.equal(tryDurationMs(text), null, text);
});

test('an empty nftables configuration has the defaults of upstream', () => {
  assert.deepEqual(proxyConfig({ mode: 'nftables' }), {
    kubeconfig: '',
    hostnameOverride: '',
    bindAddress: '0.0.0.0',
    healthzBindAddress: '0.0.0.0:10256',
    metricsBindAddress: '127.0.0.1:10249',
    bindAddressHardFail: false,
    mode: 'nftables',
    modeDefaulted: false,
    detectLocalMode: 'ClusterCIDR',
    clusterCIDRs: [],
    bridgeInterface: '',
    interfaceNamePrefix: '',
    nodePortAddresses: [],
    masqueradeAll: false,
    masqueradeBit: 14,
    localhostNodePorts: false,
    loopbackListeners: false,
    externalIPs: true,
    flagz: true,
    statusz: true,
    profiling: false,
    syncPeriodMs: 30_000,
    minSyncPeriodMs: 1000,
    oomScoreAdj: -999,
    conntrack: { maxPerCore: 32_768, min: 131_072, tcpEstablishedMs: 86_400_000, tcpCloseWaitMs: 3_600_000, tcpBeLiberal: false, udpMs: 0, udpStreamMs: 0 },
  });
  assert.equal(proxyConfig({ mode: 'nftables', bindAddress: '::' }).metricsBindAddress, '[::1]:10249');
  assert.equal(proxyConfig({ mode: 'nftables', healthzBindAddress: '192.0.2.1' }).healthzBindAddress, '192.0.2.1:10256');
});

test('no mode means iptables, and each mode has its own section', () => {
  const { mode, modeDefaulted, localhostNodePorts, syncPeriodMs } = proxyConfig({ iptables: { syncPeriod: '5s' }, nftables: { syncPeriod: '7s' } });
  assert.deepEqual([mode, modeDefaulted, localhostNodePorts, syncPeriodMs], ['iptables', true, true, 5000]);
  const all = { mode: 'iptables', iptables: { masqueradeAll: true, masqueradeBit: 12, localhostNodePorts: false } };
  const config = proxyConfig(all);
  assert.deepEqual([config.masqueradeAll, config.masqueradeBit, config.localhostNodePorts, config.modeDefaulted], [true, 12, false, false]);
  assert.equal(proxyConfig({ ...all, mode: 'nftables' }).masqueradeAll, false);
});

test('what the proxy cannot do or read is refused in one sentence', () => {
  const refusals: [object, RegExp][] = [
    [{ mode: 'ipvs' }, /ipvs is deprecated upstream and not supported/],
    [{ mode: 'userspace' }, /unknown proxy mode "userspace"/],
    [{ mode: 'nftables', kind: 'KubeletConfiguration' }, /is not KubeProxyConfiguration/],
    [{ mode: 'nftables', clusterCIDR: '10.244.0.0' }, /clusterCIDR "10\.244\.0\.0" is no CIDR/],
    [{ mode: 'nftables', nodePortAddresses: ['eth0'] }, /nodePortAddresses entry "eth0"/],
    [{ mode: 'nftables', nodePortAddresses: '10.0.0.0/8' }, /must be a list/],
    [{ mode: 'nftables', nodePortAddresses: ['primary', 'primary'] }, /nodePortAddresses has "primary" twice/],
    [{ mode: 'nftables', nftables: { syncPeriod: 'soon' } }, /nftables\.syncPeriod "soon" is no duration/],
    [{ mode: 'nftables', nftables: { minSyncPeriod: '1m' } }, /nftables\.minSyncPeriod must not be longer/],
    [{ mode: 'nftables', nftables: { minSyncPeriod: '-1s' } }, /nftables\.minSyncPeriod must not be below 0/],
    [{ iptables: { masqueradeBit: 32 } }, /iptables\.masqueradeBit must be 0 to 31/],
    [{ iptables: { masqueradeBit: 1.5 } }, /iptables\.masqueradeBit must be a whole number/],
    [{ iptables: [] }, /iptables must be a mapping/],
    [{ conntrack: { maxPerCore: -1 } }, /conntrack\.maxPerCore must not be below 0/],
    [{ conntrack: { tcpBeLiberal: 'yes' } }, /conntrack\.tcpBeLiberal must be true or false/],
    [{ conntrack: { udpTimeout: '-1s' } }, /conntrack\.udpTimeout must not be below 0/],
    [{ ipvs: { syncPeriod: 5 } }, /ipvs\.syncPeriod must be a string/],
    [{ clientConnection: { burst: -1 } }, /clientConnection\.burst must not be below 0/],
    [{ clientConnection: { qps: 'many' } }, /clientConnection\.qps must be a number/],
    [{ configSyncPeriod: '-5m' }, /configSyncPeriod must not be below 0/],
    [{ clusterCIDR: '10.1.0.0/16,10.2.0.0/16' }, /clusterCIDR "10\.1\.0\.0\/16,10\.2\.0\.0\/16" must be one CIDR, or one of each family/],
    [{ healthzBindAddress: 'localhost:10256' }, /healthzBindAddress "localhost:10256" must have an IP address/],
    [{ metricsBindAddress: '127.0.0.1:70000' }, /metricsBindAddress "127\.0\.0\.1:70000" must have a port from 1 to 65535/],
    [{ featureGates: { AllAlpha: 'true' } }, /featureGates must have true or false for AllAlpha/],
    [{ oomScoreAdj: 1001 }, /oomScoreAdj must be -1000 to 1000/],
    [{ bindAddress: 'node' }, /bindAddress "node" is no IP address/],
    [{ hostnameOverride: 5, bindAddressHardFail: 1 }, /hostnameOverride must be a string; bindAddressHardFail must be true or false/],
    [{ mode: 'nftables', detectLocalMode: 'BridgeInterface' }, /needs detectLocal\.bridgeInterface/],
  ];
  for (const [object, message] of refusals)
    assert.throws(
      () => proxyConfig(object),
      (error) => error instanceof OpError && message.test(error.message),
      JSON.stringify(object),
    );
});

test('a field that is none is named with its path; what kubeadm writes has none', () => {
  const given = {
    mod: 'nftables',
    nftables: { syncperiod: '1s', minSyncPeriod: '1s' },
    logging: { options: { json: { bufferSize: '0' } } },
    featureGates: { X: true },
  };
  assert.deepEqual(unknownFields(given), ['mod', 'nftables.syncperiod', 'logging.options.json.bufferSize']);
  const kubeadm = {
    ...{ apiVersion: 'kubeproxy.config.k8s.io/v1alpha1', kind: 'KubeProxyConfiguration', bindAddress: '0.0.0.0', bindAddressHardFail: false },
    clientConnection: { acceptContentTypes: '', burst: 0, contentType: '', kubeconfig: '/var/lib/kube-proxy/kubeconfig.conf', qps: 0 },
    ...{ clusterCIDR: '10.244.0.0/16', configSyncPeriod: '0s', enableProfiling: false, healthzBindAddress: '', hostnameOverride: '' },
    conntrack: {
      maxPerCore: null,
      min: null,
      tcpBeLiberal: false,
      tcpCloseWaitTimeout: null,
      tcpEstablishedTimeout: null,
      udpStreamTimeout: '0s',
      udpTimeout: '0s',
    },
    ...{ detectLocal: { bridgeInterface: '', interfaceNamePrefix: '' }, detectLocalMode: '', metricsBindAddress: '', mode: '', nodePortAddresses: null },
    iptables: { localhostNodePorts: null, masqueradeAll: false, masqueradeBit: null, minSyncPeriod: '0s', syncPeriod: '0s' },
    ipvs: {
      excludeCIDRs: null,
      minSyncPeriod: '0s',
      scheduler: '',
      strictARP: false,
      syncPeriod: '0s',
      tcpFinTimeout: '0s',
      tcpTimeout: '0s',
      udpTimeout: '0s',
    },
    logging: { flushFrequency: 0, options: { json: { infoBufferSize: '0' }, text: { infoBufferSize: '0' } }, verbosity: 0 },
    nftables: { masqueradeAll: false, masqueradeBit: null, minSyncPeriod: '0s', syncPeriod: '0s' },
    ...{ oomScoreAdj: null, portRange: '', showHiddenMetricsForVersion: '', windowsRunAsService: false },
    winkernel: { enableDSR: false, forwardHealthCheckVip: false, networkName: '', rootHnsEndpointName: '', sourceVip: '' },
  };
  assert.deepEqual(unknownFields(kubeadm), []);
  assert.deepEqual(proxyConfig(kubeadm), { ...proxyConfig({ clusterCIDR: '10.244.0.0/16' }), kubeconfig: '/var/lib/kube-proxy/kubeconfig.conf' });
});

const node = {
  metadata: { name: 'a' },
  spec: { podCIDRs: ['10.244.3.0/24', 'fd00:10:244:3::/64'] },
  status: {
    addresses: [
      { type: 'Hostname', address: 'a' },
      { type: 'ExternalIP', address: '203.0.113.1' },
      { type: 'InternalIP', address: '192.0.2.10' },
    ],
  },
};
const machineAddresses = ['127.0.0.1', '192.0.2.10', '198.51.100.10', '::1', '2001:db8::10'];

test('the node address is internal before external, and the bind address goes before both', () => {
  assert.equal(nodeAddress(node, '0.0.0.0', 'ip'), '192.0.2.10');
  assert.equal(nodeAddress(node, '198.51.100.10', 'ip'), '198.51.100.10');
  assert.equal(nodeAddress(node, '0.0.0.0', 'ip6'), '');
});

test('which addresses take node ports', () => {
  const nodePorts = (nodePortAddresses: string[], family: 'ip' | 'ip6' = 'ip', known: typeof node | null = node): unknown =>
    settingsFor(family, { config: proxyConfig({ mode: 'nftables', nodePortAddresses }), node: known, machineAddresses, serviceCIDRs: [] }).nodePorts;
  assert.deepEqual(nodePorts([]), { kind: 'some', addresses: ['192.0.2.10'] });
  assert.deepEqual(nodePorts([], 'ip6'), { kind: 'all' });
  assert.deepEqual(nodePorts([], 'ip', null), { kind: 'some', addresses: [] });
  assert.deepEqual(nodePorts(['all']), { kind: 'all' });
  assert.deepEqual(nodePorts(['198.51.100.0/24', 'primary']), { kind: 'some', addresses: ['192.0.2.10', '198.51.100.10'] });
  assert.deepEqual(nodePorts(['10.0.0.0/8']), { kind: 'some', addresses: [] });
  assert.deepEqual(nodePorts(['2001:db8::/64'], 'ip6'), { kind: 'some', addresses: ['2001:db8::10'] });
});

test('iptables mode takes node ports on all addresses, loopback with them, until told otherwise', () => {
  const of = (nodePortAddresses: string[], more: object = {}): unknown[] => {
    const config = proxyConfig({ mode: 'iptables', nodePortAddresses, ...more });
    return [settingsFor('ip', { config, node, machineAddresses, serviceCIDRs: [] }).nodePorts, wantsLocalhostNodePorts(config)];
  };
  assert.deepEqual(of([]), [{ kind: 'all' }, true]);
  assert.deepEqual(of([], { iptables: { localhostNodePorts: false } }), [{ kind: 'all' }, false]);
  assert.deepEqual(of(['2001:db8::/64']), [{ kind: 'all' }, true]);
  assert.deepEqual(of(['192.0.2.0/24']), [{ kind: 'some', addresses: ['192.0.2.10'] }, false]);
  assert.deepEqual(of(['127.0.0.0/8', '192.0.2.0/24']), [{ kind: 'some', addresses: ['127.0.0.1', '192.0.2.10'] }, true]);
  assert.deepEqual(of(['primary']), [{ kind: 'some', addresses: ['192.0.2.10'] }, false]);
});

test('node ports on loopback in nftables mode, behind their gate', () => {
  const of = (nodePortAddresses: string[], featureGates: object, mode = 'nftables'): unknown[] => {
    const config = proxyConfig({ mode, nodePortAddresses, featureGates });
    return (['ip', 'ip6'] as const).flatMap((family) => [
      settingsFor(family, { config, node, machineAddresses, serviceCIDRs: [] }).refusedOnLocalhost,
      listensOnLoopback(config, family),
    ]);
  };
  const gate = { KubeProxyNFTablesLocalhostNodePorts: true };
  const all = ['tcp', 'udp', 'sctp'];
  const rest = ['udp', 'sctp'];
  assert.deepEqual(of(['localhost'], {}), [undefined, false, undefined, false]);
  assert.deepEqual(of(['localhost'], gate, 'iptables'), [undefined, false, undefined, false]);
  assert.deepEqual(of([], gate), [all, false, all, false]);
  assert.deepEqual(of(['primary', 'localhost'], { AllAlpha: true }), [rest, true, rest, true]);
  assert.deepEqual(of(['localhost'], { AllAlpha: true, KubeProxyNFTablesLocalhostNodePorts: false }), [undefined, false, undefined, false]);
  assert.deepEqual(of(['127.0.0.1/32', '0.0.0.0/0'], gate), [rest, true, all, false]);
  assert.deepEqual(of(['all'], gate), [all, false, all, false]);
});

test('how pods are told', () => {
  const detector = (more: object, family: 'ip' | 'ip6' = 'ip'): unknown =>
    settingsFor(family, { config: proxyConfig({ mode: 'nftables', ...more }), node, machineAddresses, serviceCIDRs: [] }).detector;
  assert.deepEqual(detector({}), { kind: 'none' });
  assert.deepEqual(detector({ clusterCIDR: '10.244.0.0/16,fd00:10:244::/48' }, 'ip6'), { kind: 'cidr', cidr: 'fd00:10:244::/48' });
  assert.deepEqual(detector({ detectLocalMode: 'NodeCIDR' }), { kind: 'cidr', cidr: '10.244.3.0/24' });
  assert.deepEqual(detector({ detectLocalMode: 'NodeCIDR' }, 'ip6'), { kind: 'cidr', cidr: 'fd00:10:244:3::/64' });
  assert.deepEqual(detector({ detectLocalMode: 'BridgeInterface', detectLocal: { bridgeInterface: 'br0' } }), { kind: 'bridge', name: 'br0' });
  assert.deepEqual(detector({ detectLocalMode: 'InterfaceNamePrefix', detectLocal: { interfaceNamePrefix: 'veth' } }), { kind: 'prefix', name: 'veth' });
});
