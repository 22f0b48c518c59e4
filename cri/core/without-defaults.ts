import api from '../../proto/cri/api.json' with { type: 'json' };

interface FieldJson {
  readonly type: string;
  readonly rule?: string;
  readonly keyType?: string;
}
interface TypeJson {
  readonly fields?: Readonly<Record<string, FieldJson>>;
  readonly values?: Readonly<Record<string, number>>;
  readonly nested?: Readonly<Record<string, TypeJson>>;
}

const types = api.nested.runtime.nested.v1.nested as unknown as Readonly<Record<string, TypeJson>>;

/** A message without what it need not say: Go leaves out defaults, Node writes them, and both mean the same. */
export function withoutDefaults(type: string, value: unknown): unknown {
  if (value === null || typeof value !== 'object') return value;
  const fields = types[type]?.fields ?? {};
  const out: Record<string, unknown> = {};
  for (const [key, inner] of Object.entries(value)) {
    const field = fields[key];
    if (field === undefined) out[key] = inner;
    else if (field.keyType !== undefined) {
      if (Object.keys(inner as object).length > 0) out[key] = Object.fromEntries(Object.entries(inner as object).sort(([a], [b]) => (a < b ? -1 : 1)));
    } else if (field.rule === 'repeated') {
      if ((inner as unknown[]).length > 0)
        out[key] = (inner as unknown[]).map((item) => (/^u?int64$/.test(field.type) ? String(item) : withoutDefaults(field.type, item)));
    } else if (types[field.type]?.fields !== undefined) {
      if (inner !== null) out[key] = withoutDefaults(field.type, inner);
    } else if (!isDefault(type, field.type, inner)) out[key] = /^u?int64$/.test(field.type) ? String(inner) : inner;
  }
  return out;
}

function isDefault(owner: string, type: string, value: unknown): boolean {
  const values = types[type]?.values ?? types[owner]?.nested?.[type]?.values;
  if (values !== undefined) return value === Object.keys(values)[0];
  if (value instanceof Uint8Array) return value.length === 0;
  return value === '' || value === 0 || value === '0' || value === false || value === null || value === undefined;
}

const DIGITS = 'ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/';

/** Text that base64 stands for; what is no base64 of UTF-8 as it is. */
export function textOfBase64(base64: string): string {
  if (!/^[A-Za-z0-9+/]*={0,2}$/.test(base64) || base64.length % 4 !== 0) return base64;
  let escaped = '';
  let bits = 0;
  let value = 0;
  for (const character of base64.replace(/=+$/, '')) {
    value = ((value << 6) | DIGITS.indexOf(character)) & 0xffff;
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    escaped += `%${((value >> bits) & 0xff).toString(16).padStart(2, '0')}`;
  }
  try {
    return decodeURIComponent(escaped);
  } catch {
    return base64;
  }
}
