import { execFile } from 'node:child_process';
import { createHash } from 'node:crypto';
import { mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { promisify } from 'node:util';
import { OpError } from '../../base/errors.ts';

const PARTS = ['page.html', 'page.css', 'main.js'] as const;

/** The page in one file, and the policy that lets it load nothing else. */
export interface WebPage {
  readonly html: string;
  readonly policy: string;
}

function hash(text: string): string {
  return `'sha256-${createHash('sha256').update(text).digest('base64')}'`;
}

async function readParts(folder: string): Promise<readonly [string, string, string]> {
  const [html, style, script] = await Promise.all(PARTS.map((name) => readFile(join(folder, name), 'utf8')));
  return [html ?? '', style ?? '', script ?? ''];
}

/** Bundles the page's sources, where the program runs from its sources. */
async function build(sources: string): Promise<readonly [string, string, string]> {
  const esbuild = join(sources, `../../node_modules/@esbuild/linux-${process.arch}/bin/esbuild`);
  const folder = await mkdtemp(join(tmpdir(), 'nodelet-web-'));
  try {
    const inputs = ['main.ts', 'page.css', 'page.html'].map((name) => join(sources, name));
    await promisify(execFile)(esbuild, [
      ...inputs,
      '--bundle',
      '--minify',
      '--target=es2022',
      '--loader:.html=copy',
      '--log-level=warning',
      `--outdir=${folder}`,
    ]);
    return await readParts(folder);
  } finally {
    await rm(folder, { recursive: true, force: true });
  }
}

/** The page: from beside the bundle that the program runs from, or bundled now. Throws OpError `failed`. */
export async function webPage(): Promise<WebPage> {
  let parts: readonly [string, string, string];
  try {
    parts = await readParts(join(import.meta.dirname, 'web')).catch(() => build(join(import.meta.dirname, '../web')));
  } catch (cause) {
    throw new OpError('failed', 'building the page', cause instanceof Error ? cause.message : String(cause), { cause, advice: 'run it as ./nodelet cri web' });
  }
  const [html, style, script] = parts;
  const policy = [
    "default-src 'none'",
    `script-src ${hash(script)}`,
    `style-src ${hash(style)}`,
    "connect-src 'self'",
    'img-src data:',
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; ');
  const page = html.replace('<!-- style -->', () => `<style>${style}</style>`).replace('<!-- script -->', () => `<script>${script}</script>`);
  return { html: page, policy };
}
