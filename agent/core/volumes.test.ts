import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Container, Pod, Volume } from '../../proto/kube/types.ts';
import { hostNetworkHosts, managedHosts } from './hosts.ts';
import { mountsBelow, otherMounts, parseMountinfo } from './mountinfo.ts';
import { fieldText, formatMap, resourceText } from './volumes-downward.ts';
import { objectsNamed, planMounts } from './volumes-mounts.ts';
import { payloadNeeds, payloadOf, singleUser } from './volumes-payload.ts';
import type { PayloadFile, PayloadInputs } from './volumes-payload.ts';
import { checkHostPath, memorySizeLimit, planVolumes } from './volumes-plan.ts';
import type { HostPathFound, HostPathType } from './volumes-plan.ts';
import { planAtomicWrite, stampOf } from './volumes-writer.ts';

/** A pod whose container mounts all of its volumes. */
const podOf = (spec: Partial<Pod['spec']> = {}): Pod => ({
  metadata: { name: 'p', namespace: 'n', uid: 'u1', labels: { b: '2', a: 'x"y' } },
  spec: { containers: [{ name: 'm', volumeMounts: spec.volumes?.map(({ name }) => ({ name, mountPath: `/${name}` })) ?? [] }], ...spec },
});

function inputsOf(given: Partial<PayloadInputs> = {}): PayloadInputs {
  return {
    pod: podOf(),
    configMaps: new Map(),
    secrets: new Map(),
    tokens: new Map(),
    certificates: new Map(),
    trustBundles: { error: 'none' },
    allocatable: {},
    ...given,
  };
}

const configMap = { metadata: { name: 'c' }, data: { a: 'one', b: 'two' }, binaryData: { bin: 'AAE=' } };
const withConfigMap = inputsOf({
  configMaps: new Map([
    ['c', { object: configMap }],
    ['gone', { object: null }],
  ]),
});

test('files of configMap volumes', () => {
  const cases: [string, Volume['configMap'], string[] | string][] = [
    ['all keys', { name: 'c' }, ['a=one 644', 'b=two 644', 'bin=AAE= 644']],
    ['one key at a path of its own', { name: 'c', items: [{ key: 'a', path: 'x/y', mode: 0o400 }] }, ['x/y=one 400']],
    ['default mode', { name: 'c', defaultMode: 0o600, items: [{ key: 'a', path: 'a' }] }, ['a=one 600']],
    ['missing key', { name: 'c', items: [{ key: 'z', path: 'z' }] }, 'configmap references non-existent config key: z'],
    [
      'missing key, optional',
      {
        name: 'c',
        optional: true,
        items: [
          { key: 'z', path: 'z' },
          { key: 'a', path: 'a' },
        ],
      },
      ['a=one 644'],
    ],
    ['missing object', { name: 'gone' }, 'configmap "gone" not found'],
    ['missing object, optional', { name: 'gone', optional: true }, []],
    ['path out of the volume', { name: 'c', items: [{ key: 'a', path: '../../etc/passwd' }] }, "invalid path: must not contain '..': ../../etc/passwd"],
    ['absolute path', { name: 'c', items: [{ key: 'a', path: '/etc/passwd' }] }, 'invalid path: must be relative path: /etc/passwd'],
    ['name of the writer', { name: 'c', items: [{ key: 'a', path: '..data' }] }, "invalid path: must not start with '..': ..data"],
  ];
  for (const [name, source, expected] of cases) {
    const payload = payloadOf({ name: 'v', configMap: source }, withConfigMap);
    const shown = payload.ok ? payload.files.map((file) => `${file.path}=${file.text} ${file.mode.toString(8)}`) : payload.message;
    assert.deepEqual(shown, expected, name);
  }
});

