import assert from 'node:assert/strict';
import { test } from 'node:test';
import { utilChains } from './iptables-chains.ts';

const drop =
  '-A KUBE-FIREWALL ! -s 127.0.0.0/8 -d 127.0.0.0/8 -m comment --comment "block incoming localnet connections" -m conntrack ! --ctstate RELATED,ESTABLISHED,DNAT -j DROP';

test('what is missing is added, and nothing that is there is emptied', () => {
  const filterOf = (text: string): string[] => text.slice(text.indexOf('*filter')).split('\n').slice(1, -2);
  assert.deepEqual(filterOf(utilChains(4, { input: '-P INPUT ACCEPT\n', output: '-P OUTPUT ACCEPT\n', firewall: null })), [
    ':KUBE-KUBELET-CANARY - [0:0]',
    ':KUBE-FIREWALL - [0:0]',
    '-I OUTPUT 1 -j KUBE-FIREWALL',
    '-I INPUT 1 -j KUBE-FIREWALL',
    drop,
  ]);
  const whole = {
    input: '-P INPUT ACCEPT\n-A INPUT -j KUBE-FIREWALL\n',
    output: '-P OUTPUT ACCEPT\n-A OUTPUT -j KUBE-FIREWALL\n',
    firewall: `-N KUBE-FIREWALL\n${drop}\n`,
  };
  assert.deepEqual(filterOf(utilChains(4, whole)), [':KUBE-KUBELET-CANARY - [0:0]']);
  assert.deepEqual(filterOf(utilChains(4, { ...whole, firewall: '-N KUBE-FIREWALL\n-A KUBE-FIREWALL -j ACCEPT\n' })), [':KUBE-KUBELET-CANARY - [0:0]', drop]);
  const six = utilChains(6, { input: null, output: null, firewall: null });
  assert.ok(!six.includes('KUBE-FIREWALL'));
  assert.ok(six.startsWith('*mangle\n:KUBE-IPTABLES-HINT - [0:0]\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n*nat\n'));
});
