import { OpError } from '../../base/errors.ts';
import { tryExec } from '../../base/exec.ts';
import { installPackages } from '../../node/io/packages.ts';
import type { Progress } from '../../node/io/progress.ts';
import type { AssetName } from './catalogue.ts';
import type { Env } from './store.ts';

const works = async (argv: readonly [string, ...string[]], env: Record<string, string>): Promise<boolean> =>
  tryExec(argv, { env }).then(
    ({ code }) => code === 0,
    () => false,
  );

/**
 * What a program in C and Go needs of the distribution: a compiler and libseccomp with its headers. Root on a machine
 * with apt gets them installed; for others an OpError `not-found` says what is missing.
 */
export async function prepareCgo(name: AssetName, options: { env: Env; progress: Progress }): Promise<void> {
  const env = { PATH: options.env['PATH'] ?? '', HOME: options.env['HOME'] ?? '/', LC_ALL: 'C' };
  const missing: string[] = [];
  if (!(await works(['cc', '--version'], env))) missing.push('gcc', 'libc6-dev');
  if (!(await works(['pkg-config', '--version'], env))) missing.push('pkg-config');
  if (missing.includes('pkg-config') || !(await works(['pkg-config', '--exists', 'libseccomp'], env))) missing.push('libseccomp-dev');
  if (missing.length === 0) return;
  if (process.geteuid?.() !== 0 || !(await works(['apt-get', '--version'], env))) {
    throw new OpError('not-found', `building ${name}`, `${missing.join(', ')} ${missing.length === 1 ? 'is' : 'are'} not installed`, {
      advice: `install ${missing.length === 1 ? 'it' : 'them'}: apt-get install ${missing.join(' ')}`,
    });
  }
  options.progress.note(`    installing ${missing.join(', ')}`);
  await installPackages(missing);
}
