import type { Clock } from '../../base/clock.ts';
import type { Cri } from './cri.ts';

export interface ListedImage {
  readonly names: readonly string[];
  readonly sizeBytes: number;
}

export interface ImageList {
  /** The largest first, as many as the node's status shows. */
  current(): readonly ListedImage[];
  run(signal: AbortSignal): Promise<void>;
}

/** As often as upstream's own list of images is renewed. */
const periodMs = 30_000;
const maxNames = 5;
const timeoutMs = 30_000;

/** The images on the machine, for `status.images`: the scheduler prefers nodes that have a pod's image. */
export function createImageList(deps: { cri: Cri; clock: Clock; max: number }): ImageList {
  const { cri, clock, max } = deps;
  let images: readonly ListedImage[] = [];
  return {
    current: () => images,
    async run(signal) {
      while (!signal.aborted) {
        try {
          const listed = await cri.images.listImages({}, { timeoutMs, signal });
          const all = listed.images
            .map((image) => ({ names: [...image.repoDigests, ...image.repoTags].slice(0, maxNames), sizeBytes: Number(image.size) }))
            .toSorted((left, right) => right.sizeBytes - left.sizeBytes);
          images = max < 0 ? all : all.slice(0, max);
          await clock.sleep(periodMs, signal);
        } catch {
          // Asked again after the same pause; the node's own health tells of a runtime that is away.
          await clock.sleep(periodMs, signal).catch(() => undefined);
        }
      }
    },
  };
}
