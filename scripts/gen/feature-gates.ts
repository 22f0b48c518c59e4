import { existsSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { gateRows } from '../../agent/mod.ts';
import { featureGates, type FeatureGate } from '../../base/feature-gates.ts';

/** Where upstream's gates stand, with the version its Go module `k8s.io/kubernetes` pins. */
const sources = [
  'kubernetes@v1.37.2/pkg/features/kube_features.go',
  'apiextensions-apiserver@v0.37.2/pkg/features/kube_features.go',
  'apiserver@v0.37.2/pkg/features/kube_features.go',
  'client-go@v0.37.2/features/known_features.go',
  'component-base@v0.37.2/metrics/features/kube_features.go',
  'component-base@v0.37.2/logs/api/v1/kube_features.go',
  'component-base@v0.37.2/zpages/features/kube_features.go',
  'controller-manager@v0.37.2/pkg/features/kube_features.go',
];
/** The two switches of whole stages, and those that upstream's `--help` knows in another form than a versioned table. */
const unversioned = ['AllAlpha', 'AllBeta', 'ContextualLogging', 'LoggingAlphaOptions', 'LoggingBetaOptions', 'NativeHistograms'];

/** What of our table differs from upstream's Go source; undefined where the modules are not there. */
export function gateDifferences(modules: string): string[] | undefined {
  const texts: string[] = [];
  for (const source of sources) {
    const path = join(modules, 'k8s.io', source);
    if (!existsSync(path)) return undefined;
    texts.push(readFileSync(path, 'utf8'));
  }
  const upstream = readGates(texts);
  const names = new Set([...upstream.keys(), ...featureGates.keys()]);
  return [...names].filter((name) => !unversioned.includes(name) && !isSame(upstream.get(name), featureGates.get(name)));
}

function isSame(a: FeatureGate | undefined, b: FeatureGate | undefined): boolean {
  return a?.stage === b?.stage && a?.default === b?.default && a?.locked === b?.locked;
}

function readGates(texts: readonly string[]): ReadonlyMap<string, FeatureGate> {
  const names = new Map<string, string>();
  for (const text of texts)
    for (const [, identifier = '', name = ''] of text.matchAll(/^\t?(?:const )?(\w+)[^\n"=]*= (?:featuregate\.Feature\()?"(\w+)"/gm))
      names.set(identifier, name);
  const gates = new Map<string, FeatureGate>();
  for (const text of texts) {
    for (const [, identifier = '', body = ''] of text.matchAll(/^\t(?:\w+\.)?(\w+): \{((?:\n\t\t.*)+)\n\t\},?/gm)) {
      // What needs a minimum compatibility version of this release is not in effect: a component's is the release before.
      const versions = [...body.matchAll(/\{Version.*?\}/g)].map(([text]) => text);
      const last = versions.findLast((text) => !/MinCompatibilityVersion: version\.MustParse\("1\.37"\)/.test(text));
      const stage = last === undefined ? undefined : /PreRelease: (?:featuregate\.)?(\w+)/.exec(last)?.[1];
      if (last === undefined || stage === undefined) continue;
      gates.set(names.get(identifier) ?? identifier, {
        stage: stage as FeatureGate['stage'],
        default: /[ {]Default: true/.test(last),
        locked: last.includes('LockToDefault: true'),
      });
    }
  }
  return gates;
}

/** docs/feature-gates.md: a row for each gate of upstream. */
export function printFeatureGates(): string {
  const rows = gateRows();
  const count = (state: string): number => rows.filter((row) => row.state === state).length;
  const cells = rows.map(({ name, state, note }) => {
    const gate = featureGates.get(name);
    return [name, gate?.stage ?? '', gate?.default === true ? 'on' : 'off', gate?.locked === true ? 'yes' : '', note === '' ? state : `${state}: ${note}`];
  });
  const head = ['gate', 'stage', 'default', 'locked', 'ours'];
  const widths = head.map((title, column) => Math.max(...[head, ...cells].map((row) => row[column]?.length ?? 0), title.length));
  const line = (row: readonly string[]): string => `| ${row.map((cell, column) => cell.padEnd(widths[column] ?? 0)).join(' | ')} |`;
  return [
    '# Feature gates',
    '',
    `The ${rows.length} gates of Kubernetes 1.37, all accepted by \`--feature-gates\` and \`featureGates\`, and no other name is. Printed by \`npm run gen\` from \`base/feature-gates.ts\` and \`agent/core/feature-gate-state.ts\`.`,
    '',
    `Done: ${count('done')}. Not done: ${count('not done')}, and switching one of these changes nothing. Does not concern a node: ${count('does not concern a node')} (API server, controllers, scheduler, Windows, Go's client library). A locked gate cannot be set to anything but its default.`,
    '',
    line(head),
    `| ${widths.map((width) => '-'.repeat(width)).join(' | ')} |`,
    ...cells.map(line),
    '',
  ].join('\n');
}
