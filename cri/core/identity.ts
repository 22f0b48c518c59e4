/** Which sandbox and container a call is about, as its metadata names them. */
export interface Subject {
  /** `namespace/name#attempt` of the sandbox; empty when the call is about none, or about one that was never named. */
  readonly sandbox: string;
  /** `name#attempt`; empty when it is about the sandbox itself. */
  readonly container: string;
  /** What stands for an id that nothing has named, or for the call's object otherwise (an image). */
  readonly other: string;
  /** The pod's, as its sandbox's metadata has it; empty where `sandbox` is. */
  readonly uid: string;
}

type Fields = Readonly<Record<string, unknown>>;
interface Metadata {
  readonly name?: string;
  readonly namespace?: string;
  readonly uid?: string;
  readonly attempt?: number;
}
interface Named {
  readonly sandbox: string;
  readonly container: string;
  readonly uid: string;
}
const NOTHING: Named = { sandbox: '', container: '', uid: '' };

function at(fields: Fields | undefined, ...path: readonly string[]): unknown {
  let value: unknown = fields;
  for (const name of path) value = (value as Fields | undefined | null)?.[name];
  return value;
}

function sandboxOf(metadata: unknown): Named {
  const { name = '', namespace = '', uid = '', attempt = 0 } = (metadata ?? {}) as Metadata;
  return { sandbox: `${namespace}/${name}#${attempt}`, container: '', uid };
}

function containerName(metadata: unknown): string {
  const { name = '', attempt = 0 } = (metadata ?? {}) as Metadata;
  return `${name}#${attempt}`;
}

/** How many ids are remembered; the oldest are forgotten. */
const MAX_IDS = 50_000;

/** Learns from calls and their answers what ids stand for. */
export class IdentityBook {
  readonly #names = new Map<string, Named>();

  #learn(id: unknown, named: Named): void {
    if (typeof id !== 'string' || id === '') return;
    this.#names.set(id, named);
    if (this.#names.size > MAX_IDS) for (const oldest of this.#names.keys()) return void this.#names.delete(oldest);
  }

  #containerIn(sandboxId: unknown, metadata: unknown): Named {
    return { ...(this.#names.get(String(sandboxId)) ?? NOTHING), container: containerName(metadata) };
  }

  /** Learns what a call that succeeded says. */
  learn(method: string, request: Fields, response: Fields): void {
    switch (method) {
      case 'RunPodSandbox':
        this.#learn(response['podSandboxId'], sandboxOf(at(request, 'config', 'metadata')));
        break;
      case 'CreateContainer':
        this.#learn(response['containerId'], this.#containerIn(request['podSandboxId'], at(request, 'config', 'metadata')));
        break;
      case 'ListPodSandbox':
      case 'StreamPodSandboxes':
        for (const item of (response['items'] ?? response['podSandboxes'] ?? []) as Fields[]) this.#learn(item['id'], sandboxOf(item['metadata']));
        break;
      case 'ListContainers':
      case 'StreamContainers':
        for (const item of (response['containers'] ?? []) as Fields[]) this.#learn(item['id'], this.#containerIn(item['podSandboxId'], item['metadata']));
        break;
      case 'PodSandboxStatus':
        this.#learn(at(response, 'status', 'id'), sandboxOf(at(response, 'status', 'metadata')));
        break;
      default:
    }
  }

  /** What a call is about, as far as it is known by now. */
  subject(method: string, request: Fields): Subject {
    if (method === 'RunPodSandbox') return { ...sandboxOf(at(request, 'config', 'metadata')), other: '' };
    const id = request['containerId'] ?? request['podSandboxId'] ?? at(request, 'filter', 'id') ?? at(request, 'filter', 'podSandboxId');
    const named = typeof id === 'string' ? this.#names.get(id) : undefined;
    if (method === 'CreateContainer') return { ...(named ?? NOTHING), container: containerName(at(request, 'config', 'metadata')), other: '' };
    const image = at(request, 'image', 'image') ?? at(request, 'filter', 'image', 'image');
    const other = typeof image === 'string' ? image : typeof id === 'string' && named === undefined ? id.slice(0, 12) : '';
    return { ...(named ?? NOTHING), other };
  }
}
