import assert from 'node:assert/strict';
import { test } from 'node:test';
import { nodeAttributes, readLogQuery, routeOf } from './server-paths.ts';

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

test('routes', () => {
  assert.deepEqual(routeOf('/containerLogs/ns/p/c'), { kind: 'logs', namespace: 'ns', pod: 'p', container: 'c' });
  assert.deepEqual(routeOf('/exec/ns/p/c'), { kind: 'exec', namespace: 'ns', pod: 'p', uid: null, container: 'c' });
  assert.deepEqual(routeOf('/attach/ns/p/u/c'), { kind: 'attach', namespace: 'ns', pod: 'p', uid: 'u', container: 'c' });
  assert.deepEqual(routeOf('/portForward/ns/p'), { kind: 'portForward', namespace: 'ns', pod: 'p', uid: null });
  assert.deepEqual(routeOf('/runningpods/'), { kind: 'runningpods' });
  assert.deepEqual(routeOf('/healthz'), { kind: 'healthz', check: '' });
  for (const path of ['/', '/exec/a/b', '/nothing', '/pods/x', '/metrics/other', '/%zz', '/debug/flags', '/run/a/b', '/checkpoint/a/b']) assert.equal(routeOf(path), null, path);
});

const read = (query: string) => readLogQuery((key) => new URLSearchParams(query).get(key));
const problem = (query: string): string => {
  const answer = read(query);
  return typeof answer === 'string' ? answer : assert.fail(`${query} was accepted`);
};

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
  assert.match(problem('tailLines=-1'), /tailLines: Invalid value: -1/);
  assert.match(problem('tailLines=x'), /Unable to decode/);
  assert.match(problem('limitBytes=0'), /limitBytes/);
  assert.match(problem('sinceSeconds=1&sinceTime=2026-01-01T00:00:00Z'), /at most one of/);
  assert.match(problem('stream=Other'), /Unsupported value/);
  assert.match(problem('stream=Stdout&tailLines=1'), /mutually exclusive/);
});
