import type { Result } from './ginkgo-report.ts';
import { limitOf } from './limits.ts';
import { standing, type Kept, type Results, type RunFacts, type Standing } from './results.ts';
import { isConformance, isJudged, isNodeConformance, isSlow, runsAlone, suiteOf, type Spec } from './suites.ts';

/** Who was under test. */
export const SIDES = ['upstream', 'ours'] as const;
export type Side = (typeof SIDES)[number];

/** What is known of a spec besides its results. */
interface About {
  readonly suite: string;
  readonly marks: readonly string[];
}

export type Entry = About & { readonly [S in Side]?: Standing };

/** Specs with their results by side; `alone` are those that need the node alone. */
export type Further = Readonly<Record<string, { readonly alone?: true } & { readonly [S in Side]?: Standing }>>;

/** Everything that the page shows. A side that a spec never ran on is absent: it is not run, not skipped. */
export interface Scoreboard {
  readonly tests: Readonly<Record<string, Entry>>;
  /** critest by the way it was run, such as `containerd-2.4 websocket`. */
  readonly critest: Readonly<Record<string, Readonly<Record<string, Standing>>>>;
  /** The NodeConformance specs of e2e_node.test. */
  readonly e2eNode: Further;
  /** Features that are on by default, of e2e.test and of e2e_node.test: what `features.ts` chooses. */
  readonly features: Further;
  readonly networkFeatures: Further;
  readonly nodeFeatures: Further;
  /** How many of the network's features passed, failed or were skipped with each service proxy, by its name in `cluster up --proxy`. */
  readonly networkProxies: Readonly<Record<string, Readonly<Record<Result, number>>>>;
  /** The runs that a last result above comes from. */
  readonly runs: Readonly<Record<string, RunFacts>>;
}

/** The sections that only have results by side. */
export const FURTHER = ['e2eNode', 'features', 'networkFeatures', 'nodeFeatures'] as const;
export type FurtherSection = (typeof FURTHER)[number];

export const EMPTY: Scoreboard = { tests: {}, critest: {}, e2eNode: {}, features: {}, networkFeatures: {}, nodeFeatures: {}, networkProxies: {}, runs: {} };

/** All results that are kept: by kind and side. */
export interface Kinds extends Readonly<Record<FurtherSection, Readonly<Partial<Record<Side, Results>>>>> {
  readonly e2e: Readonly<Partial<Record<Side, Results>>>;
  readonly critest: Readonly<Record<string, Results>>;
}

const sorted = <T>(entries: Iterable<readonly [string, T]>): Record<string, T> => Object.fromEntries([...entries].sort(([a], [b]) => (a < b ? -1 : 1)));

/** The judged specs of a list, as entries without results. */
export function entriesOf(specs: readonly Spec[]): Readonly<Record<string, Entry>> {
  return sorted(
    specs.filter(isJudged).map((spec) => {
      const marks = [
        ...(isConformance(spec) ? ['Conformance'] : []),
        ...(isNodeConformance(spec) ? ['NodeConformance'] : []),
        ...(isSlow(spec) ? ['Slow'] : []),
        ...(runsAlone(spec) ? ['alone'] : []),
      ];
      return [spec.name, { suite: suiteOf(spec.name), marks }];
    }),
  );
}

/** The specs of a section, as entries without results. */
export function furtherOf(specs: readonly Spec[]): Further {
  return sorted(specs.map((spec) => [spec.name, runsAlone(spec) ? { alone: true as const } : {}]));
}

/** The specs that a scoreboard has, whatever their results. */
export type Known = Pick<Scoreboard, 'tests' | FurtherSection>;

