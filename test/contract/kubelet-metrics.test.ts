import assert from 'node:assert/strict';
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { findAssets } from '../assets/find.ts';
import { callers, startBoth, type TwoKubelets } from './kubelet-api-world.ts';

/*
 * Names, types and labels of the metrics of upstream's kubelet and of ours, after the same pod. What upstream shows is
 * recorded, so that ours is held to it where there is no kubelet too; `UPDATE_GOLDEN=1` records anew.
 */

const kubelet = (await findAssets({ env: process.env })).path('kubelet');
const skip = process.getuid?.() !== 0 ? 'a kubelet needs root' : false;
const record = join(import.meta.dirname, 'upstream/metrics.txt');
/** Pods are looked at, gates are told and the first certificates watched by then. */
const settleMs = 10_000;

/** What ours has no such thing for, each with its reason. */
const without: readonly (readonly [RegExp, string])[] = [
  [/^go_/, "Go's runtime: nodejs_… and nodelet_event_loop_… stand for it"],
  [/^workqueue_/, "client-go's queues, of which ours has none"],
  [/^rest_client_(transport_|exec_plugin_certificate)/, "client-go's cache of transports, and exec plugins, which a kubelet of ours has not"],
  [/^apiserver_(audit|envelope|storage|validation|webhooks)_/, 'of libraries for API servers, which upstream links in and never uses'],
  [/^kubelet_metrics_provider$/, 'upstream tells it by chance here: a runtime in memory has no statistics'],
  [/^(aggregator_discovery|cardinality_enforcement)_/, "of Go's libraries"],
];

let both: TwoKubelets;
let folder = '';
before(async () => {
  if (skip !== false) return;
  folder = await mkdtemp(join(tmpdir(), 'kubelet-metrics-'));
  both = await startBoth(folder, kubelet);
  await delay(settleMs);
});
after(async () => {
  await both?.[Symbol.asyncDispose]();
  if (folder !== '') await rm(folder, { recursive: true, force: true });
});

/** By name: its type, and the sets of labels that its series have. */
async function pageOf(which: 'upstream' | 'ours', path: string): Promise<Map<string, string>> {
  const { text } = await both.ask(which, 'GET', path, callers['admin'] ?? {});
  const types = new Map([...text.matchAll(/^# TYPE (\S+) (\S+)$/gm)].map(([, name = '', type = '']) => [name, type]));
  const labels = new Map<string, Set<string>>();
  for (const [, series = '', set = ''] of text.matchAll(/^([a-z_]+)(?:\{(.*)\})? /gim)) {
    const base = series.replace(/_(bucket|sum|count)$/, '');
    const name = types.has(series) ? series : base;
    const names = [...set.matchAll(/(\w+)="/g)].map(([, label = '']) => label).filter((label) => label !== 'le' && label !== 'quantile');
    labels.set(name, (labels.get(name) ?? new Set()).add(names.toSorted().join(',')));
  }
  return new Map([...types].map(([name, type]) => [name, `${type} {${[...(labels.get(name) ?? [])].join('} {')}}`]));
}

const pages = ['/metrics', '/metrics/probes', '/metrics/slis'];

test('what upstream shows is what was recorded', { skip: skip || (kubelet === null && 'there is no kubelet: nodelet assets build') }, async () => {
  const lines: string[] = [];
  for (const path of pages) for (const [name, shape] of await pageOf('upstream', path)) lines.push(`${path} ${name} ${shape}`);
  const text = `${lines
    .filter((line) => !without.some(([pattern]) => pattern.test(line.split(' ')[1] ?? '')))
    .toSorted()
    .join('\n')}\n`;
  if (process.env['UPDATE_GOLDEN'] === '1') await writeFile(record, text);
  assert.equal(text, await readFile(record, 'utf8'));
});

test('ours shows the same names, types and labels', { skip }, async () => {
  const ours = new Map<string, string>();
  for (const path of pages) for (const [name, shape] of await pageOf('ours', path)) ours.set(`${path} ${name}`, shape);
  const recorded = (await readFile(record, 'utf8')).trimEnd().split('\n');
  assert.ok(recorded.length > 80);
  const missing = recorded.filter((line) => {
    const [path = '', name = '', ...shape] = line.split(' ');
    return ours.get(`${path} ${name}`) !== shape.join(' ');
  });
  assert.deepEqual(missing, []);
});

test('every feature gate has the value that it has upstream', { skip: skip || (kubelet === null && 'there is no kubelet: nodelet assets build') }, async () => {
  const gatesOf = async (which: 'upstream' | 'ours'): Promise<string[]> => {
    const { text } = await both.ask(which, 'GET', '/metrics', callers['admin'] ?? {});
    return text.split('\n').filter((line) => line.startsWith('kubernetes_feature_enabled{'));
  };
  const upstream = await gatesOf('upstream');
  assert.ok(upstream.length > 200);
  assert.deepEqual(await gatesOf('ours'), upstream);
});
