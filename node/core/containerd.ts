const sweep = [
  'netns=$1; shift',
  `used=" $(readlink /proc/[0-9]*/ns/net 2>/dev/null | sort -u | tr '\\n' ' ')"`,
  'for file in "$netns"/cni-*; do [ -e "$file" ] || continue',
  'case "$used" in *" net:[$(stat -c %i "$file")] "*) continue ;; esac',
  'umount "$file" 2>/dev/null; rm -f "$file"; done',
  'exec "$@"',
].join('; ');

/**
 * The words that run a node's own containerd, after what its predecessor left half made is gone. One that is killed
 * between making a network namespace and writing down for which sandbox has told nobody of it: neither the next one nor
 * a kubelet can find it. While none runs no sandbox is being made, so a namespace that no process is in belongs to
 * nobody. Only for a node that nobody else has: on another machine it may be somebody's.
 */
export function containerdCommand(command: readonly string[], netnsDir = '/run/netns'): string[] {
  return ['/bin/sh', '-c', sweep, 'containerd', netnsDir, ...command];
}
