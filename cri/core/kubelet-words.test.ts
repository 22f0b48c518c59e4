import assert from 'node:assert/strict';
import { test } from 'node:test';
import { endpointsOf, readCommandLine, readInitSpec, unitOf } from './kubelet-words.ts';

test('flags of a kubelet, in each spelling; the last counts', () => {
  const words = readCommandLine([
    '/usr/bin/kubelet',
    '--config',
    '/var/lib/kubelet/config.yaml',
    '-container-runtime-endpoint=unix:///a.sock',
    '--v=2',
    '--container-runtime-endpoint',
    'unix:///b.sock',
    '--config-dir=/etc/kubelet.d',
  ]);
  assert.deepEqual(words, { config: '/var/lib/kubelet/config.yaml', runtimeEndpoint: 'unix:///b.sock', configFolder: '/etc/kubelet.d' });
  assert.deepEqual(readCommandLine(['kubelet', '--config']), {});
});

test('the endpoint: flags before files, a later file before an earlier one, else the default', () => {
  const files = [
    { path: '/config.yaml', document: { containerRuntimeEndpoint: 'unix:///first.sock' } },
    { path: '/d/10.conf', document: { containerRuntimeEndpoint: 'unix:///second.sock', imageServiceEndpoint: 'unix:///image.sock' } },
    { path: '/d/20.conf', document: { containerRuntimeEndpoint: '' } },
    { path: '/d/30.conf', document: null },
  ];
  assert.deepEqual(endpointsOf({}, files), { runtime: 'unix:///second.sock', image: 'unix:///image.sock', source: '/d/10.conf' });
  assert.deepEqual(endpointsOf({ runtimeEndpoint: 'unix:///flag.sock' }, files.slice(0, 1)), {
    runtime: 'unix:///flag.sock',
    image: null,
    source: '--container-runtime-endpoint',
  });
  assert.deepEqual(endpointsOf({}, []), { runtime: 'unix:///run/containerd/containerd.sock', image: null, source: 'the kubelet’s default' });
});

test('the unit of a process', () => {
  assert.equal(unitOf('0::/system.slice/kubelet.service\n'), 'kubelet.service');
  assert.equal(unitOf('0::/docker/ab12/kubelet.slice/kubelet.service\n'), 'kubelet.service');
  assert.equal(unitOf('3:cpu:/x.service\n1:name=systemd:/system.slice/k3s.service/kubepods\n'), 'k3s.service');
  assert.equal(unitOf('0::/user.slice/user-0.slice/session-1.scope\n'), null);
  assert.equal(unitOf('0::/\n'), null);
  assert.equal(unitOf(''), null);
});

test('what the first process of a node of ours was told', () => {
  const spec = readInitSpec(
    'state /n/init.state\ncontrol /n/init.ctl\n\nservice containerd\nargv containerd\nenv PATH=/bin\n\nservice agent\nargv node\nargv --config\nargv /n/a b.json\nlog /n/log\n',
  );
  assert.equal(spec.control, '/n/init.ctl');
  assert.deepEqual(spec.services.get('agent'), ['node', '--config', '/n/a b.json']);
  assert.deepEqual([...spec.services.keys()], ['containerd', 'agent']);
});
