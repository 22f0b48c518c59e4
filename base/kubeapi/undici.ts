import type { Client as UndiciClient } from 'undici';
import client from 'undici/lib/dispatcher/client.js';
import dispatcher from 'undici/lib/dispatcher/dispatcher.js';
import request from 'undici/lib/api/api-request.js';

/*
 * Of undici the HTTP client alone: its index also loads fetch, WebSocket, caches and mocks, a megabyte that every
 * daemon would read at its start. The one thing the index does is put the methods on the prototype.
 */
Object.assign(dispatcher.prototype, { request });

export const Client: typeof UndiciClient = client;
export type { UndiciClient };
