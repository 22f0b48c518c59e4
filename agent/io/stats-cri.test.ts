import assert from 'node:assert/strict';
import { test } from 'node:test';
import { OpError } from '../../base/errors.ts';
import { silentLog } from '../../base/log.ts';
import type { Metric, MetricDescriptor, PodSandboxMetrics } from '../../proto/cri/types.ts';
import { createCriPage, readCriStats, type CriPageOptions } from './stats-cri.ts';

const unsupported = async (): Promise<never> => {
  throw new OpError('unsupported', 'ask the runtime', 'unknown method');
};
const away = async (): Promise<never> => {
  throw new OpError('unavailable', 'ask the runtime', 'no answer');
};
const metric = (name: string, labelValues: string[], value: number, timestamp = '0', metricType: Metric['metricType'] = 'COUNTER'): Metric => ({
  name,
  timestamp,
  metricType,
  labelValues,
  value: { value: String(value) },
});
const descriptors: MetricDescriptor[] = [
  { name: 'container_memory_rss', help: 'Size of RSS in bytes.', labelKeys: ['name', 'id'] },
  { name: 'container_cpu_usage_seconds_total', help: 'Cumulative cpu time.', labelKeys: ['id'] },
  { name: 'container_never_measured', help: 'No sample.', labelKeys: [] },
];
const sandboxes: PodSandboxMetrics[] = [
  {
    podSandboxId: 's',
    metrics: [metric('container_cpu_usage_seconds_total', ['s'], 5), metric('container_unknown', [], 1), metric('container_memory_rss', ['too few'], 1)],
    containerMetrics: [
      {
        containerId: 'c',
        metrics: [
          metric('container_memory_rss', ['c-name', 'c'], 7, '1700000000123000000', 'GAUGE'),
          metric('container_cpu_usage_seconds_total', ['c'], 6),
          metric('container_cpu_usage_seconds_total', ['c'], 6),
        ],
      },
    ],
  },
];
const page = (over: CriPageOptions['runtime'] = {}): (() => Promise<string | null>) =>
  createCriPage({
    runtime: { listMetricDescriptors: async () => ({ descriptors }), listPodSandboxMetrics: async () => ({ podMetrics: sandboxes }), ...over },
    log: silentLog,
    timeoutMs: 1000,
  });

test('the runtime’s metrics stand on the page as it described them; what it did not describe, or twice, does not', async () => {
  assert.equal(
    await page()(),
    [
      '# HELP container_cpu_usage_seconds_total [INTERNAL] Cumulative cpu time.',
      '# TYPE container_cpu_usage_seconds_total counter',
      'container_cpu_usage_seconds_total{id="s"} 5',
      'container_cpu_usage_seconds_total{id="c"} 6',
      '# HELP container_memory_rss [INTERNAL] Size of RSS in bytes.',
      '# TYPE container_memory_rss gauge',
      'container_memory_rss{id="c",name="c-name"} 7 1700000000123',
      '',
    ].join('\n'),
  );
});

test('descriptions are asked for once; a runtime without metrics leaves it to others, one that is away tells none', async () => {
  let asked = 0;
  const show = page({ listMetricDescriptors: async () => ((asked += 1), { descriptors }) });
  await show();
  await show();
  assert.equal(asked, 1);
  assert.equal(await page({ listPodSandboxMetrics: unsupported })(), null);
  assert.equal(await page({ listMetricDescriptors: unsupported })(), null);
  assert.equal(await page({ listPodSandboxMetrics: away })(), '');
});

test('with the gate stats of sandboxes are all that is asked for, as long as the runtime has them', async () => {
  const container = { attributes: { id: 'c' } };
  const listPodSandboxStats = async () => ({ stats: [{ attributes: { id: 's' }, linux: { containers: [container] } }] }) as never;
  const listContainerStats = async () => ({ stats: [{ attributes: { id: 'other' } }] }) as never;
  const ids = async (runtime: Parameters<typeof readCriStats>[0], wantsStrict: boolean): Promise<unknown> => {
    const told = await readCriStats(runtime, wantsStrict, 1000);
    return [told.strict, told.containers.map(({ attributes }) => attributes?.id), told.sandboxes.length];
  };
  assert.deepEqual(await ids({ listPodSandboxStats, listContainerStats: away }, true), [true, ['c'], 1]);
  assert.deepEqual(await ids({ listPodSandboxStats, listContainerStats }, false), [false, ['other'], 1]);
  assert.deepEqual(await ids({ listPodSandboxStats: unsupported, listContainerStats }, true), [false, ['other'], 0]);
  await assert.rejects(readCriStats({ listPodSandboxStats: away, listContainerStats }, true, 1000), { code: 'unavailable' });
});
