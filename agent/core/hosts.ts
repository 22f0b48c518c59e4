import type { HostAlias } from '../../proto/kube/types.ts';

/** What a pod's /etc/hosts says about the pod itself. */
export interface HostsInput {
  readonly podIPs: readonly string[];
  readonly hostname: string;
  /** '' when the pod has no domain of its own. */
  readonly domain: string;
  readonly aliases: readonly HostAlias[];
}

/** /etc/hosts of a pod with a network of its own. */
export function managedHosts(input: HostsInput): string {
  const names = input.domain === '' ? input.hostname : `${input.hostname}.${input.domain}\t${input.hostname}`;
  const lines = [
    '# Kubernetes-managed hosts file.',
    '127.0.0.1\tlocalhost',
    '::1\tlocalhost ip6-localhost ip6-loopback',
    'fe00::0\tip6-localnet',
    'fe00::0\tip6-mcastprefix',
    'fe00::1\tip6-allnodes',
    'fe00::2\tip6-allrouters',
    ...input.podIPs.map((ip) => `${ip}\t${names}`),
  ];
  return `${lines.join('\n')}\n${aliasLines(input.aliases)}`;
}

/** /etc/hosts of a pod in the node's network: the node's own file and the pod's aliases. */
export function hostNetworkHosts(nodeFile: string, aliases: readonly HostAlias[]): string {
  return `# Kubernetes-managed hosts file (host network).\n${nodeFile}${aliasLines(aliases)}`;
}

function aliasLines(aliases: readonly HostAlias[]): string {
  if (aliases.length === 0) return '';
  return `\n# Entries added by HostAliases.\n${aliases.map((alias) => `${alias.ip}\t${(alias.hostnames ?? []).join('\t')}\n`).join('')}`;
}