test('files of secret and projected volumes', () => {
  const secrets = new Map([['s', { object: { metadata: { name: 's' }, data: { k: 'dg==' } } }]]);
  assert.deepEqual(payloadOf({ name: 'v', secret: { secretName: 's', defaultMode: 0o400 } }, inputsOf({ secrets })), {
    ok: true,
    files: [{ path: 'k', text: 'dg==', encoding: 'base64', mode: 0o400 }],
  });
  assert.deepEqual(payloadOf({ name: 'v', secret: { secretName: 's', items: [{ key: 'x', path: 'x' }] } }, inputsOf({ secrets })), {
    ok: false,
    message: 'references non-existent secret key: x',
  });
  const projected: Volume = {
    name: 'v',
    projected: {
      sources: [
        { serviceAccountToken: { path: 'token', expirationSeconds: 3607 } },
        { configMap: { name: 'c', items: [{ key: 'a', path: 'ca.crt' }] } },
        { downwardAPI: { items: [{ path: 'namespace', fieldRef: { fieldPath: 'metadata.namespace' } }] } },
      ],
    },
  };
  assert.deepEqual(payloadNeeds(projected), {
    configMaps: ['c'],
    secrets: [],
    tokens: [{ audience: '', expirationSeconds: 3607 }],
    certificates: [],
    trustBundles: false,
  });
  const tokens = new Map([['3607/', { token: 'T' }]]);
  const all = payloadOf(projected, { ...withConfigMap, tokens });
  assert.deepEqual(all.ok && all.files.map((file) => [file.path, file.text, file.mode]), [
    ['token', 'T', 0o644],
    ['ca.crt', 'one', 0o644],
    ['namespace', 'n', 0o644],
  ]);
  const refused = payloadOf(
    projected,
    inputsOf({ tokens: new Map([['3607/', { error: 'failed to fetch token: no' }]]), configMaps: new Map([['c', { object: null }]]) }),
  );
  assert.deepEqual(refused, { ok: false, message: '[failed to fetch token: no, configmap "c" not found]' });
});

test('a token belongs to the only user of the pod, or is private to its group', () => {
  const volume: Volume = { name: 'v', projected: { sources: [{ serviceAccountToken: { path: 't', expirationSeconds: 600 } }] } };
  const of = (pod: Pod): PayloadFile | undefined => {
    const payload = payloadOf(volume, inputsOf({ pod, tokens: new Map([['600/', { token: 'T' }]]) }));
    return payload.ok ? payload.files[0] : undefined;
  };
  assert.deepEqual(of(podOf({ securityContext: { runAsUser: 1000 } })), { path: 't', text: 'T', encoding: 'utf8', mode: 0o600, uid: 1000 });
  assert.equal(of(podOf({ securityContext: { fsGroup: 5 } }))?.mode, 0o600);
  assert.equal(singleUser(podOf({ containers: [{ name: 'a', securityContext: { runAsUser: 1 } }, { name: 'b' }] })), undefined);
  const debugged = podOf({ securityContext: { runAsUser: 1 }, ephemeralContainers: [{ name: 'd', securityContext: { runAsUser: 2 } }] });
  assert.equal(singleUser(debugged), undefined, 'containers that come to look at the pod count');
});

