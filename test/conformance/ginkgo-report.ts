import { stripVTControlCharacters } from 'node:util';
import type { Spec } from './suites.ts';

export type Result = 'passed' | 'failed' | 'skipped';

/** How one spec ended in one run. */
export interface Outcome {
  readonly name: string;
  readonly result: Result;
  /** In one line; empty when it passed. */
  readonly reason: string;
  readonly seconds: number;
}

/** The part of Ginkgo's JSON report (`--json-report`, an array with one entry per suite) that is read here. */
interface SuiteReport {
  readonly SuiteDescription: string;
  readonly SpecReports: readonly SpecReport[] | null;
}

interface SpecReport {
  readonly ContainerHierarchyTexts: readonly string[] | null;
  readonly ContainerHierarchyLabels: readonly (readonly string[] | null)[] | null;
  readonly LeafNodeType: string;
  readonly LeafNodeText: string;
  readonly LeafNodeLabels: readonly string[] | null;
  readonly State: string;
  /** Nanoseconds. */
  readonly RunTime: number;
  readonly Failure?: { readonly Message?: string; readonly ForwardedPanic?: string };
}

const nameOf = (report: SpecReport): string => [...(report.ContainerHierarchyTexts ?? []), report.LeafNodeText].filter((text) => text !== '').join(' ');

function labelsOf(report: SpecReport): string[] {
  const all = [...(report.ContainerHierarchyLabels ?? []), report.LeafNodeLabels].flatMap((labels) => labels ?? []);
  return [...new Set(all)];
}

function specsIn(text: string): { description: string; reports: SpecReport[] } {
  const suites = JSON.parse(text) as SuiteReport[];
  return {
    description: suites[0]?.SuiteDescription ?? '',
    reports: suites.flatMap((suite) => (suite.SpecReports ?? []).filter((report) => report.LeafNodeType === 'It')),
  };
}

/** Every spec of a dry run's JSON report, and the suite's description. */
export function listSpecs(text: string): { description: string; specs: Spec[] } {
  const { description, reports } = specsIn(text);
  return { description, specs: reports.map((report) => ({ name: nameOf(report), labels: labelsOf(report) })) };
}

/** What Ginkgo says of a spec that it never began: its container is ordered, and a spec before it failed. */
const NEVER_BEGUN = /because an earlier spec in an ordered container failed/;

/**
 * What Ginkgo's word for a spec's end, with its message, counts as; null for one that did not run to its end (interrupted,
 * aborted, pending, left out after a failure of another), which is no result at all.
 */
export function resultOf(state: string, message: string): Result | null {
  switch (state.toLowerCase()) {
    case 'passed':
      return 'passed';
    case 'skipped':
      return NEVER_BEGUN.test(message) ? null : 'skipped';
    case 'failed':
    case 'panicked':
    case 'timedout':
      return 'failed';
    default:
      return null;
  }
}

const REASON_HEAD = 140;
const REASON_TAIL = 155;

/** Leaves out objects that were printed over several lines: what failed is said before and behind them. */
function withoutDumps(text: string): string {
  const kept: string[] = [];
  let depth = 0;
  for (const line of text.split('\n')) {
    if (depth === 0) kept.push(line.replace(/\{$/, '{…}'));
    if (/^\s*\}/.test(line)) depth = Math.max(0, depth - 1);
    if (line.endsWith('{')) depth += 1;
  }
  return kept.join('\n');
}

/** A failure's message as one line of bounded length: its beginning and its end. */
export function reasonOf(message: string): string {
  const line = withoutDumps(stripVTControlCharacters(message))
    // Types and addresses of Go's values differ from run to run and tell a reader nothing.
    .replaceAll(/<\*?[\w./[\]*]+ \| 0x[0-9a-f]+>:?/g, '')
    .replaceAll(/\s+/g, ' ')
    .trim();
  return line.length <= REASON_HEAD + REASON_TAIL ? line : `${line.slice(0, REASON_HEAD)} … ${line.slice(-REASON_TAIL)}`;
}

/** The results in a JSON report. Specs that no filter chose are skipped without a message there: they are left out. */
export function readReport(text: string): Outcome[] {
  return specsIn(text).reports.flatMap((report) => {
    const message = report.Failure?.ForwardedPanic || report.Failure?.Message || '';
    const result = resultOf(report.State, message);
    if (result === null || (result === 'skipped' && message === '')) return [];
    return [{ name: nameOf(report), result, reason: result === 'passed' ? '' : reasonOf(message), seconds: round(report.RunTime / 1e9) }];
  });
}

/** Milliseconds are enough, and keep files small. */
export const round = (seconds: number): number => Math.round(seconds * 10) / 10;

const escape = (text: string): string =>
  text
    .replaceAll('&', '&amp;')
    .replaceAll('<', '&lt;')
    .replaceAll('>', '&gt;')
    .replaceAll('"', '&quot;')
    // XML has no word for other control characters.
    .replaceAll(/\p{Cc}/gu, (one) => ('\t\n\r'.includes(one) ? one : '�'));

/** Results as JUnit XML. */
export function junit(suite: string, outcomes: readonly Outcome[]): string {
  const count = (result: Result): number => outcomes.filter((outcome) => outcome.result === result).length;
  const seconds = outcomes.reduce((sum, outcome) => sum + outcome.seconds, 0);
  const cases = outcomes.map(({ name, result, reason, seconds }) => {
    const head = `  <testcase classname="${escape(suite)}" name="${escape(name)}" time="${seconds}"`;
    if (result === 'passed') return `${head}/>`;
    const tag = result === 'failed' ? 'failure' : 'skipped';
    return `${head}><${tag} message="${escape(reason)}"/></testcase>`;
  });
  return [
    '<?xml version="1.0" encoding="UTF-8"?>',
    `<testsuite name="${escape(suite)}" tests="${outcomes.length}" failures="${count('failed')}" skipped="${count('skipped')}" time="${seconds.toFixed(1)}">`,
    ...cases,
    '</testsuite>',
    '',
  ].join('\n');
}
