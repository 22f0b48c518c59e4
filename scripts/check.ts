/** `npm run check`: everything that needs no root and no container, side by side, in under a minute. */
import { spawn } from 'node:child_process';
import { availableParallelism } from 'node:os';
import { fastTests } from './suites.ts';

interface Task {
  name: string;
  command: readonly string[];
}

const bin = (name: string): string => `node_modules/.bin/${name}`;
/** Tests of `core/` touch nothing outside, so that one process may run them all; a process for each file costs most of the time. */
const isOfCore = (file: string): boolean => /^[a-z]+\/core\//.test(file);
const nodeTests = [process.execPath, '--test', '--test-reporter=spec'] as const;
const fast = fastTests();
const tasks: readonly Task[] = [
  { name: 'types and import edges', command: [bin('tsc'), '-b'] },
  { name: 'fast tests', command: [...nodeTests, ...fast.filter((file) => !isOfCore(file))] },
  { name: 'tests of core', command: [...nodeTests, '--test-isolation=none', ...fast.filter(isOfCore)] },
  { name: 'lint', command: [bin('oxlint'), '--type-aware', '--deny-warnings'] },
  { name: 'dead code', command: [bin('knip'), '--no-progress'] },
  { name: 'tidy', command: [process.execPath, 'scripts/tidy.ts'] },
  { name: 'generated files fresh', command: [process.execPath, 'scripts/gen.ts', '--check'] },
  { name: 'format', command: [bin('oxfmt'), '--check'] },
];
const LIMIT_S = 60;

function run(task: Task): Promise<{ ok: boolean; output: string; seconds: number }> {
  const started = performance.now();
  return new Promise((resolve) => {
    const child = spawn(task.command[0] ?? '', task.command.slice(1), { stdio: ['ignore', 'pipe', 'pipe'] });
    const chunks: Buffer[] = [];
    child.stdout.on('data', (chunk: Buffer) => chunks.push(chunk));
    child.stderr.on('data', (chunk: Buffer) => chunks.push(chunk));
    const end = (ok: boolean): void => resolve({ ok, output: Buffer.concat(chunks).toString(), seconds: (performance.now() - started) / 1000 });
    child.on('error', (error) => {
      chunks.push(Buffer.from(error.message));
      end(false);
    });
    child.on('close', (code) => end(code === 0));
  });
}

const started = performance.now();
let failed = 0;
const waiting = [...tasks];
async function lane(): Promise<void> {
  for (let task = waiting.shift(); task !== undefined; task = waiting.shift()) {
    const result = await run(task);
    if (!result.ok) failed += 1;
    process.stdout.write(`${result.ok ? 'ok    ' : 'FAILED'} ${task.name} (${result.seconds.toFixed(1)} s)\n`);
    if (!result.ok) process.stdout.write(`${result.output.trimEnd().split('\n').slice(-120).join('\n')}\n`);
    else if (task.name === 'fast tests' || task.name === 'tests of core')
      process.stdout.write(
        `${result.output
          .split('\n')
          .filter((line) => /^ℹ (tests|pass|fail|skipped)/.test(line))
          .join('\n')}\n`,
      );
  }
}
await Promise.all(Array.from({ length: Math.min(2, availableParallelism()) }, lane));
const seconds = (performance.now() - started) / 1000;
process.stdout.write(
  `check: ${tasks.length - failed} ok, ${failed} failed in ${seconds.toFixed(1)} s${seconds > LIMIT_S ? ` (more than ${LIMIT_S} s: find out why)` : ''}\n`,
);
process.exitCode = failed > 0 ? 1 : 0;
