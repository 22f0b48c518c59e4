import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { writeManyCalls } from './many-calls.ts';
import { writeManyPods } from './thousand-pods.ts';

/*
 * Recordings of 1,000 pods: diff, report, watch, top, show and grep answer within seconds in bounded memory. Times are CPU seconds, because
 * other tests may have the machine.
 */

const MAIN = new URL('../../node/main.ts', import.meta.url).pathname;
const MAX_CPU_SECONDS = 15;
const MAX_RSS_MIB = 600;
/** Says at the end what the process has cost. */
const COST =
  'data:text/javascript,process.on("exit",()=>{const u=process.resourceUsage();process.stderr.write(`cost ${u.userCPUTime+u.systemCPUTime} ${u.maxRSS}\\n`)})';

let folder = '';
before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'thousand-pods-'));
  const change = (method: string, pod: { name: string }, request: Record<string, unknown>): Record<string, unknown> | null =>
    method === 'StartContainer' && pod.name.startsWith('app-7-') ? null : request;
  const sizes = [writeManyPods(join(folder, 'a'), 1), writeManyPods(join(folder, 'b'), 2, 1_000, change), writeManyCalls(join(folder, 'busy'), 1_000, 100_000)];
  for (const { calls, fileBytes } of sizes) console.log(`recording of 1,000 pods: ${calls} calls, ${(fileBytes / 1024 ** 2).toFixed(1)} MiB`);
});
after(async () => rm(folder, { recursive: true, force: true }));

async function run(...words: string[]): Promise<{ code: number; out: string }> {
  const startedMs = performance.now();
  const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', '--import', COST, MAIN, 'cri', ...words], {
    stdio: ['ignore', 'pipe', 'pipe'],
  });
  let [out, err] = ['', ''];
  child.stdout.setEncoding('utf8').on('data', (text: string) => (out += text));
  child.stderr.setEncoding('utf8').on('data', (text: string) => (err += text));
  const code = await new Promise<number>((resolve, reject) => {
    child.on('error', reject);
    child.on('close', (status) => resolve(status ?? -1));
  });
  const [, micros, kib] = /^cost (\d+) (\d+)$/m.exec(err) ?? [];
  assert.ok(micros !== undefined && kib !== undefined, err);
  const [cpuSeconds, rssMib] = [Number(micros) / 1e6, Number(kib) / 1024];
  console.log(
    `${words.filter((word) => !word.includes('/')).join(' ')}: ${cpuSeconds.toFixed(1)} s of CPU, ${((performance.now() - startedMs) / 1000).toFixed(1)} s, ${rssMib.toFixed(0)} MiB`,
  );
  assert.ok(cpuSeconds < MAX_CPU_SECONDS, `${cpuSeconds} s of CPU`);
  assert.ok(rssMib < MAX_RSS_MIB, `${rssMib} MiB`);
  return { code, out };
}

test('two recordings of 1,000 pods with other generated names are compared', async () => {
  const { code, out } = await run('diff', join(folder, 'a'), join(folder, 'b'));
  assert.equal(code, 0);
  assert.match(out, /load\/app-7 \(.*\), and 9 more alike: load\/app-7$/m);
  assert.match(out, /^991 of 1001 pods the same; calls: \d+ the same, 0 differ, 10 only in A, 0 only in B; 10 differences$/m);
});

for (const form of ['html', 'perfetto', 'otlp', 'json'])
  test(`100,000 calls of 1,000 pods as ${form}`, async () => {
    const output = join(folder, `out.${form}`);
    const { code } = await run('report', join(folder, 'busy'), `--${form}`, '-o', output);
    assert.equal(code, 0);
  });

test('a diagram of one of 1,000 pods', async () => {
  const { code, out } = await run('report', join(folder, 'busy'), '--mermaid', '--pod', 'kube-system/web-0');
  assert.equal(code, 0);
  assert.match(out, /^sequenceDiagram\n/);
});

for (const [words, wanted] of [
  [['watch'], /^payments\/web-/m],
  [['watch', '--lines'], /PodSandboxStatus ×\d+/],
  [['top', '--json'], /"method":"ContainerStatus"/],
  [['show', '--outcome', 'failed'], /failed to set up sandbox network/],
] as const)
  test(`100,000 calls of 1,000 pods: ${words.join(' ')}`, async () => {
    const [command, ...rest] = words;
    const { code, out } = await run(command, join(folder, 'busy'), ...rest);
    assert.equal(code, 0);
    assert.match(out, wanted);
  });

test('a word is found in 100,000 calls of 1,000 pods', async () => {
  const { code, out } = await run('grep', 'range set', join(folder, 'busy'), '--method', 'RunPodSandbox', '--count');
  assert.equal(code, 0);
  assert.ok(Number(out) > 100, out);
});
