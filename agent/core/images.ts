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
  if (image.trim() === '') return problem('invalid reference format');
  const match = reference.exec(image);
  if (match === null)
    return problem(reference.test(image.toLowerCase()) ? 'invalid reference format: repository name must be lowercase' : 'invalid reference format');
  const [, host, name = '', tag = '', digest = ''] = match;
  const isHost = host !== undefined && (/[.:]/.test(host) || host === 'localhost' || host !== host.toLowerCase());
  const whole = host === undefined || isHost ? name : `${host}/${name}`;
  if (/^[a-f0-9]{64}$/.test(image)) return problem('invalid repository name, cannot specify 64-byte hexadecimal strings');
  const registry = isHost ? (host === 'index.docker.io' ? 'docker.io' : host) : 'docker.io';
  const repository = registry === 'docker.io' && !whole.includes('/') ? `docker.io/library/${whole}` : `${registry}/${whole}`;
  if (repository.length > 255) return problem('repository name must not be more than 255 characters');
  return { repository, tag: tag === '' && digest === '' ? 'latest' : tag, digest, pullName: tag === '' && digest === '' ? `${image}:latest` : image };
}

/** The policy in force: the pod's own, else by the tag, as the API server would have filled it in. */
export function pullPolicyOf(container: Container): 'Always' | 'IfNotPresent' | 'Never' {
  const policy = container.imagePullPolicy;
  if (policy === 'Always' || policy === 'IfNotPresent' || policy === 'Never') return policy;
  const name = parseImage(container.image ?? '');
  return typeof name !== 'string' && name.tag === 'latest' && name.digest === '' ? 'Always' : 'IfNotPresent';
}
