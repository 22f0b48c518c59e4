/** Image metadata as data: OCI image-spec v1.1 config and manifest. */

export interface ImageSettings {
  readonly cmd?: readonly string[];
  readonly entrypoint?: readonly string[];
  readonly env?: readonly string[];
  readonly user?: string;
  readonly workingDir?: string;
  readonly stopSignal?: string;
  readonly exposedPorts?: readonly string[];
  readonly labels?: Readonly<Record<string, string>>;
}

export interface ImageFile {
  /** Absolute path in the image. */
  readonly path: string;
  readonly mode: number;
  readonly content:
    | { readonly kind: 'file'; readonly from: string }
    | { readonly kind: 'text'; readonly text: string }
    | { readonly kind: 'link'; readonly to: string }
    | { readonly kind: 'directory' };
}

export interface ImageRecipe {
  readonly files: readonly ImageFile[];
  readonly settings: ImageSettings;
}

/** The image's config document; `created` is fixed so that the same files give the same image. `diffIds`: of the layers, lowest first. */
export function imageConfig(settings: ImageSettings, architecture: 'amd64' | 'arm64', diffIds: readonly string[]): string {
  const config: Record<string, unknown> = { Env: settings.env ?? ['PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin'] };
  if (settings.cmd !== undefined) config['Cmd'] = settings.cmd;
  if (settings.entrypoint !== undefined) config['Entrypoint'] = settings.entrypoint;
  if (settings.user !== undefined) config['User'] = settings.user;
  if (settings.workingDir !== undefined) config['WorkingDir'] = settings.workingDir;
  if (settings.stopSignal !== undefined) config['StopSignal'] = settings.stopSignal;
  if (settings.exposedPorts !== undefined) config['ExposedPorts'] = Object.fromEntries(settings.exposedPorts.map((port) => [port, {}]));
  if (settings.labels !== undefined) config['Labels'] = settings.labels;
  return JSON.stringify({ architecture, os: 'linux', created: '1970-01-01T00:00:00Z', config, rootfs: { type: 'layers', diff_ids: diffIds } });
}

export interface Blob {
  readonly digest: string;
  readonly size: number;
}

/** A layer whose bytes, a compressed archive, lie in the store; `diffId` is the digest of the archive itself. */
export interface Layer extends Blob {
  readonly diffId: string;
}

export function imageManifest(config: Blob, layers: readonly Blob[]): string {
  return JSON.stringify({
    schemaVersion: 2,
    mediaType: 'application/vnd.oci.image.manifest.v1+json',
    config: { mediaType: 'application/vnd.oci.image.config.v1+json', ...config },
    layers: layers.map(({ digest, size }) => ({ mediaType: 'application/vnd.oci.image.layer.v1.tar+gzip', digest, size })),
  });
}

export interface ImageName {
  /** `docker.io`, `registry.k8s.io`, `localhost:5000`. */
  readonly host: string;
  /** `library/nginx`. */
  readonly repository: string;
  readonly tag: string;
}

/** The parts of an image name with the defaults of docker.io (distribution reference grammar); null when it is not one. */
export function parseImageName(text: string): ImageName | null {
  const match =
    /^(?:([a-zA-Z0-9.-]+(?::\d+)?)\/)?([a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*(?:\/[a-z0-9]+(?:(?:[._]|__|-+)[a-z0-9]+)*)*)(?::([\w][\w.-]{0,127}))?(?:@sha256:[0-9a-f]{64})?$/.exec(
      text,
    );
  if (match === null) return null;
  const [, first, rest = '', tag = 'latest'] = match;
  const isHost = first !== undefined && (first.includes('.') || first.includes(':') || first === 'localhost');
  const host = isHost ? first : 'docker.io';
  const path = isHost || first === undefined ? rest : `${first}/${rest}`;
  return { host, repository: host === 'docker.io' && !path.includes('/') ? `library/${path}` : path, tag };
}

/** Full name as the runtime lists it. */
export function imageNameText(name: ImageName): string {
  return `${name.host}/${name.repository}:${name.tag}`;
}

const applets = (names: readonly string[]): ImageFile[] =>
  names.map((name) => ({ path: `/bin/${name}`, mode: 0o777, content: { kind: 'link', to: 'busybox' } }));

const ACCOUNTS: readonly ImageFile[] = [
  { path: '/etc/passwd', mode: 0o644, content: { kind: 'text', text: 'root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n' } },
  { path: '/etc/group', mode: 0o644, content: { kind: 'text', text: 'root:x:0:\nnogroup:x:65534:\n' } },
];

const FOLDERS: readonly ImageFile[] = ['/root', '/home', '/var', '/run', '/usr', '/usr/bin'].map((path) => ({
  path,
  mode: 0o755,
  content: { kind: 'directory' },
}));

/** A small userland: busybox under all its names. */
export function busyboxRecipe(binary: string, appletNames: readonly string[]): ImageRecipe {
  return {
    files: [
      { path: '/bin', mode: 0o755, content: { kind: 'directory' } },
      { path: '/tmp', mode: 0o1777, content: { kind: 'directory' } },
      ...FOLDERS,
      { path: '/etc', mode: 0o755, content: { kind: 'directory' } },
      ...ACCOUNTS,
      { path: '/bin/busybox', mode: 0o755, content: { kind: 'file', from: binary } },
      ...applets(appletNames.filter((name) => name !== 'busybox')),
    ],
    settings: { cmd: ['sh'], env: ['PATH=/bin:/usr/bin'] },
  };
}

/** The process that holds a sandbox's namespaces. */
export function pauseRecipe(binary: string): ImageRecipe {
  return { files: [{ path: '/pause', mode: 0o755, content: { kind: 'file', from: binary } }], settings: { entrypoint: ['/pause', '-P'], user: '65535:65535' } };
}

// A shell is process 1, so that the stop signal is obeyed (process 1 ignores signals without a handler) and the exit code is 0.
const SERVER_SCRIPT = `#!/bin/sh
trap 'kill $server 2>/dev/null; exit 0' TERM QUIT INT
httpd -f -p 80 -h /usr/share/nginx/html &
server=$!
wait $server
`;

const PAGE = `<!DOCTYPE html>
<html><head><title>Welcome</title></head><body><h1>It works</h1><p>Served by a container on this node.</p></body></html>
`;

/** A small HTTP server on port 80 that ends with 0 within a second of its stop signal. */
export function serverRecipe(binary: string, appletNames: readonly string[]): ImageRecipe {
  const base = busyboxRecipe(binary, appletNames);
  return {
    files: [
      ...base.files,
      ...['/usr/share', '/usr/share/nginx', '/usr/share/nginx/html'].map((path): ImageFile => ({ path, mode: 0o755, content: { kind: 'directory' } })),
      { path: '/usr/share/nginx/html/index.html', mode: 0o644, content: { kind: 'text', text: PAGE } },
      { path: '/bin/serve', mode: 0o755, content: { kind: 'text', text: SERVER_SCRIPT } },
    ],
    settings: { cmd: ['/bin/serve'], env: ['PATH=/bin:/usr/bin'], stopSignal: 'SIGQUIT', exposedPorts: ['80/tcp'] },
  };
}

export type RecipeName = 'pause' | 'busybox' | 'server';

/** Which recipe stands in for an image where no registry answers; null when none does. */
export function standIn(name: ImageName): RecipeName | null {
  const last = name.repository.slice(name.repository.lastIndexOf('/') + 1);
  if (last === 'pause') return 'pause';
  if (last === 'busybox') return 'busybox';
  if (last === 'nginx' || last === 'httpd') return 'server';
  return null;
}
