import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Fields } from './playback-world.ts';
import { Rewriter, type RewriteOptions } from './replay-rewrite.ts';

const config = {
  metadata: { name: 'web', namespace: 'default', uid: 'aaaa-bbbb' },
  logDirectory: '/var/log/pods/default_web_aaaa-bbbb',
  labels: { 'io.kubernetes.pod.namespace': 'default' },
  linux: { cgroupParent: '/kubepods/podaaaa-bbbb', sysctls: { x: '1' } },
};

function rewriter(options: Partial<RewriteOptions> = {}): Rewriter {
  return new Rewriter({
    run: 'r1',
    folder: '/tmp/replay',
    cgroupParent: '/nodelet-replay-r1',
    exists: (path) => path === '/lib/modules',
    trusted: true,
    ...options,
  });
}

const sameImage = (reference: string): string => reference;

test('a sandbox keeps its name and uid; its logs and cgroup are the replay’s own', () => {
  const { request, needed } = rewriter().rewrite('RunPodSandbox', { config }, sameImage);
  assert.deepEqual(request, {
    config: {
      metadata: config.metadata,
      logDirectory: '/tmp/replay/logs/default_web_aaaa-bbbb',
      labels: { 'io.kubernetes.pod.namespace': 'default', 'nodelet.dev/replay': 'r1' },
      linux: { cgroupParent: '/nodelet-replay-r1/podaaaa-bbbb', sysctls: { x: '1' } },
    },
  });
  assert.deepEqual(needed, [{ path: '/tmp/replay/logs/default_web_aaaa-bbbb', kind: 'folder' }]);
});

test('nothing that a recording says leads out of the replay’s folder and cgroup', () => {
  const up = '../../../../etc';
  const sandbox = { ...config, metadata: { name: up, namespace: '..', uid: up } };
  const own = rewriter();
  const first = own.rewrite('RunPodSandbox', { config: sandbox }, sameImage);
  const mounts = [{ containerPath: '/etc/hosts', hostPath: `/x/${up}/crontab` }];
  const second = own.rewrite('CreateContainer', { sandboxConfig: sandbox, config: { image: { image: 'i' }, logPath: `${up}/app/0.log`, mounts } }, sameImage);
  const made = second.request['config'] as { logPath: string; mounts: { hostPath: string }[] };
  const group = ((first.request['config'] as Fields)['linux'] as Fields)['cgroupParent'] as string;
  for (const path of [...first.needed, ...second.needed]
    .map((one) => one.path)
    .concat(
      made.mounts.map((mount) => mount.hostPath),
      made.logPath,
      group,
    ))
    assert.ok(!path.split('/').includes('..'), path);
  assert.ok([...first.needed, ...second.needed].every(({ path }) => path.startsWith('/tmp/replay/')));
  assert.match(group, /^\/nodelet-replay-r1\/pod[^/]*$/);
});

test('another namespace is one in names, labels and log folders; systemd’s slices are named as it wants them', () => {
  const { request } = rewriter({ namespace: 'trial', cgroupParent: 'nodelet_replay_r1.slice' }).rewrite('RunPodSandbox', { config }, sameImage);
  const made = request['config'] as Fields;
  assert.deepEqual(made['metadata'], { ...config.metadata, namespace: 'trial' });
  assert.deepEqual(made['labels'], { 'io.kubernetes.pod.namespace': 'trial', 'nodelet.dev/replay': 'r1' });
  assert.equal(made['logDirectory'], '/tmp/replay/logs/trial_web_aaaa-bbbb');
  assert.equal((made['linux'] as Fields)['cgroupParent'], 'nodelet_replay_r1-podaaaa_bbbb.slice');
});

