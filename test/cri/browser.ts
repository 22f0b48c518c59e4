import { accessSync, constants } from 'node:fs';
import { delimiter, join } from 'node:path';
import { chromium, type Browser, type Page } from 'playwright-core';
import { realClock } from '../../base/clock.ts';
import type { Host } from '../../base/host.ts';
import { web, type WebFlags } from '../../cri/web-command.ts';

const NAMES = ['chromium', 'chromium-browser', 'google-chrome'];

/** The browser's program, or null: then whoever needs it says so and skips. */
export function findBrowser(): string | null {
  const folders = [...(process.env['PATH'] ?? '').split(delimiter), '/usr/bin', '/snap/bin'];
  for (const path of NAMES.flatMap((name) => folders.map((folder) => join(folder, name)))) {
    try {
      accessSync(path, constants.X_OK);
      return path;
    } catch {
      // Not there: the next.
    }
  }
  return null;
}

export function openBrowser(program: string): Promise<Browser> {
  return chromium.launch({ executablePath: program, args: ['--no-sandbox', '--disable-gpu', '--disable-dev-shm-usage'] });
}

/** A page that remembers what went wrong in it and what it asked for. */
export interface WatchedPage {
  readonly page: Page;
  readonly wrong: string[];
  readonly asked: string[];
}

export async function watchedPage(browser: Browser, options: { width: number; height: number; dark?: boolean }): Promise<WatchedPage> {
  const { width, height, dark = false } = options;
  const page = await browser.newPage({ viewport: { width, height }, colorScheme: dark ? 'dark' : 'light' });
  const wrong: string[] = [];
  const asked: string[] = [];
  page.on('pageerror', (error) => wrong.push(error.message));
  page.on('console', (message) => {
    if (message.type() === 'error' || message.type() === 'warning') wrong.push(message.text());
  });
  page.on('request', (request) => asked.push(request.url()));
  return { page, wrong, asked };
}

/** `nodelet cri web` in this process, until it is disposed. */
export async function runWeb(file: string | undefined, flags: Partial<WebFlags> = {}): Promise<AsyncDisposable & { readonly url: string }> {
  const stop = new AbortController();
  let told: (url: string) => void = () => {};
  const url = new Promise<string>((resolve) => (told = resolve));
  const host: Host = {
    args: [],
    env: {},
    pid: process.pid,
    stdout: (text) => told((JSON.parse(text) as { url: string }).url),
    stderr: () => {},
    signal: stop.signal,
    isTerminal: false,
  };
  const ended = web(host, file, { listen: '127.0.0.1:0', open: false, json: true, ...flags }, realClock, 'a test');
  return {
    // What is wrong with the file is thrown here.
    url: await Promise.race([url, ended.then(() => Promise.reject(new Error('it ended')))]),
    [Symbol.asyncDispose]: async () => {
      stop.abort();
      await ended;
    },
  };
}
