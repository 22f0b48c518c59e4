import assert from 'node:assert/strict';
import { test } from 'node:test';
import { dropIn, execStartOf, flagOf, programOf, readUnit, withProgram } from './unit.ts';

const FILES = `# /etc/systemd/system/kubelet.service
[Unit]
Description=kubelet
[Service]
ExecStartPre=/bin/true
ExecStart=/usr/bin/kubelet
[Install]
WantedBy=multi-user.target
# /etc/systemd/system/kubelet.service.d/10-kubeadm.conf
[Service]
ExecStart=
ExecStart=/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS \\
  $KUBELET_CONFIG_ARGS --runtime-cgroups=/system.slice/containerd.service
`;

test('the command line that counts is the last one after an empty one', () => {
  const line = '/usr/bin/kubelet $KUBELET_KUBECONFIG_ARGS    $KUBELET_CONFIG_ARGS --runtime-cgroups=/system.slice/containerd.service';
  assert.equal(execStartOf(FILES), line);
  assert.equal(programOf(line), '/usr/bin/kubelet');
  assert.equal(
    dropIn(line, '/var/lib/nodelet/kubelet').split('\n').at(-2),
    'ExecStart=/var/lib/nodelet/kubelet $KUBELET_KUBECONFIG_ARGS    $KUBELET_CONFIG_ARGS --runtime-cgroups=/system.slice/containerd.service',
  );
});

test('a unit with none, with several, or with a line of another section has no command line to take', () => {
  assert.equal(execStartOf('[Service]\nType=simple\n'), null);
  assert.equal(execStartOf('[Service]\nExecStart=/bin/a\nExecStart=/bin/b\n'), null);
  assert.equal(execStartOf('[X-Other]\nExecStart=/bin/a\n'), null);
});

test('prefixes stay in front of the other program', () => {
  assert.equal(withProgram('-/usr/bin/kubelet --v=2', '/x'), '-/x --v=2');
  assert.equal(programOf('+/usr/bin/kubelet --v=2'), '/usr/bin/kubelet');
});

test('what systemctl shows', () => {
  assert.deepEqual(readUnit('LoadState=loaded\nActiveState=active\nMainPID=211\nFragmentPath=/a/kubelet.service\nDropInPaths=/a/10.conf /a/20.conf\n'), {
    isLoaded: true,
    isActive: true,
    mainPid: 211,
    files: ['/a/kubelet.service', '/a/10.conf', '/a/20.conf'],
  });
  assert.deepEqual(readUnit('LoadState=not-found\nActiveState=inactive\nMainPID=0\nFragmentPath=\nDropInPaths=\n'), {
    isLoaded: false,
    isActive: false,
    mainPid: 0,
    files: [],
  });
});

test('flags as two words or one; the last counts', () => {
  const argv = ['kubelet', '--config', '/a', '--kubeconfig=/b', '--config=/c'];
  assert.equal(flagOf(argv, 'config'), '/c');
  assert.equal(flagOf(argv, 'kubeconfig'), '/b');
  assert.equal(flagOf(argv, 'node-ip'), null);
});
