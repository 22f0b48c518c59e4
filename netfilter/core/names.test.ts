import assert from 'node:assert/strict';
import { test } from 'node:test';
import { iptablesEndpointName, iptablesNames, nftEndpointNames, nftNames, type PortId } from './names.ts';

function id(text: string, protocol: PortId['protocol'] = 'tcp'): PortId {
  const [service = '', port = ''] = text.split(':');
  const [namespace = '', name = ''] = service.split('/');
  return { namespace, name, port, protocol };
}

test('nftables chain names carry kube-proxy hashes', () => {
  assert.equal(nftNames(id('default/web')).cluster, 'service-PFISGYVC-default/web/tcp/');
  assert.equal(nftNames(id('shop/web')).cluster, 'service-452DNVGS-shop/web/tcp/');
  assert.equal(nftNames(id('default/kubernetes:https')).cluster, 'service-2QRHZV4L-default/kubernetes/tcp/https');
  assert.match(nftNames(id('kube-system/kube-dns:dns', 'udp')).cluster, /^service-FY5PMXPG-/);
  assert.match(nftNames(id('ns1/svc1:p80')).cluster, /^service-ULMVA6XW-/);
  assert.equal(nftNames(id('lab/echo:web')).cluster, 'service-6OLOARX4-lab/echo/tcp/web');
  assert.equal(nftNames(id('lab/echo', 'udp')).cluster, 'service-4TBW2WEA-lab/echo/udp/');
  assert.match(nftEndpointNames(id('ns1/svc1:p80'), '10.180.0.1', 80).chain, /^endpoint-5OJB2KTY-/);
  assert.equal(nftEndpointNames(id('lab/echo:web'), 'fd00:10:244::5', 8080).chain, 'endpoint-VINT7M64-lab/echo/tcp/web__fd00.10.244..5/8080');
});

test('iptables chain names carry kube-proxy hashes', () => {
  assert.equal(iptablesNames(id('default/kubernetes:https')).cluster, 'KUBE-SVC-NPX46M4PTMTKRN6Y');
  assert.equal(iptablesNames(id('kube-system/kube-dns:dns', 'udp')).cluster, 'KUBE-SVC-TCOU7JCQXEZGVUNU');
  assert.equal(iptablesNames(id('ns1/svc1')).cluster, 'KUBE-SVC-AQI2S6QIMU7PVVRP');
  assert.equal(iptablesNames(id('lab/echo:web')).cluster, 'KUBE-SVC-QAAICW3O6KQTTBWY');
  assert.equal(iptablesNames(id('lab/echo', 'udp')).cluster, 'KUBE-SVC-EH45PDKWNTXMKFZC');
  assert.equal(iptablesEndpointName(id('ns4/svc4:p80'), '10.180.0.4', 80), 'KUBE-SEP-UKSFD7AGPMPPLUHC');
  assert.equal(iptablesEndpointName(id('lab/echo:web'), '10.244.0.3', 8080), 'KUBE-SEP-KDBXJDXKLRBPSVXK');
  assert.equal(iptablesEndpointName(id('lab/echo:web'), 'fd00:10:244::5', 8080), 'KUBE-SEP-KFC3CE2MDR7KRLXZ');
});

test('iptables names of two Services with three endpoints', () => {
  const expected: Record<string, string[]> = {
    'default/web': ['KUBE-SVC-LOLE4ISW44XBNF3G', 'KUBE-SEP-MQ4W7Q2CV67URU6Q', 'KUBE-SEP-QHWUG6SOC7OJ2BZK', 'KUBE-SEP-7QE66YRUUVCO6FRM'],
    'shop/web': ['KUBE-SVC-E3PXEPMWAWIUT6ZV', 'KUBE-SEP-PPGG7CLVJ7O24ZED', 'KUBE-SEP-JR4P2S7ZV6K5VKP3', 'KUBE-SEP-FGH6ZQZIMO7RP3J3'],
  };
  for (const [service, names] of Object.entries(expected)) {
    const endpoints = ['10.244.1.2', '10.244.2.2', '10.244.2.3'].map((address) => iptablesEndpointName(id(service), address, 80));
    assert.deepEqual([iptablesNames(id(service)).cluster, ...endpoints], names);
  }
});

test('a long name is cut, stays within the kernel limit and stays unique', () => {
  const one = nftNames({ namespace: 'n'.repeat(62), name: 's'.repeat(63), port: 'p'.repeat(150) + 'a', protocol: 'tcp' }).firewall;
  const two = nftNames({ namespace: 'n'.repeat(62), name: 's'.repeat(63), port: 'p'.repeat(150) + 'b', protocol: 'tcp' }).firewall;
  assert.ok(one.length <= 255);
  assert.ok(one.endsWith('...'));
  assert.notEqual(one, two);
});
