import { mkdir, readFile, writeFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { OpError } from '../../base/errors.ts';
import { tryExec } from '../../base/exec.ts';
import type { Program } from '../../scripts/command.ts';
import { MODULES } from '../assets/catalogue.ts';
import { findAssets } from '../assets/find.ts';
import { moduleSources } from '../images/programs.ts';
import type { Cluster } from './cluster.ts';
import { checkOptions, clusterFor, type RunOptions } from './e2e.ts';
import type { Outcome } from './ginkgo-report.ts';
import { readGoTest } from './go-output.ts';

export interface PolicyOptions {
  readonly name?: string;
  readonly nodes: string;
  readonly focus: string;
  readonly keep?: true;
  readonly assets?: string;
  readonly json: boolean;
}

const MODULE = 'sigs.k8s.io/network-policy-api';
const CRD = 'config/crd/experimental/policy.networking.k8s.io_clusternetworkpolicies.yaml';
const DOING = 'testing ClusterNetworkPolicies';
const LIMIT_MS = 45 * 60_000;
const HOUSES = ['gryffindor', 'slytherin', 'hufflepuff', 'ravenclaw', 'forbidden-forrest'].map((house) => `network-policy-conformance-${house}`);
const AGNHOST = 'registry.k8s.io/e2e-test-images/agnhost:2.66.1';
/** Name of the admission policy, and of the namespace in which it is tried. */
const OWN = 'nodelet-conformance-policies';
/** The API server takes an admission policy up some seconds after it was written. */
const ADMISSION = { tries: 60, pauseMs: 1000 };

/**
 * Gives the suite's pods the agnhost that is made here in place of an older one, and lets those that would serve SCTP
 * wait where the kernel has none: they would never be ready.
 */
function admission(hasSctp: boolean): object[] {
  const each = (condition: string, field: string, value: string): string =>
    `[0, 1, 2, 3, 4, 5, 6, 7].filter(i, i < size(object.spec.containers)${condition}).map(i, JSONPatch{op: "replace", path: "/spec/containers/" + string(i) + "/${field}", value: ${value}})`;
  const isSctp = ` && has(object.spec.containers[i].env) && object.spec.containers[i].env.exists(e, e.name.startsWith("SERVE_SCTP"))`;
  const expression = [each('', 'image', `"${AGNHOST}"`), ...(hasSctp ? [] : [each(isSctp, 'command', '["/agnhost", "pause"]')])].join(' + ');
  const [apiVersion, metadata] = ['admissionregistration.k8s.io/v1', { name: OWN }];
  return [
    { apiVersion: 'v1', kind: 'Namespace', metadata },
    {
      apiVersion,
      kind: 'MutatingAdmissionPolicy',
      metadata,
      spec: {
        failurePolicy: 'Fail',
        reinvocationPolicy: 'Never',
        matchConstraints: {
          namespaceSelector: { matchExpressions: [{ key: 'kubernetes.io/metadata.name', operator: 'In', values: [...HOUSES, OWN] }] },
          resourceRules: [{ apiGroups: [''], apiVersions: ['v1'], operations: ['CREATE'], resources: ['pods'] }],
        },
        mutations: [{ patchType: 'JSONPatch', jsonPatch: { expression } }],
      },
    },
    { apiVersion, kind: 'MutatingAdmissionPolicyBinding', metadata, spec: { policyName: metadata.name } },
  ];
}

const TRIED = {
  apiVersion: 'v1',
  kind: 'Pod',
  metadata: { name: 'tried', namespace: OWN },
  spec: { containers: [{ name: 'tried', image: 'registry.k8s.io/e2e-test-images/agnhost:2.45' }] },
};

/**
 * Waits until the admission policy changes the pod in `file`, which is never made. Throws an OpError `deadline` when it
 * does not: the suite's first pods would stay with an image that nobody has.
 */
export async function admissionActs(cluster: Pick<Cluster, 'tryKubectl'>, file: string, { tries, pauseMs } = ADMISSION): Promise<void> {
  let said = '';
  for (let at = 0; at < tries; at += 1) {
    if (at > 0) await delay(pauseMs);
    said = (await cluster.tryKubectl(['create', '--dry-run=server', '-f', file, '-o', 'jsonpath={.spec.containers[0].image}'])).trim();
    if (said === AGNHOST) return;
  }
  throw new OpError(
    'deadline',
    DOING,
    `the admission policy "${OWN}" has not changed a pod in ${(tries * pauseMs) / 1000} s; the API server last said: ${said}`,
    {
      advice: `see what it makes of the policy with: kubectl get mutatingadmissionpolicy ${OWN} -o yaml`,
    },
  );
}

/** `nodelet conformance policies`: SIG Network's own tests of ClusterNetworkPolicy, on a cluster with our pod network. */
export async function runPolicies(program: Program, root: string, options: PolicyOptions): Promise<number> {
  const { host, progress } = program;
  const run: RunOptions = { ...options, suite: 'policies', focus: [], skip: [], parallel: '1', score: false };
  const checked = checkOptions(run);
  const assets = await findAssets({ env: host.env, dir: options.assets });
  const [suite, kubectl] = [assets.require('network-policy.test', DOING), assets.require('kubectl', DOING)];
  const sources = await moduleSources(MODULE, `v${MODULES['network-policy']}`, host.signal);
  const hasSctp = /^SCTP /m.test(await readFile('/proc/net/protocols', 'utf8'));
  const dir = `${root}/dist/conformance/policies`;
  await mkdir(dir, { recursive: true });
  await using made = await clusterFor(program, root, run, { ...checked, kubectl });
  const { cluster } = made;
  const versions = Object.entries(cluster.versions).map(([key, value]) => `${key} ${value}`);
  progress.note(`  ${versions.join(', ')}; ${MODULE} ${MODULES['network-policy']}${hasSctp ? '' : '; this kernel has no SCTP: its tests are left out'}`);
  const [objects, tried] = [`${dir}/admission.json`, `${dir}/tried.json`];
  await writeFile(tried, JSON.stringify(TRIED));
  await writeFile(objects, JSON.stringify({ apiVersion: 'v1', kind: 'List', items: admission(hasSctp) }));
  await cluster.kubectl(['apply', '--server-side', '-f', `${sources}/${CRD}`]);
  await cluster.kubectl(['wait', '--for=condition=Established', '--timeout=60s', '-f', `${sources}/${CRD}`], { timeoutMs: 90_000 });
  await cluster.kubectl(['apply', '-f', objects]);
  const args = ['-test.v', `-test.timeout=${LIMIT_MS / 60_000}m`, `-test.run=^TestConformance$/${options.focus}`, '--all-features'];
  let text = '';
  // What is read as it comes is standard error.
  const argv: [string, ...string[]] = ['sh', '-c', 'exec "$0" "$@" >&2', suite, ...args, ...(hasSctp ? [] : ['-test.skip=^TestConformance$/SCTP'])];
  try {
    await admissionActs(cluster, tried);
    const { code } = await tryExec(argv, {
      doing: DOING,
      timeoutMs: LIMIT_MS + 60_000,
      signal: host.signal,
      cwd: dir,
      env: { PATH: host.env['PATH'] ?? '', HOME: host.env['HOME'] ?? '/', KUBECONFIG: cluster.kubeconfig },
      onLine(line) {
        text += `${line}\n`;
        if (/^\s*--- /.test(line)) progress.note(`  ${line.trim()}`);
      },
    });
    if (readGoTest(text).length === 0)
      throw new OpError(
        'failed',
        DOING,
        `it ended with ${code}; ${
          text
            .split('\n')
            .filter((line) => line !== '')
            .at(-1) ?? 'it said nothing'
        }`,
      );
  } finally {
    await writeFile(`${dir}/output.log`, text);
    await cluster.tryKubectl(['delete', '--ignore-not-found', '--wait=false', '-f', objects]);
    if (options.name !== undefined) await cluster.tryKubectl(['delete', 'namespace', '--ignore-not-found', '--wait=false', ...HOUSES]);
  }
  return tell(program, options.json, readGoTest(text), cluster.versions, `${dir}/output.log`);
}

function tell(program: Program, json: boolean, outcomes: readonly Outcome[], versions: Readonly<Record<string, string>>, log: string): number {
  const of = (result: string): readonly Outcome[] => outcomes.filter((outcome) => outcome.result === result);
  program.answer(json, { versions, results: outcomes, log }, [
    ...of('failed').map(({ name, reason }) => `failed: ${name}: ${reason}`),
    ...of('skipped').map(({ name, reason }) => `skipped: ${name}: ${reason}`),
    `policies: ${of('passed').length} passed, ${of('failed').length} failed, ${of('skipped').length} skipped; all output is in ${log}`,
  ]);
  return of('failed').length === 0 ? 0 : 1;
}
