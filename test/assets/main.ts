import { stat } from 'node:fs/promises';
import type { Command } from 'commander';
import { OpError } from '../../base/errors.ts';
import { requireWritable, runProgram, type Program } from '../../scripts/command.ts';
import { buildAssets, type Built } from './build.ts';
import { ASSET_NAMES, isFolder, rowOf, type AssetName } from './catalogue.ts';
import { findAssets, namesOf, type Assets } from './find.ts';
import { packAssets, unpackAssets } from './pack.ts';
import { cacheRoot } from './store.ts';

interface Common {
  readonly json: boolean;
  readonly assets?: string;
}

const PLATFORM = `${process.platform}/${process.arch === 'x64' ? 'amd64' : process.arch}`;
const mebibytes = (bytes: number): string => `${(bytes / (1 << 20)).toFixed(0)} MiB`;

/** What a caller wants to know of all components, one entry each. */
function listing(assets: Assets): { name: AssetName; wanted: string; path: string | null; version: string | null; from: string | null; refused: unknown }[] {
  const found = assets.versions();
  const refused = assets.refused();
  return ASSET_NAMES.map((name) => ({
    name,
    wanted: rowOf(name).version,
    path: found[name]?.path ?? null,
    version: found[name]?.version ?? null,
    from: found[name]?.from ?? null,
    refused: refused[name] ?? [],
  }));
}

function lines(assets: Assets): string[] {
  const found = assets.versions();
  const refused = assets.refused();
  return ASSET_NAMES.flatMap((name) => {
    const one = found[name];
    const head = one === undefined ? `missing, wanted ${rowOf(name).version}` : `${one.version ?? '(tells no version)'}  ${one.from}  ${one.path}`;
    return [
      `${name.padEnd(40)} ${head}`,
      ...(refused[name] ?? []).map(({ path, version, why, from }) => `${' '.repeat(40)} not ${path} (${from}): ${version ?? 'unknown version'}, ${why}`),
    ];
  });
}

function report(program: Program, built: Built, json: boolean): number {
  const made = Object.entries(built.built);
  const failed = Object.entries(built.failed);
  const seconds = made.reduce((sum, [, one]) => sum + one, 0);
  program.answer(json, { ...built, ...built.toolchain, times: program.progress.times }, [
    `${built.folder}: ${made.length} built in ${seconds.toFixed(0)} s, ${built.kept.length} were there${failed.length === 0 ? '' : `, ${failed.length} failed`} (${built.toolchain.go})`,
    ...failed.map(([name, why]) => `${name}: ${why}`),
  ]);
  return failed.length === 0 ? 0 : 1;
}

await runProgram('assets', 'The real components around a node: finds them, or builds them with Go from the module proxy.', (program) => {
  const { host } = program;
  const root = cacheRoot(host.env);
  /** Before or behind the command's name. */
  const withFolder = (command: Command): Command =>
    command.option('--assets <folder>', 'a folder to look in first (else NODELET_ASSETS, KUBEBUILDER_ASSETS, the cache, PATH)');
  withFolder(program.command);
  const build = (names: readonly AssetName[]): Promise<Built> => buildAssets(names, { root, env: host.env, signal: host.signal, progress: program.progress });

  withFolder(
    program.add<Common>(
      'ensure',
      'find every component, and build those that are not there (the default)',
      ['nodelet assets', 'NODELET_ASSETS=/srv/kubernetes nodelet assets --json'],
      async ({ json, assets: dir }) => {
        const before = await findAssets({ env: host.env, dir });
        const missing = ASSET_NAMES.filter((name) => before.path(name) === null);
        for (const [name, all] of Object.entries(before.refused())) {
          for (const { path, version, why } of all) program.progress.note(`  not ${path}: ${name} is ${version ?? 'of unknown version'}, and ${why}`);
        }
        if (missing.length === 0) {
          program.answer(json, { components: listing(before) }, lines(before));
          return 0;
        }
        return report(program, await build(missing), json);
      },
      { isDefault: true },
    ),
  );
  withFolder(
    program.add<Common>(
      'list',
      'say where each component is, its version, and what was refused',
      ['nodelet assets list', 'nodelet assets list --json'],
      async ({ json, assets: dir }) => {
        const assets = await findAssets({ env: host.env, dir });
        program.answer(json, { cache: root, components: listing(assets) }, lines(assets));
        return 0;
      },
    ),
  );
  program.add<Common>(
    'build [names...]',
    'build components into the cache, whatever else is there; all without names',
    ['nodelet assets build', 'nodelet assets build kubelet containerd-2.4 cni'],
    async ({ json }, names) => report(program, await build(names.length === 0 ? ASSET_NAMES : namesOf(names)), json),
  );
  withFolder(
    program.add<Common>(
      'path <name>',
      'print the path of one component, or of a folder of them',
      ['nodelet assets path kubelet', 'nodelet assets path cni'],
      async ({ json, assets: dir }, [name = '']) => {
        const doing = `looking for ${name}`;
        const [first, ...more] = namesOf([name]);
        const assets = await findAssets({ env: host.env, dir });
        const path = isFolder(name) ? assets.requireDir(name, doing) : first === undefined || more.length > 0 ? null : assets.require(first, doing);
        if (path === null) throw new OpError('invalid', doing, 'its programs need not be in one folder', { advice: `name one: ${first}` });
        program.answer(json, { name, path }, [path]);
        return 0;
      },
    ),
  );
  program.add<Common>(
    'pack <file>',
    'write what is built as one file; in a folder it is named by its content hash',
    ['nodelet assets pack .', 'nodelet assets pack assets.tar.zst'],
    async ({ json }, [file = '']) => {
      const isFolder = (await stat(file).catch(() => null))?.isDirectory() === true;
      await requireWritable('the name of the file', isFolder ? `${file}/nodelet-assets-.tar.zst` : file);
      const packed = await program.progress.step('packing', () => packAssets(root, file, host.signal));
      program.answer(json, packed, [`${packed.file}: ${packed.programs} programs, ${mebibytes(packed.sizeBytes)}, content ${packed.content}`]);
      return 0;
    },
  );
  program
    .add<Common & { hash?: string }>(
      'unpack <file>',
      'put a packed set in place, after all of it was verified',
      ['nodelet assets unpack nodelet-assets-….tar.zst', 'nodelet assets unpack assets.tar.zst --hash 3f5a…'],
      async ({ json, hash }, [file = '']) => {
        const manifest = await program.progress.step('verifying and unpacking', () =>
          unpackAssets(root, file, { expected: hash, platform: PLATFORM, signal: host.signal }),
        );
        const names = Object.keys(manifest.programs);
        program.answer(json, { set: manifest.set, programs: names }, [
          `${root}/${manifest.set}: ${names.length} programs (${manifest.go}, ${manifest.platform})`,
        ]);
        return 0;
      },
    )
    .option('--hash <sha256>', 'refuse the file unless this is its content hash');
});
