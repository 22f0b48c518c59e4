import type { ImageStore } from '../../node/io/images.ts';
import { findAssets } from '../assets/find.ts';
import type { Program } from '../../scripts/command.ts';
import { checkE2eImages, type CheckedImage } from './check.ts';
import { makeE2eImages, type MadeImages } from './make.ts';
import { ABSENT, IMAGES } from './recipes.ts';

interface Options {
  readonly json: boolean;
  readonly check: boolean;
  readonly list: boolean;
  readonly only?: readonly string[];
  readonly storage: boolean;
  readonly refresh: boolean;
  readonly build: boolean;
  readonly assets?: string;
}

/** Where the image servers of every set on this machine look. */
export const imagesDir = (): string => new URL('../../dist/images', import.meta.url).pathname.replace(/\/$/, '');

/** Adds `nodelet cluster images` to a program. */
export function imagesCommand(program: Program): void {
  program
    .add<Options>(
      'images',
      'make the e2e images of Kubernetes 1.37 under their real names, for the nodes of every set on this machine',
      [
        'nodelet cluster images',
        'nodelet cluster images --only agnhost busybox',
        'nodelet cluster images --check        start each and look for what its original has',
        'nodelet cluster images --list --json  names, and what is not made, with reasons',
      ],
      async (options) => {
        if (options.list) return list(program, options.json);
        const store: ImageStore = { dir: imagesDir() };
        const choice = { storage: options.storage, ...(options.only === undefined ? {} : { only: options.only }) };
        const made = await makeE2eImages({
          host: program.host,
          store,
          assets: await program.progress.step('components found', () => findAssets({ env: program.host.env, dir: options.assets })),
          progress: program.progress,
          choice,
          build: options.build,
          refresh: options.refresh,
        });
        const checked = options.check ? await checkE2eImages({ host: program.host, store, progress: program.progress, choice }) : [];
        const failed = checked.filter((image) => image.result === 'failed');
        program.answer(options.json, { ...made, ...(options.check ? { checked } : {}) }, lines(made, options.check ? checked : null));
        return failed.length > 0 || (options.only !== undefined && made.left.length > 0) ? 1 : 0;
      },
    )
    .option('--only <name...>', 'only these: full names, or their last part (agnhost, nginx:1.28.0-2)')
    .option('--check', 'start each image and look for what its original has (needs root)', false)
    .option('--list', 'print the names, and those that are not made with the reason; make nothing', false)
    .option('--refresh', "make every layer again, with today's packages", false)
    .option('--storage', 'also those of the storage suite: the CSI hostpath driver and its sidecars, built with Go in minutes', false)
    .option('--no-build', 'leave out images whose programs would have to be built with Go first')
    .option('--assets <dir>', 'folder of the real components; else as: nodelet assets');
}

function list(program: Program, json: boolean): number {
  const lines = [...IMAGES.map(({ name }) => name), ...ABSENT.map(({ name, why }) => `not made: ${name}: ${why}`)];
  program.answer(json, { images: IMAGES.map(({ name, layers }) => ({ name, layers })), absent: ABSENT }, lines);
  return 0;
}

function lines(made: MadeImages, checked: readonly CheckedImage[] | null): string[] {
  const bytes = made.images.reduce((sum, image) => sum + image.size, 0);
  const passed = checked?.filter((image) => image.result === 'passed').length ?? 0;
  return [
    `${made.images.length} images are there (${made.images.filter((image) => image.state === 'made').length} new, ${(bytes / 2 ** 20).toFixed(0)} MiB counted one by one)`,
    ...made.images.flatMap((image) => image.without.map((what) => `${image.name} is without ${what}`)),
    ...made.left.map(({ name, why }) => `left out: ${name}: ${why}`),
    ...(checked === null ? [] : [`${passed} of ${checked.length} passed their checks`]),
    ...(checked ?? []).flatMap((image) =>
      image.checks.filter((check) => !check.passed).map((check) => `failed: ${image.name}: ${check.what}: ${check.why ?? ''}`),
    ),
  ];
}