test('the atomic write swaps one link and keeps visible names', () => {
  const file = (path: string): PayloadFile => ({ path, text: 'x', encoding: 'utf8', mode: 0o644 });
  const state = { names: ['..data', '..2026_01_01_00_00_00.1', 'old', 'kept'], dataTarget: '..2026_01_01_00_00_00.1', dataNames: ['old', 'kept'] };
  const plan = planAtomicWrite(state, [file('kept'), file('dir/new')], '..2026_01_01_00_01_00.2', null);
  const shown = plan.ops.map((op) =>
    op.op === 'symlink' ? `${op.op} ${op.path} -> ${op.target}` : op.op === 'rename' ? `${op.op} ${op.path} ${op.to}` : `${op.op} ${op.path}`,
  );
  assert.deepEqual(shown, [
    'mkdir ..2026_01_01_00_01_00.2',
    'mkdir ..2026_01_01_00_01_00.2/dir',
    'write ..2026_01_01_00_01_00.2/kept',
    'write ..2026_01_01_00_01_00.2/dir/new',
    'unlink ..data_tmp',
    'symlink ..data_tmp -> ..2026_01_01_00_01_00.2',
    'rename ..data_tmp ..data',
    'symlink dir -> ..data/dir',
    'unlink old',
  ]);
  assert.deepEqual(plan.stale, ['..2026_01_01_00_00_00.1']);
  const grouped = planAtomicWrite({ names: [], dataTarget: null, dataNames: [] }, [{ ...file('a'), mode: 0o600 }], 's', 7);
  assert.deepEqual(grouped.ops.slice(0, 4), [
    { op: 'mkdir', path: 's', mode: 0o755 },
    { op: 'write', path: 's/a', file: { ...file('a'), mode: 0o600 }, mode: 0o640, gid: 7 },
    { op: 'chown', path: 's', uid: 0, gid: 7 },
    { op: 'chmod', path: 's', mode: 0o2755 | 0o550 },
  ]);
});

test('data directories are named by time and chance', () => {
  assert.equal(stampOf(Date.UTC(2026, 0, 31, 23, 59, 5), 42), '..2026_01_31_23_59_05.42');
});

test('downward fields and resources', () => {
  const pod = podOf();
  assert.deepEqual(fieldText(pod, 'metadata.labels'), { ok: true, text: 'a="x\\"y"\nb="2"' });
  assert.deepEqual(fieldText(pod, "metadata.labels['b']"), { ok: true, text: '2' });
  assert.deepEqual(fieldText(pod, 'status.podIP'), { ok: false, message: 'unsupported fieldPath: status.podIP' });
  assert.equal(formatMap({ k: 'ä\n\u0001\u200b' }), 'k="ä\\n\\x01\\u200b"');
  const container: Container = { name: 'm', resources: { limits: { cpu: '1500m' }, requests: { memory: '64Mi' } } };
  const cases: [string, string | undefined, string][] = [
    ['limits.cpu', undefined, '2'],
    ['limits.cpu', '1m', '1500'],
    ['requests.memory', '1Mi', '64'],
    ['limits.memory', '1Mi', '1024'],
    ['requests.cpu', undefined, '0'],
  ];
  for (const [resource, divisor, expected] of cases) {
    assert.deepEqual(
      resourceText(container, divisor === undefined ? { resource } : { resource, divisor }, { memory: '1Gi' }),
      { ok: true, text: expected },
      resource,
    );
  }
});

test('a memory emptyDir is as large as the smallest bound', () => {
  const allocatable = { memory: '1Gi' };
  assert.equal(memorySizeLimit(podOf(), '32Mi', allocatable), 32n << 20n);
  assert.equal(memorySizeLimit(podOf({ containers: [{ name: 'm', resources: { limits: { memory: '64Mi' } } }] }), '256Mi', allocatable), 64n << 20n);
  assert.equal(memorySizeLimit(podOf(), undefined, allocatable), 1n << 30n);
  assert.equal(memorySizeLimit(podOf(), undefined, {}), null);
});

test('plans of volumes; other kinds are refused by name', () => {
  const volumes: Volume[] = [
    { name: 'e', emptyDir: {} },
    { name: 'm', emptyDir: { medium: 'Memory' } },
    { name: 'c', configMap: { name: 'x' } },
    { name: 's', secret: { secretName: 'x' } },
    { name: 'd', downwardAPI: {} },
    { name: 'h', hostPath: { path: '/tmp/x' } },
    { name: 'i', image: { reference: 'r' } },
    { name: 'k', csi: { driver: 'd' } },
    { name: 'n', nfs: { server: 's', path: '/' } },
    { name: 'l', glusterfs: { endpoints: 'e', path: 'p' } },
    { name: 'bad', hostPath: { path: '/a/../b' } },
    { name: '../x', emptyDir: {} },
  ];
  const shown = planVolumes(podOf({ volumes }), {}).map((plan) =>
    plan.kind === 'refused' ? plan.message : plan.kind === 'emptyDir' || plan.kind === 'payload' ? `${plan.base.dir} ${plan.base.medium.kind}` : plan.kind,
  );
  assert.deepEqual(shown, [
    'volumes/kubernetes.io~empty-dir/e disk',
    'volumes/kubernetes.io~empty-dir/m tmpfs',
    'volumes/kubernetes.io~configmap/c disk',
    'volumes/kubernetes.io~secret/s tmpfs',
    'volumes/kubernetes.io~downward-api/d tmpfs',
    'hostPath',
    'image',
    'csi',
    'nfs',
    'glusterfs volumes are not supported by this node',
    "invalid HostPath `/a/../b`: must be absolute and must not contain '..'",
    '"../x" is not a volume name',
  ]);
});

