import { OpError } from '../../base/errors.ts';
import type { Container, Image, PodSandbox } from '../../proto/cri/types.ts';
import { podOf, shortId, splitTag } from './listing.ts';

export type Kind = 'container' | 'sandbox' | 'image';

/** Something that a runtime has and a person names. */
export interface Item {
  readonly kind: Kind;
  readonly id: string;
  /** How it may be called beside its id; the first is what it is shown as. */
  readonly names: readonly string[];
  /** Of those that have the same name and the same owner the highest is meant. */
  readonly attempt: number;
  /** Two with one owner are attempts at the same thing. */
  readonly owner: string;
}

/** Containers as `name`, `pod/name` and `namespace/pod/name`; with `byPod` also as their pod, where it has no other. */
export function containerItems(containers: readonly Container[], byPod = false): Item[] {
  const namesOfPod = new Map<string, Set<string>>();
  const podKey = ({ labels, podSandboxId }: Container): string => labels['io.kubernetes.pod.uid'] ?? podSandboxId;
  for (const each of containers) namesOfPod.set(podKey(each), (namesOfPod.get(podKey(each)) ?? new Set()).add(each.metadata?.name ?? ''));
  return containers.map((each) => {
    const { id, metadata, labels } = each;
    const { pod, namespace } = podOf(labels);
    const name = metadata?.name ?? '';
    const isOnly = byPod && namesOfPod.get(podKey(each))?.size === 1;
    return {
      kind: 'container' as const,
      id,
      names: pod === '' ? [name] : [`${namespace}/${pod}/${name}`, `${pod}/${name}`, name, ...(isOnly ? [`${namespace}/${pod}`, pod] : [])],
      attempt: metadata?.attempt ?? 0,
      owner: `${podKey(each)}/${name}`,
    };
  });
}

/** Sandboxes as `pod` and `namespace/pod`. */
export function sandboxItems(sandboxes: readonly PodSandbox[]): Item[] {
  return sandboxes.map(({ id, metadata }) => ({
    kind: 'sandbox' as const,
    id,
    names: [`${metadata?.namespace ?? ''}/${metadata?.name ?? ''}`, metadata?.name ?? ''],
    attempt: metadata?.attempt ?? 0,
    owner: metadata?.uid ?? '',
  }));
}

/** `docker.io/library/busybox:1.37` → all that it may be called: without registry, folders, tag. */
function shorterNames(reference: string): string[] {
  const parts = reference.split('/');
  const tails = parts.map((_, at) => parts.slice(at).join('/'));
  return [...tails, ...tails.map((tail) => splitTag(tail)[0])];
}

/** Images by what they are called, with and without registry and tag. */
export function imageItems(images: readonly Image[]): Item[] {
  return images.map(({ id, repoTags, repoDigests }) => ({
    kind: 'image' as const,
    id,
    names: [...repoTags.flatMap(shorterNames), ...repoDigests].filter((name) => name !== ''),
    attempt: 0,
    owner: id,
  }));
}

function newestOfEach(items: readonly Item[]): Item[] {
  const byOwner = new Map<string, Item>();
  for (const item of items) {
    const key = `${item.kind} ${item.owner}`;
    const other = byOwner.get(key);
    if (other === undefined || item.attempt > other.attempt) byOwner.set(key, item);
  }
  return [...byOwner.values()];
}

/**
 * What `word` means among `items`: a whole id, else a name (of several attempts the newest), else the beginning of an
 * id. Throws OpError `not-found` when nothing is called so, `invalid` with all that are when there are several.
 */
export function findNamed(items: readonly Item[], word: string, doing: string): Item {
  const plain = word.replace(/^sha256:/, '');
  const idOf = (item: Item): string => item.id.replace(/^sha256:/, '');
  const whole = items.find((item) => idOf(item) === plain);
  if (whole !== undefined) return whole;
  let found = newestOfEach(items.filter(({ names }) => names.includes(word)));
  if (found.length === 0 && plain !== '') found = items.filter((item) => idOf(item).startsWith(plain));
  const [first, ...others] = found;
  const kinds = [...new Set(items.map(({ kind }) => kind))].join(', ') || 'such thing';
  if (first === undefined) throw new OpError('not-found', doing, `no ${kinds} is called "${word}", and no id begins so`);
  if (others.length === 0) return first;
  const shown = found
    .slice(0, 10)
    .map(({ kind, id, names, attempt }) => `${kind} ${shortId(id)} ${names[0] ?? ''}${attempt > 0 ? ` #${attempt}` : ''}`.trimEnd());
  throw new OpError('invalid', doing, `"${word}" may be any of ${found.length}: ${shown.join('; ')}${found.length > 10 ? '; …' : ''}`, {
    advice: 'write more of its id, or namespace/pod/container',
  });
}
