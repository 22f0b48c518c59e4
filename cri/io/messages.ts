import { fromJSON, type MethodDefinition, type ServiceDefinition } from '@grpc/proto-loader';
import { gunzipSync } from 'node:zlib';
import api from '../../proto/cri/api.json' with { type: 'json' };

type Method = MethodDefinition<object, object>;

/** What is not said is left out: recordings are for people, and what was absent stays told apart from what was zero. */
const loading = { keepCase: false, longs: String, enums: String, bytes: String, defaults: false, oneofs: false };
/** What a small compressed message may become. */
const MAX_INFLATED_BYTES = 64 * 1024 * 1024;

export interface KnownMethod {
  readonly service: 'RuntimeService' | 'ImageService';
  readonly method: string;
  readonly streams: boolean;
}

/** One message of a call as it is recorded; one of the two is there, or neither when it was too large. */
export interface Decoded {
  /** As `proto/cri/types.ts`, without what is default; bytes as base64. */
  readonly json?: object;
  /** The bytes themselves, where our definitions do not say all of them. */
  readonly raw?: Buffer;
}

let methods: ReadonlyMap<string, Method & KnownMethod> | undefined;

/** By path, as `/runtime.v1.RuntimeService/Version`; null when it is not of the CRI that is known here. */
export function knownMethod(path: string): KnownMethod | null {
  if (methods === undefined) {
    const loaded = fromJSON(api as unknown as Parameters<typeof fromJSON>[0], loading);
    const found = new Map<string, Method & KnownMethod>();
    for (const service of ['RuntimeService', 'ImageService'] as const) {
      for (const [method, definition] of Object.entries(loaded[`runtime.v1.${service}`] as ServiceDefinition))
        found.set(definition.path, Object.assign(definition, { service, method, streams: definition.responseStream }));
    }
    methods = found;
  }
  return methods.get(path) ?? null;
}

/** A message uncompressed, or null when it cannot be. */
export function inflate(bytes: Uint8Array, encoding: string): Uint8Array | null {
  try {
    return encoding === 'gzip' ? gunzipSync(bytes, { maxOutputLength: MAX_INFLATED_BYTES }) : null;
  } catch {
    return null;
  }
}

/** Reads a message of a known method; `raw` is there too when it has fields that our definitions lack. */
export function decodeMessage(path: string, from: 'client' | 'server', bytes: Uint8Array): Decoded {
  knownMethod(path);
  const method = methods?.get(path);
  const raw = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  if (method === undefined) return { raw };
  try {
    const [read, write] = from === 'client' ? [method.requestDeserialize, method.requestSerialize] : [method.responseDeserialize, method.responseSerialize];
    const json = read(raw);
    // Maps may stand in any order, so that only the length tells whether something was left out.
    return write(json).length === raw.length ? { json } : { json, raw };
  } catch {
    return { raw };
  }
}
