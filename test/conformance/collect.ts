import { createHash } from 'node:crypto';
import { mkdir, readdir, writeFile } from 'node:fs/promises';
import { tryExec } from '../../base/exec.ts';
import type { Calls } from './calls.ts';
import type { Cluster } from './cluster.ts';
import type { Outcome } from './ginkgo-report.ts';

/** What is kept of each file, and of each log how many lines. */
const FILE_CHARACTERS = 400_000;
const LINES = 3_000;
const PODS = 20;
const LOOK_MS = 20_000;

/** A folder's name for a spec: readable, short, and no other spec's. */
export function slugOf(name: string): string {
  const words = name
    .toLowerCase()
    .replaceAll(/[^a-z0-9]+/g, '-')
    .replaceAll(/^-|-$/g, '')
    .slice(0, 80);
  return `${words}-${createHash('sha256').update(name).digest('hex').slice(0, 8)}`;
}

/**
 * The namespaces of a failed spec: the framework says of which it collects events. Its output names those of other
 * specs too, as neighbours on a node.
 */
export function namespacesIn(output: string): string[] {
  const found = output.matchAll(/^\s*STEP: Collecting events from namespace "([a-z0-9-]+)"\./gm);
  return [...new Set([...found].map((one) => one[1] ?? ''))].filter((name) => !name.startsWith('kube-') && name !== 'default');
}

/** IDs of the sandboxes and containers that lines of containerd's log name. */
export function containersIn(lines: string): string[] {
  return [...new Set(lines.match(/\b[0-9a-f]{64}\b/g) ?? [])];
}

const bounded = (text: string): string =>
  text.length <= FILE_CHARACTERS
    ? text
    : `${text.slice(0, FILE_CHARACTERS / 2)}\n… ${text.length - FILE_CHARACTERS} characters are left out …\n${text.slice(-FILE_CHARACTERS / 2)}`;

/** The last lines of files that hold one of the words. */
async function linesWith(words: readonly string[], files: readonly string[]): Promise<string> {
  if (words.length === 0 || files.length === 0) return '';
  const wanted = words.flatMap((word) => ['-e', word]);
  const found = await tryExec(['sh', '-c', `lines="$1"; shift; grep -a -F -h "$@" | tail -n "$lines"`, 'sh', String(LINES), ...wanted, ...files], {
    timeoutMs: LOOK_MS,
  }).catch(() => null);
  return found?.stdout ?? '';
}

const logsIn = async (dir: string, pattern: RegExp): Promise<string[]> =>
  (await readdir(dir).catch(() => [] as string[]))
    .filter((name) => pattern.test(name))
    .sort()
    .map((name) => `${dir}/${name}`);

/**
 * Saves what is known of a failed spec before its namespaces go: its output, pods, events, container logs, and of
 * agent, audit and runtime the lines that name them, and the CRI calls where they are recorded. Then removes the
 * namespaces. Returns the folder.
 */
export async function collectFailure(cluster: Cluster, failures: string, outcome: Outcome, output: string, calls: Calls | null): Promise<string> {
  const dir = `${failures}/${slugOf(outcome.name)}`;
  await mkdir(dir, { recursive: true });
  const save = async (name: string, text: string): Promise<void> => {
    if (text.trim() !== '') await writeFile(`${dir}/${name}`, bounded(text));
  };
  await save('output.txt', `${outcome.name}\n${outcome.result} after ${outcome.seconds} s: ${outcome.reason}\n\n${output}`);
  const namespaces = namespacesIn(output);
  for (const namespace of namespaces) {
    const ask = (args: readonly string[]): Promise<string> => cluster.tryKubectl([...args, '-n', namespace, '--request-timeout=15s'], { timeoutMs: LOOK_MS });
    await save(`${namespace}.pods.yaml`, await ask(['get', 'pods', '-o', 'yaml']));
    await save(`${namespace}.events.txt`, await ask(['get', 'events', '--sort-by=.lastTimestamp', '-o', 'wide']));
    const pods = (await ask(['get', 'pods', '-o', 'name'])).split('\n').filter((line) => line.startsWith('pod/'));
    const logs: string[] = [];
    for (const pod of pods.slice(0, PODS)) logs.push(`== ${pod}\n${await ask(['logs', pod, '--all-containers', '--prefix', '--tail=200'])}`);
    await save(`${namespace}.logs.txt`, logs.join('\n'));
  }
  if (namespaces.length > 0) {
    await save(
      'audit.jsonl',
      await linesWith(
        namespaces.map((name) => `"namespace":"${name}"`),
        await logsIn(`${cluster.state}/hub/log`, /^audit/),
      ),
    );
    for (const node of cluster.nodes) {
      const dir = `${cluster.state}/nodes/${node}/log`;
      await save(`${node}.agent.log`, await linesWith(namespaces, await logsIn(dir, /^(agent|kubelet)/)));
      if (calls !== null) await save(`${node}.calls.txt`, await calls.of(node, namespaces));
      const runtime = await logsIn(dir, /^(containerd|cri)/);
      const first = await linesWith(namespaces, runtime);
      const containers = containersIn(await linesWith(containersIn(first), runtime));
      await save(`${node}.runtime.log`, await linesWith([...namespaces, ...containers.slice(0, 100)], runtime));
    }
    await cluster.tryKubectl(['delete', 'namespaces', ...namespaces, '--wait=false']);
  }
  return dir;
}

/** The same where there is no cluster to ask: a failed spec's output, and the lines of the logs that name its namespaces. */
export async function saveNodeFailure(failures: string, { name, result, seconds, reason }: Outcome, output: string, logs: readonly string[]): Promise<void> {
  const dir = `${failures}/${slugOf(name)}`;
  await mkdir(dir, { recursive: true });
  await writeFile(`${dir}/output.txt`, bounded(`${name}\n${result} after ${seconds} s: ${reason}\n\n${output}`));
  const lines = await linesWith(namespacesIn(output), logs);
  if (lines.trim() !== '') await writeFile(`${dir}/kubelet.log`, bounded(lines));
}

/** Removes the namespaces that a stopped run has left. */
export async function removeNamespaces(cluster: Cluster): Promise<number> {
  const names = (await cluster.tryKubectl(['get', 'namespaces', '-l', 'e2e-run', '-o', 'name'])).split('\n').filter((line) => line.startsWith('namespace/'));
  if (names.length > 0) await cluster.tryKubectl(['delete', ...names, '--wait=false'], { timeoutMs: 60_000 });
  return names.length;
}
