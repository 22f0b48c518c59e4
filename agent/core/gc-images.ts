/** An image as the runtime lists it. */
export interface ImageFacts {
  readonly id: string;
  /** For which runtime handler it was pulled; '' where that makes no difference. */
  readonly handler?: string;
  readonly repoTags: readonly string[];
  readonly repoDigests: readonly string[];
  readonly sizeBytes: number;
  readonly pinned: boolean;
}

/** What is remembered of an image from one look to the next. */
export interface ImageRecord {
  readonly id: string;
  readonly handler?: string;
  readonly firstSeenMs: number;
  /** 0: never seen in use. */
  readonly lastUsedMs: number;
  readonly sizeBytes: number;
  readonly isKept: boolean;
}

export interface ImageGcPolicy {
  readonly highThresholdPercent: number;
  readonly lowThresholdPercent: number;
  readonly minAgeMs: number;
  /** 0: images never get too old. */
  readonly maxAgeMs: number;
}

/** How containers, dead ones too, name what they were made from and what is mounted in them. */
export interface ImageUse {
  readonly imageId: string;
  readonly imageRef: string;
  readonly handler?: string;
}

/** An image by its name, and by the runtime handler that it is for. */
export const imageKey = (name: string, handler = ''): string => (handler === '' ? name : `${name},${handler}`);

/**
 * The records after a look at the runtime: new images are first seen now, used ones last used now. Pinned images and
 * those that `keep` names (the sandbox image, which old runtimes do not pin) are never candidates.
 */
export function recordImages(
  before: ReadonlyMap<string, ImageRecord>,
  images: readonly ImageFacts[],
  uses: readonly ImageUse[],
  keep: ReadonlySet<string>,
  nowMs: number,
): Map<string, ImageRecord> {
  const used = new Set(
    uses.flatMap(({ imageId, imageRef, handler }) => [imageId, imageRef].filter((name) => name !== '').map((name) => imageKey(name, handler))),
  );
  const records = new Map<string, ImageRecord>();
  for (const image of images) {
    const key = imageKey(image.id, image.handler);
    const known = before.get(key);
    const names = [image.id, ...image.repoDigests];
    const isUsed = names.some((name) => used.has(imageKey(name, image.handler)));
    records.set(key, {
      id: image.id,
      ...(image.handler === undefined ? {} : { handler: image.handler }),
      firstSeenMs: known?.firstSeenMs ?? nowMs,
      lastUsedMs: isUsed ? nowMs : (known?.lastUsedMs ?? 0),
      sizeBytes: image.sizeBytes,
      isKept: image.pinned || isUsed || [...names, ...image.repoTags].some((name) => keep.has(name)),
    });
  }
  return records;
}

export interface ImageGcInput {
  readonly records: ReadonlyMap<string, ImageRecord>;
  readonly policy: ImageGcPolicy;
  readonly capacityBytes: number;
  readonly availableBytes: number;
  readonly nowMs: number;
  /** When this program began to look: ages count from there at the earliest. */
  readonly beganMs: number;
}

export interface ImageGcPlan {
  /** Unused for too long. */
  readonly tooOld: readonly ImageRecord[];
  /** Bytes to be freed beyond that; 0 when the disk is not too full. */
  readonly bytesToFree: number;
  /** In the order in which they go until enough is freed. */
  readonly candidates: readonly ImageRecord[];
  readonly usedPercent: number;
}

/** Which images go: those unused for too long, and when the disk is above the high threshold the least recently used until it is at the low one. */
export function planImageGc(input: ImageGcInput): ImageGcPlan {
  const { policy, nowMs, capacityBytes } = input;
  const unused = [...input.records.values()]
    .filter((record) => !record.isKept)
    .sort((left, right) => left.lastUsedMs - right.lastUsedMs || left.firstSeenMs - right.firstSeenMs);
  const ages = policy.maxAgeMs > 0 && nowMs - input.beganMs > policy.maxAgeMs;
  const tooOld = ages ? unused.filter((record) => nowMs - record.lastUsedMs > policy.maxAgeMs) : [];
  const available = Math.min(input.availableBytes, capacityBytes);
  const usedPercent = capacityBytes === 0 ? 0 : 100 - Math.floor((available * 100) / capacityBytes);
  if (capacityBytes === 0 || usedPercent < policy.highThresholdPercent) return { tooOld, bytesToFree: 0, candidates: [], usedPercent };
  const bytesToFree = Math.floor((capacityBytes * (100 - policy.lowThresholdPercent)) / 100) - available;
  const candidates = unused.filter((record) => !tooOld.includes(record) && nowMs - record.firstSeenMs >= policy.minAgeMs);
  return { tooOld, bytesToFree: Math.max(bytesToFree, 0), candidates, usedPercent };
}

/** Why not enough could be freed, in upstream's words. */
export function freeDiskSpaceFailed(usedPercent: number, capacityBytes: number, freedBytes: number): string {
  return `Insufficient free disk space on the node's image filesystem (${usedPercent}% of ${sizeText(capacityBytes)} used). Failed to free sufficient space by deleting unused images (freed ${freedBytes} bytes). Investigate disk usage, as it could be used by active images, logs, volumes, or other data.`;
}

function sizeText(bytes: number): string {
  const units = ['KiB', 'MiB', 'GiB', 'TiB'];
  if (bytes < 1024) return `${bytes} B`;
  let value = bytes / 1024;
  let unit = 0;
  while (value >= 1024 && unit < units.length - 1) {
    value /= 1024;
    unit += 1;
  }
  return `${value.toFixed(1)} ${units[unit]}`;
}
