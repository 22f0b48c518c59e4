import { FEATURES, NETWORK_FEATURES, NODE_FEATURES, type FeatureFocus } from './features.ts';
import { limitOf } from './limits.ts';
import { cell, plain, table } from './page-text.ts';
import { SIDES, type Further, type Scoreboard, type Side } from './scoreboard.ts';

type Row = readonly [string, Further[string]];
const COLUMNS = ['passed', 'failed', 'skipped', 'not run'] as const;

const resultOf = ([, entry]: Row, side: Side): (typeof COLUMNS)[number] => entry[side]?.result ?? 'not run';

/** Why a side has not passed a spec: what the node lacks where that is known, else how it ended. */
function whyNot([name, entry]: Row, side: Side): string {
  const stands = entry[side];
  if (stands?.place !== undefined) return `${stands.result} in the cgroup v2 machine`;
  const limit = limitOf(name, stands?.reason ?? '');
  if (stands === undefined) return limit === null ? 'not run' : `not run: ${limit}`;
  return `${stands.result}: ${limit ?? (stands.result === 'skipped' ? 'by its own condition' : 'by its own words')}`;
}

function reasons(rows: readonly Row[]): string[] {
  const counts = new Map<string, Record<Side, number>>();
  for (const row of rows) {
    for (const side of SIDES) {
      if (resultOf(row, side) === 'passed') continue;
      const why = whyNot(row, side);
      const of = counts.get(why) ?? { upstream: 0, ours: 0 };
      of[side] += 1;
      counts.set(why, of);
    }
  }
  if (counts.size === 0) return [];
  const sorted = [...counts].sort(([a], [b]) => (a < b ? -1 : 1));
  return [
    ...table(
      ['not passed, and why', 'upstream', 'ours'],
      sorted.map(([why, of]) => [why, String(of.upstream), String(of.ours)]),
    ),
    '',
  ];
}

/** A list of specs; of those that never ran only the names, below each other. */
function list(rows: readonly Row[]): string[] {
  return rows.flatMap((row) => {
    const [name, entry] = row;
    return [`- ${plain(name)}`, ...SIDES.flatMap((side) => (resultOf(row, side) === 'passed' ? [] : [`  - ${side}: ${cell(entry[side])}`]))];
  });
}

/** What was asked in the machine with cgroup v2 and systemd, and how it ended there. */
function machine(title: string, further: Further): string[] {
  const rows = Object.entries(further).filter(([, entry]) => SIDES.some((side) => entry[side]?.place !== undefined));
  if (rows.length === 0) return [];
  const result = (stands: Further[string][Side]): string => (stands?.place === undefined ? 'not run' : stands.result);
  return [
    `### ${title}: in the cgroup v2 machine`,
    '',
    'These stand as they ended under systemd and cgroup v2 (`nodelet machine run e2e-node`), for want of an answer on the host.',
    '',
    ...table(
      ['spec', 'upstream', 'ours'],
      rows.map(([name, entry]) => [plain(name), result(entry.upstream), result(entry.ours)]),
    ),
    '',
  ];
}

/** How many specs passed with each service proxy; those that never ran with it are what is left of `total`. */
function proxies(board: Scoreboard, total: number): string[] {
  const rows = Object.entries(board.networkProxies).map(([proxy, { passed, failed, skipped }]) => [
    proxy,
    ...[passed, failed, skipped, total - passed - failed - skipped].map(String),
  ]);
  return rows.length === 0 ? [] : [...table(['service proxy', ...COLUMNS], rows), ''];
}

function section(title: string, words: string, further: Further, more: readonly string[] = []): string[] {
  const rows = Object.entries(further);
  if (rows.length === 0) return [`## ${title}`, '', words, '', 'Not run yet.', ''];
  const count = (side: Side, column: (typeof COLUMNS)[number]): string => String(rows.filter((row) => resultOf(row, side) === column).length);
  const behind = rows.filter((row) => resultOf(row, 'upstream') === 'passed' && ['failed', 'skipped'].includes(resultOf(row, 'ours')));
  const rest = rows.filter((row) => !behind.includes(row) && SIDES.some((side) => ['failed', 'skipped'].includes(resultOf(row, side))));
  const missing = rows.filter((row) => SIDES.every((side) => resultOf(row, side) === 'not run'));
  return [
    `## ${title}`,
    '',
    words,
    '',
    `Ours passed ${count('ours', 'passed')} of ${rows.length}, upstream’s kubelet ${count('upstream', 'passed')} of those that it was asked.`,
    '',
    ...table(
      ['side', ...COLUMNS],
      SIDES.map((side) => [side, ...COLUMNS.map((column) => count(side, column))]),
    ),
    '',
    ...more,
    ...reasons(rows),
    ...machine(title, further),
    `### ${title}: ours does not pass, upstream does`,
    '',
    ...(behind.length === 0 ? ['None of those that ran.'] : list(behind)),
    '',
    `### ${title}: others that did not pass`,
    '',
    ...(rest.length === 0 ? ['None of those that ran.'] : list(rest)),
    '',
    ...(missing.length === 0 ? [] : [`### ${title}: run with neither`, '', ...missing.map(([name]) => `- ${plain(name)}`), '']),
  ];
}

const chosen = ({ focus, skip }: FeatureFocus): string => `Chosen by \`${focus}\` without \`${skip}\`.`;

/** What is counted beside the judged specs of e2e.test. */
export function furtherSections(board: Scoreboard): string[] {
  return [
    ...section(
      'Node e2e (e2e_node.test)',
      'The NodeConformance specs of `e2e_node.test`, with a kubelet, an API server and etcd of its own on one node; where specs ask systemd to stop or start the kubelet, a stand-in of `test/conformance/units` does it, for both sides.',
      board.e2eNode,
    ),
    ...section('Features (e2e.test)', `Specs of features that are GA or on by default. ${chosen(FEATURES)}`, board.features),
    ...section(
      'Network features (e2e.test)',
      `What \`e2e.test\` asks of Services, names and the pods’ network beyond the judged specs, on two nodes with both families; ours with nftables and iptables. ${chosen(NETWORK_FEATURES)}`,
      board.networkFeatures,
      proxies(board, Object.keys(board.networkFeatures).length),
    ),
    ...section('Node features (e2e_node.test)', `The same of \`e2e_node.test\`. ${chosen(NODE_FEATURES)}`, board.nodeFeatures),
  ];
}
