import { spawn } from 'node:child_process';
import { access } from 'node:fs/promises';
import { OpError } from '../../base/errors.ts';
import type { Host } from '../../base/host.ts';

/** The program's place from here: from the sources, and from the bundle. */
const PLACES = ['../../test/cri/main.ts', '../test/cri/main.ts'];

async function findProgram(): Promise<string> {
  for (const place of PLACES) {
    const path = new URL(place, import.meta.url).pathname;
    const isThere = await access(path).then(
      () => true,
      () => false,
    );
    if (isThere) return path;
  }
  throw new OpError('not-found', 'looking for test/cri/main.ts', 'there are no sources here', { advice: 'run this in a clone of the repository' });
}

/** `nodelet cri verify`: a program of the tests, which this room knows by its path alone. */
export async function verify(host: Host, args: readonly string[]): Promise<number> {
  const path = await findProgram();
  return new Promise((resolve, reject) => {
    const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', path, 'verify', ...args], { stdio: 'inherit' });
    // It takes back what it began, and nobody else tells it when only this process is told to end.
    const end = (): void => void child.kill('SIGTERM');
    host.signal.addEventListener('abort', end, { once: true });
    child.on('error', reject);
    child.on('close', (code, signal) => {
      host.signal.removeEventListener('abort', end);
      resolve(code ?? (signal === 'SIGKILL' ? 137 : 143));
    });
  });
}