test('host path types', () => {
  const cases: [HostPathType, HostPathFound, string][] = [
    ['', 'absent', 'mount'],
    ['DirectoryOrCreate', 'absent', 'makeDir'],
    ['DirectoryOrCreate', 'dir', 'mount'],
    ['FileOrCreate', 'absent', 'makeFile'],
    ['File', 'file', 'mount'],
    ['Socket', 'socket', 'mount'],
    ['CharDevice', 'char', 'mount'],
    ['BlockDevice', 'block', 'mount'],
    ['Directory', 'file', "hostPath type check failed: /x is not a directory, it's a File"],
    ['File', 'absent', 'hostPath type check failed, /x is not a file, unable to determine its type: path "/x" does not exist'],
  ];
  for (const [type, found, expected] of cases) {
    const answer = checkHostPath('/x', type, found);
    assert.equal(answer.verdict === 'refuse' ? answer.message : answer.verdict, expected, `${type} ${found}`);
  }
});

test('the owner of files: what an item says, else what the volume says, where the gate lets it count', () => {
  const configMaps = new Map([['c', { object: configMap }]]);
  const tokens = new Map([['600/', { token: 'T' }]]);
  const owners = (volume: Partial<Volume>, fileUsers: boolean, spec: Partial<Pod['spec']> = {}): string => {
    const payload = payloadOf({ name: 'v', ...volume }, inputsOf({ pod: podOf(spec), configMaps, tokens, fileUsers }));
    assert.ok(payload.ok);
    return payload.files.map(({ path, uid, mode }) => `${path}:${uid ?? '-'}:${mode.toString(8)}`).join(' ');
  };
  const items = [
    { key: 'a', path: 'a', user: 7 },
    { key: 'b', path: 'b' },
  ];
  assert.equal(owners({ configMap: { name: 'c', defaultUser: 5, items } }, true), 'a:7:644 b:5:644');
  assert.equal(owners({ configMap: { name: 'c', defaultUser: 5, items } }, false), 'a:-:644 b:-:644');
  assert.equal(owners({ configMap: { name: 'c', defaultUser: 0 } }, true), 'a:0:644 b:0:644 bin:0:644');
  const field = { fieldRef: { fieldPath: 'metadata.name' } };
  assert.equal(
    owners(
      {
        downwardAPI: {
          defaultUser: 5,
          items: [
            { path: 'n', ...field },
            { path: 'u', user: 8, ...field },
          ],
        },
      },
      true,
    ),
    'n:5:644 u:8:644',
  );
  const token = (user?: number) => ({ serviceAccountToken: { path: 't', expirationSeconds: 600, ...(user === undefined ? {} : { user }) } });
  const alone: Partial<Pod['spec']> = { containers: [{ name: 'm', securityContext: { runAsUser: 1000 } }] };
  assert.equal(owners({ projected: { defaultUser: 5, sources: [token()] } }, true, alone), 't:5:600');
  assert.equal(owners({ projected: { sources: [token()] } }, true, alone), 't:1000:600');
  assert.equal(owners({ projected: { defaultUser: 5, sources: [token(9)] } }, true), 't:9:600');
  assert.equal(owners({ projected: { defaultUser: 5, sources: [token(9)] } }, false), 't:-:644');
});

