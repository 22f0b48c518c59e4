import { execFileSync } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

/** Why the C program cannot be built and tried here; false when it can. */
export function sysProblem(): string | false {
  if (process.getuid?.() !== 0) return 'needs root';
  try {
    execFileSync('cc', ['--version'], { stdio: 'ignore' });
    return false;
  } catch {
    return 'needs a C compiler (cc)';
  }
}

export interface Program extends Disposable {
  readonly path: string;
  readonly dir: string;
}

/** A directory of its own with the program built in it; `kind` as sys/build.sh takes it. */
export function buildProgram(kind: '' | '--sanitize' | '--fuzz' = ''): Program {
  const dir = mkdtempSync(join(tmpdir(), 'sys-test-'));
  const path = join(dir, 'sys');
  const script = join(import.meta.dirname, '../../sys/build.sh');
  execFileSync('sh', kind === '' ? [script, path] : [script, kind, path], { stdio: ['ignore', 'inherit', 'inherit'] });
  return { path, dir, [Symbol.dispose]: () => rmSync(dir, { recursive: true }) };
}
