import assert from 'node:assert/strict';
import { test } from 'node:test';
import { callFields, describedMethods } from './call-fields.ts';
import { methodNames } from './methods.ts';

test('every method of the CRI is described', () => {
  assert.deepEqual([...describedMethods].sort(), [...methodNames].sort());
  assert.equal(methodNames.length, 43);
});

const cases: readonly [what: string, method: string, request: object, answer: object, wanted: readonly string[]][] = [
  ['a runtime', 'Version', {}, { runtimeName: 'containerd', runtimeVersion: 'v2.4.2', runtimeApiVersion: 'v1' }, ['containerd v2.4.2', 'v1']],
  [
    'a sandbox with what is unusual of it',
    'RunPodSandbox',
    {
      runtimeHandler: 'kata',
      config: { metadata: { attempt: 2 }, linux: { securityContext: { namespaceOptions: { network: 'NODE', pid: 'NODE' } } }, portMappings: [{}, {}] },
    },
    { podSandboxId: '0123456789abcdef' },
    ['attempt 2', 'handler kata', 'host network', 'host pid', '2 ports', '→ 0123456789ab'],
  ],
  [
    'a container: image as the pod names it, command, log, limits, mounts',
    'CreateContainer',
    {
      config: {
        image: { image: 'sha256:1', userSpecifiedImage: 'busybox:1' },
        command: ['sh', '-c'],
        args: ['sleep 5'],
        logPath: 'main/0.log',
        mounts: [{}],
        linux: { resources: { cpuQuota: '20000', cpuPeriod: '100000', cpuShares: '204', memoryLimitInBytes: '134217728' } },
      },
    },
    {},
    ['busybox:1', 'sh -c "sleep 5"', 'log main/0.log', 'cpu 0.2', 'memory 134MB', '1 mount'],
  ],
  [
    'what ended, and how',
    'ContainerStatus',
    {},
    { status: { state: 'CONTAINER_EXITED', exitCode: 137, reason: 'OOMKilled' } },
    ['exited', 'exit 137', 'OOMKilled'],
  ],
  [
    'what ended well: zero is not on the wire',
    'ContainerStatus',
    {},
    { status: { state: 'CONTAINER_EXITED', reason: 'Completed' } },
    ['exited', 'exit 0', 'Completed'],
  ],
  ['what was made only: the enum’s first name is not on the wire', 'ContainerStatus', {}, { status: { id: 'x' } }, ['created']],
  [
    'a sandbox and its addresses',
    'PodSandboxStatus',
    {},
    { status: { network: { ip: '10.0.0.1', additionalIps: [{ ip: 'fd00::1' }] } } },
    ['ready', 'ip 10.0.0.1 fd00::1'],
  ],
  ['a grace period', 'StopContainer', { timeout: '30', containerId: 'c' }, {}, ['timeout 30 s', 'c']],
  ['no grace period', 'StopContainer', {}, {}, ['timeout 0 s']],
  ['a probe', 'ExecSync', { cmd: ['cat', '/x y'], timeout: '1' }, { stdout: 'aGVsbG8=', exitCode: 1 }, ['cat "/x y"', 'timeout 1 s', 'exit 1', '6B out']],
  [
    'an exec: where, and not by which secret',
    'Exec',
    { cmd: ['sh'], tty: true },
    { url: 'http://127.0.0.1:4000/exec/SECRET' },
    ['sh', 'tty', 'at http://127.0.0.1:4000'],
  ],
  ['ports', 'PortForward', { port: [80, 443] }, { url: 'http://[::1]:1/x' }, ['to 80, 443', 'at http://[::1]:1']],
  [
    'a list of what lives',
    'ListPodSandbox',
    { filter: { state: {} } },
    { items: [{}, { state: 'SANDBOX_NOTREADY' }] },
    ['only ready', '2 sandboxes', '1 ready'],
  ],
  [
    'a list of one pod',
    'ListContainers',
    { filter: { labelSelector: { 'io.kubernetes.pod.uid': 'u' } } },
    { containers: [{ state: 'CONTAINER_RUNNING' }] },
    ['pod.uid=u', '1 container', '1 running'],
  ],
  ['an image that is there', 'ImageStatus', { image: { image: 'busybox' } }, { image: { size: '2500000' } }, ['busybox', 'there, 2.5MB']],
  ['one that is not', 'ImageStatus', { image: { image: 'busybox' } }, {}, ['busybox', 'not there']],
  [
    'a pull',
    'PullImage',
    { image: { image: 'busybox' }, auth: { username: '(withheld)' } },
    { imageRef: 'sha256:0123456789abcdef' },
    ['busybox', 'with credentials', '→ 0123456789ab'],
  ],
  [
    'a runtime that is not ready',
    'Status',
    {},
    {
      status: {
        conditions: [
          { type: 'RuntimeReady', status: true },
          { type: 'NetworkReady', reason: 'NetworkPluginNotReady', message: 'cni config uninitialized' },
        ],
      },
    },
    ['RuntimeReady', 'not NetworkReady: NetworkPluginNotReady cni config uninitialized'],
  ],
  ['a filesystem', 'ImageFsInfo', {}, { imageFilesystems: [{ fsId: { mountpoint: '/var' }, usedBytes: { value: '81000000' } }] }, ['/var 81MB']],
  ['the cgroup driver that is not on the wire', 'RuntimeConfig', {}, {}, ['cgroup driver systemd']],
  ['an event', 'GetContainerEvents', {}, { containerId: 'c1', containerEventType: 'CONTAINER_STOPPED_EVENT' }, ['stopped', 'c1']],
  ['a resize', 'UpdateContainerResources', { linux: { cpuShares: '512' } }, {}, ['shares 512']],
  ['what nobody knows', 'Dance', {}, {}, []],
];

for (const [what, method, request, answer, wanted] of cases) {
  test(`${method}: ${what}`, () => assert.deepEqual(callFields(method, request as never, answer as never, true), wanted));
}

test('of a call without an answer only the request is told', () => {
  assert.deepEqual(callFields('ListContainers', {}, {}, false), []);
  assert.deepEqual(callFields('ImageStatus', { image: { image: 'x' } }, {}, false), ['x']);
  assert.deepEqual(callFields('RuntimeConfig', {}, {}, false), []);
});

test('what is long is cut, and stays on one line', () => {
  const [text = ''] = callFields('ExecSync', { cmd: ['sh', '-c', `a\n${'b'.repeat(300)}`] }, {}, false);
  assert.ok(text.length <= 121 && !text.includes('\n'), text);
});
