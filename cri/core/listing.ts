import { OpError } from '../../base/errors.ts';
import type { Container, Image, PodSandbox } from '../../proto/cri/types.ts';
import { agoText, sizeText } from './table.ts';

/** As many letters of an id as crictl shows. */
const SHORT_ID = 13;
const NS_PER_MS = 1_000_000;

export interface Shown {
  readonly titles: readonly string[];
  readonly rows: readonly (readonly string[])[];
}

/** Which of a list are meant; what is absent chooses nothing away. */
export interface Choice {
  /** Regular expression for the metadata's name. */
  readonly name?: string | undefined;
  /** Regular expression for the pod's namespace. */
  readonly namespace?: string | undefined;
  /** The newest so many. */
  readonly last?: number | undefined;
}

export function shortId(id: string): string {
  return id.replace(/^sha256:/, '').slice(0, SHORT_ID);
}

function pattern(text: string | undefined, what: string): RegExp | null {
  if (text === undefined) return null;
  try {
    return new RegExp(text);
  } catch {
    throw new OpError('invalid', `choosing by ${what}`, `"${text}" is no regular expression`);
  }
}

/** The pod that the kubelet's labels name; empty where there are none. */
export function podOf(labels: Readonly<Record<string, string>>): { readonly pod: string; readonly namespace: string } {
  return { pod: labels['io.kubernetes.pod.name'] ?? '', namespace: labels['io.kubernetes.pod.namespace'] ?? '' };
}

function newestFirst<T extends { readonly createdAt: string }>(items: readonly T[], last: number | undefined): T[] {
  return items.toSorted((a, b) => Number(BigInt(b.createdAt) - BigInt(a.createdAt))).slice(0, last);
}

export function chooseContainers(containers: readonly Container[], choice: Choice & { readonly image?: string | undefined }): Container[] {
  const name = pattern(choice.name, 'name');
  const namespace = pattern(choice.namespace, 'namespace');
  const { image } = choice;
  return newestFirst(
    containers.filter(
      (each) =>
        name?.test(each.metadata?.name ?? '') !== false &&
        namespace?.test(podOf(each.labels).namespace) !== false &&
        (image === undefined ||
          [each.imageRef, each.imageId, each.image?.image ?? '', each.image?.userSpecifiedImage ?? ''].some(
            (said) =>
              said === image ||
              said.replace(/^sha256:/, '').startsWith(image.replace(/^sha256:/, '')) ||
              said.split(/[:@]/)[0] === image ||
              said.includes(`/${image}`),
          )),
    ),
    choice.last,
  );
}

export function chooseSandboxes(sandboxes: readonly PodSandbox[], choice: Choice): PodSandbox[] {
  const name = pattern(choice.name, 'name');
  const namespace = pattern(choice.namespace, 'namespace');
  return newestFirst(
    sandboxes.filter((each) => name?.test(each.metadata?.name ?? '') !== false && namespace?.test(each.metadata?.namespace ?? '') !== false),
    choice.last,
  );
}

/** `CONTAINER_RUNNING` → Running, `SANDBOX_NOTREADY` → NotReady. */
export function stateText(state: string): string {
  if (state === 'SANDBOX_NOTREADY') return 'NotReady';
  const word = state.slice(state.indexOf('_') + 1).toLowerCase();
  return word.charAt(0).toUpperCase() + word.slice(1);
}

function ago(createdAtNs: string, nowMs: number): string {
  return agoText(nowMs - Number(BigInt(createdAtNs) / BigInt(NS_PER_MS)));
}

function imageText(each: Container, whole: boolean): string {
  const said = each.image?.userSpecifiedImage || each.image?.image || each.imageRef;
  return whole || !/^(sha256:)?[0-9a-f]{64}$/.test(said) ? said : shortId(said);
}

/** crictl's columns of containers. */
export function containerTable(containers: readonly Container[], nowMs: number, whole: boolean): Shown {
  const id = (text: string): string => (whole ? text : shortId(text));
  return {
    titles: ['CONTAINER', 'IMAGE', 'CREATED', 'STATE', 'NAME', 'ATTEMPT', 'POD ID', 'POD', 'NAMESPACE'],
    rows: containers.map((each) => {
      const { pod, namespace } = podOf(each.labels);
      return [
        id(each.id),
        imageText(each, whole),
        ago(each.createdAt, nowMs),
        stateText(each.state),
        each.metadata?.name ?? '',
        String(each.metadata?.attempt ?? 0),
        id(each.podSandboxId),
        pod || 'unknown',
        namespace || 'unknown',
      ];
    }),
  };
}

/** crictl's columns of sandboxes. */
export function sandboxTable(sandboxes: readonly PodSandbox[], nowMs: number, whole: boolean): Shown {
  return {
    titles: ['POD ID', 'CREATED', 'STATE', 'NAME', 'NAMESPACE', 'ATTEMPT', 'RUNTIME'],
    rows: sandboxes.map((each) => [
      whole ? each.id : shortId(each.id),
      ago(each.createdAt, nowMs),
      stateText(each.state),
      each.metadata?.name ?? '',
      each.metadata?.namespace ?? '',
      String(each.metadata?.attempt ?? 0),
      each.runtimeHandler || '(default)',
    ]),
  };
}

/** `docker.io/library/busybox:1.37` → its name and its tag; a registry's port is no tag. */
export function splitTag(reference: string): readonly [name: string, tag: string] {
  const at = reference.lastIndexOf(':');
  return at > reference.lastIndexOf('/') ? [reference.slice(0, at), reference.slice(at + 1)] : [reference, ''];
}

/** Images whose id begins so, or whose name ends so at a slash, with or without its tag. */
export function chooseImages(images: readonly Image[], wanted: string | undefined): Image[] {
  const sorted = images.toSorted((a, b) => (a.repoTags[0] ?? '~').localeCompare(b.repoTags[0] ?? '~') || a.id.localeCompare(b.id));
  if (wanted === undefined) return sorted;
  const plain = wanted.replace(/^sha256:/, '');
  const isNamed = (name: string): boolean => name === wanted || name.endsWith(`/${wanted}`);
  return sorted.filter(
    ({ id, repoTags, repoDigests }) =>
      (/^[0-9a-f]+$/.test(plain) && id.replace(/^sha256:/, '').startsWith(plain)) ||
      repoTags.some((tag) => isNamed(tag) || isNamed(splitTag(tag)[0])) ||
      repoDigests.some((digest) => isNamed(digest) || isNamed(digest.split('@')[0] ?? '')),
  );
}

/** crictl's columns of images: one row for each tag. */
export function imageTable(images: readonly Image[], whole: boolean, digests: boolean): Shown {
  return {
    titles: ['IMAGE', 'TAG', ...(digests ? ['DIGEST'] : []), 'IMAGE ID', 'SIZE'],
    rows: images.flatMap((each) => {
      const [named = '', digest = ''] = (each.repoDigests[0] ?? '').split('@');
      const tags = each.repoTags.length === 0 ? [[named || '<none>', '<none>'] as const] : each.repoTags.map(splitTag);
      return tags.map(([name, tag]) => [
        name,
        tag || '<none>',
        ...(digests ? [whole ? digest || '<none>' : shortId(digest) || '<none>'] : []),
        whole ? each.id : shortId(each.id),
        sizeText(Number(each.size)),
      ]);
    }),
  };
}
