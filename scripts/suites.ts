import { execFileSync } from 'node:child_process';

const ROOT = new URL('..', import.meta.url).pathname;

/** Test files that need nothing but Node: beside the code they test. */
export function fastTests(): string[] {
  return listed().filter((file) => !file.startsWith('test/'));
}

/** Suites below test/ by folder; each knows itself what it needs and says so when it skips. */
export function suites(): Map<string, string[]> {
  const byFolder = new Map<string, string[]>();
  for (const file of listed()) {
    const folder = /^test\/([^/]+)\//.exec(file)?.[1];
    if (folder !== undefined) byFolder.set(folder, [...(byFolder.get(folder) ?? []), file]);
  }
  return new Map([...byFolder].sort(([a], [b]) => a.localeCompare(b)));
}

function listed(): string[] {
  return execFileSync('git', ['-c', 'safe.directory=*', 'ls-files', '--cached', '--others', '--exclude-standard', '*.test.ts'], { encoding: 'utf8', cwd: ROOT })
    .split('\n')
    .filter((file) => file !== '');
}
