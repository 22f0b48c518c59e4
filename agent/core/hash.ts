import { utf8Bytes } from '../../base/utf8.ts';

/**
 * The container hash that stands in `io.kubernetes.container.hash`. Another kubelet that takes the node over compares
 * it with its own and restarts the container when they differ, so the formula is upstream's to the byte: FNV-1a-32 over
 * the printed form of the JSON bytes of `{"image":…,"name":…}`.
 */
export function containerHash(container: { readonly name: string; readonly image?: string }): string {
  const json = `{"image":${goJson(container.image ?? '')},"name":${goJson(container.name)}}`;
  return fnv1a32(`([]uint8)[${utf8Bytes(json).join(' ')}]`).toString(16);
}

/** Whose back-off it is: another image under the same name is another try. */
export function backOffKey(container: { readonly name: string; readonly image?: string }): string {
  return `${container.name} ${containerHash(container)}`;
}

/** FNV-1a over the UTF-8 bytes of a text, 32 bits. */
export function fnv1a32(text: string): number {
  let hash = 0x811c9dc5;
  for (const byte of utf8Bytes(text)) hash = Math.imul(hash ^ byte, 0x01000193) >>> 0;
  return hash;
}

/** A JSON string as Go's encoder writes it: with <, >, & and the two line separators escaped. */
function goJson(text: string): string {
  return JSON.stringify(text).replaceAll(/[<>&\u2028\u2029]/g, (char) => `\\u${char.charCodeAt(0).toString(16).padStart(4, '0')}`);
}
