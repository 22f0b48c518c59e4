import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nodeAttributes, placeOf, readLogQuery, type ServerRoute } from './server-paths.ts';

test('what is asked of the authorizer', () => {
  const cases: [string, string, string][] = [
    ['GET', '/stats/summary', 'get:stats'],
    ['GET', '/metrics', 'get:metrics'],
    ['GET', '/metrics/cadvisor', 'get:metrics'],
    ['GET', '/metricsx', 'get:proxy'],
    ['GET', '/logs/x', 'get:log'],
    ['GET', '/pods', 'get:pods get:proxy'],
    ['GET', '/runningpods/', 'get:pods get:proxy'],
    ['GET', '/healthz/syncloop', 'get:healthz get:proxy'],
    ['GET', '/configz', 'get:configz get:proxy'],
    ['POST', '/exec/a/b/c', 'create:proxy'],
    ['GET', '/containerLogs/a/b/c', 'get:proxy'],
    ['POST', '/checkpoint/a/b/c', 'create:checkpoint'],
    ['GET', '/', 'get:proxy'],
  ];
  for (const [method, path, expected] of cases) {
    assert.equal(
      nodeAttributes(method, path)
        .map(({ verb, subresource }) => `${verb}:${subresource}`)
        .join(' '),
      expected,
      path,
    );
  }
});

const routeOf = (path: string): ServerRoute | null => {
  const place = placeOf(path);
  return place.kind === 'here' ? place.route : assert.fail(`${path} leads ${place.kind}`);
};

test('routes', () => {
  assert.deepEqual(routeOf('/containerLogs/ns/p/c'), { kind: 'logs', namespace: 'ns', pod: 'p', container: 'c' });
  assert.deepEqual(routeOf('/exec/ns/p/c'), { kind: 'exec', namespace: 'ns', pod: 'p', uid: null, container: 'c' });
  assert.deepEqual(routeOf('/attach/ns/p/u/c'), { kind: 'attach', namespace: 'ns', pod: 'p', uid: 'u', container: 'c' });
  assert.deepEqual(routeOf('/portForward/ns/p'), { kind: 'portForward', namespace: 'ns', pod: 'p', uid: null });
  assert.deepEqual(routeOf('/runningpods/'), { kind: 'runningpods' });
  assert.deepEqual(routeOf('/healthz'), { kind: 'healthz', check: '' });
  assert.deepEqual(routeOf('/pods/'), { kind: 'pods' });
  assert.deepEqual(routeOf('/logs/a/b'), { kind: 'systemLogs', path: 'a/b' });
  assert.deepEqual(routeOf('/%6detrics'), { kind: 'metrics', what: '' });
  for (const path of ['/exec/a/b', '/pods/x', '/run/a/b', '/checkpoint/a/b', '/stats/x', '/stats/']) assert.equal(routeOf(path), null, path);
});

test('where a path leads, before anybody is asked who he is', () => {
  const leads = (path: string): string => {
    const place = placeOf(path);
    return place.kind === 'elsewhere' ? `to ${place.path}` : place.kind === 'here' ? `here ${place.path}` : place.kind;
  };
  const cases: [string, string][] = [
    ['/', 'nowhere'],
    ['/nothing', 'nowhere'],
    ['/metrics/', 'nowhere'],
    ['/metrics/other', 'nowhere'],
    ['/healthz/', 'nowhere'],
    ['/debug', 'nowhere'],
    ['/%zz', 'nowhere'],
    ['/Metrics', 'nowhere'],
    ['/constructor', 'nowhere'],
    ['/__proto__', 'nowhere'],
    ['/runningpods', 'to /runningpods/'],
    ['/logs', 'to /logs/'],
    ['/stats', 'to /stats/'],
    ['//metrics', 'to /metrics'],
    ['//', 'to /'],
    ['/metrics/../exec/ns/p/c', 'to /exec/ns/p/c'],
    ['/logs/../../etc/passwd', 'to /etc/passwd'],
    ['/exec/./a//b', 'to /exec/a/b'],
    // Written in another way a slash or dots are part of a name: nothing is judged as one path and served as another.
    ['/metrics%2f..%2fpods', 'nowhere'],
    ['/metrics/..%2fpods', 'nowhere'],
    ['/%65xec/ns/p/c', 'here /exec/ns/p/c'],
    ['/logs/%2e%2e/etc/passwd', 'here /logs/../etc/passwd'],
  ];
  for (const [path, expected] of cases) assert.equal(leads(path), expected, path);
});

const read = (query: string) => readLogQuery((key) => new URLSearchParams(query).get(key));

test('log queries', () => {
  assert.deepEqual(read('follow=true&tailLines=5&timestamps=1&sinceSeconds=10'), {
    follow: true,
    previous: false,
    timestamps: true,
    tailLines: 5,
    limitBytes: null,
    sinceAgoMs: 10_000,
    sinceTime: null,
    stream: 'All',
  });
  assert.equal(read('tailLines=x'), 'undecodable');
  for (const query of [
    'tailLines=-1',
    'limitBytes=0',
    'sinceSeconds=0',
    'sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z',
    'stream=Other',
    'stream=Stdout&tailLines=1',
  ])
    assert.equal(read(query), 'invalid', query);
});
