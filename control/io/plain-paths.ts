import { createHash } from 'node:crypto';
import { kubernetesVersion, version } from '../../base/version.ts';
import { noSuchPath } from '../core/failure.ts';
import { aggregated, apiGroupList, apiGroupOf, apiResourceList, apiVersions, groupsOf } from '../core/discovery.ts';
import { openApiV2, openApiV3 } from '../core/openapi.ts';
import type { Answer, Call, Kernel } from './kernel.ts';
import type { Tokens } from './tokens.ts';

/** Paths that are no resources: discovery, OpenAPI, health, version, metrics. */
export interface PlainPaths {
  handle(call: Call): Answer;
  /** Makes the OpenAPI documents one by one, so that no client's first request has to wait for all of them. */
  warm(signal: AbortSignal): Promise<void>;
}

interface Document {
  text: string;
  etag: string;
}

const JSON_TYPE = 'application/json';

export function createPlainPaths(kernel: Kernel, metrics: () => string, tokens: Tokens): PlainPaths {
  const documents = new Map<string, Document>();
  const document = (key: string, make: () => unknown): Document => {
    let found = documents.get(key);
    if (found === undefined) {
      const text = JSON.stringify(make());
      found = { text, etag: createHash('sha512').update(text).digest('hex').toUpperCase() };
      documents.set(key, found);
    }
    return found;
  };
  const resources = kernel.registry.all;
  const json = (object: unknown): Answer => ({ status: 200, kind: 'object', object });
  const orNone = (object: unknown): Answer => {
    if (object === undefined) throw noSuchPath();
    return json(object);
  };
  const discovery = (call: Call, isCore: boolean): Answer => {
    const asked = /application\/json;[^,]*as=APIGroupDiscoveryList/.exec(call.accept)?.[0];
    const isKnown = asked !== undefined && (/v=v2(;|$|,)/.test(asked) || asked.endsWith('v=v2'));
    if (!isKnown) return json(isCore ? apiVersions(`${kernel.config.advertiseAddress}:${kernel.config.securePort}`) : apiGroupList(resources));
    const { text, etag } = document(`aggregated ${isCore}`, () => aggregated(resources, isCore));
    return {
      status: 200,
      kind: 'text',
      text,
      type: 'application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList',
      headers: { etag: `"${etag}"`, vary: 'Accept' },
    };
  };
  const v3 = (group: string, groupVersion: string): Document =>
    document(`v3 ${group}/${groupVersion}`, () => openApiV3(kernel.schema, resources, group, groupVersion));
  const openApi = (path: string, call: Call): Answer => {
    if (path === '/openapi/v3') {
      const paths: Record<string, unknown> = {};
      for (const [group, versions] of groupsOf(resources)) {
        for (const item of versions) {
          const name = group === '' ? `api/${item}` : `apis/${group}/${item}`;
          paths[name] = { serverRelativeURL: `/openapi/v3/${name}?hash=${v3(group, item).etag}` };
        }
      }
      return json({ paths });
    }
    if (path === '/openapi/v2') {
      const { text, etag } = document('v2', () => openApiV2(kernel.schema, resources, version));
      return { status: 200, kind: 'text', text, type: JSON_TYPE, headers: { etag: `"${etag}"` } };
    }
    const parts = path.split('/').slice(3);
    const [group, item] = parts[0] === 'api' ? ['', parts[1]] : [parts[1], parts[2]];
    if (group === undefined || item === undefined || !resources.some((info) => info.group === group && info.version === item)) throw noSuchPath();
    const { text, etag } = v3(group, item);
    const hash = call.query.get('hash');
    if (hash !== null && hash !== etag) return { status: 301, kind: 'text', text: '', type: JSON_TYPE, headers: { location: `${path}?hash=${etag}` } };
    const caching: Record<string, string> =
      hash === null
        ? { 'cache-control': 'no-cache, private' }
        : { 'cache-control': 'public, immutable', expires: new Date(kernel.clock.nowMs() + 365 * 86_400_000).toUTCString() };
    return { status: 200, kind: 'text', text, type: JSON_TYPE, headers: { etag: `"${etag}"`, ...caching } };
  };
  const health = (call: Call): Answer => ({
    status: 200,
    kind: 'text',
    text: call.query.has('verbose') ? `[+]ping ok\n[+]store ok\n${call.info.path.slice(1)} check passed\n` : 'ok',
    type: 'text/plain; charset=utf-8',
  });
  return {
    async warm(signal) {
      for (const [group, versions] of groupsOf(resources)) {
        for (const item of versions) {
          await new Promise((resolve) => setImmediate(resolve));
          if (signal.aborted) return;
          v3(group, item);
        }
      }
    },
    handle(call) {
      const path = call.info.path.length > 1 ? call.info.path.replace(/\/+$/, '') : call.info.path;
      const parts = path.split('/').slice(1);
      if (call.method !== 'GET' && call.method !== 'HEAD') throw noSuchPath();
      switch (parts[0]) {
        case 'api':
          return parts.length === 1 ? discovery(call, true) : orNone(parts.length === 2 ? apiResourceList(resources, '', parts[1]!) : undefined);
        case 'apis':
          if (parts.length === 1) return discovery(call, false);
          return orNone(parts.length === 2 ? apiGroupOf(resources, parts[1]!) : apiResourceList(resources, parts[1]!, parts[2]!));
        case 'openapi':
          return openApi(path, call);
        case 'version':
          return json({
            major: '1',
            minor: kubernetesVersion.split('.')[1],
            gitVersion: version,
            gitCommit: '',
            gitTreeState: 'clean',
            buildDate: '1970-01-01T00:00:00Z',
            goVersion: `node-${process.versions.node}`,
            compiler: 'node',
            platform: `linux/${process.arch === 'x64' ? 'amd64' : process.arch}`,
          });
        case 'healthz':
        case 'livez':
        case 'readyz':
          return health(call);
        case 'metrics':
          return { status: 200, kind: 'text', text: metrics(), type: 'text/plain; version=0.0.4; charset=utf-8' };
        case '.well-known':
          return json({
            issuer: tokens.issuer,
            jwks_uri: `https://${kernel.config.advertiseAddress}:${kernel.config.securePort}/openid/v1/jwks`,
            response_types_supported: ['id_token'],
            subject_types_supported: ['public'],
            id_token_signing_alg_values_supported: ['ES256'],
          });
        case 'openid':
          return json(tokens.keySet());
        case '':
          return json({ paths: ['/api', '/api/v1', '/apis', '/healthz', '/livez', '/metrics', '/openapi/v2', '/openapi/v3', '/readyz', '/version'] });
        default:
          throw noSuchPath();
      }
    },
  };
}
