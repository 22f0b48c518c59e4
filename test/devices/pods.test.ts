import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { GrpcClient, serviceOf } from '../../agent/io/grpc.ts';
import { servePods } from '../../agent/io/pods-socket.ts';
import { ResourceMetrics } from '../../agent/io/resource-metrics.ts';
import { realClock } from '../../base/clock.ts';
import { createTypes } from '../../control/core/schema.ts';
import { readProtobuf } from '../../control/io/protobuf.ts';
import schema from '../../proto/kube/schema.json' with { type: 'json' };
import type { Schema } from '../../proto/kube/schema-types.ts';
import type { Pod } from '../../proto/kube/types.ts';
import wire from '../../proto/kube/wire.json' with { type: 'json' };
import definition from '../../proto/plugins/pods.json' with { type: 'json' };
import type { PodsMethods } from '../../proto/plugins/pods.ts';

/* The kubelet's pods on a real socket, read back by the API server's own reader of protobuf. */
const types = createTypes(schema as unknown as Schema, wire);

function decode(bytes: Uint8Array): Pod {
  const field = (number: number, value: Uint8Array): Buffer => {
    const length: number[] = [];
    for (let rest = value.length; ; rest >>= 7) {
      length.push(rest > 0x7f ? (rest & 0x7f) | 0x80 : rest);
      if (rest <= 0x7f) break;
    }
    return Buffer.concat([Buffer.from([(number << 3) | 2, ...length]), value]);
  };
  const meta = Buffer.concat([field(1, Buffer.from('v1')), field(2, Buffer.from('Pod'))]);
  const body = Buffer.concat([Buffer.from('k8s\0', 'latin1'), field(1, meta), field(2, bytes)]);
  const { apiVersion, kind, ...pod } = readProtobuf(types, () => 'Pod', body);
  assert.deepEqual([apiVersion, kind], ['v1', 'Pod']);
  return pod as unknown as Pod;
}

const rich: Pod = {
  metadata: {
    name: 'p',
    namespace: 'ns',
    uid: 'u-1',
    resourceVersion: '77',
    generation: 3,
    creationTimestamp: '2026-11-30T10:00:00Z',
    deletionTimestamp: '2026-11-30T11:00:00Z',
    deletionGracePeriodSeconds: 0,
    labels: { a: 'b', ü: 'ß€' },
    ownerReferences: [{ apiVersion: 'apps/v1', kind: 'ReplicaSet', name: 'r', uid: 'z', controller: true, blockOwnerDeletion: false }],
    managedFields: [{ manager: 'm', operation: 'Update', apiVersion: 'v1', fieldsType: 'FieldsV1', fieldsV1: { 'f:status': {} }, subresource: 'status' }],
  },
  spec: {
    priority: -5,
    terminationGracePeriodSeconds: 30,
    overhead: { cpu: '250m' },
    tolerations: [{ key: 'k', operator: 'Exists', effect: 'NoExecute', tolerationSeconds: -3 }],
    securityContext: { runAsUser: 0, fsGroup: 2000, seccompProfile: { type: 'RuntimeDefault' }, supplementalGroups: [1, 2] },
    volumes: [
      { name: 'e', emptyDir: {} },
      { name: 'c', configMap: { name: 'cm', items: [{ key: 'k', path: 'p', mode: 420 }], optional: false } },
      { name: 't', projected: { sources: [{ serviceAccountToken: { path: 't', expirationSeconds: 3607 } }], defaultMode: 420 } },
    ],
    initContainers: [{ name: 'i', image: 'img', restartPolicy: 'Always', resources: { limits: { cpu: '1', 'example.com/dev': '2' } } }],
    containers: [
      {
        name: 'm',
        image: 'busybox',
        command: ['sh', '-c', 'x'],
        ports: [{ containerPort: 80, protocol: 'TCP', hostPort: 8080 }],
        env: [{ name: 'B', valueFrom: { fieldRef: { apiVersion: 'v1', fieldPath: 'status.podIP' } } }],
        livenessProbe: { httpGet: { path: '/h', port: 'web', scheme: 'HTTP' }, periodSeconds: 10 },
        readinessProbe: { tcpSocket: { port: 80 }, terminationGracePeriodSeconds: 0 },
        lifecycle: { preStop: { sleep: { seconds: 5 } } },
        securityContext: { privileged: false, capabilities: { add: ['NET_ADMIN'], drop: ['ALL'] } },
      },
    ],
  },
  status: {
    phase: 'Running',
    podIPs: [{ ip: '10.0.0.1' }],
    conditions: [{ type: 'Ready', status: 'True', lastTransitionTime: '2026-11-30T10:00:02Z' }],
    containerStatuses: [
      {
        name: 'm',
        ready: true,
        started: false,
        restartCount: 3,
        image: 'i',
        imageID: 'd',
        state: { running: { startedAt: '2026-11-30T10:00:03Z' } },
        allocatedResourcesStatus: [{ name: 'example.com/dev', resources: [{ resourceID: 'd1', health: 'Healthy' }] }],
      },
    ],
  },
};

test('pods are listed, got and watched as the API’s own messages', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'nodelet-pods-'));
  try {
    const pods = new Map<string, Pod>([['u-1', rich]]);
    let synced = false;
    const metrics = new ResourceMetrics();
    await using server = await servePods({ clock: realClock, dir, metrics, pods: () => [...pods.values()], synced: () => synced });
    void server;
    using client = new GrpcClient(serviceOf<PodsMethods>(definition, 'v1alpha1.Pods'), join(dir, 'pods-api.sock'), realClock);
    const options = { timeoutMs: 5000 };
    await assert.rejects(client.call('ListPods', {}, options), /Kubelet is initializing/);
    synced = true;
    const { pods: list } = await client.call('ListPods', {}, options);
    assert.deepEqual(
      list.map((bytes) => decode(bytes)),
      [rich],
    );
    assert.equal(decode((await client.call('GetPod', { podUID: 'u-1' }, options)).pod).metadata.name, 'p');
    await assert.rejects(client.call('GetPod', { podUID: 'no' }, options), /pod with UID no not found/);
    const seen: string[] = [];
    const stop = new AbortController();
    let texts = 0;
    /** Counts how often it is made into text. */
    const plain = (pod: Pod): Pod => Object.assign(Object.create({ toJSON: () => ((texts += 1), { ...pod }) }) as Pod, pod);
    pods.set('u-1', plain(rich));
    const other: Pod = { metadata: { name: 'q', namespace: 'ns', uid: 'u-2' }, spec: { containers: [] } };
    const turns = [
      (): unknown => setTimeout(() => pods.set('u-2', other), 700),
      (): unknown => pods.set('u-2', { ...other, status: { phase: 'Failed' } }),
      (): unknown => pods.delete('u-2'),
      (): unknown => stop.abort(),
    ];
    try {
      for await (const { type, pod } of client.stream('WatchPods', {}, stop.signal)) {
        seen.push(`${type} ${pod.length === 0 ? '' : (decode(pod).metadata.name ?? '')}`);
        if (type !== 'ADDED' || seen.length > 1) turns.shift()?.();
      }
    } catch (error) {
      if (!stop.signal.aborted) throw error;
    }
    assert.equal(texts, 0, 'what has not changed is not compared');
    assert.deepEqual(seen, ['ADDED p', 'INITIAL_SYNC_COMPLETE ', 'ADDED q', 'MODIFIED q', 'DELETED q']);
    assert.match(metrics.text(), /kubelet_pod_requests_get_total\{server_api_version="v1alpha1",status_code="NotFound"\} 1/);
  } finally {
    await rm(dir, { recursive: true });
  }
});
