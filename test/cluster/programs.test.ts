import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OpError } from '../../base/errors.ts';
import type { Assets } from '../assets/find.ts';
import { chosenPrograms, containerdOf, CONTAINERDS } from './programs.ts';

/** Assets that has all but `missing`. */
function assetsBut(missing: readonly string[] = []): Assets {
  const path = (name: string): string | null => (missing.includes(name) ? null : `/assets/${name}`);
  const required = (name: string): string => {
    const found = path(name);
    if (found === null) throw new OpError('not-found', 'starting a cluster', `${name} is not there`);
    return found;
  };
  return { path, dir: path, require: required, requireDir: required, versions: () => ({}), refused: () => ({}) };
}

test('each containerd that can be chosen is recognised again', () => {
  for (const containerd of CONTAINERDS) assert.equal(containerdOf(chosenPrograms(assetsBut(), { agents: [], proxies: [], containerd })), containerd);
});

test('a cluster needs upstream’s programs only where it runs them', () => {
  const ours = assetsBut(['kubelet', 'kube-proxy', 'coredns']);
  const { programs } = chosenPrograms(ours, { agents: ['ours'], proxies: [], containerd: '2.4' });
  assert.deepEqual([programs.kubelet, programs.kubeProxy, programs.coredns, programs.runc], [undefined, undefined, undefined, '/assets/runc']);
  assert.throws(() => chosenPrograms(ours, { agents: ['ours', 'upstream'], proxies: [], containerd: '2.4' }), { code: 'not-found', message: /kubelet/ });
  assert.throws(() => chosenPrograms(ours, { agents: ['ours'], proxies: ['upstream-iptables'], containerd: '2.4' }), {
    code: 'not-found',
    message: /kube-proxy/,
  });
  assert.equal(chosenPrograms(ours, { agents: ['ours'], proxies: [], containerd: 'distro' }).programs.runc, undefined);
});
