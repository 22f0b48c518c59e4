import { mkdir, readFile, stat } from 'node:fs/promises';
import { dirname } from 'node:path';
import { tryExec } from '../../base/exec.ts';
import { replaceFile } from '../../base/replace-file.ts';
import type { Ask } from './catalogue.ts';

/** A large program's first start from a cold disk of a slow machine. */
const ASK_MS = 60_000;

/** Asks a program for its version, without the `v`; null when it tells none. */
export async function askVersion(path: string, { args, pattern }: Ask): Promise<string | null> {
  try {
    const env = { PATH: '/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin', HOME: '/nonexistent', LC_ALL: 'C' };
    const result = await tryExec([path, ...args], { timeoutMs: ASK_MS, env });
    return pattern.exec(`${result.stdout}\n${result.stderr}`)?.[1] ?? null;
  } catch {
    return null;
  }
}

interface Known {
  readonly stamp: string;
  readonly version: string;
}

/** Versions that programs told before, by path, size and time of change: starting sixty programs takes seconds. */
export interface Memory {
  ask(path: string, how: Ask): Promise<string | null>;
  /** Keeps what was learned; a folder that cannot be written loses nothing but time. */
  keep(): Promise<void>;
}

export async function openMemory(path: string): Promise<Memory> {
  let known: Record<string, Known> = {};
  try {
    known = JSON.parse(await readFile(path, 'utf8')) as Record<string, Known>;
  } catch {
    // Not there yet, or not whole: everything is asked again.
  }
  let learned = false;
  return {
    async ask(program, how) {
      const facts = await stat(program).catch(() => null);
      if (facts === null) return null;
      const stamp = `${facts.ino}-${facts.size}-${facts.mtimeMs}`;
      const before = known[program];
      if (before?.stamp === stamp) return before.version;
      const version = await askVersion(program, how);
      if (version !== null) {
        known[program] = { stamp, version };
        learned = true;
      }
      return version;
    },
    async keep() {
      if (!learned) return;
      try {
        await mkdir(dirname(path), { recursive: true });
        await replaceFile(path, `${JSON.stringify(known)}\n`, 0o644);
      } catch {
        // As the interface says.
      }
    },
  };
}
