import { at, textAt, type Fields } from './playback-world.ts';
import { WITHHELD } from './recording.ts';

/** The label of all sandboxes and containers that a replay makes; its value names the replay. */
export const REPLAY_LABEL = 'nodelet.dev/replay';

export interface RewriteOptions {
  /** Names this replay. */
  readonly run: string;
  /** A folder of the replay's own, without a slash at its end. */
  readonly folder: string;
  /** In place of the recorded namespaces. */
  readonly namespace?: string | undefined;
  /** Below it every pod gets a cgroup; ends in `.slice` where systemd makes cgroups. */
  readonly cgroupParent: string;
  /** Whether a path is on this machine. */
  readonly exists: (path: string) => boolean;
  /** Containers get this machine's files, devices and privileges as they had them. */
  readonly trusted: boolean;
}

/** A file or folder that must be there before the call is made. */
export interface Needed {
  readonly path: string;
  readonly kind: 'file' | 'folder';
}

/** Values are bytes, base64 in a recording, but for those that were left out. */
const WITHHELD_BYTES = 'KHdpdGhoZWxkKQ==';
const NAMESPACE_LABEL = 'io.kubernetes.pod.namespace';
/** Mounted as files by a kubelet; everything else of its own is a folder. */
const FILES = /^(\/etc\/hosts|\/etc\/hostname|\/etc\/resolv\.conf|\/dev\/termination-log)$/;

/** One name of a path, of words that a recording has and nobody has looked at. */
function oneName(text: string): string {
  const name = text.replaceAll('/', '_');
  return name === '.' || name === '..' ? name.replaceAll('.', '_') : name;
}

/** A path without steps up, so that it stays below what it is put behind. */
function downward(path: string): string {
  return path
    .split('/')
    .filter((name) => name !== '..' && name !== '.')
    .join('/');
}

function withValue(variable: Fields): Fields {
  return variable['value'] === WITHHELD ? { ...variable, value: WITHHELD_BYTES } : variable;
}

/** Makes requests of a recording fit for another runtime: ids, folders, cgroups and images of this time and machine. */
export class Rewriter {
  readonly #options: RewriteOptions;
  /** Id of that time → id of now. */
  readonly ids = new Map<string, string>();
  /** Id of now → id of that time. */
  readonly back = new Map<string, string>();
  /** Calls from which files, devices or privileges of the machine were taken, because the recording is not trusted. */
  tamed = 0;

  constructor(options: RewriteOptions) {
    this.#options = options;
  }

  learn(recorded: string, seen: string): void {
    if (recorded === '' || seen === '') return;
    this.ids.set(recorded, seen);
    this.back.set(seen, recorded);
  }

