/**
 * How smoothly the page of `nodelet cri web` moves with 100,000 calls: `node test/cri/web-frames.ts [CALLS]`. Frame
 * intervals are what a person sees, and include what else the machine does; the main thread's own time for a frame does not.
 */
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Browser, Page } from 'playwright-core';
import { findBrowser, openBrowser, runWeb } from './browser.ts';
import { writeManyCalls } from './many-calls.ts';

const STEPS = 50;
const STEP_MS = 16;

interface TraceEvent {
  readonly name: string;
  readonly ph: string;
  readonly pid: number;
  readonly tid: number;
  readonly ts: number;
  readonly dur?: number;
  /** Processor time, in microseconds. */
  readonly tdur?: number;
}

interface Spread {
  readonly p50: number;
  readonly p95: number;
  readonly max: number;
}

export interface Frames {
  readonly what: string;
  readonly frames: number;
  /** Between frames, in milliseconds. */
  readonly intervalMs: Spread;
  /** The page's main thread, for each frame, in milliseconds of processor time. */
  readonly threadMs: Spread;
}

function spread(values: readonly number[]): Spread {
  const sorted = values.toSorted((a, b) => a - b);
  const at = (share: number): number => Number((sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))] ?? NaN).toFixed(1));
  return { p50: at(0.5), p95: at(0.95), max: at(1) };
}

/** Time of the tasks in which a frame was drawn. */
function threadTimes(trace: readonly TraceEvent[]): number[] {
  const drawn = trace.filter(({ name, ph }) => name === 'FireAnimationFrame' && ph === 'X');
  const tasks = trace.filter(({ name, ph }) => name === 'RunTask' && ph === 'X').toSorted((a, b) => a.ts - b.ts);
  const found = new Set<TraceEvent>();
  for (const frame of drawn) {
    const task = tasks.find(({ pid, tid, ts, dur = 0 }) => pid === frame.pid && tid === frame.tid && ts <= frame.ts && ts + dur >= frame.ts);
    if (task !== undefined) found.add(task);
  }
  return [...found].map(({ tdur, dur = 0 }) => (tdur ?? dur) / 1_000);
}

async function measured(browser: Browser, page: Page, what: string, step: () => Promise<void>): Promise<Frames> {
  await browser.startTracing(page, { categories: ['toplevel', 'devtools.timeline', 'disabled-by-default-devtools.timeline'] });
  await page.evaluate(`(() => {
    window.intervals = [];
    let last = null;
    const frame = (ms) => {
      if (last !== null) window.intervals.push(ms - last);
      last = ms;
      if (window.intervals !== null) window.frame = requestAnimationFrame(frame);
    };
    window.frame = requestAnimationFrame(frame);
  })()`);
  for (let at = 0; at < STEPS; at += 1) {
    await step();
    await page.waitForTimeout(STEP_MS);
  }
  const intervals = await page.evaluate<number[]>('cancelAnimationFrame(window.frame), window.intervals');
  const { traceEvents } = JSON.parse((await browser.stopTracing()).toString()) as { traceEvents: TraceEvent[] };
  return { what, frames: intervals.length, intervalMs: spread(intervals), threadMs: spread(threadTimes(traceEvents)) };
}

/** Opens the page and moves in it in each way. */
export async function measureFrames(browser: Browser, url: string): Promise<{ loadedMs: number; moves: Frames[] }> {
  const page = await browser.newPage({ viewport: { width: 1360, height: 820 } });
  try {
    const started = performance.now();
    await page.goto(url);
    await page
      .locator('#state')
      .filter({ hasText: /^recording$/ })
      .waitFor({ state: 'attached', timeout: 240_000 });
    const loadedMs = Math.round(performance.now() - started);
    await page.mouse.move(800, 500);
    const moves = [await measured(browser, page, 'scroll', () => page.mouse.wheel(0, 120))];
    await page.keyboard.press('e');
    moves.push(await measured(browser, page, 'scroll, all rows open', () => page.mouse.wheel(0, 120)));
    await page.keyboard.down('Control');
    moves.push(await measured(browser, page, 'zoom', () => page.mouse.wheel(0, -30)));
    await page.keyboard.up('Control');
    await page.keyboard.down('Shift');
    moves.push(await measured(browser, page, 'move in time', () => page.mouse.wheel(0, 60)));
    await page.keyboard.up('Shift');
    return { loadedMs, moves };
  } finally {
    await page.close();
  }
}

async function main(): Promise<void> {
  const program = findBrowser();
  if (program === null) throw new Error('there is no chromium here: apt-get install chromium');
  const folder = await mkdtemp(join(tmpdir(), 'web-frames-'));
  try {
    const file = join(folder, 'many.crirec');
    const { calls } = writeManyCalls(file, 1_000, Number(process.argv[2] ?? 100_000));
    await using server = await runWeb(file);
    const browser = await openBrowser(program);
    try {
      const { loadedMs, moves } = await measureFrames(browser, server.url);
      process.stdout.write(`${calls} calls of 1,000 pods, there after ${loadedMs} ms\n`);
      for (const { what, frames, intervalMs, threadMs } of moves)
        process.stdout.write(
          `${what.padEnd(22)} ${String(frames).padStart(4)} frames, between them p50 ${intervalMs.p50} p95 ${intervalMs.p95} ms; main thread p50 ${threadMs.p50} p95 ${threadMs.p95} ms\n`,
        );
    } finally {
      await browser.close();
    }
  } finally {
    await rm(folder, { recursive: true });
  }
}

if (import.meta.main) await main();
