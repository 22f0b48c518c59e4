import { setFlagsFromString } from 'node:v8';
import type { Client as UndiciClient } from 'undici';
import client from 'undici/lib/dispatcher/client.js';
import dispatcher from 'undici/lib/dispatcher/dispatcher.js';
import request from 'undici/lib/api/api-request.js';

/*
 * Of undici the HTTP client alone: its index also loads fetch, WebSocket, caches and mocks, a megabyte that every
 * daemon would read at its start. The one thing the index does is put the methods on the prototype.
 */
Object.assign(dispatcher.prototype, { request });

/*
 * undici parses HTTP/1.1 in WebAssembly, most of it one huge function. To optimize that takes 20 MiB once, which the
 * allocator keeps; the compiler's first stage is fast enough for what an API server says.
 */
setFlagsFromString('--no-wasm-dynamic-tiering');
setFlagsFromString('--no-wasm-tier-up');

export const Client: typeof UndiciClient = client;
export type { UndiciClient };