  /** The request to make, and what must be there first. `image` says what an image is called here. */
  rewrite(method: string, request: Fields, image: (reference: string) => string): { readonly request: Fields; readonly needed: readonly Needed[] } {
    const needed: Needed[] = [];
    const mapped = this.#mapIds(request) as Fields;
    if (method === 'RunPodSandbox') return { request: { ...mapped, config: this.#sandbox(at(mapped, 'config') as Fields, needed) }, needed };
    if (method === 'CreateContainer') {
      const sandboxConfig = this.#sandbox((at(mapped, 'sandboxConfig') ?? {}) as Fields, needed);
      return { request: { ...mapped, sandboxConfig, config: this.#container(at(mapped, 'config') as Fields, sandboxConfig, image, needed) }, needed };
    }
    // A registry's credentials are not in a recording, only the word that stands for them.
    if (method === 'PullImage')
      return { request: { image: mapped['image'], ...(mapped['sandboxConfig'] === undefined ? {} : { sandboxConfig: mapped['sandboxConfig'] }) }, needed };
    return { request: mapped, needed };
  }

  /** Every text that is an id of that time, wherever it stands. */
  #mapIds(value: unknown): unknown {
    if (typeof value === 'string') return this.ids.get(value) ?? value;
    if (Array.isArray(value)) return value.map((one) => this.#mapIds(one));
    if (value === null || typeof value !== 'object') return value;
    return Object.fromEntries(Object.entries(value).map(([key, inner]) => [key, this.#mapIds(inner)]));
  }

  #labels(labels: unknown): Fields {
    const { namespace, run } = this.#options;
    const own = { ...(labels as Fields | undefined), [REPLAY_LABEL]: run };
    return namespace !== undefined && NAMESPACE_LABEL in own ? { ...own, [NAMESPACE_LABEL]: namespace } : own;
  }

  #sandbox(config: Fields, needed: Needed[]): Fields {
    const { folder, namespace } = this.#options;
    const metadata = { ...(at(config, 'metadata') as Fields | undefined), ...(namespace === undefined ? {} : { namespace }) };
    const pod = oneName(`${textAt(metadata, 'namespace')}_${textAt(metadata, 'name')}_${textAt(metadata, 'uid')}`);
    const logDirectory = textAt(config, 'logDirectory') === '' ? '' : `${folder}/logs/${pod}`;
    if (logDirectory !== '') needed.push({ path: logDirectory, kind: 'folder' });
    const linux = at(config, 'linux') as Fields | undefined;
    return {
      ...config,
      metadata,
      labels: this.#labels(config['labels']),
      logDirectory,
      linux: { ...this.#withoutPrivilege(linux), cgroupParent: this.#cgroup(textAt(metadata, 'uid')) },
    };
  }

  /** A recording is anybody's file: what it asks of the machine is given only when whoever replays it says so. */
  #withoutPrivilege(linux: Fields | undefined): Fields | undefined {
    const context = at(linux, 'securityContext') as Fields | undefined;
    if (this.#options.trusted || context?.['privileged'] !== true) return linux;
    this.tamed += 1;
    return { ...linux, securityContext: { ...context, privileged: false } };
  }

  #cgroup(podUid: string): string {
    const uid = oneName(podUid);
    const { cgroupParent } = this.#options;
    // systemd's names say where a slice is: a-b.slice lies in a.slice.
    if (cgroupParent.endsWith('.slice')) return `${cgroupParent.slice(0, -'.slice'.length)}-pod${uid.replaceAll('-', '_')}.slice`;
    return `${cgroupParent}/pod${uid}`;
  }

  #container(config: Fields, sandboxConfig: Fields, image: (reference: string) => string, needed: Needed[]): Fields {
    const logPath = downward(textAt(config, 'logPath'));
    const logDirectory = textAt(sandboxConfig, 'logDirectory');
    if (logPath.includes('/') && logDirectory !== '') needed.push({ path: `${logDirectory}/${logPath.slice(0, logPath.lastIndexOf('/'))}`, kind: 'folder' });
    const spec = at(config, 'image') as Fields | undefined;
    const linux = this.#withoutPrivilege(at(config, 'linux') as Fields | undefined);
    const devices = (config['devices'] ?? []) as Fields[];
    if (devices.length > 0 && !this.#options.trusted) this.tamed += 1;
    return {
      ...config,
      ...(linux === undefined ? {} : { linux }),
      ...(devices.length > 0 && !this.#options.trusted ? { devices: [] } : {}),
      ...(config['logPath'] === undefined ? {} : { logPath }),
      labels: this.#labels(config['labels']),
      image: { ...spec, image: image(textAt(spec, 'image')) },
      ...(config['envs'] === undefined ? {} : { envs: (config['envs'] as Fields[]).map(withValue) }),
      ...(config['mounts'] === undefined ? {} : { mounts: (config['mounts'] as Fields[]).map((mount) => this.#mount(mount, needed)) }),
    };
  }

  /** A kubelet's own files are made empty; so is what this machine does not have, and all of it for a recording that is not trusted. */
  #mount(mount: Fields, needed: Needed[]): Fields {
    const hostPath = textAt(mount, 'hostPath');
    if (hostPath === '') return mount;
    if (!/\/pods\/[0-9a-f-]{8,}\//.test(hostPath) && this.#options.exists(hostPath)) {
      if (this.#options.trusted) return mount;
      this.tamed += 1;
    }
    const path = `${this.#options.folder}/host${downward(hostPath)}`;
    needed.push({ path, kind: FILES.test(textAt(mount, 'containerPath')) ? 'file' : 'folder' });
    return { ...mount, hostPath: path };
  }
}
