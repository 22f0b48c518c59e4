/**
 * As much of an API server as upstream's kube-proxy asks for: lists and watches of what it is told on its standard
 * input, one JSON line each. It runs in the network namespace of that kube-proxy and listens on 127.0.0.1:8001.
 */
import { createServer, type ServerResponse } from 'node:http';
import { createInterface } from 'node:readline';

interface Stored {
  metadata: { name: string; namespace?: string; resourceVersion?: string };
}

const KINDS: Record<string, [apiVersion: string, kind: string]> = {
  services: ['v1', 'Service'],
  nodes: ['v1', 'Node'],
  endpointslices: ['discovery.k8s.io/v1', 'EndpointSlice'],
  servicecidrs: ['networking.k8s.io/v1', 'ServiceCIDR'],
};

let version = 1;
const objects = new Map<string, Map<string, Stored>>(Object.keys(KINDS).map((kind) => [kind, new Map()]));
const history: { version: number; resource: string; line: string }[] = [];
const watchers = new Set<{ resource: string; response: ServerResponse }>();

function change(resource: string, type: 'ADDED' | 'MODIFIED' | 'DELETED', object: Stored): void {
  version += 1;
  const [apiVersion, kind] = KINDS[resource]!;
  const stored = { apiVersion, kind, ...object, metadata: { ...object.metadata, resourceVersion: String(version) } };
  const key = `${object.metadata.namespace ?? ''}/${object.metadata.name}`;
  if (type === 'DELETED') objects.get(resource)!.delete(key);
  else objects.get(resource)!.set(key, stored);
  const line = `${JSON.stringify({ type, object: stored })}\n`;
  history.push({ version, resource, line });
  for (const watcher of watchers) if (watcher.resource === resource) watcher.response.write(line);
}

createInterface({ input: process.stdin })
  .on('line', (line) => {
    const told = JSON.parse(line) as { resource: string; object: Stored; gone?: boolean };
    const key = `${told.object.metadata.namespace ?? ''}/${told.object.metadata.name}`;
    const isThere = objects.get(told.resource)!.has(key);
    if (told.gone === true) {
      if (isThere) change(told.resource, 'DELETED', told.object);
    } else change(told.resource, isThere ? 'MODIFIED' : 'ADDED', told.object);
  })
  .on('close', () => process.exit(0));

function status(response: ServerResponse, code: number, reason: string): void {
  response.writeHead(code, { 'content-type': 'application/json' });
  response.end(JSON.stringify({ kind: 'Status', apiVersion: 'v1', status: 'Failure', reason, code, message: reason }));
}

createServer((request, response) => {
  const url = new URL(request.url ?? '/', 'http://127.0.0.1');
  const words = url.pathname.split('/').filter((word) => word !== '');
  if (request.method === 'POST') {
    // Events: read and forgotten.
    request.resume().on('end', () => response.writeHead(201, { 'content-type': 'application/json' }).end('{}'));
    return;
  }
  const at = words.findIndex((word) => word in KINDS);
  const resource = words[at];
  if (resource === undefined) return status(response, 404, 'NotFound');
  const name = words[at + 1];
  if (name !== undefined) {
    const found = [...objects.get(resource)!.values()].find((object) => object.metadata.name === name);
    if (found === undefined) return status(response, 404, 'NotFound');
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(found));
    return;
  }
  if (url.searchParams.get('watch') === null) {
    const [apiVersion, kind] = KINDS[resource]!;
    const list = { apiVersion, kind: `${kind}List`, metadata: { resourceVersion: String(version) }, items: [...objects.get(resource)!.values()] };
    response.writeHead(200, { 'content-type': 'application/json' }).end(JSON.stringify(list));
    return;
  }
  // Initial events of a watch are an offer that a server need not make; the client lists then.
  if (url.searchParams.get('sendInitialEvents') === 'true') return status(response, 400, 'BadRequest');
  response.writeHead(200, { 'content-type': 'application/json' });
  response.flushHeaders();
  const since = Number(url.searchParams.get('resourceVersion') ?? 0);
  for (const event of history) if (event.resource === resource && event.version > since) response.write(event.line);
  const watcher = { resource, response };
  watchers.add(watcher);
  response.on('close', () => watchers.delete(watcher));
}).listen(8001, '127.0.0.1', () => process.stdout.write('ready\n'));