test('permissions of an emptyDir, where the gate lets them count: on disk alone, and with the sticky bit', () => {
  const modes = (emptyDirMode: boolean, mode: number, medium = ''): (number | undefined)[] =>
    planVolumes(podOf({ volumes: [{ name: 'e', emptyDir: { mode, medium } }] }), {}, { emptyDirMode }).map((plan) =>
      plan.kind === 'emptyDir' ? plan.base.mode : -1,
    );
  assert.deepEqual([modes(true, 0o1750), modes(false, 0o750), modes(true, 0o750, 'Memory')], [[0o1750], [undefined], [undefined]]);
});

test('huge pages as a medium are had only by pods that ask for such pages', () => {
  const of = (medium: string, ...names: string[]): string => {
    const limits = Object.fromEntries(names.map((name) => [name, '1Gi']));
    const [plan] = planVolumes(
      podOf({
        volumes: [{ name: 'h', emptyDir: { medium } }],
        containers: [{ name: 'm', volumeMounts: [{ name: 'h', mountPath: '/h' }], resources: { limits } }],
      }),
      {},
    );
    if (plan?.kind === 'refused') return plan.message;
    return plan?.kind === 'emptyDir' && plan.base.medium.kind === 'hugetlbfs' ? plan.base.medium.pageSize : 'other';
  };
  assert.equal(of('HugePages', 'hugepages-2Mi'), '2Mi');
  assert.equal(of('HugePages-1Gi', 'hugepages-2Mi', 'hugepages-1Gi'), '1Gi');
  assert.equal(of('HugePages-2Mi', 'memory'), 'medium HugePages-2Mi: hugePages storage requested, but there is no resource request for huge pages');
  assert.equal(of('HugePages', 'hugepages-2Mi', 'hugepages-1Gi'), "medium: HugePages can't be used if container requests multiple huge page sizes");
  assert.equal(of('Tape'), 'unknown storage medium "Tape"');
});

test("a volume that no container uses is nobody's concern", () => {
  const volumes = ['app', 'init', 'debug', 'device', 'unused'].map((name): Volume => ({ name, secret: { secretName: 'not-there' } }));
  const mounts = (name: string): Pick<Container, 'volumeMounts'> => ({ volumeMounts: [{ name, mountPath: '/v' }] });
  const pod = podOf({
    volumes,
    containers: [{ name: 'm', ...mounts('app'), volumeDevices: [{ name: 'device', devicePath: '/dev/x' }] }],
    initContainers: [{ name: 'i', ...mounts('init') }],
    ephemeralContainers: [{ name: 'd', ...mounts('debug') }],
  });
  assert.deepEqual(
    planVolumes(pod, {}).map(({ name }) => name),
    ['app', 'init', 'debug', 'device'],
  );
});

