import { listFields } from './methods.ts';
import type { EventType, Subject } from './fault-rules.ts';

type Fields = Readonly<Record<string, unknown>>;

/** How many ids are remembered; the oldest are forgotten. */
const MAX_IDS = 50_000;
const NOBODY: Subject = { pod: '', container: '', images: [] };

function at(fields: unknown, ...path: readonly string[]): unknown {
  let value = fields;
  for (const name of path) value = (value as Fields | undefined | null)?.[name];
  return value;
}

function text(fields: unknown, ...path: readonly string[]): string {
  const value = at(fields, ...path);
  return typeof value === 'string' ? value : '';
}

function podOf(metadata: unknown): string {
  const name = text(metadata, 'name');
  return name === '' ? '' : `${text(metadata, 'namespace')}/${name}`;
}

/** The kubelet labels containers with their pod. */
function podOfLabels(labels: unknown): string {
  const name = text(labels, 'io.kubernetes.pod.name');
  return name === '' ? '' : `${text(labels, 'io.kubernetes.pod.namespace')}/${name}`;
}

function imagesOf(spec: unknown, ...more: readonly unknown[]): string[] {
  return [...new Set([text(spec, 'image'), text(spec, 'userSpecifiedImage'), ...more])].filter(
    (name): name is string => typeof name === 'string' && name !== '',
  );
}

/** The id that a request is about; empty when it names none. */
function idOf(request: Fields): string {
  return text(request, 'containerId') || text(request, 'podSandboxId') || text(request, 'filter', 'id') || text(request, 'filter', 'podSandboxId');
}

/** Knows of ids what pod, container and image they stand for, from what calls say. */
export class SubjectBook {
  readonly #known = new Map<string, Subject>();

  #learn(id: string, subject: Subject): void {
    if (id === '') return;
    this.#known.set(id, subject);
    if (this.#known.size > MAX_IDS) for (const oldest of this.#known.keys()) return void this.#known.delete(oldest);
  }

  /** By id, or by the beginning of one. */
  #find(id: string): Subject | undefined {
    const found = this.#known.get(id);
    if (found !== undefined || id === '') return found;
    for (const [whole, subject] of this.#known) if (whole.startsWith(id)) return subject;
    return undefined;
  }

  /** Learns from a call that went well. */
  learn(method: string, request: object, response: object): void {
    if (method === 'RunPodSandbox') this.#learn(text(response, 'podSandboxId'), this.of(method, request));
    else if (method === 'CreateContainer') this.#learn(text(response, 'containerId'), this.of(method, request));
    else if (method.endsWith('PodSandbox') || method.endsWith('PodSandboxes') || method.endsWith('Containers'))
      for (const item of this.#items(method, response)) this.#learn(text(item, 'id'), this.#item(method, item));
  }

  /** Whether the request names an id that nothing has told of. */
  lacks(request: object): boolean {
    const id = idOf(request as Fields);
    return id !== '' && this.#find(id) === undefined;
  }

  /** Takes it that nothing will ever tell what the request's id stands for. */
  giveUp(request: object): void {
    this.#learn(idOf(request as Fields), NOBODY);
  }

  /** What a call is about, as far as it is known. */
  of(method: string, request: object): Subject {
    const fields = request as Fields;
    if (method === 'RunPodSandbox') return { ...NOBODY, pod: podOf(at(fields, 'config', 'metadata')) };
    const known = this.#find(idOf(fields)) ?? NOBODY;
    if (method === 'CreateContainer')
      return {
        pod: podOf(at(fields, 'sandboxConfig', 'metadata')) || known.pod,
        container: text(fields, 'config', 'metadata', 'name'),
        images: imagesOf(at(fields, 'config', 'image')),
      };
    const image = at(fields, 'image') ?? at(fields, 'filter', 'image');
    if (image !== null && image !== undefined) return { ...NOBODY, pod: podOf(at(fields, 'sandboxConfig', 'metadata')), images: imagesOf(image) };
    return known;
  }

  #items(method: string, response: object): readonly unknown[] {
    const field = listFields[method];
    return field === undefined ? [] : ((at(response, field) as readonly unknown[] | undefined) ?? []);
  }

  #item(method: string, item: unknown): Subject {
    if (method.endsWith('Images'))
      return {
        ...NOBODY,
        images: [
          ...imagesOf(at(item, 'spec'), ...((at(item, 'repoTags') ?? []) as string[]), ...((at(item, 'repoDigests') ?? []) as string[])),
          text(item, 'id'),
        ],
      };
    const attributes = at(item, 'attributes') ?? item;
    const metadata = at(attributes, 'metadata');
    if (/Container/.test(method)) {
      const known = this.#find(text(attributes, 'id')) ?? NOBODY;
      return {
        pod: this.#find(text(item, 'podSandboxId'))?.pod ?? (known.pod || podOfLabels(at(attributes, 'labels'))),
        container: text(metadata, 'name'),
        images: [...new Set([...imagesOf(at(item, 'image'), at(item, 'imageRef'), at(item, 'imageId')), ...known.images])],
      };
    }
    return { ...NOBODY, pod: podOf(metadata) || (this.#find(text(item, 'podSandboxId'))?.pod ?? '') };
  }

  /** What each item of a list's answer is about, in its order. */
  items(method: string, response: object): readonly Subject[] {
    return this.#items(method, response).map((item) => this.#item(method, item));
  }

  /** What an answer of GetContainerEvents is about. */
  event(response: object): Subject & { type: EventType } {
    const id = text(response, 'containerId');
    const known = this.#find(id);
    const container = ((at(response, 'containersStatuses') ?? []) as unknown[]).find((status) => text(status, 'id') === id);
    const type = (text(response, 'containerEventType') || 'CONTAINER_CREATED_EVENT').replace(/^CONTAINER_(\w+)_EVENT$/, '$1').toLowerCase() as EventType;
    return {
      pod: podOf(at(response, 'podSandboxStatus', 'metadata')) || (known?.pod ?? ''),
      container: text(container, 'metadata', 'name') || (known?.container ?? ''),
      images: known?.images ?? imagesOf(at(container, 'image')),
      type,
    };
  }
}
