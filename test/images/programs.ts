import { createHash } from 'node:crypto';
import { createReadStream } from 'node:fs';
import { cp, mkdir, rename, rm, stat } from 'node:fs/promises';
import { execa } from 'execa';
import { OpError } from '../../base/errors.ts';
import { lockFile } from '../../node/io/lock.ts';
import type { AssetName } from '../assets/catalogue.ts';
import { MODULES } from '../assets/catalogue.ts';
import type { ProgramSource } from './recipes.ts';

/** The part of the found assets that images are made from. */
export interface ProgramAssets {
  path(name: AssetName): string | null;
}

export interface ProgramOptions {
  readonly assets: ProgramAssets;
  /** Folder of our C sources. */
  readonly sources: string;
  readonly dir: string;
  /** Whether Go modules may be built (minutes); else a program that is not in the cache counts as missing. */
  readonly build: boolean;
  readonly signal: AbortSignal;
  readonly note: (text: string) => void;
}

const LOCK_WAIT_MS = 30 * 60_000;

/** SHA-256 of a file, hexadecimal; the file is not held in memory. */
export async function hashFile(path: string): Promise<string> {
  const hash = createHash('sha256');
  for await (const chunk of createReadStream(path)) hash.update(chunk as Buffer);
  return hash.digest('hex');
}

const exists = async (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    () => false,
  );

/** Path of a program's binary, built if that is allowed. Throws OpError `not-found` with what to do where it is not to be had. */
export async function programPath(options: ProgramOptions, source: ProgramSource): Promise<string> {
  switch (source.kind) {
    case 'asset': {
      const path = options.assets.path(source.asset);
      if (path !== null) return path;
      throw new OpError('not-found', 'making an image', `${source.asset} is not among the assets`, { advice: 'run: nodelet assets' });
    }
    case 'c':
      return compiled(options, source.source);
    case 'module':
      return builtOr(options, source);
  }
}

async function builtOr(options: ProgramOptions, source: Extract<ProgramSource, { kind: 'module' }>): Promise<string> {
  try {
    return await built(options, source);
  } catch (error) {
    options.signal.throwIfAborted();
    if (source.otherwise === undefined || !(error instanceof OpError)) throw error;
    options.note(`  ${source.otherwise} stands in for ${source.module}`);
    return compiled(options, source.otherwise);
  }
}

async function compiled(options: ProgramOptions, source: string): Promise<string> {
  const from = `${options.sources}/${source}`;
  const to = `${options.dir}/programs/${(await hashFile(from)).slice(0, 16)}-${source.replace(/\.c$/, '')}`;
  if (await exists(to)) return to;
  await mkdir(`${options.dir}/programs`, { recursive: true });
  const scratch = `${to}.${process.pid}`;
  const result = await execa('cc', ['-std=gnu11', '-Os', '-Wall', '-Werror', '-static', '-s', '-o', scratch, from], {
    reject: false,
    cancelSignal: options.signal,
  });
  options.signal.throwIfAborted();
  if (result.exitCode !== 0)
    throw new OpError('not-found', `compiling ${source}`, result.stderr?.split('\n')[0] || 'there is no cc here', { advice: 'apt-get install gcc libc6-dev' });
  await rename(scratch, to);
  return to;
}

const GO = { GOFLAGS: '-mod=mod -trimpath -buildvcs=false', GOWORK: 'off', CGO_ENABLED: '0' };

/** Folder of a module's sources in Go's cache, fetched through the module proxy and checked against its checksum database. */
export async function moduleSources(module: string, version: string, signal: AbortSignal): Promise<string> {
  const result = await execa('go', ['mod', 'download', '-json', `${module}@${version}`], { reject: false, cancelSignal: signal, env: GO, cwd: '/' });
  signal.throwIfAborted();
  if (result.exitCode === undefined)
    throw new OpError('not-found', `fetching ${module} ${version}`, 'there is no go here', { advice: 'install Go and put it on PATH' });
  const answer = JSON.parse(result.stdout || '{}') as { Dir?: string; Error?: string };
  if (answer.Dir === undefined) throw new OpError('failed', `fetching ${module} ${version}`, answer.Error ?? result.stderr.split('\n').at(-1) ?? 'no answer');
  return answer.Dir;
}

/** A file below `test/images` of Kubernetes' sources. */
export async function upstreamFile(file: string, signal: AbortSignal): Promise<string> {
  return `${await moduleSources('k8s.io/kubernetes', `v${MODULES.kubernetes}`, signal)}/test/images/${file}`;
}

async function built(options: ProgramOptions, source: Extract<ProgramSource, { kind: 'module' }>): Promise<string> {
  const name = `${source.module}@${source.version}/${source.package}`.replaceAll(/[^\w.@-]+/g, '_');
  const to = `${options.dir}/programs/${name}`;
  if (await exists(to)) return to;
  if (!options.build)
    throw new OpError('not-found', 'making an image', `${source.module} ${source.version} is not built yet`, { advice: 'run: nodelet cluster images' });
  await using _lock = await lockFile(`${to}.lock`, `building ${source.module}`, LOCK_WAIT_MS);
  if (await exists(to)) return to;
  const from = await moduleSources(source.module, source.version, options.signal);
  const scratch = `${options.dir}/build-${process.pid}`;
  try {
    // The module cache is read-only and `go build` may add to go.sum.
    await mkdir(`${options.dir}/programs`, { recursive: true });
    await cp(from, scratch, { recursive: true });
    await execa('chmod', ['-R', 'u+w', scratch]);
    options.note(`  building ${source.module} ${source.version}`);
    const words = ['build', '-ldflags', `-s -w -X main.version=${source.version}`, '-o', `${to}.${process.pid}`, source.package];
    const result = await execa('go', words, { cwd: scratch, reject: false, cancelSignal: options.signal, env: GO });
    options.signal.throwIfAborted();
    if (result.exitCode !== 0) {
      const lines = result.stderr.split('\n').filter((line) => !line.startsWith('go: downloading'));
      throw new OpError('failed', `building ${source.module} ${source.version}`, lines.slice(0, 3).join('; '));
    }
    await rename(`${to}.${process.pid}`, to);
    return to;
  } finally {
    await rm(scratch, { recursive: true, force: true });
  }
}
