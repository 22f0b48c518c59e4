import { readFile, writeFile } from 'node:fs/promises';
import { styleText } from 'node:util';
import { messageOf, OpError } from '../base/errors.ts';
import type { Host } from '../base/host.ts';
import { printYaml, readYaml } from '../base/yaml.ts';
import { alignPods, type LifePair, type PodMapping } from './core/align.ts';
import { comparePods } from './core/compare-pods.ts';
import { Findings, type Finding } from './core/diff-findings.ts';
import { AlikePods, podLines, type DiffLine } from './core/diff-text.ts';
import { shown } from './core/shown.ts';
import { durationText } from './core/duration-text.ts';
import { Expectations, pattern, type Known } from './core/expected.ts';
import { KeptCalls } from './core/kept-calls.ts';
import { readPodCalls } from './io/pod-calls-read.ts';

export interface DiffOptions {
  readonly pod?: string;
  readonly method?: string;
  readonly all: boolean;
  readonly ignore: readonly string[];
  readonly map: readonly string[];
  readonly expect?: string;
  readonly update: boolean;
  readonly reason?: string;
  readonly json: boolean;
}

async function readKept(host: Host, file: string): Promise<KeptCalls> {
  const kept = new KeptCalls();
  for await (const call of readPodCalls(host, 'diff', file)) kept.take(call);
  if (kept.left > 0) host.stderr(`nodelet cri diff: ${kept.left} calls of ${file} found no room and are not compared: take fewer with --pod\n`);
  return kept;
}

function mappingsOf(texts: readonly string[]): PodMapping[] {
  return texts.map((text) => {
    const [from = '', to = '', ...more] = text.split('=');
    if (from === '' || to === '' || more.length > 0 || from.endsWith('/*') !== to.endsWith('/*'))
      throw new OpError('invalid', 'mapping pods', `"${text}" maps nothing`, {
        advice: 'write --map NAMESPACE/NAME=NAMESPACE/NAME, or --map NAMESPACE/*=NAMESPACE/*',
      });
    return { from, to };
  });
}

/** What an expectation file says; empty when it is to be written and is not there. */
async function readExpected(file: string, mayBeAbsent: boolean): Promise<Known[]> {
  let text: string;
  try {
    text = await readFile(file, 'utf8');
  } catch (cause) {
    if ((cause as NodeJS.ErrnoException).code === 'ENOENT' && mayBeAbsent) return [];
    throw new OpError('not-found', `read ${file}`, messageOf(cause), { cause, advice: 'write it with: nodelet cri diff A B --expect FILE --update' });
  }
  const list = ((await readYaml(text, file)) as { differences?: unknown } | undefined)?.differences ?? [];
  const wrong = (detail: string): OpError =>
    new OpError('invalid', `read ${file}`, detail, { advice: 'each difference has pod, path and reason (docs/cri.md)' });
  if (!Array.isArray(list)) throw wrong('"differences" is no list');
  return list.map((entry: unknown, at) => {
    const { pod, path, reason } = (entry ?? {}) as Partial<Known>;
    if (typeof pod !== 'string' || typeof path !== 'string') throw wrong(`difference ${at + 1} has no pod or no path`);
    if (typeof reason !== 'string' || (reason.trim() === '' && !mayBeAbsent)) throw wrong(`difference ${at + 1} (${pod}: ${path}) has no reason`);
    return { pod, path, reason };
  });
}

/** Writes those that still are with their reasons, and new ones without, or with the reason that was given. */
async function writeExpected(file: string, known: readonly Known[], found: readonly Finding[], reason: string): Promise<void> {
  const added = new Map(found.map(({ pod, path }) => [`${pod}\n${path}`, { pod, path, reason }]));
  const head = '# Differences that may be, for: nodelet cri diff A B --expect FILE. `*` stands for any text.\n';
  await writeFile(file, head + (await printYaml({ differences: [...known, ...added.values()] })));
}

function wanted(pairs: readonly LifePair[], pod: string | undefined): LifePair[] {
  if (pod === undefined) return [...pairs];
  const matches = pattern(pod);
  const chosen = pairs.filter(({ name, a, b }) => [name, a?.pod?.key, b?.pod?.key].some((key) => key !== undefined && matches.test(key)));
  if (chosen.length === 0)
    throw new OpError('not-found', `compare ${pod}`, 'neither recording has it', { advice: 'write --pod NAMESPACE/NAME; * stands for any text' });
  return chosen;
}

