import assert from 'node:assert/strict';
import { test } from 'node:test';
import { configDocument } from './config-document.ts';
import { proxyConfig } from './config.ts';

const documentOf = (given: object): Record<string, unknown> => configDocument(given, proxyConfig(given));

/** What kube-proxy 1.37.2 answers on /configz when it is started with --proxy-mode nftables alone. */
const nftables = {
  kind: 'KubeProxyConfiguration',
  apiVersion: 'kubeproxy.config.k8s.io/v1alpha1',
  clientConnection: { kubeconfig: '', acceptContentTypes: '', contentType: 'application/vnd.kubernetes.protobuf', qps: 5, burst: 10 },
  logging: { format: 'text', flushFrequency: '5s', verbosity: 0, options: { text: { infoBufferSize: '0' }, json: { infoBufferSize: '0' } } },
  hostnameOverride: '',
  bindAddress: '0.0.0.0',
  healthzBindAddress: '0.0.0.0:10256',
  metricsBindAddress: '127.0.0.1:10249',
  bindAddressHardFail: false,
  enableProfiling: false,
  showHiddenMetricsForVersion: '',
  mode: 'nftables',
  iptables: { masqueradeBit: 14, masqueradeAll: false, localhostNodePorts: true, syncPeriod: '0s', minSyncPeriod: '0s' },
  ipvs: {
    ...{ syncPeriod: '0s', minSyncPeriod: '0s', scheduler: '', excludeCIDRs: null },
    ...{ strictARP: false, tcpTimeout: '0s', tcpFinTimeout: '0s', udpTimeout: '0s' },
  },
  nftables: { masqueradeBit: 14, masqueradeAll: false, syncPeriod: '30s', minSyncPeriod: '1s' },
  winkernel: { networkName: '', sourceVip: '', enableDSR: false, rootHnsEndpointName: '', forwardHealthCheckVip: false },
  detectLocalMode: 'ClusterCIDR',
  detectLocal: { bridgeInterface: '', interfaceNamePrefix: '' },
  clusterCIDR: '',
  nodePortAddresses: ['primary'],
  oomScoreAdj: -999,
  conntrack: {
    ...{ maxPerCore: 32768, min: 131072, tcpEstablishedTimeout: '24h0m0s', tcpCloseWaitTimeout: '1h0m0s' },
    ...{ tcpBeLiberal: false, udpTimeout: '0s', udpStreamTimeout: '0s' },
  },
  configSyncPeriod: '15m0s',
  portRange: '',
};

test('the configuration is told as upstream tells it, field by field and in its order', () => {
  assert.equal(JSON.stringify(documentOf({ mode: 'nftables' })), JSON.stringify(nftables));
});

test('without a mode iptables is in force, and only its periods are told', () => {
  assert.deepEqual(documentOf({}), {
    ...nftables,
    mode: 'iptables',
    iptables: { ...nftables.iptables, syncPeriod: '30s', minSyncPeriod: '1s' },
    nftables: { ...nftables.nftables, syncPeriod: '0s', minSyncPeriod: '0s' },
    nodePortAddresses: null,
  });
});

test('what means nothing here is told as it was given', () => {
  const given = {
    ...{ mode: 'iptables', clusterCIDR: '', oomScoreAdj: -5, featureGates: { AllAlpha: false }, configSyncPeriod: '90s', unknown: 1 },
    iptables: { syncPeriod: '1m', masqueradeBit: null },
    nftables: { syncPeriod: '45s', masqueradeAll: true, masqueradeBit: 4 },
    clientConnection: { kubeconfig: '/x', qps: 7 },
    conntrack: { maxPerCore: 0 },
    ipvs: { scheduler: 'lc' },
  };
  const told = documentOf(given);
  assert.deepEqual(Object.keys(told).slice(0, 4), ['kind', 'apiVersion', 'featureGates', 'clientConnection']);
  assert.deepEqual(told, {
    ...nftables,
    ...{ mode: 'iptables', oomScoreAdj: -5, featureGates: { AllAlpha: false }, configSyncPeriod: '1m30s', nodePortAddresses: null },
    clientConnection: { ...nftables.clientConnection, kubeconfig: '/x', qps: 7 },
    iptables: { ...nftables.iptables, syncPeriod: '1m0s', minSyncPeriod: '1s' },
    nftables: { masqueradeBit: 4, masqueradeAll: false, syncPeriod: '0s', minSyncPeriod: '0s' },
    ipvs: { ...nftables.ipvs, scheduler: 'lc' },
    conntrack: { ...nftables.conntrack, maxPerCore: 0 },
  });
});
