import type { Container, DownwardAPIVolumeFile, Pod, ResourceFieldSelector } from '../../proto/kube/types.ts';
import { milliValueOf, tryParseQuantity, valueOf } from './quantity.ts';
import type { QuantityText } from './quantity.ts';
import { valueAt } from './env.ts';

export type Answer = { ok: true; text: string } | { ok: false; message: string };

/** A field of the pod for a file of a downwardAPI volume; only metadata is offered there. */
export function fieldText(pod: Pod, fieldPath: string): Answer {
  const { metadata } = pod;
  const subscript = /^(metadata\.(?:labels|annotations))\['(.+)'\]$/.exec(fieldPath);
  if (subscript !== null) {
    const map = subscript[1] === 'metadata.labels' ? metadata.labels : metadata.annotations;
    return { ok: true, text: valueAt(map, subscript[2] ?? '') ?? '' };
  }
  switch (fieldPath) {
    case 'metadata.name':
      return { ok: true, text: metadata.name ?? '' };
    case 'metadata.namespace':
      return { ok: true, text: metadata.namespace ?? '' };
    case 'metadata.uid':
      return { ok: true, text: metadata.uid ?? '' };
    case 'metadata.labels':
      return { ok: true, text: formatMap(metadata.labels ?? {}) };
    case 'metadata.annotations':
      return { ok: true, text: formatMap(metadata.annotations ?? {}) };
    default:
      return { ok: false, message: `unsupported fieldPath: ${fieldPath}` };
  }
}

/** `key="value"` lines in key order, values quoted as Go's %q. */
export function formatMap(map: Readonly<Record<string, string>>): string {
  return Object.keys(map)
    .sort(byBytes)
    .map((key) => `${key}=${goQuote(map[key] ?? '')}`)
    .join('\n');
}

function byBytes(left: string, right: string): number {
  return left < right ? -1 : left > right ? 1 : 0;
}

const shortEscapes: Readonly<Record<string, string>> = {
  '\x07': '\\a',
  '\b': '\\b',
  '\f': '\\f',
  '\n': '\\n',
  '\r': '\\r',
  '\t': '\\t',
  '\v': '\\v',
  '\\': '\\\\',
  '"': '\\"',
};

/** strconv.Quote: what cannot be printed is escaped. */
export function goQuote(text: string): string {
  let out = '"';
  for (const char of text) {
    const code = char.codePointAt(0) ?? 0;
    const short = shortEscapes[char];
    if (short !== undefined) out += short;
    else if (code < 0x20 || code === 0x7f) out += `\\x${code.toString(16).padStart(2, '0')}`;
    else if (code > 0x7f && !isPrintable(char)) out += code < 0x10000 ? `\\u${code.toString(16).padStart(4, '0')}` : `\\U${code.toString(16).padStart(8, '0')}`;
    else out += char;
  }
  return `${out}"`;
}

function isPrintable(char: string): boolean {
  return /^[\p{L}\p{M}\p{N}\p{P}\p{S}]$/u.test(char);
}

/**
 * A container's request or limit divided by `divisor`, rounded up. An absent limit of CPU, memory or ephemeral
 * storage counts as what the node can allocate.
 */
export function resourceText(container: Container, selector: ResourceFieldSelector, allocatable: Readonly<Record<string, QuantityText>>): Answer {
  const [side, ...rest] = selector.resource.split('.');
  const resource = rest.join('.');
  const plain = resource === 'cpu' || resource === 'memory' || resource === 'ephemeral-storage';
  if ((side !== 'limits' && side !== 'requests') || (!plain && !resource.startsWith('hugepages-'))) {
    return { ok: false, message: `unsupported container resource : ${selector.resource}` };
  }
  let amount: QuantityText | undefined = container.resources?.[side]?.[resource];
  if (side === 'limits' && plain && (amount === undefined || valueOf(amount) === 0n)) amount = allocatable[resource];
  const divisor = divisorOf(selector);
  const [dividend, unit] = resource === 'cpu' ? [milliValueOf(amount), milliValueOf(divisor)] : [valueOf(amount), valueOf(divisor)];
  if (unit <= 0n) return { ok: false, message: `the divisor ${String(divisor)} of ${selector.resource} is not above zero` };
  return { ok: true, text: String((dividend + unit - 1n) / unit) };
}

function divisorOf(selector: ResourceFieldSelector): QuantityText {
  const parsed = selector.divisor === undefined ? null : tryParseQuantity(selector.divisor);
  return parsed === null || parsed.nano === 0n ? '1' : (selector.divisor ?? '1');
}

/** The text of one file of a downwardAPI volume. */
export function downwardText(pod: Pod, file: DownwardAPIVolumeFile, allocatable: Readonly<Record<string, QuantityText>>): Answer {
  if (file.fieldRef !== undefined) return fieldText(pod, file.fieldRef.fieldPath);
  const selector = file.resourceFieldRef;
  if (selector === undefined) return { ok: false, message: `downwardAPI file ${file.path} names neither a field nor a resource` };
  const all = [...pod.spec.containers, ...(pod.spec.initContainers ?? [])];
  const container = all.find((each) => each.name === selector.containerName);
  if (container === undefined) return { ok: false, message: `container ${selector.containerName ?? ''} not found` };
  return resourceText(container, selector, allocatable);
}
