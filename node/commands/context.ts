import type { Host } from '../../base/host.ts';
import { OpError } from '../../base/errors.ts';
import { nameProblem, type NodePlan, type SetPlan } from '../core/plan.ts';
import { inspectMachine, type Machine } from '../io/machine.ts';
import { createProgress, type Progress } from '../io/progress.ts';
import { loadSet, planOf, stateHome, type SavedSet } from '../io/state.ts';

/** Options that every command has. */
export interface CommonOptions {
  readonly name: string;
  readonly json: boolean;
}

/** What a command works with. */
export interface Context {
  readonly host: Host;
  readonly options: CommonOptions;
  readonly progress: Progress;
  /** Folder of all sets. */
  readonly home: string;
  /** The checkout or the unpacked release. */
  readonly root: string;
  readonly path: string;
  /** Prints the answer: JSON where it was asked for, otherwise the lines for a person. */
  answer(data: unknown, lines: readonly string[]): void;
}

export function createContext(host: Host, options: CommonOptions): Context {
  const problem = nameProblem(options.name);
  if (problem !== null) throw new OpError('invalid', 'reading --name', problem);
  return {
    host,
    options,
    progress: createProgress(host, { quiet: false, terminal: host.isTerminal && !options.json }),
    home: stateHome(host.env),
    root: host.env['NODELET_ROOT'] ?? process.cwd(),
    path: host.env['PATH'] ?? '',
    answer(data, lines) {
      host.stdout(options.json ? `${JSON.stringify(data, null, 2)}\n` : lines.map((line) => `${line}\n`).join(''));
    },
  };
}

export function requireRoot(): void {
  if (process.geteuid?.() !== 0) throw new OpError('denied', 'starting', 'this needs root', { advice: 'run it with sudo' });
}

/** The set of `--name`, which must exist. */
export async function requireSet(context: Context): Promise<{ saved: SavedSet; plan: SetPlan }> {
  const saved = await loadSet(context.home, context.options.name);
  if (saved === null) {
    const flag = context.options.name === 'default' ? '' : ` --name ${context.options.name}`;
    throw new OpError('not-found', `looking for the set "${context.options.name}"`, 'nothing of that name runs here', {
      advice: `start it with: nodelet up${flag}`,
    });
  }
  return { saved, plan: planOf(context.home, saved) };
}

/** A node by name; the only one when none is named. */
export function requireNode(plan: SetPlan, name: string | undefined): NodePlan {
  const node = name === undefined ? plan.nodes[0] : plan.nodes.find((candidate) => candidate.name === name);
  if (node === undefined)
    throw new OpError('not-found', 'choosing a node', `there is no node "${name}"`, {
      advice: `there are: ${plan.nodes.map((candidate) => candidate.name).join(', ')}`,
    });
  return node;
}

export async function lookAtMachine(context: Context, containerd: string | undefined): Promise<Machine> {
  return inspectMachine({ containerd, path: context.path });
}

/** Columns as kubectl prints them. */
export function table(rows: readonly (readonly string[])[]): string[] {
  const widths = (rows[0] ?? []).map((_, column) => Math.max(...rows.map((row) => (row[column] ?? '').length)));
  return rows.map((row) => row.map((cell, column) => (column === row.length - 1 ? cell : cell.padEnd((widths[column] ?? 0) + 3))).join(''));
}