function coloured(host: Host, { mark, text }: DiffLine): string {
  const line = shown(mark === ' ' ? `  ${text}` : `${mark} ${text}`);
  const style = ({ '-': 'red', '+': 'green', '~': 'yellow', '=': 'dim', '.': 'dim', ' ': null } as const)[mark];
  return host.isTerminal && style !== null ? styleText(style, line) : line;
}

/** `nodelet cri diff`: 0, or with `--expect` 1 when a difference has no reason or a reason has no difference. */
export async function diff(host: Host, fileA: string, fileB: string, options: DiffOptions): Promise<number> {
  if (options.update && options.expect === undefined)
    throw new OpError('invalid', 'writing differences that may be', 'there is no file for them', { advice: 'name it with --expect FILE' });
  const mappings = mappingsOf(options.map);
  const known = options.expect === undefined ? [] : await readExpected(options.expect, options.update);
  const a = await readKept(host, fileA);
  const b = await readKept(host, fileB);
  const expectations = new Expectations(known);
  const findings = new Findings(options.ignore, options.expect === undefined ? null : expectations);
  const alike = new AlikePods();
  const open: Finding[] = [];
  const counts = { pods: 0, podsSame: 0, callsSame: 0, callsDiffer: 0, onlyA: 0, onlyB: 0, differences: 0, known: 0, byNature: 0 };
  for (const pair of wanted(alignPods(a.lives, b.lives, mappings), options.pod)) {
    const pod = comparePods(pair, { all: options.all, ...(options.method === undefined ? {} : { method: options.method }) });
    const found = findings.of(pod);
    counts.pods += 1;
    const differing = Map.groupBy(
      found.filter(({ byNature }) => !byNature),
      ({ call }) => call,
    );
    for (const call of [...pod.calls, ...pod.looks]) {
      if (!differing.has(call.name)) counts.callsSame += 1;
      else if (call.a === null) counts.onlyB += 1;
      else if (call.b === null) counts.onlyA += 1;
      else counts.callsDiffer += 1;
    }
    for (const finding of found) {
      if (finding.byNature) counts.byNature += 1;
      else if (finding.reason !== null) counts.known += 1;
      else counts.differences += 1;
      if (!finding.byNature && finding.reason === null) open.push(finding);
    }
    if (differing.size === 0) counts.podsSame += 1;
    if (options.json) host.stdout(`${JSON.stringify({ type: 'pod', ...pod, findings: found })}\n`);
    // As a test it tells what it does not know; all of it on demand.
    else if (options.all ? found.length > 0 : found.some(({ reason }) => reason === null)) alike.add(pod, found);
  }
  // A look at one pod or method alone cannot say what is no more.
  const { stale } = options.pod === undefined && options.method === undefined ? expectations : { stale: [] };
  if (options.update) await writeExpected(options.expect ?? '', stale.length > 0 ? expectations.used : known, open, options.reason ?? '');
  if (options.json) {
    host.stdout(`${JSON.stringify({ type: 'summary', a: fileA, b: fileB, ...counts, stale })}\n`);
  } else {
    for (const [name, file, kept] of [
      ['A', fileA, a],
      ['B', fileB, b],
    ] as const)
      host.stdout(
        `${name}  ${file}: ${kept.lives.filter(({ pod }) => pod !== null).length} pods, ${kept.calls} calls, ${durationText(Math.max(0, kept.lastMs - kept.firstMs))}\n`,
      );
    for (const shown of alike.pods) {
      host.stdout('\n');
      for (const line of podLines(shown)) host.stdout(`${coloured(host, line)}\n`);
    }
    host.stdout(`\n${summaryText(counts, options)}\n`);
    for (const { pod, path } of stale) host.stdout(`known, but no more: ${pod}: ${path}\n`);
  }
  if (options.expect === undefined) return 0;
  if (options.update) {
    host.stderr(
      `${options.expect}: ${open.length} written, ${stale.length} taken out${open.length > 0 && options.reason === undefined ? '; now give each its reason' : ''}\n`,
    );
    return 0;
  }
  return open.length === 0 && stale.length === 0 ? 0 : 1;
}

function summaryText(counts: Readonly<Record<string, number>>, options: DiffOptions): string {
  const parts = [
    `${counts['podsSame']} of ${counts['pods']} pods the same`,
    `calls: ${counts['callsSame']} the same, ${counts['callsDiffer']} differ, ${counts['onlyA']} only in A, ${counts['onlyB']} only in B`,
    options.expect === undefined
      ? `${counts['differences']} differences`
      : `${counts['differences']} differences without a reason, ${counts['known']} with one`,
  ];
  if (options.all) parts.push(`${counts['byNature']} by nature`);
  return parts.join('; ');
}
