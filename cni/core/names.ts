/** Names, hardware addresses and numbers that follow from what they belong to, so that DEL finds them when nothing else is left. */

/** FNV-1a, twice with different starts; 16 hexadecimal digits. No secret, only short and even. */
export function hashHex(text: string): string {
  let low = 0x811c9dc5;
  let high = 0x1b873593;
  for (let at = 0; at < text.length; at++) {
    const unit = text.charCodeAt(at);
    low = Math.imul(low ^ unit, 0x01000193);
    high = Math.imul(high ^ (unit + at), 0x01000193) ^ (low >>> 15);
  }
  const hex = (value: number): string => (value >>> 0).toString(16).padStart(8, '0');
  return hex(low) + hex(high);
}

/** What the host ends of one data folder's pods begin with. */
export function linkPrefix(dataDir: string): string {
  return `nl${hashHex(dataDir).slice(0, 3)}`;
}

export function hostLinkName(dataDir: string, network: string, containerId: string, ifname: string): string {
  return linkPrefix(dataDir) + hashHex(`${network}\n${containerId}\n${ifname}`).slice(0, 10);
}

/** A locally administered hardware address. */
export function macOf(seed: string): string {
  return ['0a', ...(hashHex(seed).slice(0, 10).match(/../g) ?? [])].join(':');
}

/** An interface number from `from` on; `salt` gives another one when it is taken. */
export function linkIndex(seed: string, salt: number, from: number, count: number): number {
  return from + (Number.parseInt(hashHex(`${seed}\n${salt}`).slice(0, 8), 16) % count);
}
