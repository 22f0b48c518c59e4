import { execa } from 'execa';
import { OpError } from '../../base/errors.ts';
import {
  busyboxRecipe,
  imageNameText,
  parseImageName,
  pauseRecipe,
  serverRecipe,
  type ImageFile,
  type ImageName,
  type ImageRecipe,
  type ImageSettings,
} from '../core/oci.ts';
import { listImages, makeImage, removeImage, type ImageStore } from '../io/images.ts';
import type { Machine } from '../io/machine.ts';
import { lookAtMachine, table, type Context } from './context.ts';

export interface ImageMakeOptions {
  readonly from: string;
  readonly file: readonly string[];
  readonly cmd?: string;
  readonly entrypoint?: string;
  readonly env: readonly string[];
  readonly user?: string;
  readonly stopSignal?: string;
}

/** Images made on this machine lie beside the build, so that `down` leaves them for the next `up`. */
export function imageStore(context: Pick<Context, 'root'>): ImageStore {
  return { dir: `${context.root}/dist/images` };
}

export function requireImageName(text: string): ImageName {
  const name = parseImageName(text);
  if (name === null)
    throw new OpError('invalid', 'reading the image name', `"${text}" is not an image name`, {
      advice: 'use HOST/PATH:TAG, lower case, for example nginx:1.29',
    });
  return name;
}

/** A built-in recipe, from the distribution's static binaries. */
export async function builtInRecipe(machine: Machine, name: string): Promise<ImageRecipe> {
  const { busybox, catatonit } = machine.programs;
  if (name === 'scratch') return { files: [], settings: {} };
  if (name === 'pause') {
    if (catatonit === undefined)
      throw new OpError('not-found', 'making the pause image', 'catatonit is not installed', { advice: 'apt-get install catatonit' });
    return pauseRecipe(catatonit);
  }
  if (name !== 'busybox' && name !== 'server')
    throw new OpError('invalid', 'making an image', `there is no recipe "${name}"`, { advice: 'use pause, busybox, server or scratch' });
  if (busybox === undefined)
    throw new OpError('not-found', `making the ${name} image`, 'busybox is not installed', { advice: 'apt-get install busybox-static' });
  const applets = (await execa(busybox, ['--list'])).stdout.split('\n').filter((applet) => /^[\w[.-]+$/.test(applet));
  return name === 'busybox' ? busyboxRecipe(busybox, applets) : serverRecipe(busybox, applets);
}

function words(text: string): string[] {
  return text.startsWith('[') ? (JSON.parse(text) as string[]) : ['/bin/sh', '-c', text];
}

function parseFile(text: string): ImageFile {
  const [from, path, mode = '0644'] = text.split(':');
  if (from === undefined || from === '' || path === undefined || !path.startsWith('/') || path.includes('..') || !/^[0-7]{3,4}$/.test(mode)) {
    throw new OpError('invalid', 'reading --file', `"${text}" is not FROM:/PATH[:MODE]`, { advice: 'for example --file ./server:/bin/server:0755' });
  }
  return { path, mode: Number.parseInt(mode, 8), content: { kind: 'file', from } };
}

export async function imageMake(context: Context, text: string, options: ImageMakeOptions): Promise<number> {
  const name = requireImageName(text);
  const base = await builtInRecipe(await lookAtMachine(context, undefined), options.from);
  const settings: ImageSettings = {
    ...base.settings,
    ...(options.cmd === undefined ? {} : { cmd: words(options.cmd) }),
    ...(options.entrypoint === undefined ? {} : { entrypoint: words(options.entrypoint) }),
    ...(options.env.length === 0 ? {} : { env: [...(base.settings.env ?? []), ...options.env] }),
    ...(options.user === undefined ? {} : { user: options.user }),
    ...(options.stopSignal === undefined ? {} : { stopSignal: options.stopSignal }),
  };
  const image = await makeImage(imageStore(context), name, { files: [...base.files, ...options.file.map(parseFile)], settings });
  context.answer(image, [`${image.name} ${image.digest} (${(image.size / 1024).toFixed(0)} KiB), served to the nodes of every set on this machine`]);
  return 0;
}

export async function imageList(context: Context): Promise<number> {
  const images = await listImages(imageStore(context));
  context.answer(
    { images },
    table([['NAME', 'DIGEST', 'SIZE'], ...images.map((image) => [image.name, image.digest.slice(0, 19), `${(image.size / 1024).toFixed(0)} KiB`])]),
  );
  return 0;
}

export async function imageRemove(context: Context, text: string): Promise<number> {
  const name = requireImageName(text);
  const outcome = await removeImage(imageStore(context), name);
  if (outcome === 'absent')
    throw new OpError('not-found', 'removing an image', `${imageNameText(name)} was not made here`, { advice: 'see: nodelet image list' });
  context.answer({ removed: imageNameText(name) }, [`removed ${imageNameText(name)}`]);
  return 0;
}