/** Where each spec of a section stands with each service proxy, of the runs that say which. */
function byProxy(
  names: readonly string[],
  sides: Kinds[FurtherSection],
  runs: Readonly<Record<string, RunFacts>>,
): Readonly<Record<string, readonly Standing[]>> {
  const all = names.flatMap((name) => {
    const kept = SIDES.flatMap((side) => sides[side]?.get(name) ?? []).sort((a, b) => (a.run < b.run ? -1 : 1));
    const proxies = Map.groupBy(kept, ({ run }) => runs[run]?.versions['proxy'] ?? '');
    return [...proxies].flatMap(([proxy, of]) => {
      const stands = standing(of);
      return proxy === '' || stands === null ? [] : [{ proxy, stands }];
    });
  });
  return sorted([...Map.groupBy(all, ({ proxy }) => proxy)].map(([proxy, of]) => [proxy, of.map(({ stands }) => stands)]));
}

const counts = (of: readonly Standing[]): Record<Result, number> => {
  const count = (result: Result): number => of.filter((stands) => stands.result === result).length;
  return { passed: count('passed'), failed: count('failed'), skipped: count('skipped') };
};

/**
 * Where a spec stands of the results from the host and from the machine with cgroup v2 and systemd (`test/machine`): on the host,
 * unless it was not asked there, skipped, or failed for what the host lacks, and the machine has an answer.
 */
export function standingOf(name: string, kept: readonly Kept[], runs: Readonly<Record<string, RunFacts>>): Standing | null {
  const inMachine = ({ run }: Kept): boolean => runs[run]?.versions['systemd'] !== undefined;
  const host = standing(kept.filter((one) => !inMachine(one)));
  const machine = standing(kept.filter(inMachine));
  if (machine === null) return host;
  const lacked = host === null || host.result === 'skipped' || (host.result === 'failed' && limitOf(name, host.reason ?? '') !== null);
  return host === null || (lacked && machine.result !== 'skipped') ? { ...machine, place: 'machine' } : host;
}

/** A scoreboard of the specs in `known` with what the results say of them; results of other specs are not shown. */
export function scoreboard(known: Known, kinds: Kinds, runs: Readonly<Record<string, RunFacts>>): Scoreboard {
  const sides = (name: string, results: Readonly<Partial<Record<Side, Results>>>): { [S in Side]?: Standing } =>
    Object.fromEntries(
      SIDES.flatMap((side) => {
        const stands = standingOf(name, results[side]?.get(name) ?? [], runs);
        return stands === null ? [] : [[side, stands]];
      }),
    );
  const tests = sorted(Object.entries(known.tests).map(([name, { suite, marks }]) => [name, { suite, marks, ...sides(name, kinds.e2e) }]));
  const section = (of: FurtherSection): Further =>
    sorted(Object.entries(known[of]).map(([name, { alone }]) => [name, { ...(alone === undefined ? {} : { alone }), ...sides(name, kinds[of]) }]));
  const further = {
    e2eNode: section('e2eNode'),
    features: section('features'),
    networkFeatures: section('networkFeatures'),
    nodeFeatures: section('nodeFeatures'),
  };
  const proxies = byProxy(Object.keys(known.networkFeatures), kinds.networkFeatures, runs);
  const networkProxies = sorted(Object.entries(proxies).map(([proxy, of]) => [proxy, counts(of)]));
  const critNames = new Set(Object.values(kinds.critest).flatMap((results) => [...results.keys()]));
  const critest = sorted(
    [...critNames].map((name) => {
      const ways = Object.entries(kinds.critest).flatMap(([way, results]) => {
        const stands = standing(results.get(name) ?? []);
        return stands === null ? [] : [[way, stands] as const];
      });
      return [name, sorted(ways)];
    }),
  );
  const used = new Set(
    [
      ...Object.values(tests).flatMap(standings),
      ...Object.values(further).flatMap((one) => Object.values(one).flatMap(standings)),
      ...Object.values(critest).flatMap((one) => Object.values(one)),
      ...Object.values(proxies).flat(),
    ].map((one) => one.run),
  );
  return { tests, critest, ...further, networkProxies, runs: sorted(Object.entries(runs).filter(([id]) => used.has(id))) };
}

const standings = (entry: { readonly [S in Side]?: Standing }): Standing[] =>
  SIDES.flatMap((side) => {
    const stands = entry[side];
    return stands === undefined ? [] : [stands];
  });
