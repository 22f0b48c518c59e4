/** A field of a message: where it stands, and what it says. */
export interface FlatField {
  /** `config.metadata.name`, `mounts[2].hostPath`. */
  readonly path: string;
  readonly text: string;
}

/** All that a message says, field by field. `bytesOf` reads what is base64, by its path; null where it is none. */
export function* flatFields(value: unknown, bytesOf: (path: string, text: string) => string | null, path = ''): Generator<FlatField> {
  if (Array.isArray(value)) {
    for (const [at, item] of value.entries()) yield* flatFields(item, bytesOf, `${path}[${at}]`);
  } else if (value !== null && typeof value === 'object') {
    for (const [key, item] of Object.entries(value)) {
      // Labels have dots in their names.
      const name = /^[\w-]+$/.test(key) ? key : JSON.stringify(key);
      yield* flatFields(item, bytesOf, path === '' ? name : `${path}.${name}`);
    }
  } else if (value !== null && value !== undefined) {
    const text = typeof value === 'string' ? value : JSON.stringify(value);
    yield { path, text: bytesOf(path, text) ?? text };
  }
}

/** Fields that are bytes on the wire and mostly text: output of a command, values of an environment that was not withheld. */
export function isTextInBytes(path: string): boolean {
  return path === 'stdout' || path === 'stderr' || /\benvs\[\d+\]\.value$/.test(path);
}
