import assert from 'node:assert/strict';
import { existsSync, readFileSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { test } from 'node:test';
import { realClock } from '../../base/clock.ts';
import { csiNodes, nodes, persistentVolumeClaims, persistentVolumes, secrets, volumeAttachments } from '../../base/kubeapi/refs.ts';
import { silentLog } from '../../base/log.ts';
import { CsiHealth } from '../../agent/io/csi/health.ts';
import { RpcError } from '../../cri/mod.ts';
import type { CSINode, Node, PersistentVolume, PersistentVolumeClaim, Pod, Secret, Volume, VolumeAttachment } from '../../proto/kube/types.ts';
import { eventually } from '../set.ts';

import { claimed, driverName, hasLoop, last, named, need, never, pathOf, podOf, prepared, world } from '../csi/world.ts';

test('a driver that registers is in the CSINode and on the Node, and is taken out when it goes', { skip: need }, async () => {
  const { api, driver, agent, node } = world();
  await agent();
  const running = await driver({ topology: { 'test.example/zone': 'z1' }, maxVolumes: 7 });
  await eventually('registered', 10_000, async () => running.registrations.find(({ registered }) => registered) ?? null);
  const object = (): CSINode => api.objects<CSINode>(csiNodes())[0] as CSINode;
  assert.deepEqual(object().spec.drivers, [{ name: driverName, nodeID: 'id-1', topologyKeys: ['test.example/zone'], allocatable: { count: 7 } }]);
  assert.equal(object().metadata.ownerReferences?.[0]?.uid, node().metadata.uid);
  assert.equal(node().metadata.annotations?.['csi.volume.kubernetes.io/nodeid'], `{"${driverName}":"id-1"}`);
  assert.equal(node().metadata.labels?.['test.example/zone'], 'z1');
  await running[Symbol.asyncDispose]();
  await eventually('taken out', 10_000, async () => (object().spec.drivers.length === 0 ? true : null));
  assert.equal(node().metadata.annotations?.['csi.volume.kubernetes.io/nodeid'], undefined);
});

test('two pods share a volume: staged once, published for each, taken back in order', { skip: need }, async () => {
  const { root, driver, agent, csiDriver, volume } = world();
  csiDriver();
  const claim = volume('shared');
  const [running, kubelet] = [await driver(), await agent()];
  const [one, two] = [podOf('u1', [claimed(claim)]), podOf('u2', [claimed(claim, true)])];
  await prepared(kubelet, one);
  writeFileSync(join(await pathOf(kubelet, one), 'file'), 'from one');
  await prepared(kubelet, two);
  const path = await pathOf(kubelet, two);
  assert.equal(path, `${root}/pods/u2/volumes/kubernetes.io~csi/pv-shared/mount`);
  assert.equal(readFileSync(join(path, 'file'), 'utf8'), 'from one');
  assert.throws(() => writeFileSync(join(path, 'other'), ''), /EROFS/);
  assert.deepEqual(named(running), ['NodeStageVolume', 'NodePublishVolume', 'NodePublishVolume']);
  const staging = String(last(running, 'NodePublishVolume')['stagingTargetPath']);
  assert.match(staging, new RegExp(`^${root}/plugins/kubernetes.io/csi/${driverName}/[0-9a-f]{64}/globalmount$`));
  assert.deepEqual(JSON.parse(readFileSync(join(staging, '../vol_data.json'), 'utf8')), { driverName, volumeHandle: 'shared' });
  const data = JSON.parse(readFileSync(join(path, '../vol_data.json'), 'utf8')) as Record<string, string>;
  assert.deepEqual(Object.keys(data), ['attachmentID', 'driverName', 'nodeName', 'specVolID', 'volumeHandle', 'volumeLifecycleMode']);
  assert.deepEqual(last(running, 'NodeStageVolume')['volumeCapability'], {
    mount: { fsType: 'ext4', mountFlags: [], volumeMountGroup: '' },
    accessMode: { mode: 'SINGLE_NODE_MULTI_WRITER' },
    accessType: 'mount',
  });
  await kubelet.volumes.teardown('u1', never);
  assert.equal(existsSync(`${root}/pods/u1`), false);
  await kubelet.volumes.teardown('u2', never);
  await eventually('unstaged', 10_000, async () => (named(running).at(-1) === 'NodeUnstageVolume' && !existsSync(join(staging, '..')) ? true : null));
  assert.deepEqual(named(running).slice(3), ['NodeUnpublishVolume', 'NodeUnpublishVolume', 'NodeUnstageVolume']);
});

test('what a driver says is wrong is in the status of the pod and in the CSINode, and goes away', { skip: need }, async () => {
  const { root, api, driver, agent, csiDriver, volume } = world();
  csiDriver();
  const claim = volume('ill');
  let health: object[] = [{ status: 'DEGRADED', reason: 'Path', message: 'one of two' }];
  let storageHealth: object[] = [{ status: 'STORAGE_UNREACHABLE', reason: 'Net', message: '' }];
  const running = await driver({
    capabilities: ['STAGE_UNSTAGE_VOLUME', 'GET_VOLUME_HEALTH', 'GET_STORAGE_HEALTH'],
    health: () => health,
    storageHealth: () => storageHealth,
  });
  const kubelet = await agent();
  const pod = podOf('u1', [claimed(claim)]);
  await prepared(kubelet, pod);
  const { drivers, nodeObject } = kubelet.csi;
  const volumes = () => kubelet.volumes.asked();
  const kicked: string[] = [];
  const kick = (uid: string): void => void kicked.push(uid);
  const checks = new CsiHealth({ clock: realClock, log: silentLog, rootDir: root, drivers, nodeObject, volumes, kick, periodMs: 60_000 });
  await checks.ask(never);
  const told = () => checks.withHealth('u1', {}).volumeHealth?.map(({ name, healthConditions }) => ({ name, healthConditions }));
  assert.deepEqual(told(), [{ name: 'v', healthConditions: [{ status: 'Degraded', reason: 'Path', message: 'one of two' }] }]);
  const asked = last(running, 'NodeGetVolumeHealth');
  assert.equal(asked['volumePublishPath'], await pathOf(kubelet, pod));
  assert.equal(asked['stagingTargetPath'], last(running, 'NodePublishVolume')['stagingTargetPath']);
  const object = (): CSINode => api.objects<CSINode>(csiNodes())[0] as CSINode;
  assert.deepEqual(object().status?.storageHealth, [{ name: driverName, healthConditions: [{ status: 'StorageUnreachable', reason: 'Net' }] }]);
  assert.match(checks.text(), /csi_node_storage_health_status\{driver_name="[^"]+",status="StorageUnreachable",reason="Net"\} 1\n/);
  health = [{ status: 'DEGRADED', reason: 'Path', message: 'in other words' }];
  await checks.ask(never);
  assert.deepEqual(kicked, ['u1'], 'other words are no news');
  [health, storageHealth] = [[], []];
  await checks.ask(never);
  assert.deepEqual([told(), object().status?.storageHealth, kicked.length], [[{ name: 'v', healthConditions: undefined }], [], 2]);
  await kubelet.volumes.teardown('u1', never);
  await checks.ask(never);
  assert.deepEqual(told(), undefined);
});

test('on a node with SELinux a volume is mounted with the context of its pod, and of one alone', { skip: need }, async () => {
  const { driver, agent, csiDriver, volume } = world();
  csiDriver({ seLinuxMount: true });
  const claim = volume('labelled');
  // The kernel here may have no SELinux: the driver hears of the context, and mounts without it.
  const [running, kubelet] = [await driver(), await agent({ fileContext: 'system_u:object_r:container_file_t:s0', mountsAll: true })];
  const at = (level: string): Partial<Pod['spec']> => ({ securityContext: { seLinuxOptions: { level } } });
  const [one, two] = [podOf('u1', [claimed(claim)], at('s0:c1,c2')), podOf('u2', [claimed(claim)], at('s0:c3,c4'))];
  const context = (level: string): string => `system_u:object_r:container_file_t:${level}`;
  const flags = (method: string): unknown => (last(running, method)['volumeCapability'] as { mount: { mountFlags: string[] } }).mount.mountFlags;
  await prepared(kubelet, one);
  assert.deepEqual([flags('NodeStageVolume'), flags('NodePublishVolume')], [[`context="${context('s0:c1,c2')}"`], [`context="${context('s0:c1,c2')}"`]]);
  const staging = String(last(running, 'NodePublishVolume')['stagingTargetPath']);
  const data = JSON.parse(readFileSync(join(staging, '../vol_data.json'), 'utf8')) as Record<string, string>;
  assert.equal(data['seLinuxMountContext'], context('s0:c1,c2'));
  const late = await kubelet.volumes.prepare(two, never);
  assert.equal(
    late.ok ? '' : late.message,
    `MountVolume.SetUp failed for volume "pv-labelled" : conflicting SELinux labels of volume pv-labelled: "${context('s0:c1,c2')}" and "${context('s0:c3,c4')}"`,
  );
  await kubelet.volumes.teardown('u1', never);
  await eventually('mounted anew', 10_000, async () => ((await kubelet.volumes.prepare(two, never)).ok ? true : null));
  assert.deepEqual(named(running), [
    'NodeStageVolume',
    'NodePublishVolume',
    'NodeUnpublishVolume',
    'NodeUnstageVolume',
    'NodeStageVolume',
    'NodePublishVolume',
  ]);
  assert.deepEqual(flags('NodeStageVolume'), [`context="${context('s0:c3,c4')}"`]);
  await kubelet.volumes.teardown('u2', never);
  await eventually('unstaged', 10_000, async () => (named(running).at(-1) === 'NodeUnstageVolume' && !existsSync(join(staging, '..')) ? true : null));
});

test('a volume waits until it is attached, is in use from then to its unstaging, and its publish context arrives', { skip: need }, async () => {
  const { api, driver, agent, csiDriver, volume, node } = world();
  csiDriver({ attachRequired: true });
  const claim = volume('attached');
  const [running, kubelet] = [await driver(), await agent()];
  await eventually('registered', 10_000, async () => running.registrations[0] ?? null);
  const pod = podOf('u1', [claimed(claim)]);
  const unique = `kubernetes.io/csi/${driverName}^attached`;
  const early = await kubelet.volumes.prepare(pod, never);
  assert.deepEqual(early.ok ? [] : early.events, [], 'only waited for');
  await eventually('in use', 5000, async () => (node().status?.volumesInUse?.includes(unique) === true ? true : null));
  await kubelet.volumes.prepare(pod, never);
  api.put<Node>(nodes('n1'), { ...node(), status: { ...node().status, volumesAttached: [{ name: unique, devicePath: '' }] } });
  const noAttachment = await kubelet.volumes.prepare(pod, never);
  assert.match(
    noAttachment.ok ? '' : (noAttachment.events?.[0]?.message ?? ''),
    /^MountVolume.WaitForAttach failed for volume "pv-attached" : volume attached has GET error for volume attachment csi-[0-9a-f]{64}/,
  );
  const id = /csi-[0-9a-f]{64}/.exec(noAttachment.ok ? '' : noAttachment.message)?.[0] ?? '';
  const spec = { attacher: driverName, nodeName: 'n1', source: { persistentVolumeName: 'pv-attached' } };
  api.put<VolumeAttachment>(volumeAttachments(id), { metadata: { name: id }, spec, status: { attached: true, attachmentMetadata: { device: 'x' } } });
  await prepared(kubelet, pod);
  assert.deepEqual(last(running, 'NodeStageVolume')['publishContext'], { device: 'x' });
  await kubelet.volumes.teardown('u1', never);
  await eventually('no longer in use', 10_000, async () => (node().status?.volumesInUse?.length === 0 ? true : null));
  assert.equal(named(running).at(-1), 'NodeUnstageVolume');
});

test('an inline volume with what the driver asks to hear: the pod, tokens, secrets', { skip: need }, async () => {
  const { api, root, driver, agent, csiDriver } = world();
  csiDriver({
    podInfoOnMount: true,
    volumeLifecycleModes: ['Ephemeral'],
    fsGroupPolicy: 'File',
    tokenRequests: [{ audience: 'b' }, { audience: 'a', expirationSeconds: 600 }],
  });
  api.put<Secret>(secrets('ns', 'key'), { metadata: { name: 'key', namespace: 'ns' }, data: { k: 'dg==' } });
  const [running, kubelet] = [await driver(), await agent()];
  const inline: Volume = { name: 'v', csi: { driver: driverName, volumeAttributes: { size: '1' }, nodePublishSecretRef: { name: 'key' } } };
  const pod = podOf('u1', [inline], { securityContext: { fsGroup: 4242 } });
  await prepared(kubelet, pod);
  const request = last(running, 'NodePublishVolume');
  assert.match(String(request['volumeId']), /^csi-[0-9a-f]{64}$/);
  assert.deepEqual(request['secrets'], { k: 'v' });
  const context = request['volumeContext'] as Record<string, string>;
  assert.equal(context['csi.storage.k8s.io/pod.name'], 'p-u1');
  assert.equal(context['csi.storage.k8s.io/ephemeral'], 'true');
  assert.deepEqual(Object.keys(JSON.parse(context['csi.storage.k8s.io/serviceAccount.tokens'] ?? '{}') as object), ['a', 'b']);
  const stat = statSync(`${root}/pods/u1/volumes/kubernetes.io~csi/v/mount`);
  assert.equal(stat.gid, 4242);
  assert.equal(stat.mode & 0o7777, 0o2775);
  await kubelet.volumes.teardown('u1', never);
  assert.deepEqual(named(running), ['NodePublishVolume', 'NodeUnpublishVolume']);
});

test('a driver that says no leaves nothing, one that is slow is waited for and asked once', { skip: need }, async () => {
  const { root, driver, agent, csiDriver, volume } = world();
  csiDriver();
  const claim = volume('v1');
  const [running, kubelet] = [await driver(), await agent()];
  await eventually('registered', 10_000, async () => running.registrations[0] ?? null);
  const pod = podOf('u1', [claimed(claim)]);
  running.fault = (method) => {
    if (method === 'NodePublishVolume') throw new RpcError('InvalidArgument', method, 'not like this');
  };
  const refused = await kubelet.volumes.prepare(pod, never);
  assert.equal(
    refused.ok ? '' : refused.events?.[0]?.message,
    'MountVolume.SetUp failed for volume "pv-v1" : rpc error: code = InvalidArgument desc = not like this',
  );
  assert.equal(existsSync(`${root}/pods/u1/volumes/kubernetes.io~csi/pv-v1`), false);
  const open = Promise.withResolvers<void>();
  running.fault = async (method) => {
    if (method === 'NodePublishVolume') await open.promise;
  };
  const gone = new AbortController();
  const left = kubelet.volumes.prepare(pod, gone.signal);
  await realClock.sleep(200);
  gone.abort(new Error('the pod is to end'));
  await assert.rejects(left, /the pod is to end/);
  const joined = kubelet.volumes.prepare(pod, never);
  open.resolve();
  running.fault = null;
  assert.deepEqual(await joined, { ok: true });
  assert.deepEqual(named(running), ['NodeStageVolume', 'NodePublishVolume InvalidArgument', 'NodePublishVolume']);
  await kubelet.volumes.teardown('u1', never);
  await eventually('unstaged', 10_000, async () => (named(running).at(-1) === 'NodeUnstageVolume' ? true : null));
});

test('after a crash the next process finds what is published and staged, and takes it back', { skip: need }, async () => {
  const { root, driver, agent, csiDriver, volume } = world();
  csiDriver();
  const claims = [volume('kept'), volume('orphan')];
  const running = await driver();
  const first = await agent();
  const pods = claims.map((claim, index) => podOf(`u${index}`, [claimed(claim)]));
  for (const pod of pods) await prepared(first, pod);
  await first.stop();
  const second = await agent();
  await eventually('the driver has registered again', 10_000, async () => {
    await second.volumes.teardown('u1', never);
    return true;
  });
  await eventually('unstaged', 15_000, async () => (named(running).at(-1) === 'NodeUnstageVolume' ? true : null));
  const [kept] = pods;
  assert.ok(kept !== undefined);
  await second.volumes.refresh(kept, never);
  writeFileSync(join(await pathOf(second, kept), 'still'), 'here');
  await second.volumes.teardown('u0', never);
  await eventually('nothing is staged', 15_000, async () => (readdirSync(`${root}/plugins/kubernetes.io/csi/${driverName}`).length === 0 ? true : null));
  assert.deepEqual(second.csi.inUse(), []);
});

test('a pod does not end before its driver has taken the volume back', { skip: need }, async () => {
  const { root, driver, agent, csiDriver, volume } = world();
  csiDriver();
  const claim = volume('v1');
  const [running, kubelet] = [await driver(), await agent()];
  await prepared(kubelet, podOf('u1', [claimed(claim)]));
  running.fault = (method) => {
    if (method === 'NodeUnpublishVolume') throw new RpcError('Internal', method, 'not yet');
  };
  await assert.rejects(kubelet.volumes.teardown('u1', never), /take volumes back: rpc error: code = Internal desc = not yet/);
  assert.ok(existsSync(`${root}/pods/u1/volumes/kubernetes.io~csi/pv-v1/vol_data.json`));
  running.fault = null;
  await kubelet.volumes.teardown('u1', never);
  assert.equal(existsSync(`${root}/pods/u1`), false);
  await eventually('unstaged', 10_000, async () => (named(running).at(-1) === 'NodeUnstageVolume' ? true : null));
});

test('a volume grows when its claim says so, and the claim hears of it', { skip: need }, async () => {
  const { api, events, driver, agent, csiDriver, volume } = world();
  csiDriver();
  const claim = volume('grows');
  const [running, kubelet] = [await driver(), await agent()];
  const pod = podOf('u1', [claimed(claim)]);
  await prepared(kubelet, pod);
  assert.equal(named(running).includes('NodeExpandVolume'), false);
  const [pv] = api.objects<PersistentVolume>(persistentVolumes());
  const [pvc] = api.objects<PersistentVolumeClaim>(persistentVolumeClaims('ns'));
  assert.ok(pv !== undefined && pvc !== undefined);
  api.put<PersistentVolume>(persistentVolumes('pv-grows'), { ...pv, spec: { ...pv.spec, capacity: { storage: '2Gi' } } });
  const status = { ...pvc.status, allocatedResources: { storage: '2Gi' }, allocatedResourceStatuses: { storage: 'NodeResizePending' } };
  api.put<PersistentVolumeClaim>(persistentVolumeClaims('ns', 'grows'), {
    ...pvc,
    status: { ...status, conditions: [{ type: 'FileSystemResizePending', status: 'True' }] },
  });
  await kubelet.volumes.refresh(pod, never);
  assert.deepEqual(named(running), ['NodeStageVolume', 'NodePublishVolume', 'NodeExpandVolume']);
  assert.deepEqual((last(running, 'NodeExpandVolume')['capacityRange'] as { requiredBytes: string }).requiredBytes, String(2 ** 31));
  const after = api.objects<PersistentVolumeClaim>(persistentVolumeClaims('ns'))[0]?.status;
  assert.equal(after?.capacity?.['storage'], '2Gi');
  assert.equal(after?.allocatedResourceStatuses, undefined);
  assert.deepEqual(after?.conditions ?? [], []);
  assert.ok(
    events.some((line) =>
      line.startsWith('PersistentVolumeClaim Normal FileSystemResizeSuccessful MountVolume.NodeExpandVolume succeeded for volume "pv-grows" n1'),
    ),
  );
  await kubelet.volumes.teardown('u1', never);
  await eventually('unstaged', 10_000, async () => (named(running).at(-1) === 'NodeUnstageVolume' ? true : null));
});

test('a volume that the pod only reads does not grow there, and that is told', { skip: need }, async () => {
  const { api, events, driver, agent, csiDriver, volume } = world();
  csiDriver();
  const claim = volume('fixed');
  const [running, kubelet] = [await driver(), await agent()];
  const pod = podOf('u1', [claimed(claim, true)]);
  await prepared(kubelet, pod);
  const [pv] = api.objects<PersistentVolume>(persistentVolumes());
  assert.ok(pv !== undefined);
  api.put<PersistentVolume>(persistentVolumes('pv-fixed'), { ...pv, spec: { ...pv.spec, capacity: { storage: '2Gi' } } });
  await kubelet.volumes.refresh(pod, never);
  assert.equal(named(running).includes('NodeExpandVolume'), false);
  const told = events.find((line) => line.includes('FileSystemResizeFailed'));
  assert.match(told ?? '', /^Pod Warning FileSystemResizeFailed MountVolume.NodeExpandVolume failed for volume "pv-fixed" requested read-only file system$/);
  await kubelet.volumes.teardown('u1', never);
  await eventually('unstaged', 10_000, async () => (named(running).at(-1) === 'NodeUnstageVolume' ? true : null));
});

test('a block volume is a device in the container', { skip: need === false && !hasLoop ? 'needs /dev/loop-control' : need }, async () => {
  const { root, driver, agent, csiDriver, volume, events } = world();
  csiDriver();
  const claim = volume('raw', { volumeMode: 'Block' });
  const [running, kubelet] = [await driver(), await agent()];
  const pod = podOf('u1', [claimed(claim)], { containers: [{ name: 'm', volumeDevices: [{ name: 'v', devicePath: '/dev/raw' }] }] });
  await prepared(kubelet, pod);
  const mounts = await kubelet.volumes.containerMounts(pod, pod.spec.containers[0] ?? { name: '' }, [], never);
  assert.ok(mounts.ok);
  const link = `${root}/pods/u1/volumeDevices/kubernetes.io~csi/pv-raw`;
  const told = events.filter((line) => line.includes('SuccessfulMountVolume'));
  const [first = '', second = '', ...more] = told;
  assert.equal(
    first,
    `Pod Normal SuccessfulMountVolume MapVolume.MapPodDevice succeeded for volume "pv-raw" globalMapPath "${root}/plugins/kubernetes.io/csi/volumeDevices/pv-raw/dev"`,
  );
  assert.match(second, /volumeMapPath ".*\/pods\/u1\/volumeDevices\/kubernetes\.io~csi"$/);
  assert.equal(more.length, 0);
  assert.deepEqual(mounts.devices, [{ hostPath: link, containerPath: '/dev/raw', permissions: 'mrw' }]);
  assert.ok(statSync(link).isBlockDevice());
  assert.ok(statSync(`${root}/plugins/kubernetes.io/csi/volumeDevices/pv-raw/dev/u1`).isBlockDevice());
  assert.deepEqual(last(running, 'NodeStageVolume')['stagingTargetPath'], `${root}/plugins/kubernetes.io/csi/volumeDevices/staging/pv-raw`);
  assert.deepEqual(last(running, 'NodePublishVolume')['targetPath'], `${root}/plugins/kubernetes.io/csi/volumeDevices/publish/pv-raw/u1`);
  await kubelet.volumes.teardown('u1', never);
  await eventually('unstaged', 10_000, async () =>
    readdirSync(`${root}/plugins/kubernetes.io/csi/volumeDevices`).every((name) => name === 'staging' || name === 'publish') ? true : null,
  );
  assert.deepEqual(named(running), ['NodeStageVolume', 'NodePublishVolume', 'NodeUnpublishVolume', 'NodeUnstageVolume']);
});

test('a driver that asks for it is published again while the pod runs, and a refusal takes nothing away', { skip: need }, async () => {
  const { driver, agent, csiDriver } = world();
  csiDriver({ requiresRepublish: true, volumeLifecycleModes: ['Ephemeral'], podInfoOnMount: true });
  const [running, kubelet] = [await driver(), await agent()];
  const pod = podOf('u1', [{ name: 'v', csi: { driver: driverName } }]);
  await prepared(kubelet, pod);
  await kubelet.volumes.refresh(pod, never);
  running.fault = (method) => {
    if (method === 'NodePublishVolume') throw new RpcError('Internal', method, 'not now');
  };
  await kubelet.volumes.refresh(pod, never);
  running.fault = null;
  assert.deepEqual(named(running), ['NodePublishVolume', 'NodePublishVolume', 'NodePublishVolume Internal']);
  assert.ok(existsSync(await pathOf(kubelet, pod)));
  await kubelet.volumes.teardown('u1', never);
});

test('words for what cannot be: no driver, no such mode, another pod with ReadWriteOncePod', { skip: need }, async () => {
  const { driver, agent, csiDriver, volume } = world();
  csiDriver();
  const kubelet = await agent();
  const words = async (pod: Pod): Promise<string> => {
    const result = await kubelet.volumes.prepare(pod, never);
    return result.ok ? 'ok' : result.message;
  };
  const claim = volume('single', { accessModes: ['ReadWriteOncePod'] });
  assert.equal(
    await words(podOf('u1', [claimed(claim)])),
    `MountVolume.MountDevice failed for volume "pv-single" : kubernetes.io/csi: attacher.MountDevice failed to create newCsiDriverClient: driver name ${driverName} not found in the list of registered CSI drivers`,
  );
  const running = await driver();
  await eventually('registered', 10_000, async () => running.registrations[0] ?? null);
  await eventually('the pod is looked at again', 5000, async () => (kubelet.kicked.includes('u1') ? true : null));
  assert.equal(await words(podOf('u1', [claimed(claim)])), 'ok');
  assert.equal(
    await words(podOf('u2', [claimed(claim)])),
    'MountVolume.SetUp failed for volume "pv-single" : volume uses the ReadWriteOncePod access mode and is already in use by another pod',
  );
  assert.equal(
    await words(podOf('u3', [{ name: 'v', csi: { driver: driverName } }])),
    `MountVolume.SetUp failed for volume "v" : kubernetes.io/csi: mounter.SetupAt failed to check volume lifecycle mode: volume mode "Ephemeral" not supported by driver ${driverName} (only supports ["Persistent"])`,
  );
  for (const uid of ['u1', 'u2', 'u3']) await kubelet.volumes.teardown(uid, never);
  await eventually('unstaged', 10_000, async () => (named(running).at(-1) === 'NodeUnstageVolume' ? true : null));
});
