import { createReadStream } from 'node:fs';
import { stat } from 'node:fs/promises';
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http';
import { pipeline } from 'node:stream/promises';
import { blobPath, listImages, MANIFEST_TYPE, type ImageStore } from './images.ts';

/**
 * Serves the images made on this machine to the set's runtimes (OCI distribution-spec v1.1, pull only). The
 * registry host that the runtime wanted comes as `?ns=`, so one store answers for every name.
 */
export function imageServer(store: ImageStore): ReturnType<typeof createServer> {
  return createServer((request, response) => {
    answer(store, request, response).catch(() => {
      if (!response.headersSent) response.writeHead(500);
      response.end();
    });
  });
}

function refuse(response: ServerResponse, status: number, code: string): void {
  response.writeHead(status, { 'content-type': 'application/json' });
  response.end(JSON.stringify({ errors: [{ code, message: code.toLowerCase().replaceAll('_', ' ') }] }));
}

async function answer(store: ImageStore, request: IncomingMessage, response: ServerResponse): Promise<void> {
  const url = new URL(request.url ?? '/', 'http://images');
  if (request.method !== 'GET' && request.method !== 'HEAD') return refuse(response, 405, 'UNSUPPORTED');
  if (url.pathname === '/v2/' || url.pathname === '/v2') {
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end('{}');
    return;
  }
  const match = /^\/v2\/(.+)\/(manifests|blobs)\/([^/]+)$/.exec(url.pathname);
  if (match === null) return refuse(response, 404, 'NAME_UNKNOWN');
  const [, repository = '', kind, reference = ''] = match;
  const digest = reference.startsWith('sha256:') ? reference : await digestOf(store, `${url.searchParams.get('ns') ?? 'docker.io'}/${repository}:${reference}`);
  if (digest === null || !/^sha256:[0-9a-f]{64}$/.test(digest)) return refuse(response, 404, 'MANIFEST_UNKNOWN');
  const path = blobPath(store, digest);
  const size = await stat(path).then(
    (info) => info.size,
    () => null,
  );
  if (size === null) return refuse(response, 404, kind === 'blobs' ? 'BLOB_UNKNOWN' : 'MANIFEST_UNKNOWN');
  response.writeHead(200, {
    'content-type': kind === 'manifests' ? MANIFEST_TYPE : 'application/octet-stream',
    'content-length': size,
    'docker-content-digest': digest,
  });
  if (request.method === 'HEAD') response.end();
  // Ends both when either ends: a runtime that goes away in the middle must leave no file open.
  else await pipeline(createReadStream(path), response).catch(() => undefined);
}

async function digestOf(store: ImageStore, name: string): Promise<string | null> {
  const images = await listImages(store);
  return images.find((image) => image.name === name)?.digest ?? null;
}
