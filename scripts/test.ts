/**
 * `nodelet test [SUITE…]`: check, then every suite that this machine can run, one file at a time where they share
 * the kernel. Ends with `N passed, M failed, K skipped`. A suite that is named must run: a skip is a failure then.
 */
import { spawn } from 'node:child_process';
import { suites } from './suites.ts';

interface Counts {
  passed: number;
  failed: number;
  skipped: number;
}

const named = process.argv.slice(2).filter((argument) => !argument.startsWith('-'));
const all = suites();
const total: Counts = { passed: 0, failed: 0, skipped: 0 };

function run(command: readonly string[], echo: boolean, env: Record<string, string> = {}): Promise<{ code: number; output: string }> {
  return new Promise((resolve) => {
    const child = spawn(command[0] ?? '', command.slice(1), { stdio: ['ignore', 'pipe', 'inherit'], env: { ...process.env, ...env } });
    let output = '';
    child.stdout.setEncoding('utf8');
    child.stdout.on('data', (text: string) => {
      output += text;
      if (echo) process.stdout.write(text);
    });
    child.on('error', () => resolve({ code: 1, output }));
    child.on('close', (code) => resolve({ code: code ?? 1, output }));
  });
}

function count(output: string): Counts {
  const number = (word: string): number => output.matchAll(new RegExp(`^ℹ ${word} (\\d+)`, 'gm')).reduce((sum, match) => sum + Number(match[1]), 0);
  // The reporter counts no suite that is skipped whole, but prints it.
  const skipped = Math.max(number('skipped'), output.match(/^\s*﹣ /gm)?.length ?? 0);
  return { passed: number('pass'), failed: number('fail') + number('cancelled'), skipped };
}

function add(counts: Counts): void {
  total.passed += counts.passed;
  total.failed += counts.failed;
  total.skipped += counts.skipped;
}

for (const name of named) {
  if (name !== 'check' && !all.has(name)) {
    process.stderr.write(`there is no suite "${name}"; there are: check, ${[...all.keys()].join(', ')}\n`);
    process.exit(2);
  }
}
if (named.length === 0 || named.includes('check')) {
  process.stdout.write('== check\n');
  const result = await run([process.execPath, 'scripts/check.ts'], true);
  const counts = count(result.output);
  const tasksFailed = Number(/^check: \d+ ok, (\d+) failed/m.exec(result.output)?.[1] ?? 1);
  add({ ...counts, failed: Math.max(counts.failed, result.code === 0 ? 0 : Math.max(1, tasksFailed)) });
}
for (const [name, files] of all) {
  if (named.length > 0 && !named.includes(name)) continue;
  const started = performance.now();
  process.stdout.write(`== ${name}\n`);
  const result = await run([process.execPath, '--test', '--test-concurrency=1', '--test-reporter=spec', ...files], true, {
    NODELET_SUITE_NAMED: named.length > 0 ? '1' : '',
  });
  const counts = count(result.output);
  if (result.code !== 0 && counts.failed === 0) counts.failed = 1;
  if (named.length > 0) {
    counts.failed += counts.skipped;
    counts.skipped = 0;
  }
  add(counts);
  process.stdout.write(
    `== ${name}: ${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped in ${((performance.now() - started) / 1000).toFixed(0)} s\n`,
  );
}
process.stdout.write(`${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped\n`);
process.exitCode = total.failed > 0 ? 1 : 0;