test('mounts of a container', () => {
  const pod = podOf({
    volumes: [
      { name: 'c', configMap: { name: 'c' } },
      { name: 'e', emptyDir: {} },
    ],
  });
  const mountsOf = (volumeMounts: Container['volumeMounts']) =>
    planMounts({
      container: { name: 'm', volumeMounts },
      plans: planVolumes(pod, {}),
      podDir: '/r/pods/u1',
      claims: new Map(),
      env: new Map([
        ['POD', 'p'],
        ['EMPTY', ''],
      ]),
      supportsRecursiveReadOnly: false,
    });
  const good = mountsOf([
    { name: 'c', mountPath: '/etc/one.ini', subPath: './one.ini' },
    { name: 'e', mountPath: 'rel', subPathExpr: 'logs/$(POD)', mountPropagation: 'HostToContainer' },
    { name: 'e', mountPath: '/etc/hosts', bindMountOptions: ['noexec'] },
  ]);
  assert.deepEqual(good.ok && good.mounts.map(({ options }) => options), [undefined, undefined, ['noexec']]);
  assert.deepEqual(
    good.ok && [good.mountsEtcHosts, good.mounts.map((mount) => [mount.volumePath, mount.subPath, mount.containerPath, mount.readonly, mount.propagation])],
    [
      true,
      [
        ['/r/pods/u1/volumes/kubernetes.io~configmap/c', 'one.ini', '/etc/one.ini', true, 'PROPAGATION_PRIVATE'],
        ['/r/pods/u1/volumes/kubernetes.io~empty-dir/e', 'logs/p', '/rel', false, 'PROPAGATION_HOST_TO_CONTAINER'],
        ['/r/pods/u1/volumes/kubernetes.io~empty-dir/e', null, '/etc/hosts', false, 'PROPAGATION_PRIVATE'],
      ],
    ],
  );
  const refusals: [NonNullable<Container['volumeMounts']>[number], RegExp][] = [
    [{ name: 'x', mountPath: '/x' }, /cannot find volume "x" to mount into container "m"/],
    [{ name: 'e', mountPath: '/x', subPath: '/abs' }, /must not be an absolute path/],
    [{ name: 'e', mountPath: '/x', subPath: 'a/../b' }, /must not contain '\.\.'/],
    [{ name: 'e', mountPath: '/x', subPathExpr: '$(NOPE)$(EMPTY)$(A)$(NOPE)' }, /^missing value for A, EMPTY, NOPE$/],
    [{ name: 'e', mountPath: '/x', readOnly: true, recursiveReadOnly: 'Enabled' }, /not supported by the runtime/],
  ];
  for (const [mount, expected] of refusals) {
    const bad = mountsOf([mount]);
    assert.match(bad.ok ? '' : bad.message, expected);
  }
});

test('every object a pod names is found', () => {
  const named = objectsNamed(
    podOf({
      imagePullSecrets: [{ name: 'pull' }],
      containers: [
        {
          name: 'm',
          envFrom: [{ configMapRef: { name: 'c1' } }, { secretRef: { name: 's1' } }],
          env: [{ name: 'A', valueFrom: { secretKeyRef: { name: 's2', key: 'k' } } }],
        },
      ],
      volumes: [
        { name: 'v', projected: { sources: [{ configMap: { name: 'kube-root-ca.crt' } }, { secret: { name: 's3' } }] } },
        { name: 'w', secret: { secretName: 's4' } },
      ],
    }),
  );
  assert.deepEqual(
    [[...named.configMaps], [...named.secrets]],
    [
      ['c1', 'kube-root-ca.crt'],
      ['pull', 's1', 's2', 's3', 's4'],
    ],
  );
});

test('hosts files', () => {
  const aliases = [{ ip: '192.0.2.8', hostnames: ['a.example', 'b.example'] }];
  const own = managedHosts({ podIPs: ['10.1.0.5'], hostname: 'h', domain: 's.n.svc.cluster.local', aliases }).split('\n');
  assert.equal(own[0], '# Kubernetes-managed hosts file.');
  assert.deepEqual(own.slice(7), ['10.1.0.5\th.s.n.svc.cluster.local\th', '', '# Entries added by HostAliases.', '192.0.2.8\ta.example\tb.example', '']);
  assert.equal(
    hostNetworkHosts('127.0.0.1 localhost\n', aliases),
    '# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n\n# Entries added by HostAliases.\n192.0.2.8\ta.example\tb.example\n',
  );
});

test('mounts come off deepest and latest first', () => {
  const line = (target: string): string => `1 1 0:1 / ${target} rw,relatime shared:1 - tmpfs tmpfs rw,size=4k`;
  const entries = parseMountinfo(
    [line('/r/pods/u1/volumes/a'), line('/r/pods/u10/volumes/x'), line('/r/pods/u1/volumes/a/b\\040c'), line('/r/pods/u1/volumes/a')].join('\n'),
  );
  assert.deepEqual(mountsBelow(entries, '/r/pods/u1'), ['/r/pods/u1/volumes/a/b c', '/r/pods/u1/volumes/a', '/r/pods/u1/volumes/a']);
  assert.equal(entries[0]?.superOptions, 'rw,size=4k');
});

