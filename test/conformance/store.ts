import { mkdir, readdir, readFile } from 'node:fs/promises';
import { OpError } from '../../base/errors.ts';
import { replaceFile } from '../../base/replace-file.ts';
import { lockFile } from '../../node/io/lock.ts';
import type { Outcome } from './ginkgo-report.ts';
import { page } from './page.ts';
import { addOutcomes, formatResults, parseResults, type Results, type RunFacts } from './results.ts';
import {
  EMPTY,
  entriesOf,
  FURTHER,
  furtherOf,
  scoreboard,
  SIDES,
  type FurtherSection,
  type Kinds,
  type Known,
  type Scoreboard,
  type Side,
} from './scoreboard.ts';
import type { Spec } from './suites.ts';

/** Which suite's results: those of e2e.test and e2e_node.test by side, those of critest by the way it was run. */
export type Kind = 'e2e' | 'critest' | FurtherKind;
export type FurtherKind = 'e2e-node' | 'features' | 'network-features' | 'node-features';

const SECTION: Readonly<Record<FurtherKind, FurtherSection>> = {
  'e2e-node': 'e2eNode',
  features: 'features',
  'network-features': 'networkFeatures',
  'node-features': 'nodeFeatures',
};

/** The specs of sections that are to be told anew: judged ones of e2e.test for `e2e`. */
export type SpecLists = Readonly<Partial<Record<'e2e' | FurtherKind, readonly Spec[]>>>;

/** Where results are kept, in the repository. */
export interface Paths {
  readonly results: string;
  readonly scoreboard: string;
  readonly page: string;
}

export const pathsIn = (root: string): Paths => ({
  results: `${root}/test/conformance/results`,
  scoreboard: `${root}/test/conformance/scoreboard.json`,
  page: `${root}/docs/conformance.md`,
});

const OTHER_MS = 60_000;

const replace = (path: string, text: string): Promise<void> => replaceFile(path, text, 0o644);

const read = (path: string): Promise<string> =>
  readFile(path, 'utf8').catch((error: NodeJS.ErrnoException) => {
    if (error.code === 'ENOENT') return '';
    throw error;
  });

function parse<T>(path: string, text: string, how: (text: string) => T): T {
  try {
    return how(text);
  } catch (cause) {
    throw new OpError('invalid', `reading ${path}`, 'this is no file of results', { cause, advice: 'resolve the merge, or take it from the last commit' });
  }
}

async function readRuns(paths: Paths): Promise<Record<string, RunFacts>> {
  const path = `${paths.results}/runs.json`;
  const text = await read(path);
  return text === '' ? {} : parse(path, text, (one) => JSON.parse(one) as Record<string, RunFacts>);
}

async function readKinds(paths: Paths): Promise<Kinds> {
  const files = (await readdir(paths.results).catch(() => [] as string[])).filter((name) => name.endsWith('.jsonl')).sort();
  const of = async (kind: Kind): Promise<Record<string, Results>> => {
    const found: Record<string, Results> = {};
    for (const file of files) {
      const side = new RegExp(`^${kind}\\.(.+)\\.jsonl$`).exec(file)?.[1];
      if (side === undefined) continue;
      const path = `${paths.results}/${file}`;
      found[side] = parse(path, await read(path), parseResults);
    }
    return found;
  };
  return {
    e2e: await of('e2e'),
    e2eNode: await of('e2e-node'),
    features: await of('features'),
    networkFeatures: await of('network-features'),
    nodeFeatures: await of('node-features'),
    critest: await of('critest'),
  };
}

export async function readScoreboard(paths: Paths): Promise<Scoreboard> {
  const text = await read(paths.scoreboard);
  return text === '' ? EMPTY : { ...EMPTY, ...parse(paths.scoreboard, text, (one) => JSON.parse(one) as Scoreboard) };
}

