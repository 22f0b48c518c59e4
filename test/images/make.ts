import { homedir } from 'node:os';
import { OpError, hasCode, messageOf } from '../../base/errors.ts';
import type { Host } from '../../base/host.ts';
import { parseImageName, type ImageName } from '../../node/core/oci.ts';
import { blobPath, listImages, storeImage, type ImageStore } from '../../node/io/images.ts';
import type { Progress } from '../../node/io/progress.ts';
import { layerBlob, makeLayer, requirePrograms, shareBlob, type LayerOptions, type MadeLayer } from './layers.ts';
import type { ProgramAssets } from './programs.ts';
import { IMAGES, LAYERS, imagesNamed, type E2eImage, type LayerRecipe } from './recipes.ts';
import { writeRegistry } from './registry-tree.ts';

/** Which images: those named, in whole or in part, or else all but the ones of the storage suite, or all. */
export interface ImageChoice {
  readonly only?: readonly string[];
  readonly storage?: boolean;
}

export interface MakeImagesOptions {
  readonly host: Host;
  readonly store: ImageStore;
  readonly assets: ProgramAssets;
  readonly progress: Progress;
  readonly choice: ImageChoice;
  /** Build programs of Go modules that are not in the cache (minutes each); else their images are left out. */
  readonly build: boolean;
  /** Make every layer again, with the packages of today. */
  readonly refresh?: boolean;
}

export interface MadeImage {
  readonly name: string;
  readonly digest: string;
  readonly size: number;
  readonly state: 'made' | 'kept';
  /** Parts that are not in it, with the reason. */
  readonly without: readonly string[];
}

export interface MadeImages {
  readonly images: readonly MadeImage[];
  readonly left: readonly { readonly name: string; readonly why: string }[];
}

/** The cache of layers and programs, shared by all clones of a user. */
export function imageCache(env: Host['env']): string {
  return `${env['XDG_CACHE_HOME'] ?? `${env['HOME'] ?? homedir()}/.cache`}/nodelet/images`;
}

/** The images that are asked for, in the order of their recipes. Throws OpError `invalid` on a name that is none. */
export function chosenImages({ only = [], storage = false }: ImageChoice): readonly E2eImage[] {
  if (only.length === 0) return IMAGES.filter((image) => image.onRequest !== true && (storage || image.storage !== true));
  const wanted = new Set<E2eImage>();
  for (const name of only) {
    const found = imagesNamed(name);
    if (found.length === 0)
      throw new OpError('invalid', 'choosing images', `there is no recipe for "${name}"`, { advice: 'see: nodelet cluster images --list' });
    for (const image of found) wanted.add(image);
  }
  return IMAGES.filter((image) => wanted.has(image));
}

function nameOf(image: E2eImage): ImageName {
  const name = parseImageName(image.name);
  if (name === null) throw new Error(`${image.name} is not an image name`);
  return name;
}

/**
 * Makes the e2e images in `store` under their real names, where nodes of every set find them. What is in the cache is
 * used again, so that a second call takes a second. An image whose programs are not to be had is left out with the reason.
 */
export async function makeE2eImages(options: MakeImagesOptions): Promise<MadeImages> {
  const { progress, store } = options;
  const dir = imageCache(options.host.env);
  const chosen = chosenImages(options.choice);
  const before = new Map((await listImages(store)).map((image) => [image.name, image.digest]));
  const maker = new LayerMaker(options, dir);
  const images: MadeImage[] = [];
  const left: { name: string; why: string }[] = [];
  for (const image of chosen) {
    try {
      await maker.beforehand(image);
      images.push(await makeOne(options, dir, maker, image, before.get(image.name)));
    } catch (error) {
      options.host.signal.throwIfAborted();
      if (!(error instanceof OpError)) throw error;
      const why = error.advice === undefined ? messageOf(error) : `${messageOf(error)} (${error.advice})`;
      left.push({ name: image.name, why });
      progress.note(`  ${image.name} left out: ${why}`);
    }
  }
  return { images, left };
}