test('where else a directory is mounted', () => {
  const table = parseMountinfo(
    [
      '1 1 8:1 / / rw - ext4 a rw',
      '2 1 8:2 /own /data rw - ext4 b rw',
      '3 1 8:2 /own/v /r/pods/u1/v rw - ext4 b rw',
      '4 1 8:2 /own/v2 /r/pods/u2/v rw - ext4 b rw',
      '5 1 8:1 /data/v /r/pods/u3/v rw - ext4 a rw',
    ].join('\n'),
  );
  assert.deepEqual(otherMounts(table, '/data/v'), ['/r/pods/u1/v'], 'what lies under another mount is another directory');
  assert.deepEqual(otherMounts(table, '/etc'), []);
  assert.deepEqual(otherMounts([], '/etc'), []);
});

test('files of a certificate and of trust anchors', () => {
  const volume: Volume = {
    name: 'v',
    projected: {
      sources: [
        { clusterTrustBundle: { name: 'ca', path: 'ca.pem' } },
        { podCertificate: { keyType: 'ED25519', signerName: 'a/b', credentialBundlePath: 'bundle', keyPath: 'key', certificateChainPath: 'chain' } },
      ],
    },
  };
  const needs = payloadNeeds(volume);
  assert.deepEqual([needs.certificates, needs.trustBundles], [[{ volume: 'v', source: 1 }], true]);
  const pemText = '-----BEGIN CERTIFICATE-----\nQUFB\n-----END CERTIFICATE-----\n';
  const certificates = new Map([['v/1', { keyPem: 'K', chainPem: 'C' }]]);
  const trustBundles = { bundles: [{ metadata: { name: 'ca' }, spec: { trustBundle: pemText } }], orderSeed: 1 };
  const shown = (given: Partial<PayloadInputs>): unknown => {
    const payload = payloadOf(volume, inputsOf(given));
    return payload.ok ? payload.files.map(({ path, text, mode, uid }) => [path, text, mode.toString(8), uid]) : payload.message;
  };
  assert.deepEqual(shown({ certificates, trustBundles }), [
    ['ca.pem', pemText, '644', undefined],
    ['bundle', 'KC', '644', undefined],
    ['key', 'K', '644', undefined],
    ['chain', 'C', '644', undefined],
  ]);
  assert.deepEqual(shown({ certificates, trustBundles, pod: podOf({ securityContext: { runAsUser: 7 } }) }), [
    ['ca.pem', pemText, '600', 7],
    ['bundle', 'KC', '600', 7],
    ['key', 'K', '600', 7],
    ['chain', 'C', '600', 7],
  ]);
  assert.equal(
    shown({ certificates: new Map([['v/1', { error: 'credential bundle is not issued yet' }]]), trustBundles: { bundles: [], orderSeed: 1 } }),
    '[while getting ClusterTrustBundle: clustertrustbundle.certificates.k8s.io "ca" not found, credential bundle is not issued yet]',
  );
});

test('an image volume is mounted by the runtime, read-only, and nothing is made for it', () => {
  const pod = podOf({ volumes: [{ name: 'i', image: { reference: 'r/x:1', pullPolicy: 'Always' } }] });
  const plans = planVolumes(pod, {});
  assert.deepEqual(plans, [{ kind: 'image', name: 'i', reference: 'r/x:1', pullPolicy: 'Always' }]);
  const container: Container = { name: 'm', volumeMounts: [{ name: 'i', mountPath: '/i', subPath: 'a/b' }] };
  const planned = planMounts({ container, plans, podDir: '/p', claims: new Map(), env: new Map(), supportsRecursiveReadOnly: false });
  assert.ok(planned.ok);
  const [mount] = planned.mounts;
  assert.deepEqual([mount?.image, mount?.volumePath, mount?.readonly, mount?.subPath], [plans[0], '', true, 'a/b']);
});
