/** By then, in milliseconds, a daemon has run what its start needs; compiled once, the next starts take it from the cache. */
export const COMPILED_MS = 10_000;