async function makeOne(options: MakeImagesOptions, dir: string, maker: LayerMaker, image: E2eImage, known: string | undefined): Promise<MadeImage> {
  const { layers, without } = await maker.layersOf(image);
  const put = async (): Promise<MadeImage> => {
    for (const { digest } of layers) await shareBlob(layerBlob(dir, digest), blobPath(options.store, digest));
    const labels = { 'org.opencontainers.image.ref.name': image.identity ?? image.name };
    const stored = await storeImage(options.store, nameOf(image), layers, { ...image.settings, labels });
    maker.remember(image.name, stored.digest);
    return { ...stored, state: known === stored.digest ? 'kept' : 'made', without };
  };
  const made = await put();
  if (made.state === 'made')
    options.progress.note(`  ${image.name} ${(made.size / 2 ** 20).toFixed(1)} MiB${without.map((what) => `, without ${what}`).join('')}`);
  return made;
}

/** Layers of this run, each made once. */
class LayerMaker {
  readonly #made = new Map<string, MadeLayer | string>();
  readonly #digests = new Map<string, string>();
  readonly #options: Omit<LayerOptions, 'step'>;
  readonly #progress: Progress;
  readonly #all: MakeImagesOptions;

  constructor(all: MakeImagesOptions, dir: string) {
    this.#all = all;
    this.#progress = all.progress;
    this.#options = {
      assets: all.assets,
      sources: new URL('c', import.meta.url).pathname,
      dir,
      build: all.build,
      refresh: all.refresh === true,
      signal: all.host.signal,
      note: (text) => all.progress.note(text),
      fillRegistry: async (root, recipe) => writeRegistry(all.store, this.#digest(recipe.image), `${root}/var/registry`, recipe),
      digestOf: (image) => this.#digest(image),
    };
  }

  remember(image: string, digest: string): void {
    this.#digests.set(image, digest);
  }

  #digest(image: string): string {
    const digest = this.#digests.get(image);
    if (digest === undefined) throw new Error(`${image} must be made before a registry that serves it`);
    return digest;
  }

  /** Images that this one holds in a registry of its own are made first. */
  async beforehand(image: E2eImage): Promise<void> {
    for (const name of image.layers) {
      const inner = LAYERS[name]?.registryOf?.image;
      if (inner === undefined || this.#digests.has(inner)) continue;
      const [found] = imagesNamed(inner);
      if (found !== undefined) await makeOne(this.#all, this.#options.dir, this, found, undefined);
    }
  }

  async layersOf(image: E2eImage): Promise<{ layers: MadeLayer[]; without: string[] }> {
    const below: { recipe: LayerRecipe; layer: MadeLayer }[] = [];
    const without: string[] = [];
    const recipes = image.layers.map((name) => {
      const recipe = LAYERS[name];
      if (recipe === undefined) throw new Error(`${image.name} names the layer ${name}, which has no recipe`);
      return { name, recipe };
    });
    // What is not to be had is found out before minutes go into the layers below it.
    for (const { recipe } of recipes) if (recipe.optional !== true) await requirePrograms(this.#options, recipe);
    for (const { name, recipe } of recipes) {
      const known = this.#made.get(name);
      const layer = known ?? (await this.#make(name, recipe, below));
      this.#made.set(name, layer);
      if (typeof layer === 'string') without.push(`${name}: ${layer}`);
      else below.push({ recipe, layer });
    }
    return { layers: below.map(({ layer }) => layer), without };
  }

  async #make(name: string, recipe: LayerRecipe, below: readonly { recipe: LayerRecipe; layer: MadeLayer }[]): Promise<MadeLayer | string> {
    try {
      const step: LayerOptions['step'] = async (work) => this.#progress.step(`layer ${name}`, work);
      return await makeLayer({ ...this.#options, step }, recipe, below);
    } catch (error) {
      if (recipe.optional === true && hasCode(error, 'not-found')) return messageOf(error);
      throw error;
    }
  }
}
