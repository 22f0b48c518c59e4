/**
 * `nodelet test [SUITE…]`: check, then every suite that this machine can run, file by file, one at a time where they
 * share the kernel. A file that failed runs once more at the end, alone, and is named if it passes then: a busy machine
 * is told from a fault. Ends with `N passed, M failed, K skipped`. A suite that is named must run: a skip is a failure then.
 */
import { spawn } from 'node:child_process';
import { suites } from './suites.ts';

interface Counts {
  passed: number;
  failed: number;
  skipped: number;
}

interface Result {
  code: number;
  output: string;
}

/** What runs and says nothing for so long hangs: the longest file takes eight minutes, and the longest silent test three. */
const SILENCE_MS = 10 * 60_000;
/** Nothing is begun after so long, so that what was seen is told before whoever called gives up (after 90 minutes). */
const ALL_MS = 78 * 60_000;
/** Suites whose files make node sets of their own and mostly wait. */
const AT_ONCE: Readonly<Record<string, number>> = { cases: 2 };

const named = process.argv.slice(2).filter((argument) => !argument.startsWith('-'));
const all = suites();
const total: Counts = { passed: 0, failed: 0, skipped: 0 };
const failedFiles: Array<{ suite: string; file: string; counts: Counts }> = [];
const running = new Set<() => void>();

for (const signal of ['SIGINT', 'SIGTERM'] as const) {
  process.once(signal, () => {
    for (const end of running) end();
    process.exit(130);
  });
}

function run(command: readonly string[], heard: (text: string) => void, env: Record<string, string> = {}): Promise<Result> {
  return new Promise((resolve) => {
    // A group of its own, so that what hangs can be ended with its children.
    const child = spawn(command[0] ?? '', command.slice(1), { stdio: ['ignore', 'pipe', 'inherit'], env: { ...process.env, ...env }, detached: true });
    let output = '';
    const say = (text: string): void => {
      output += text;
      heard(text);
    };
    const end = (): void => {
      if (child.pid === undefined) return;
      try {
        process.kill(-child.pid, 'SIGKILL');
      } catch {
        // It has ended meanwhile.
      }
    };
    const hung = (): void => {
      say(`✖ nothing was heard for ${SILENCE_MS / 60_000} minutes: ended, and counted as failed\n`);
      end();
      // A daemon that a test left may hold the pipe open.
      child.stdout.destroy();
    };
    let silence = setTimeout(hung, SILENCE_MS);
    const done = (code: number): void => {
      clearTimeout(silence);
      running.delete(end);
      resolve({ code, output });
    };
    running.add(end);
    child.stdout.setEncoding('utf8');
    child.stdout.on('data', (text: string) => {
      say(text);
      clearTimeout(silence);
      silence = setTimeout(hung, SILENCE_MS);
    });
    child.on('error', () => done(1));
    child.on('close', (code) => done(code ?? 1));
  });
}

function count({ code, output }: Result): Counts {
  const number = (word: string): number => output.matchAll(new RegExp(`^ℹ ${word} (\\d+)`, 'gm')).reduce((sum, match) => sum + Number(match[1]), 0);
  // The reporter counts no suite that is skipped whole, but prints it.
  const skipped = Math.max(number('skipped'), output.match(/^\s*﹣ /gm)?.length ?? 0);
  const failed = number('fail') + number('cancelled');
  return { passed: number('pass'), failed: code !== 0 && failed === 0 ? 1 : failed, skipped };
}

function add(to: Counts, counts: Counts, sign = 1): void {
  to.passed += sign * counts.passed;
  to.failed += sign * counts.failed;
  to.skipped += sign * counts.skipped;
}

const seconds = (since: number): string => `${((performance.now() - since) / 1000).toFixed(0)} s`;

async function runFile(file: string, heard: (text: string) => void): Promise<Counts> {
  if (performance.now() > ALL_MS) {
    heard(`✖ ${file}: not begun, because ${ALL_MS / 60_000} minutes have passed\n`);
    return { passed: 0, failed: 1, skipped: 0 };
  }
  const counts = count(await run([process.execPath, '--test', '--test-reporter=spec', file], heard, { NODELET_SUITE_NAMED: named.length > 0 ? '1' : '' }));
  if (named.length > 0) {
    counts.failed += counts.skipped;
    counts.skipped = 0;
  }
  return counts;
}

async function runSuite(name: string, files: readonly string[]): Promise<void> {
  const started = performance.now();
  process.stdout.write(`== ${name}\n`);
  const atOnce = AT_ONCE[name] ?? 1;
  const counts: Counts = { passed: 0, failed: 0, skipped: 0 };
  const left = [...files];
  const lane = async (): Promise<void> => {
    for (let file = left.shift(); file !== undefined; file = left.shift()) {
      let kept = '';
      const ofFile = await runFile(file, (text) => {
        if (atOnce === 1) process.stdout.write(text);
        else kept += text;
      });
      process.stdout.write(kept);
      add(counts, ofFile);
      if (ofFile.failed > 0) failedFiles.push({ suite: name, file, counts: ofFile });
    }
  };
  await Promise.all(Array.from({ length: atOnce }, lane));
  add(total, counts);
  process.stdout.write(`== ${name}: ${counts.passed} passed, ${counts.failed} failed, ${counts.skipped} skipped in ${seconds(started)}\n`);
}

/** @returns what to say of each file that failed once */
async function runAgain(): Promise<string[]> {
  const said: string[] = [];
  for (const { suite, file, counts } of failedFiles) {
    if (performance.now() > ALL_MS) break;
    process.stdout.write(`== ${suite} again: ${file}\n`);
    const again = await runFile(file, (text) => process.stdout.write(text));
    if (again.failed === 0) {
      add(total, counts, -1);
      add(total, again);
    }
    said.push(`${file}: ${counts.failed} failed, and ${again.failed === 0 ? 'none' : again.failed} when it ran again`);
  }
  return said;
}

for (const name of named) {
  if (name !== 'check' && !all.has(name)) {
    process.stderr.write(`there is no suite "${name}"; there are: check, ${[...all.keys()].join(', ')}\n`);
    process.exit(2);
  }
}
if (named.length === 0 || named.includes('check')) {
  process.stdout.write('== check\n');
  const result = await run([process.execPath, 'scripts/check.ts'], (text) => process.stdout.write(text));
  const counts = count(result);
  const tasksFailed = Number(/^check: \d+ ok, (\d+) failed/m.exec(result.output)?.[1] ?? 1);
  add(total, { ...counts, failed: Math.max(counts.failed, result.code === 0 ? 0 : Math.max(1, tasksFailed)) });
}
for (const [name, files] of all) if (named.length === 0 || named.includes(name)) await runSuite(name, files);
for (const line of await runAgain()) process.stdout.write(`${line}\n`);
process.stdout.write(`${total.passed} passed, ${total.failed} failed, ${total.skipped} skipped\n`);
process.exitCode = total.failed > 0 ? 1 : 0;
