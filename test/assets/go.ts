import { createHash } from 'node:crypto';
import { readFile } from 'node:fs/promises';
import { OpError } from '../../base/errors.ts';
import { tryExec } from '../../base/exec.ts';
import { rowOf, type AssetName, type ModuleName, type Row } from './catalogue.ts';
import { runCompiler } from './compiler.ts';
import type { Env } from './store.ts';

/** The Go that a module is built with, as it says itself. */
export interface Toolchain {
  readonly go: string;
  readonly platform: string;
}

const MODULES_FOLDER = new URL('../cluster/go/', import.meta.url).pathname;
const NO_GO = {
  advice:
    'install Go 1.26 or later (https://go.dev/doc/install), unpack what another machine packed (nodelet assets unpack FILE), or name a folder with NODELET_ASSETS',
};
/** `readonly`: what go.sum does not name is not built. `trimpath` and no VCS stamp: the same bytes on each machine. */
const FLAGS = '-mod=readonly -trimpath -buildvcs=false';

export const moduleFolder = (module: ModuleName): string => `${MODULES_FOLDER}${module}`;

/**
 * The environment of every Go command: the caller's proxy and caches, our flags, and no way round the checksums.
 */
export function goEnv(env: Env, cgo: boolean): Record<string, string> {
  const kept = Object.entries(env).filter((entry): entry is [string, string] => entry[1] !== undefined);
  return {
    ...Object.fromEntries(kept),
    GOFLAGS: FLAGS,
    GOWORK: 'off',
    CGO_ENABLED: cgo ? '1' : '0',
    GOEXPERIMENT: '',
    GONOSUMDB: '',
    GONOSUMCHECK: '',
    GOINSECURE: '',
    GOPRIVATE: '',
    LC_ALL: 'C',
  };
}

/** Which Go there is. OpError `not-found` with advice where there is none, `unsupported` where it is too old for our modules. */
export async function findGo(env: Env, signal: AbortSignal): Promise<Toolchain> {
  const doing = 'building the real components';
  const argv = ['go', 'env', 'GOVERSION', 'GOOS', 'GOARCH'] as const;
  const result = await tryExec(argv, { cwd: moduleFolder('containerd-2.3'), env: goEnv(env, false), signal, doing }).catch((error: unknown) => {
    if (error instanceof OpError && error.code === 'not-found') throw new OpError('not-found', doing, 'there is no Go on PATH', { ...NO_GO, cause: error });
    throw error;
  });
  const [go = '', os = '', arch = ''] = result.stdout.split('\n');
  if (result.code !== 0 || arch === '') throw new OpError('unsupported', doing, lastLine(result.stderr) ?? `go env ended with ${result.code}`, NO_GO);
  return { go, platform: `${os}/${arch}` };
}

/** The content key of one program: all that decides what is built. */
export async function keyOf(name: AssetName, toolchain: Toolchain): Promise<string> {
  const row = rowOf(name);
  const folder = moduleFolder(row.module);
  const [mod, sum] = await Promise.all(['go.mod', 'go.sum'].map((file) => readFile(`${folder}/${file}`)));
  const hash = createHash('sha256');
  for (const part of [mod, sum]) hash.update(part ?? '').update('\0');
  hash.update(JSON.stringify([FLAGS, argvOf(row, 'OUT'), row.cgo, toolchain.go, toolchain.platform]));
  return hash.digest('hex');
}

/** The name of the set of all programs with these keys. */
export const setName = (keys: readonly string[]): string => createHash('sha256').update(keys.join('\n')).digest('hex').slice(0, 16);

function argvOf(row: Row, out: string): readonly [string, ...string[]] {
  const how = row.kind === 'test' ? (['go', 'test', '-vet=off', '-c'] as const) : (['go', 'build'] as const);
  return [...how, '-tags', row.tags, '-ldflags', ['-s', '-w', ...row.ldflags].join(' '), '-o', out, row.package];
}

/** Compiles a program to `out`, with Go's own temporary files in `scratch`: those of a killed compiler go with ours. `onPackage` is called for each package that was compiled or downloaded. */
export async function compile(
  name: AssetName,
  out: string,
  options: { env: Env; signal: AbortSignal; scratch: string; onPackage: (line: string) => void },
): Promise<void> {
  const row = rowOf(name);
  const [command, how, ...rest] = argvOf(row, out);
  const errors: string[] = [];
  const code = await runCompiler([command, how ?? '', '-v', ...rest], {
    cwd: moduleFolder(row.module),
    env: { ...goEnv(options.env, row.cgo), GOTMPDIR: options.scratch },
    signal: options.signal,
    doing: `building ${name}`,
    onLine(line) {
      // With -v a bare import path is a package being compiled; everything else is a download or a complaint.
      if (/^(go: downloading )?[\w.~-]+(\/[\w.~+-]+)*( v\S+)?$/.test(line)) options.onPackage(line);
      else if (line.trim() !== '' && !line.startsWith('#')) errors.push(line);
    },
  });
  if (code === 0) return;
  const why = errors.slice(-3).join(' | ') || `go ended with ${code}`;
  throw new OpError('failed', `building ${name}`, why, { advice: adviceFor(why) });
}

function adviceFor(why: string): string {
  if (/no space left/.test(why)) return 'make room: the first build needs about 5 GiB in the caches of Go and nodelet';
  if (/dial tcp|no such host|i\/o timeout|connection refused|TLS handshake/.test(why))
    return 'it comes from the Go module proxy: see that GOPROXY names one that this machine reaches';
  if (/checksum mismatch|SECURITY ERROR/.test(why)) return 'what was downloaded is not what go.sum pins: do not use it; look at GOPROXY and the module cache';
  if (/requires go >=/.test(why)) return NO_GO.advice;
  return '';
}

function lastLine(text: string): string | undefined {
  return text
    .split('\n')
    .filter((line) => line.trim() !== '')
    .at(-1);
}
