import type { Container } from '../../proto/kube/types.ts';

const domainPart = String.raw`(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])`;
const domain = String.raw`(?:${domainPart}(?:\.${domainPart})*|\[[a-fA-F0-9:]+\])(?::[0-9]+)?`;
const path = String.raw`[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*`;
const reference = new RegExp(
  String.raw`^(?:(${domain})/)?(${path}(?:/${path})*)(?::([\w][\w.-]{0,127}))?(?:@([A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}))?$`,
);

export interface ImageName {
  /** With the registry, as docker names it: `docker.io/library/busybox`. */
  readonly repository: string;
  readonly tag: string;
  readonly digest: string;
  /** As the pod says it, with `:latest` when it has neither tag nor digest. */
  readonly pullName: string;
}

/** Reads an image reference by the grammar of container registries; a text is why it is none. */
export function parseImage(image: string): ImageName | string {
  const problem = (why: string): string => `couldn't parse image name "${image}": ${why}`;
  if (/^[a-f0-9]{64}$/.test(image)) return problem(`invalid repository name (${image}), cannot specify 64-byte hexadecimal strings`);
  const { registry, remote } = splitRegistry(image);
  const named = remote.split(':')[0] ?? '';
  if (named !== named.toLowerCase()) return problem(`invalid reference format: repository name (${named}) must be lowercase`);
  const match = reference.exec(`${registry}/${remote}`);
  if (match === null) return problem('invalid reference format');
  const [, , name = '', tag = '', digest = ''] = match;
  const repository = `${registry}/${name}`;
  if (repository.length > 255) return problem('repository name must not be more than 255 characters');
  return { repository, tag: tag === '' && digest === '' ? 'latest' : tag, digest, pullName: tag === '' && digest === '' ? `${image}:latest` : image };
}

/** The registry, and what it knows the image by. What stands before the first slash is a registry only where it looks like a host. */
function splitRegistry(image: string): { registry: string; remote: string } {
  const slash = image.indexOf('/');
  const first = image.slice(0, Math.max(0, slash));
  const isHost = first === 'localhost' || /[.:]/.test(first) || first !== first.toLowerCase();
  const registry = isHost && first !== 'index.docker.io' ? first : 'docker.io';
  const remote = isHost ? image.slice(slash + 1) : image;
  return { registry, remote: registry === 'docker.io' && !remote.includes('/') ? `library/${remote}` : remote };
}

/** The policy in force: the pod's own, else by the tag, as the API server would have filled it in. */
export function pullPolicyOf(container: Container): 'Always' | 'IfNotPresent' | 'Never' {
  const policy = container.imagePullPolicy;
  if (policy === 'Always' || policy === 'IfNotPresent' || policy === 'Never') return policy;
  const name = parseImage(container.image ?? '');
  return typeof name !== 'string' && name.tag === 'latest' && name.digest === '' ? 'Always' : 'IfNotPresent';
}
