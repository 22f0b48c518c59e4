import { mkdir, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { replaceFile } from '../../base/replace-file.ts';
import { answers, isAbandoned } from './splice.ts';

/** Where running taps say that they run. */
export const REGISTRY = '/run/nodelet/cri';

/** A running tap, as it has written itself down. */
export interface RegisteredTap {
  readonly pid: number;
  readonly control: string;
  readonly listen: string;
  readonly upstream: string;
  /** RFC 3339. */
  readonly startedAt: string;
}

/** The taps that run, oldest first; what dead ones left is removed. */
export async function runningTaps(registry = REGISTRY): Promise<RegisteredTap[]> {
  const names = (await readdir(registry).catch(() => [])).filter((name) => name.endsWith('.json'));
  const found = await Promise.all(
    names.map(async (name) => {
      const file = join(registry, name);
      try {
        const tap = JSON.parse(await readFile(file, 'utf8')) as RegisteredTap;
        if (await answers(tap.control)) return [tap];
        if (!(await isAbandoned(tap.control))) return [];
      } catch {
        // Half a file, or gone by now: nothing that runs.
      }
      await rm(file, { force: true }).catch(() => {});
      return [];
    }),
  );
  return found.flat().sort((a, b) => a.startedAt.localeCompare(b.startedAt));
}

/** Writes a tap down until it is disposed. */
export async function registerTap(tap: RegisteredTap, registry: string): Promise<AsyncDisposable> {
  await mkdir(registry, { recursive: true, mode: 0o755 });
  await runningTaps(registry);
  const taken = new Set(await readdir(registry));
  let name = `${tap.pid}.json`;
  for (let at = 2; taken.has(name); at++) name = `${tap.pid}-${at}.json`;
  await replaceFile(join(registry, name), `${JSON.stringify(tap)}\n`, 0o644);
  return { [Symbol.asyncDispose]: () => rm(join(registry, name), { force: true }) };
}
