import assert from 'node:assert/strict';
import { mkdir, mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import type { Browser, Page } from 'playwright-core';
import { realClock } from '../../base/clock.ts';
import { createCriClient } from '../../cri/client.ts';
import { serveFake } from '../../cri/fake-serve.ts';
import { FakeRuntime } from '../../cri/fake.ts';
import { connectRuntime } from '../../cri/grpc.ts';
import { openTap } from '../../cri/io/tap.ts';
import { findBrowser, openBrowser, runWeb, watchedPage, type WatchedPage } from './browser.ts';
import { writeManyCalls } from './many-calls.ts';
import { measureFrames } from './web-frames.ts';
import { sys } from './splice-way.ts';

const program = findBrowser();
const skip = program === null ? 'there is no chromium here: apt-get install chromium' : false;
/** Pictures are kept where it says, to be looked at. */
const pictures = process.env['NODELET_PICTURES'];

let folder: string;
let browser: Browser;

before(async () => {
  if (program === null) return;
  folder = await mkdtemp(join(tmpdir(), 'web-'));
  if (pictures !== undefined) await mkdir(pictures, { recursive: true });
  browser = await openBrowser(program);
});

after(async () => {
  if (program === null) return;
  await browser.close();
  await rm(folder, { recursive: true });
});

async function picture(page: Page, name: string): Promise<void> {
  if (pictures !== undefined) await page.screenshot({ path: join(pictures, `${name}.png`) });
}

/** Nothing was wrong in the page, and nothing left for another place. */
function clean({ wrong, asked }: WatchedPage, url: string): void {
  assert.deepEqual(wrong, []);
  assert.deepEqual(
    asked.filter((address) => !address.startsWith(url) && !address.startsWith('data:')),
    [],
  );
}

async function textOf(page: Page, selector: string): Promise<string> {
  return (await page.locator(selector).textContent()) ?? '';
}

/** Waits until `done`, for 30 seconds at most. */
async function until(done: () => Promise<boolean>): Promise<void> {
  for (let at = 0; at < 600; at += 1) {
    if (await done()) return;
    await delay(50);
  }
  assert.fail(`it did not come in 30 s: ${done.toString()}`);
}

async function untilText(page: Page, selector: string, pattern: RegExp): Promise<void> {
  await page.locator(selector).filter({ hasText: pattern }).waitFor({ state: 'attached', timeout: 30_000 });
}

describe('nodelet cri web', { skip, timeout: 900_000 }, () => {
  test('a recording: rows, filters, from call to call by keys, both messages', async () => {
    const file = join(folder, 'small.crirec');
    const { calls } = writeManyCalls(file, 24, 900);
    await using server = await runWeb(file);
    const watched = await watchedPage(browser, { width: 1280, height: 800 });
    const { page } = watched;
    await page.goto(server.url);
    await untilText(page, '#state', /^recording$/);
    assert.match(await textOf(page, '#totals'), new RegExp(`^${calls + 1} calls, \\d+ failed, 24 pods$`));
    assert.equal(await page.locator('#scroll').getAttribute('role'), 'tree');
    assert.match((await page.locator('[role=treeitem]').first().getAttribute('aria-label')) ?? '', /^node, \d+ calls/);
    await picture(page, 'recording-light');

    // A filter by words, by keys alone; what is left has the word.
    await page.keyboard.press('/');
    await page.keyboard.type('no ip addresses');
    await untilText(page, '#matched', /^3 of 901 calls$/);
    await until(async () => (await page.locator('[role=treeitem]:visible').count()) === 3);
    await page.keyboard.press('ArrowDown');
    await page.keyboard.press('ArrowDown');
    await page.locator('.row[aria-selected=true]').waitFor();
    await page.keyboard.press('ArrowRight');
    await untilText(page, '#said', /^RunPodSandbox, .*Unknown, failed to set up sandbox network/);
    await page.keyboard.press('Enter');
    await untilText(page, '#request', /"hostname"/);
    assert.match(await textOf(page, '#request'), /"metadata": \{\s+"name": "/);
    assert.match(await textOf(page, '#response'), /^\/\/ Unknown: failed to set up/);
    assert.match(await textOf(page, '#detail-error'), /no IP addresses/);
    await picture(page, 'failure-light');

    // Without the filter to the next call of the row, which has an answer.
    await page.keyboard.press('Escape');
    await page.keyboard.press('Escape');
    await page.locator('#matched').filter({ hasText: /^$/ }).waitFor({ state: 'attached' });
    await page.keyboard.press('ArrowRight');
    await page.keyboard.press('Enter');
    await untilText(page, '#response', /"podSandboxId": "5b/);
    assert.equal(await textOf(page, '#detail-outcome'), 'OK');
    const first = await textOf(page, '#detail-facts');
    await page.keyboard.press('ArrowRight');
    await until(async () => (await textOf(page, '#detail-facts')) !== first);
    await page.keyboard.press('Escape');
    assert.equal(await page.locator('#detail').isVisible(), false);
    assert.equal(await page.evaluate('document.activeElement.id'), 'scroll');

    // Rows open and close; a click on a bar does what Enter does.
    await page.keyboard.press('Space');
    await page.locator('[aria-expanded=true]').waitFor();
    assert.ok((await page.locator('[aria-level="2"]:visible').count()) >= 2);

    // Other filters together.
    await page.locator('#filter-method').selectOption('ExecSync');
    await page.locator('#filter-slower').fill('40');
    await page.locator('#filter-pod').fill('payments/');
    await untilText(page, '#matched', /^\d+ of 901 calls$/);
    await until(async () => Number.parseInt(await textOf(page, '#matched'), 10) < 60);
    await page.locator('#filter-clear').click();
    await page.locator('#matched').filter({ hasText: /^$/ }).waitFor({ state: 'attached' });
    clean(watched, server.url);
    await page.close();
  });

  test('dark, narrow, and the help', async () => {
    const file = join(folder, 'dark.crirec');
    writeManyCalls(file, 24, 900);
    await using server = await runWeb(file);
    const watched = await watchedPage(browser, { width: 1280, height: 800, dark: true });
    const { page } = watched;
    await page.goto(server.url);
    await untilText(page, '#state', /^recording$/);
    assert.equal(await page.locator('html').getAttribute('data-theme'), 'dark');
    await page.keyboard.press('n');
    await page.keyboard.press('Enter');
    await untilText(page, '#request', /"metadata"/);
    for (let at = 0; at < 8; at += 1) await page.keyboard.press('+');
    await picture(page, 'failure-dark');
    await page.keyboard.press('Escape');
    await page.keyboard.press('?');
    assert.equal(await page.locator('#help-dialog').isVisible(), true);
    await picture(page, 'help-dark');
    await page.keyboard.press('Escape');
    await page.setViewportSize({ width: 400, height: 760 });
    await page.keyboard.press('f');
    await picture(page, 'narrow-dark');
    // Nothing hangs over the edge.
    assert.equal(await page.evaluate('document.documentElement.scrollWidth <= innerWidth'), true);
    await page.locator('#theme').click();
    assert.equal(await page.locator('html').getAttribute('data-theme'), 'light');
    await page.keyboard.press('n');
    await page.keyboard.press('Enter');
    await untilText(page, '#request', /^\{/);
    await picture(page, 'narrow-light');
    clean(watched, server.url);
    await page.close();
  });

  test('with 100,000 calls a frame takes the page less than 33 ms', async () => {
    const file = join(folder, 'many.crirec');
    writeManyCalls(file, 1_000, 100_000);
    await using server = await runWeb(file);
    const { loadedMs, moves } = await measureFrames(browser, server.url);
    console.log(`100,000 calls there after ${loadedMs} ms`, JSON.stringify(moves));
    // Intervals are the machine's, which may be busy; what the page itself takes is held to.
    for (const { what, frames, threadMs } of moves) assert.ok(frames > 10 && threadMs.p95 < 33, `${what}: ${threadMs.p95} ms`);
  });

  test('live: calls arrive, pause holds the window, a fault is armed and disarmed by clicks', async () => {
    const runtime = join(folder, 'runtime.sock');
    await using _server = await serveFake(new FakeRuntime({ clock: realClock }), runtime);
    const listen = join(folder, 'tap.sock');
    const tap = await openTap({ listen, upstream: runtime, recorder: 'a test', clock: realClock, sys, control: { pid: process.pid } });
    try {
      await using server = await runWeb(undefined, { tap: `${listen}.tap` });
      const watched = await watchedPage(browser, { width: 1280, height: 800 });
      const { page } = watched;
      await page.goto(server.url);
      await untilText(page, '#state', /^live$/);
      await using client = createCriClient(connectRuntime(listen));
      await client.runtime.version({});
      const run = (name: string): Promise<unknown> => client.runtime.runPodSandbox({ config: { metadata: { name, namespace: 'default', uid: name } } });
      await run('web');
      await client.runtime.podSandboxStatus({ podSandboxId: 'nothing-of-that-name' }).catch(() => {});
      await untilText(page, '#totals', /^3 calls, 1 failed, 1 pod$/);
      assert.match(await textOf(page, '#source'), /tap\.sock → .*runtime\.sock/);
      await page.waitForTimeout(300);
      await picture(page, 'live-light');
      await page.keyboard.press('p');
      await untilText(page, '#state', /^paused$/);
      await run('api');
      await untilText(page, '#state', /^paused, 1 new call$/);
      await page.keyboard.press('p');
      await untilText(page, '#state', /^live$/);

      // To the call by keys, then a rule for calls like it.
      await page.keyboard.press('End');
      await page.locator('[role=treeitem]', { hasText: 'web' }).click();
      await page.keyboard.press('ArrowRight');
      await page.keyboard.press('Enter');
      await untilText(page, '#request', /"name": "web"/);
      await page.locator('#detail-break').click();
      assert.equal(await page.locator('#rule-text').inputValue(), 'RunPodSandbox pod=default/web first=1 error Unavailable');
      await page.locator('#rule-after').check();
      await page.locator('#rule-error').selectOption('DeadlineExceeded');
      const rule = 'RunPodSandbox pod=default/web first=1 after error DeadlineExceeded';
      assert.equal(await page.locator('#rule-text').inputValue(), rule);
      await page.locator('#rule-arm').click();
      await untilText(page, '#armed', /after error DeadlineExceeded/);
      await picture(page, 'fault-light');
      assert.deepEqual(
        tap.faults.list().rules.map(({ text }) => text),
        [rule],
      );
      assert.equal(await textOf(page, '#fault-count'), '1');
      await page.locator('#rule-text').fill('RunPodSandbx error Unavailable');
      await page.locator('#rule-arm').click();
      await untilText(page, '#rule-error-text', /nearest is RunPodSandbox/);
      assert.equal(tap.faults.list().rules.length, 1);
      // The rule does what it says, and the page counts it.
      await assert.rejects(
        client.runtime.runPodSandbox({ config: { metadata: { name: 'web', namespace: 'default', uid: 'web', attempt: 1 } } }),
        /DeadlineExceeded|deadline/,
      );
      await untilText(page, '#armed', /after error DeadlineExceeded11Disarm/);
      await page.locator('#armed button').click();
      await page.locator('#armed').waitFor({ state: 'hidden' });
      assert.equal(tap.faults.list().rules.length, 0);
      await page.keyboard.press('Escape');
      await tap.stop();
      await untilText(page, '#notes', /^\d notes?$/);
      watched.wrong.splice(0, watched.wrong.length, ...watched.wrong.filter((text) => !text.includes('400 (Bad Request)')));
      clean(watched, server.url);
      await page.close();
    } finally {
      await tap.stop();
    }
  });
});
