import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import type { Pod } from '../../proto/kube/types.ts';
import { imageSizeName } from './image-metrics.ts';
import { PodMetrics } from './pod-metrics.ts';
import { StartupMetrics } from './startup-metrics.ts';

const noCounts = { pods: [], isActive: () => false, mirrors: 0, workers: [] };

function has(text: string, lines: readonly string[]): void {
  for (const line of lines) assert.ok(text.includes(`${line}\n`), `${line}\n${text}`);
}

test('the start of a pod is told once it is watched, without the pull', async () => {
  const clock = createFakeClock();
  const metrics = new PodMetrics(clock);
  const creationTimestamp = new Date(clock.nowMs()).toISOString();
  const pod: Pod = { metadata: { name: 'p', namespace: 'ns', uid: 'u1', creationTimestamp }, spec: { containers: [{ name: 'm' }] }, status: {} };
  metrics.appeared(pod);
  await clock.advance(9_000);
  metrics.pulled('u1', 6_000);
  metrics.watched(pod);
  await clock.advance(1_000);
  const state = { running: { startedAt: new Date(clock.nowMs()).toISOString() } };
  const status = { containerStatuses: [{ name: 'm', image: '', imageID: '', ready: true, restartCount: 0, state }] };
  metrics.watched({ ...pod, status });
  metrics.watched({ ...pod, status });
  has(metrics.text(noCounts), [
    'kubelet_pod_start_total_duration_seconds_sum 10',
    'kubelet_pod_start_sli_duration_seconds_sum 4',
    'kubelet_pod_start_sli_duration_seconds_count 1',
    'kubelet_first_network_pod_start_sli_duration_seconds 4',
  ]);
});

test('containers that start, fail and end, and pods by what they are', () => {
  const metrics = new PodMetrics(createFakeClock());
  metrics.containerStarts('sidecar');
  metrics.containerStarts('app');
  metrics.containerFailed('app', 'ErrImagePull');
  const one = { metadata: { name: 'p', uid: 'u' }, spec: { containers: [] } };
  const namespaced = { ...one, spec: { ...one.spec, hostUsers: false } };
  metrics.podStarts(one);
  metrics.sandboxRun('gvisor', 500, true);
  metrics.podFailed();
  metrics.roundFailed(one);
  metrics.podStarts(namespaced);
  metrics.roundFailed(namespaced);
  metrics.imageVolumes(1, 2, null);
  metrics.imageVolumes(1, 1, { reason: 'CreateContainerError', message: 'ImageVolumeMountFailed: no' });
  metrics.imageVolumes(1, 1, { reason: 'CreateContainerError', message: 'no such user' });
  const ended = {
    containerStatuses: [{ name: 'm', image: '', imageID: '', ready: false, restartCount: 0, state: { terminated: { exitCode: 1, reason: 'Error' } } }],
  };
  metrics.told({}, ended);
  metrics.told(ended, ended);
  const fixed: Pod = { metadata: { name: 's', uid: 's', annotations: { 'kubernetes.io/config.source': 'file' } }, spec: { containers: [] } };
  const workers = [
    { uid: 's', phase: 'sync' as const, pod: fixed },
    { uid: 'x', phase: 'terminating' as const, pod: undefined },
  ];
  has(metrics.text({ pods: [fixed], isActive: () => true, mirrors: 1, workers }), [
    'kubelet_started_containers_total{container_type="init_container"} 1',
    'kubelet_started_containers_errors_total{code="ErrImagePull",container_type="container"} 1',
    'kubelet_terminated_containers_total{container_type="container",exit_code="1",reason="Error"} 1',
    'kubelet_run_podsandbox_errors_total{runtime_handler="gvisor"} 1',
    'kubelet_started_pods_total 2',
    'kubelet_started_pods_errors_total 1',
    'kubelet_started_user_namespaced_pods_total 1',
    'kubelet_started_user_namespaced_pods_errors_total 1',
    'kubelet_image_volume_requested_total 3',
    'kubelet_image_volume_mounted_succeed_total 3',
    'kubelet_image_volume_mounted_errors_total 1',
    'kubelet_active_pods{static="true"} 1',
    'kubelet_desired_pods{static=""} 0',
    'kubelet_mirror_pods 1',
    'kubelet_working_pods{config="desired",lifecycle="sync",static="true"} 1',
    'kubelet_working_pods{config="runtime_only",lifecycle="terminating",static="unknown"} 1',
    'kubelet_working_pods{config="orphan",lifecycle="sync",static=""} 0',
  ]);
});

test('sizes of images', () => {
  const mebibyte = 1024 ** 2;
  assert.deepEqual([0, 10 * mebibyte - 1, 10 * mebibyte, 2 * 1024 * mebibyte, 1024 ** 4].map(imageSizeName), [
    '0-10MB',
    '0-10MB',
    '10MB-100MB',
    '1GB-5GB',
    'GT100GB',
  ]);
});

test('a machine that becomes a node tells how long that took, one that was a node does not', async () => {
  const clock = createFakeClock();
  const startup = new StartupMetrics(clock, 30_000);
  startup.ready();
  has(startup.text(), ['kubelet_node_startup_duration_seconds 0', 'kubelet_node_startup_pre_kubelet_duration_seconds 0']);
  await clock.advance(1_000);
  startup.tries();
  await clock.advance(2_000);
  startup.registered();
  await clock.advance(4_000);
  startup.ready();
  has(startup.text(), [
    'kubelet_node_startup_pre_kubelet_duration_seconds 30',
    'kubelet_node_startup_pre_registration_duration_seconds 1',
    'kubelet_node_startup_registration_duration_seconds 2',
    'kubelet_node_startup_post_registration_duration_seconds 4',
    'kubelet_node_startup_duration_seconds 37',
  ]);
});
