/** What a kubelet's command line says of its runtime; absent what it does not say. */
export interface KubeletWords {
  readonly runtimeEndpoint?: string;
  readonly imageEndpoint?: string;
  readonly config?: string;
  readonly configFolder?: string;
}

const FLAGS: Readonly<Record<string, keyof KubeletWords>> = {
  'container-runtime-endpoint': 'runtimeEndpoint',
  'image-service-endpoint': 'imageEndpoint',
  config: 'config',
  'config-dir': 'configFolder',
};
/** What a kubelet connects to when nothing says otherwise. */
const DEFAULT_ENDPOINT = 'unix:///run/containerd/containerd.sock';

/** Reads `--flag=value` and `--flag value`, with one dash or two; the last one counts, as for the kubelet itself. */
export function readCommandLine(argv: readonly string[]): KubeletWords {
  const found: Partial<Record<keyof KubeletWords, string>> = {};
  for (const [at, word] of argv.entries()) {
    const match = /^--?([a-z-]+)(?:=(.*))?$/s.exec(word);
    const name = FLAGS[match?.[1] ?? ''];
    const value = match?.[2] ?? argv[at + 1];
    if (name !== undefined && value !== undefined) found[name] = value;
  }
  return found;
}

function fieldOf(document: unknown, name: string): string | undefined {
  if (typeof document !== 'object' || document === null) return undefined;
  const value = (document as Readonly<Record<string, unknown>>)[name];
  return typeof value === 'string' && value !== '' ? value : undefined;
}

export interface Endpoints {
  readonly runtime: string;
  /** Where it is another one. */
  readonly image: string | null;
  /** What said so, for a person. */
  readonly source: string;
}

/** The endpoints of a kubelet: flags go before files, a later file before an earlier one. `files` in the order in which it reads them. */
export function endpointsOf(words: KubeletWords, files: readonly { readonly path: string; readonly document: unknown }[]): Endpoints {
  const inFiles = (name: string): { value: string; path: string } | undefined => {
    for (const { path, document } of files.toReversed()) {
      const value = fieldOf(document, name);
      if (value !== undefined) return { value, path };
    }
    return undefined;
  };
  const fromFile = inFiles('containerRuntimeEndpoint');
  const runtime = words.runtimeEndpoint ?? fromFile?.value ?? DEFAULT_ENDPOINT;
  const image = words.imageEndpoint ?? inFiles('imageServiceEndpoint')?.value ?? runtime;
  const source = words.runtimeEndpoint === undefined ? (fromFile?.path ?? 'the kubelet’s default') : '--container-runtime-endpoint';
  return { runtime, image: image === runtime ? null : image, source };
}

/** The systemd unit that a process belongs to, by its /proc/PID/cgroup; null for none (a scope, a container, a plain process). */
export function unitOf(cgroupText: string): string | null {
  for (const line of cgroupText.split('\n')) {
    const [, controllers, path = ''] = /^\d+:([^:]*):(.*)$/.exec(line) ?? [];
    if (controllers !== '' && controllers !== 'name=systemd') continue;
    const unit = path.split('/').findLast((part) => part.endsWith('.service'));
    if (unit !== undefined) return unit;
  }
  return null;
}

/** One program of a node of ours: what its PID 1 was told of it. */
export interface InitSpec {
  readonly control: string | null;
  readonly services: ReadonlyMap<string, readonly string[]>;
}

/** The file that `sys init` reads, as far as it matters here. */
export function readInitSpec(text: string): InitSpec {
  const services = new Map<string, string[]>();
  let control: string | null = null;
  let argv: string[] = [];
  for (const line of text.split('\n')) {
    const at = line.indexOf(' ');
    const [word, value] = [line.slice(0, at), line.slice(at + 1)];
    if (word === 'control') control = value;
    else if (word === 'service') services.set(value, (argv = []));
    else if (word === 'argv') argv.push(value);
  }
  return { control, services };
}
