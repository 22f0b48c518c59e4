import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { before, after, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { eventually, type TestSet } from '../set.ts';
import { web } from './manifests.ts';
import { skip, world } from './world.ts';

let set: TestSet;
before(async () => {
  if (skip !== false) return;
  set = await world('wt-versions');
  await set.k(['apply', '-f', '-'], web);
  await set.k(['rollout', 'status', 'deploy/web', '--timeout=60s']);
});
after(async () => {
  await set?.[Symbol.asyncDispose]();
});

async function watchPods(during: () => Promise<void>): Promise<string[][]> {
  const { kubeconfig } = await set.status();
  const child = spawn('kubectl', [`--kubeconfig=${kubeconfig}`, 'get', 'pods', '-l', 'app=web', '--watch', '--output-watch-events', '--no-headers'], {
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk;
  });
  const ended = new Promise<void>((resolve) => child.on('close', () => resolve()));
  try {
    await eventually('the list', 10_000, async () => (text.split('\n').length > 3 ? true : null));
    await during();
  } finally {
    child.kill();
    await ended;
  }
  return text
    .trim()
    .split('\n')
    .map((line) => line.split(/\s+/));
}

test('1.16: a watch sees one pod come and one go, in order', { skip }, async () => {
  const rows = await watchPods(async () => {
    await set.k(['scale', 'deploy/web', '--replicas=4']);
    await delay(6_000);
    await set.k(['scale', 'deploy/web', '--replicas=3']);
    await delay(6_000);
  });
  assert.deepEqual(
    rows.slice(0, 3).map((row) => row[0]),
    ['ADDED', 'ADDED', 'ADDED'],
  );
  const old = new Set(rows.slice(0, 3).map((row) => row[1]));
  const rest = rows.slice(3);
  const fresh = rest.find((row) => row[0] === 'ADDED')?.[1];
  assert.ok(fresh !== undefined && !old.has(fresh), 'a new pod is ADDED');
  const steps = (name: string | undefined, from: readonly string[][]): string[] =>
    from.filter((row) => row[1] === name).map((row) => `${row[0]} ${row[2]} ${row[3]}`);
  const coming = steps(
    fresh,
    rest.filter((row) => !['Terminating', 'Completed'].includes(row[3] ?? '') && row[0] !== 'DELETED'),
  );
  const allowed = ['ADDED 0/1 Pending', 'MODIFIED 0/1 Pending', 'MODIFIED 0/1 ContainerCreating', 'MODIFIED 1/1 Running'];
  assert.deepEqual([...new Set(coming)], allowed);
  assert.deepEqual(
    coming,
    [...coming].sort((a, b) => allowed.indexOf(a) - allowed.indexOf(b)),
    'never out of order',
  );
  const gone = rest.find((row) => row[0] === 'DELETED')?.[1];
  const going = steps(gone, rest).filter((step) => !allowed.includes(step));
  const order = ['MODIFIED 1/1 Terminating', 'MODIFIED 0/1 Completed', 'DELETED 0/1 Completed'];
  assert.deepEqual([...new Set(going)], order, going.join(', '));
  assert.deepEqual(
    going,
    [...going].sort((a, b) => order.indexOf(a) - order.indexOf(b)),
    'never out of order',
  );
});

test('1.17: a version out of the window is 410 inside a 200', { skip }, async () => {
  const { server, kubeconfig } = await set.status();
  assert.match(server, /^https:/);
  assert.ok(kubeconfig.length > 0);
  const answer = await set.kubectl(['get', '--raw', '/api/v1/namespaces/default/pods?watch=1&resourceVersion=1', '--request-timeout=5s']);
  const lines = answer.out.trim().split('\n');
  const event = JSON.parse(lines[0] ?? '') as { type: string; object: { kind: string; reason: string; code: number; message: string } };
  assert.equal(event.type, 'ERROR');
  assert.equal(event.object.kind, 'Status');
  assert.equal(event.object.reason, 'Expired');
  assert.equal(event.object.code, 410);
  assert.match(event.object.message, /^too old resource version: 1 \(\d+\)$/);
  assert.equal(lines.length, 1);
});

test('1.18: a stale replace conflicts, a scale does not', { skip }, async () => {
  const saved = await set.k(['get', 'deploy', 'web', '-o', 'yaml']);
  await set.k(['scale', 'deploy/web', '--replicas=2']);
  const replaced = await set.kubectl(['replace', '-f', '-'], { input: saved });
  assert.notEqual(replaced.code, 0);
  assert.match(replaced.err, /Error from server \(Conflict\)/);
  assert.match(
    replaced.err,
    /Operation cannot be fulfilled on deployments\.apps "web": the object has been modified; please apply your changes to the latest version and try again/,
  );
  await set.k(['scale', 'deploy/web', '--replicas=3']);
  await set.k(['patch', 'deploy', 'web', '-p', '{"metadata":{"labels":{"x":"y"}}}']);
});

test('1.19: a watch from the list’s version gives each later change once', { skip }, async () => {
  const list = JSON.parse(await set.k(['get', '--raw', '/api/v1/namespaces/default/configmaps'])) as { metadata: { resourceVersion: string } };
  for (const name of ['a', 'b', 'c']) await set.k(['create', 'configmap', `watch-${name}`]);
  const watch = async (version: string): Promise<{ type: string; object: { metadata: { name: string; resourceVersion: string } } }[]> =>
    (await set.k(['get', '--raw', `/api/v1/namespaces/default/configmaps?watch=1&resourceVersion=${version}&timeoutSeconds=2`]))
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as never);
  const first = await watch(list.metadata.resourceVersion);
  assert.deepEqual(
    first.map((event) => `${event.type} ${event.object.metadata.name}`),
    ['ADDED watch-a', 'ADDED watch-b', 'ADDED watch-c'],
  );
  const later = await watch(first[1]?.object.metadata.resourceVersion ?? '');
  assert.deepEqual(
    later.map((event) => event.object.metadata.name),
    ['watch-c'],
    'from the last seen version nothing is lost or repeated',
  );
});
