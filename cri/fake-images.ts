import { createHash } from 'node:crypto';
import type { Clock } from '../base/clock.ts';
import type { Image, ImageFilter, ImageSpecInput, PullImageRequest } from '../proto/cri/types.ts';
import { RpcError } from './errors.ts';

/** An image that a registry (or, when `present`, the machine) has. */
export interface FakeImage {
  /** `docker.io/library/busybox:1.37`; short names are completed as containerd does. */
  name: string;
  sizeBytes?: number;
  /** USER of the image: a number or a name. */
  user?: string;
  /** How long a pull takes. */
  pullMs?: number;
  /** What the next pulls answer instead, one each. */
  pullFailures?: RpcError[];
  present?: boolean;
  /** What the runtime tells of it, where that is known: id, tags, digests, size, user. */
  known?: Partial<Image>;
}

interface Entry extends FakeImage {
  id: string;
  /** The first is how containers name it. */
  digestNames: string[];
  tags: string[];
  present: boolean;
}

/** `busybox` → `docker.io/library/busybox:latest`, as containerd normalizes names. */
export function normalizeImage(name: string): string {
  const [first = ''] = name.split('/');
  const hasDomain = name.includes('/') && (first.includes('.') || first.includes(':') || first === 'localhost');
  const full = hasDomain ? name : `docker.io/${name.includes('/') ? '' : 'library/'}${name}`;
  const last = full.slice(full.lastIndexOf('/'));
  return last.includes(':') || last.includes('@') ? full : `${full}:latest`;
}

function sha256(text: string): string {
  return `sha256:${createHash('sha256').update(text).digest('hex')}`;
}

/** The image half of the fake runtime. */
export class FakeImages {
  readonly #clock: Clock;
  readonly #entries = new Map<string, Entry>();
  /** Every name is an image that a pull brings. */
  pullsAnything = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  add(image: FakeImage): void {
    const name = normalizeImage(image.name);
    const { id = sha256(`config ${name}`), repoTags = [name], repoDigests } = image.known ?? {};
    const digestNames = repoDigests ?? [`${name.replace(/:[^/:]*$/, '')}@${sha256(`manifest ${name}`)}`];
    this.#entries.set(image.known === undefined ? name : id, { ...image, name, id, tags: repoTags, digestNames, present: image.present ?? false });
  }

  /** By name, id, or repository digest, on the machine or not. */
  #entry(reference: string): Entry | undefined {
    const name = normalizeImage(reference);
    const direct = this.#entries.get(name) ?? this.#entries.get(reference);
    if (direct !== undefined) return direct;
    return [...this.#entries.values()].find(
      ({ id, tags, digestNames }) =>
        id === reference || id.slice('sha256:'.length) === reference || tags.includes(name) || digestNames.includes(reference) || digestNames.includes(name),
    );
  }

  /** By name, id, or repository digest; only what is on the machine. */
  find(reference: string): Entry | undefined {
    const entry = this.#entry(reference);
    return entry?.present === true ? entry : undefined;
  }

  /** How containers name the image: tag, repository digest, id. */
  namesOf(entry: Entry): { tag: string; digest: string; id: string } {
    return { tag: entry.tags[0] ?? entry.digestNames[0] ?? entry.name, digest: entry.digestNames[0] ?? entry.id, id: entry.id };
  }

  toImage(entry: Entry): Partial<Image> {
    if (entry.known !== undefined) return entry.known;
    const numeric = /^\d+$/.test(entry.user ?? '0');
    return {
      id: entry.id,
      repoTags: [entry.name],
      repoDigests: entry.digestNames,
      size: String(entry.sizeBytes ?? 1_000_000),
      uid: numeric ? { value: entry.user ?? '0' } : null,
      username: numeric ? '' : (entry.user ?? ''),
    };
  }

  list(filter: ImageFilter | null | undefined): Partial<Image>[] {
    const wanted = filter?.image?.image ?? '';
    if (wanted !== '') {
      const entry = this.find(wanted);
      return entry === undefined ? [] : [this.toImage(entry)];
    }
    return [...this.#entries.values()].filter((entry) => entry.present).map((entry) => this.toImage(entry));
  }

  async pull({ image }: PullImageRequest, signal: AbortSignal | undefined): Promise<string> {
    const reference = image?.image ?? '';
    const name = normalizeImage(reference);
    if (this.pullsAnything && this.#entry(reference) === undefined) this.add({ name });
    const entry = this.#entry(reference);
    if (entry === undefined) {
      throw new RpcError('NotFound', 'PullImage', `failed to pull and unpack image "${name}": failed to resolve reference "${name}": ${name}: not found`);
    }
    try {
      if (entry.pullMs !== undefined) await this.#clock.sleep(entry.pullMs, signal);
    } catch (cause) {
      throw new RpcError('Canceled', 'PullImage', `failed to pull and unpack image "${name}": context canceled`, { cause });
    }
    const failure = entry.pullFailures?.shift();
    if (failure !== undefined) throw failure;
    entry.present = true;
    return entry.id;
  }

  remove(image: ImageSpecInput | null | undefined): void {
    const entry = this.find(image?.image ?? '');
    if (entry !== undefined) entry.present = false;
  }
}