test('a container has the ids, image and files of now', () => {
  const own = rewriter();
  own.learn('old-sandbox', 'new-sandbox');
  own.learn('old-target', 'new-target');
  const pods = '/var/lib/kubelet/pods/0a1b2c3d-4e5f';
  const { request, needed } = own.rewrite(
    'CreateContainer',
    {
      podSandboxId: 'old-sandbox',
      config: {
        metadata: { name: 'app' },
        image: { image: 'sha256:old', userSpecifiedImage: 'busybox' },
        logPath: 'app/0.log',
        envs: [
          { key: 'A', value: '(withheld)' },
          { key: 'B', value: 'eA==' },
        ],
        mounts: [
          { containerPath: '/etc/hosts', hostPath: `${pods}/etc-hosts` },
          { containerPath: '/data', hostPath: `${pods}/volumes/data`, readonly: true },
          { containerPath: '/lib/modules', hostPath: '/lib/modules' },
          { containerPath: '/srv', hostPath: '/srv/not/here' },
        ],
        linux: { securityContext: { namespaceOptions: { targetId: 'old-target' } } },
      },
      sandboxConfig: config,
    },
    () => 'sha256:new',
  );
  assert.equal(request['podSandboxId'], 'new-sandbox');
  const made = request['config'] as Fields;
  assert.deepEqual(made['image'], { image: 'sha256:new', userSpecifiedImage: 'busybox' });
  assert.deepEqual(made['envs'], [
    { key: 'A', value: Buffer.from('(withheld)').toString('base64') },
    { key: 'B', value: 'eA==' },
  ]);
  assert.deepEqual(
    (made['mounts'] as Fields[]).map(({ hostPath }) => hostPath),
    [`/tmp/replay/host${pods}/etc-hosts`, `/tmp/replay/host${pods}/volumes/data`, '/lib/modules', '/tmp/replay/host/srv/not/here'],
  );
  assert.deepEqual(made['linux'], { securityContext: { namespaceOptions: { targetId: 'new-target' } } });
  assert.deepEqual(
    needed.map(({ path, kind }) => `${kind} ${path}`),
    [
      'folder /tmp/replay/logs/default_web_aaaa-bbbb',
      'folder /tmp/replay/logs/default_web_aaaa-bbbb/app',
      `file /tmp/replay/host${pods}/etc-hosts`,
      `folder /tmp/replay/host${pods}/volumes/data`,
      'folder /tmp/replay/host/srv/not/here',
    ],
  );
});

test('a pull has no credentials: the recorded ones are words', () => {
  const { request } = rewriter().rewrite('PullImage', { image: { image: 'busybox' }, auth: { username: '(withheld)' } }, sameImage);
  assert.deepEqual(request, { image: { image: 'busybox' } });
});

test('a recording that nobody vouches for gets no files, devices or privileges of this machine', () => {
  const linux = { securityContext: { privileged: true, runAsUser: { value: '1' } } };
  const container = {
    metadata: { name: 'app' },
    image: { image: 'busybox' },
    linux,
    devices: [{ hostPath: '/dev/sda', containerPath: '/dev/sda' }],
    mounts: [{ containerPath: '/host', hostPath: '/lib/modules' }],
  };
  const wary = rewriter({ trusted: false });
  const { request, needed } = wary.rewrite('CreateContainer', { podSandboxId: 's', config: container, sandboxConfig: { ...config, linux } }, sameImage);
  const made = request['config'] as Fields;
  assert.deepEqual(made['linux'], { securityContext: { privileged: false, runAsUser: { value: '1' } } });
  assert.deepEqual(made['devices'], []);
  assert.deepEqual(made['mounts'], [{ containerPath: '/host', hostPath: '/tmp/replay/host/lib/modules' }]);
  assert.ok(needed.some(({ path }) => path === '/tmp/replay/host/lib/modules'));
  assert.deepEqual((request['sandboxConfig'] as { linux: { securityContext: Fields } }).linux.securityContext['privileged'], false);
  assert.equal(wary.tamed, 4);
  const kept = rewriter().rewrite('CreateContainer', { podSandboxId: 's', config: container, sandboxConfig: config }, sameImage).request['config'] as Fields;
  assert.deepEqual([kept['linux'], kept['devices'], kept['mounts']], [linux, container.devices, container.mounts]);
});