/** The scoreboard as its file has it: an entry a line, so that two branches merge. */
export function formatScoreboard(board: Scoreboard): string {
  const section = (name: string, entries: Readonly<Record<string, unknown>>): string => {
    const lines = Object.entries(entries).map(([key, value]) => `    ${JSON.stringify(key)}: ${JSON.stringify(value)}`);
    return `  ${JSON.stringify(name)}: {${lines.length === 0 ? '' : `\n${lines.join(',\n')}\n  `}}`;
  };
  return `{\n${(['tests', 'critest', ...FURTHER, 'networkProxies', 'runs'] as const).map((name) => section(name, board[name])).join(',\n')}\n}\n`;
}

/** What the scoreboard and the page would say now. */
export async function render(paths: Paths, specs: SpecLists = {}): Promise<{ board: Scoreboard; scoreboard: string; page: string }> {
  const before = await readScoreboard(paths);
  const further = (kind: FurtherKind): Known[FurtherSection] => {
    const list = specs[kind];
    return list === undefined ? before[SECTION[kind]] : furtherOf(list);
  };
  const known: Known = {
    tests: specs.e2e === undefined ? before.tests : entriesOf(specs.e2e),
    e2eNode: further('e2e-node'),
    features: further('features'),
    networkFeatures: further('network-features'),
    nodeFeatures: further('node-features'),
  };
  const board = scoreboard(known, await readKinds(paths), await readRuns(paths));
  return { board, scoreboard: formatScoreboard(board), page: page(board) };
}

/** Writes scoreboard and page from what is kept; with `specs`, of those lists. */
export async function refresh(paths: Paths, specs: SpecLists = {}): Promise<Scoreboard> {
  await using _ = await lockFile(`${paths.results}/.lock`, 'writing the scoreboard', OTHER_MS);
  return await write(paths, specs);
}

async function write(paths: Paths, specs: SpecLists = {}): Promise<Scoreboard> {
  const made = await render(paths, specs);
  await replace(paths.scoreboard, made.scoreboard);
  await replace(paths.page, made.page);
  return made.board;
}

/**
 * Adds a run's outcomes to what is kept and writes everything that follows from it. Doing it again changes nothing. Only
 * specs of the scoreboard are kept, and all of critest. Returns how many were.
 */
export async function keep(paths: Paths, kind: Kind, side: string, run: RunFacts, all: readonly Outcome[]): Promise<number> {
  if (all.length === 0) return 0;
  await mkdir(paths.results, { recursive: true });
  await using _ = await lockFile(`${paths.results}/.lock`, 'writing results', OTHER_MS);
  const board = await readScoreboard(paths);
  const known = kind === 'critest' ? null : kind === 'e2e' ? board.tests : board[SECTION[kind]];
  const outcomes = all.filter(({ name }) => known === null || Object.hasOwn(known, name));
  if (outcomes.length === 0) return 0;
  const path = `${paths.results}/${kind}.${side}.jsonl`;
  const before = parse(path, await read(path), parseResults);
  await replace(path, formatResults(addOutcomes(before, run.id, outcomes)));
  const runs = { ...(await readRuns(paths)), [run.id]: run };
  const kinds = await readKinds(paths);
  const used = new Set(
    Object.values(kinds)
      .flatMap((sides: Readonly<Record<string, Results>>) => Object.values(sides))
      .flatMap((results) => [...results.values()].flatMap((kept) => kept.map((one) => one.run))),
  );
  const left = Object.entries(runs)
    .filter(([id]) => used.has(id))
    .sort(([a], [b]) => (a < b ? -1 : 1));
  await replace(`${paths.results}/runs.json`, `{\n${left.map(([id, facts]) => `  ${JSON.stringify(id)}: ${JSON.stringify(facts)}`).join(',\n')}\n}\n`);
  await write(paths);
  return outcomes.length;
}

export const isSide = (text: string): text is Side => (SIDES as readonly string[]).includes(text);
