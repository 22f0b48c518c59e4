/**
 * As much of an API server as upstream's kube-proxy asks for: lists and watches of what it is told on its standard
 * input, one JSON line each. It runs in the network namespace of that kube-proxy and listens on 127.0.0.1:8001.
 */
import { createServer, type ServerResponse } from 'node:http';
import { createInterface } from 'node:readline';

interface Stored {
  metadata: { name: string; namespace?: string; resourceVersion?: string; labels?: Record<string, string> };
}

type Kept = { object: Stored; json: string };

const KINDS: Record<string, [apiVersion: string, kind: string]> = {
  services: ['v1', 'Service'],
  nodes: ['v1', 'Node'],
  endpointslices: ['discovery.k8s.io/v1', 'EndpointSlice'],
  servicecidrs: ['networking.k8s.io/v1', 'ServiceCIDR'],
};

let version = 1;
const objects = new Map<string, Map<string, Kept>>(Object.keys(KINDS).map((kind) => [kind, new Map()]));
const history: { version: number; resource: string; object: Stored; line: string }[] = [];
/** A watch from before these is told to list again. */
const HISTORY = 5000;
const watchers = new Set<{ resource: string; response: ServerResponse; wants: Selector }>();

type Selector = (object: Stored) => boolean;

/** As much of selectors as a proxy uses: labels that must be absent, and the name of the object. */
function selectorOf(url: URL): Selector {
  const absent = (url.searchParams.get('labelSelector') ?? '').split(',').flatMap((term) => (term.startsWith('!') ? [term.slice(1)] : []));
  const name = /^metadata\.name=(.+)$/.exec(url.searchParams.get('fieldSelector') ?? '')?.[1];
  return (object) => (name === undefined || object.metadata.name === name) && absent.every((label) => object.metadata.labels?.[label] === undefined);
}

function change(resource: string, type: 'ADDED' | 'MODIFIED' | 'DELETED', object: Stored): void {
  version += 1;
  const [apiVersion, kind] = KINDS[resource]!;
  const stored = { apiVersion, kind, ...object, metadata: { ...object.metadata, resourceVersion: String(version) } };
  const key = `${object.metadata.namespace ?? ''}/${object.metadata.name}`;
  const json = JSON.stringify(stored);
  if (type === 'DELETED') objects.get(resource)!.delete(key);
  else objects.get(resource)!.set(key, { object: stored, json });
  const line = `{"type":"${type}","object":${json}}\n`;
  history.push({ version, resource, object: stored, line });
  if (history.length > 2 * HISTORY) history.splice(0, HISTORY);
  for (const watcher of watchers) if (watcher.resource === resource && watcher.wants(stored)) watcher.response.write(line);
}

createInterface({ input: process.stdin })
  .on('line', (line) => {
    const told = JSON.parse(line) as { resource: string; object: Stored; gone?: boolean; mark?: number };
    // Everything before it has been taken.
    if (told.mark !== undefined) {
      process.stdout.write(`mark ${told.mark}\n`);
      return;
    }
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
    const found = [...objects.get(resource)!.values()].find(({ object }) => object.metadata.name === name);
    if (found === undefined) return status(response, 404, 'NotFound');
    response.writeHead(200, { 'content-type': 'application/json' }).end(found.json);
    return;
  }
  const wants = selectorOf(url);
  const chosen = (): string[] => [...objects.get(resource)!.values()].filter(({ object }) => wants(object)).map(({ json }) => json);
  if (url.searchParams.get('watch') === null) {
    const [apiVersion, kind] = KINDS[resource]!;
    const metadata = JSON.stringify({ resourceVersion: String(version) });
    response.writeHead(200, { 'content-type': 'application/json' });
    response.end(`{"apiVersion":"${apiVersion}","kind":"${kind}List","metadata":${metadata},"items":[${chosen().join(',')}]}`);
    return;
  }
  const since = Number(url.searchParams.get('resourceVersion') ?? 0);
  const isList = url.searchParams.get('sendInitialEvents') === 'true';
  if (!isList && since > 0 && history.length > 0 && since < history[0]!.version - 1) return status(response, 410, 'Expired');
  response.writeHead(200, { 'content-type': 'application/json' });
  response.flushHeaders();
  if (isList) {
    const [apiVersion, kind] = KINDS[resource]!;
    response.write(
      chosen()
        .map((json) => `{"type":"ADDED","object":${json}}\n`)
        .join(''),
    );
    const metadata = { resourceVersion: String(version), annotations: { 'k8s.io/initial-events-end': 'true' } };
    response.write(`${JSON.stringify({ type: 'BOOKMARK', object: { apiVersion, kind, metadata } })}\n`);
  } else {
    for (const event of history) if (event.resource === resource && event.version > since && wants(event.object)) response.write(event.line);
  }
  const watcher = { resource, response, wants };
  watchers.add(watcher);
  response.on('close', () => watchers.delete(watcher));
}).listen(8001, '127.0.0.1', () => process.stdout.write('ready\n'));
