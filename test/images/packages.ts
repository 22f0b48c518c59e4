import { mkdir, writeFile } from 'node:fs/promises';
import { execa } from 'execa';
import { OpError } from '../../base/errors.ts';

/** Packages that only configuration scripts of others need; no script runs here. */
const SCRIPTING =
  /^(debconf|perl(-base|-modules-.*)?|lib.*-perl|libperl\d.*|libgdbm.*|usrmerge|init-system-helpers|gcc-\d+-base|readline-common|dpkg|libdebconfclient0|base-passwd|lsb-base|sysvinit-utils|libpam-.*|ucf|sensible-utils|adduser|passwd|nginx-core-doc)$/;

/** What is left out of every package: it is read by people only. */
const PROSE = ['doc', 'man', 'info', 'locale', 'lintian', 'bug', 'doc-base', 'menu', 'bash-completion', 'zsh', 'fish'].map(
  (folder) => `./usr/share/${folder}/*`,
);

export interface Package {
  readonly name: string;
  /** File name as apt writes it; it carries the version. */
  readonly file: string;
}

export interface AptOptions {
  /** Where apt keeps what it fetched, and an empty list of installed packages. */
  readonly dir: string;
  readonly signal: AbortSignal;
}

async function apt(options: AptOptions, archives: string, args: readonly string[]): Promise<string> {
  const status = `${options.dir}/nothing-installed`;
  await mkdir(`${options.dir}/${archives}/partial`, { recursive: true });
  await writeFile(status, '');
  const settings = [
    `Dir::State::status=${status}`,
    `Dir::Cache::archives=${options.dir}/${archives}/`,
    'Debug::NoLocking=1',
    'APT::Sandbox::User=root',
    'APT::Install-Recommends=false',
  ];
  const run = (words: readonly string[]): ReturnType<typeof execa> =>
    execa('apt-get', words, { reject: false, cancelSignal: options.signal, env: { DEBIAN_FRONTEND: 'noninteractive', LC_ALL: 'C' } });
  const words = [...settings.flatMap((setting) => ['-o', setting]), '-qq', '-y', ...args];
  let result = await run(words);
  if (result.exitCode !== 0 && !options.signal.aborted) {
    await run(['update', '-q']);
    result = await run(words);
  }
  options.signal.throwIfAborted();
  if (result.exitCode !== 0) {
    const missing = result.exitCode === undefined;
    const error = String(result.stderr ?? '').split('\n');
    throw new OpError(
      missing ? 'not-found' : 'failed',
      'asking apt-get for packages',
      missing ? 'there is no apt-get here' : (error.find((line) => line.startsWith('E:')) ?? error.at(-1) ?? 'it failed'),
      { advice: missing ? 'the e2e images are made of packages of Debian or a relative' : 'run: apt-get update' },
    );
  }
  return String(result.stdout ?? '');
}

/** The packages a bare root needs for `names`, with their dependencies. */
export async function resolvePackages(options: AptOptions, names: readonly string[]): Promise<Package[]> {
  return readUris(await apt(options, 'none', ['--print-uris', 'install', ...names]));
}

/** Lines of `apt-get --print-uris`: 'URI' FILE SIZE HASH. */
export function readUris(text: string): Package[] {
  return text
    .split('\n')
    .map((line) => /^'[^']+' (([a-z0-9][a-z0-9+.-]+)_\S+\.deb) /.exec(line))
    .filter((match) => match !== null)
    .map((match) => ({ name: match[2] ?? '', file: match[1] ?? '' }));
}

/** What of `all` goes into a layer above `below`: neither what stands there nor, unless asked for, what only scripts need. */
export function layerPackages(all: readonly Package[], below: ReadonlySet<string>, wanted: readonly string[], withScripting: boolean): Package[] {
  return all.filter(({ name }) => !below.has(name) && (withScripting || wanted.includes(name) || !SCRIPTING.test(name)));
}

/** Fetches packages (apt checks their hashes) and unpacks them below `root`; nothing of theirs is run. */
export async function unpackPackages(options: AptOptions, names: readonly string[], packages: readonly Package[], root: string): Promise<void> {
  await apt(options, 'debs', ['--download-only', 'install', ...names]);
  const excludes = PROSE.map((pattern) => `--exclude=${pattern}`);
  for (const { file } of packages) {
    await execa('dpkg-deb', ['--fsys-tarfile', `${options.dir}/debs/${file}`], { buffer: false, cancelSignal: options.signal }).pipe(
      'tar',
      ['--extract', '--directory', root, '--keep-directory-symlink', '--numeric-owner', '--preserve-permissions', ...excludes],
      { cancelSignal: options.signal },
    );
  }
}
