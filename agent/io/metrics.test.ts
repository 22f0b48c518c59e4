import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { AgentMetrics } from './metrics.ts';

const noPods = { pods: [], isActive: () => false, mirrors: 0, workers: [] };
const labels = { kind: 'readiness', container: 'c', pod: 'p', namespace: 'ns', uid: 'u1' } as const;

test('the page has upstream’s names, the process and the event loop', async () => {
  const clock = createFakeClock();
  using metrics = new AgentMetrics({
    clock,
    nodeName: 'n1',
    cgroupVersion: () => 2,
    upMs: 5_000,
    featureGates: {},
    counts: () => ({ runningPods: 3, containers: { running: 4, exited: 1 }, pods: noPods, eventsDropped: 2 }),
  });
  metrics.pleg.relisted(20);
  await clock.advance(1_000);
  metrics.pleg.relisted(30);
  metrics.podWorked('sync', 12);
  metrics.runtimeCalled('list_containers', 5, true);
  metrics.statusWritten(8);
  metrics.podStarted(900);
  metrics.cgroupDone('create', 20);
  metrics.losingSupport('1.38.0');
  const text = await metrics.text();
  for (const line of [
    'kubelet_node_name{node="n1"} 1',
    'kubelet_running_pods 3',
    'kubelet_running_containers{container_state="running"} 4',
    'kubelet_pleg_relist_duration_seconds_count 2',
    'kubelet_pleg_relist_interval_seconds_count 1',
    'kubelet_pod_worker_duration_seconds_bucket{operation_type="sync",le="0.025"} 1',
    'kubelet_runtime_operations_errors_total{operation_type="list_containers"} 1',
    'nodelet_events_dropped_total 2',
    'kubelet_cgroup_manager_duration_seconds_bucket{operation_type="create",le="0.025"} 1',
    'kubelet_cri_losing_support{version="1.38.0"} 1',
    'kubelet_cgroup_version 2',
  ])
    assert.ok(text.includes(`${line}\n`), line);
  assert.match(text, /process_resident_memory_bytes [1-9]/);
  assert.match(text, /nodelet_event_loop_delay_seconds_bucket\{le="\+Inf"\} \d+\n/);
  for (const line of text.trimEnd().split('\n')) assert.match(line, /^(# (HELP|TYPE) \S+ .+|[a-z_]+(\{[^}]*\})? (-?[\d.e+-]+|\+Inf)( \d+)?)$/);
});

test('a page of many probes is written in pieces, and is whole', async () => {
  using metrics = new AgentMetrics({
    clock: createFakeClock(),
    nodeName: 'n1',
    cgroupVersion: () => 2,
    upMs: null,
    featureGates: {},
    counts: () => ({ runningPods: 0, containers: {}, pods: noPods, eventsDropped: 0 }),
  });
  for (let n = 0; n < 2_000; n++) metrics.probed({ ...labels, pod: `p${n}` }, 'successful', 3);
  let turns = 0;
  const ticking = setInterval(() => turns++, 0);
  const text = await metrics.probesText();
  clearInterval(ticking);
  assert.equal(text.match(/^prober_probe_duration_seconds_count/gm)?.length, 2_000);
  assert.ok(turns > 0);
});

test('probe series end with their container', async () => {
  using metrics = new AgentMetrics({
    clock: createFakeClock(),
    nodeName: 'n1',
    cgroupVersion: () => 2,
    upMs: 5_000,
    featureGates: {},
    counts: () => ({ runningPods: 0, containers: {}, pods: noPods, eventsDropped: 0 }),
  });
  metrics.probed(labels, 'successful', 3);
  metrics.probed(labels, 'failed', 3);
  assert.match(await metrics.probesText(), /prober_probe_total\{container="c",namespace="ns",pod="p",pod_uid="u1",probe_type="Readiness",result="failed"\} 1/);
  metrics.probeGone(labels);
  assert.match(await metrics.probesText(), /^# HELP process_start_time_seconds .*\n.*\nprocess_start_time_seconds [\d.e+]+\n$/);
});
