import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod } from '../../proto/kube/types.ts';
import { readConfiguration } from './config.ts';
import type { KubeletConfiguration } from './config.ts';
import {
  logindConfiguration,
  readShutdownState,
  shutdownGraceSeconds,
  shutdownGroups,
  shutdownMs,
  shutdownPeriods,
  shutdownStateText,
} from './node-shutdown.ts';

const configOf = (fields: Record<string, unknown>): KubeletConfiguration => {
  const { config, problems } = readConfiguration({ apiVersion: 'kubelet.config.k8s.io/v1beta1', kind: 'KubeletConfiguration', ...fields });
  assert.deepEqual(problems, []);
  return config;
};
const podOf = (name: string, priority?: number, grace?: number): Pod => ({
  metadata: { name },
  spec: { containers: [], ...(priority === undefined ? {} : { priority }), ...(grace === undefined ? {} : { terminationGracePeriodSeconds: grace }) },
});

test('periods: off, two, by priority, by gates', () => {
  assert.deepEqual(shutdownPeriods(configOf({})), []);
  const two = { shutdownGracePeriod: '30s', shutdownGracePeriodCriticalPods: '10s' };
  assert.deepEqual(shutdownPeriods(configOf(two)), [
    { priority: 0, seconds: 20 },
    { priority: 2_000_000_000, seconds: 10 },
  ]);
  assert.equal(shutdownMs(shutdownPeriods(configOf(two))), 30_000);
  assert.deepEqual(shutdownPeriods(configOf({ ...two, featureGates: { GracefulNodeShutdown: false, GracefulNodeShutdownBasedOnPodPriority: false } })), []);
  const many = {
    shutdownGracePeriodByPodPriority: [
      { priority: 100_000, shutdownGracePeriodSeconds: 10 },
      { priority: 0, shutdownGracePeriodSeconds: 60 },
      { priority: 10_000, shutdownGracePeriodSeconds: 180 },
    ],
  };
  assert.deepEqual(
    shutdownPeriods(configOf(many)).map(({ priority, seconds }) => [priority, seconds]),
    [
      [0, 60],
      [10_000, 180],
      [100_000, 10],
    ],
  );
  assert.deepEqual(shutdownPeriods(configOf({ ...many, featureGates: { GracefulNodeShutdownBasedOnPodPriority: false } })), []);
});

test('a pod is in the period at or below its priority', () => {
  const periods = [
    { priority: 10, seconds: 1 },
    { priority: 20, seconds: 2 },
  ];
  const pods = [podOf('none'), podOf('nine', 9), podOf('ten', 10), podOf('nineteen', 19), podOf('twenty', 20), podOf('most', 2_000_001_000)];
  assert.deepEqual(
    shutdownGroups(periods, pods).map((group) => group.pods.map(({ metadata }) => metadata.name)),
    [
      ['none', 'nine', 'ten', 'nineteen'],
      ['twenty', 'most'],
    ],
  );
});

test('a pod gets what its group has, or what it asks for if that is less', () => {
  const group = { priority: 0, seconds: 20 };
  assert.deepEqual(
    [podOf('a'), podOf('b', 0, 5), podOf('c', 0, 300), podOf('d', 0, 0)].map((pod) => shutdownGraceSeconds(group, pod)),
    [20, 5, 20, 0],
  );
});

test('the state is upstream’s file, and logind’s its own', () => {
  const text = shutdownStateText({ startMs: Date.UTC(2026, 0, 1), endMs: null });
  assert.equal(text, '{"startTime":"2026-01-01T00:00:00.000Z","endTime":"0001-01-01T00:00:00Z"}');
  assert.deepEqual(readShutdownState(text), { startMs: Date.UTC(2026, 0, 1), endMs: null });
  assert.deepEqual(readShutdownState('{"startTime":"2026-01-01T01:00:00.123456789+01:00"}'), { startMs: Date.UTC(2026, 0, 1) + 123, endMs: null });
  assert.equal(logindConfiguration(30_000), '# Kubelet logind override\n[Login]\nInhibitDelayMaxSec=30\n');
});
