import assert from 'node:assert/strict';
import { spawn } from 'node:child_process';
import { request } from 'node:http';
import { before, after, test } from 'node:test';
import { eventually, type TestSet } from '../set.ts';
import { pod, shopService } from './manifests.ts';
import { podList, podNamed, ready, skip, withShop, world } from './world.ts';

let set: TestSet;
before(async () => {
  if (skip !== false) return;
  set = await world('wt-service');
  await withShop(set);
  await set.k(['apply', '-f', '-'], shopService);
  await set.k(['-n', 'shop', 'apply', '-f', '-'], pod('client', 'containers:\n- { name: m, image: "busybox:1.37", command: [sleep, "3600"] }', 'shop'));
  await ready(set, 'shop', 'client');
});
after(async () => {
  await set?.[Symbol.asyncDispose]();
});

const inClient = async (...command: string[]): Promise<{ code: number; out: string; err: string }> =>
  set.kubectl(['-n', 'shop', 'exec', 'client', '--', ...command]);
const clusterIP = (): Promise<string> => set.k(['-n', 'shop', 'get', 'service', 'web', '-o', 'jsonpath={.spec.clusterIP}']);

function fetchPage(host: string, port = 80): Promise<number> {
  return new Promise((resolve, reject) => {
    const call = request({ host, port, agent: false, timeout: 3_000 }, (response) => {
      response.resume();
      response.on('end', () => resolve(response.statusCode ?? 0));
    });
    call.on('timeout', () => call.destroy(new Error('timeout')));
    call.on('error', reject);
    call.end();
  });
}

interface Slice {
  metadata: { name: string; labels: Record<string, string> };
  addressType: string;
  ports: { port: number; protocol: string }[];
  endpoints: { addresses: string[]; conditions: { ready: boolean; serving?: boolean; terminating?: boolean }; nodeName: string; targetRef: { name: string } }[];
}
const slices = async (service: string): Promise<Slice[]> =>
  (JSON.parse(await set.k(['-n', 'shop', 'get', 'endpointslices', '-l', `kubernetes.io/service-name=${service}`, '-o', 'json'])) as { items: Slice[] }).items;

test('1.39: a ClusterIP that no interface has and no process listens on', { skip }, async () => {
  const row = (await set.k(['-n', 'shop', 'get', 'service', 'web', '--no-headers'])).split(/\s+/);
  assert.deepEqual([row[1], row[3], row[4]], ['ClusterIP', '<none>', '80/TCP']);
  const address = row[2] ?? '';
  assert.match(address, /^10\.\d+\.\d+\.\d+$/);
  const node = await set.nodelet(['exec', '--', 'sh', '-c', 'ip -o addr; ss -lntu']);
  assert.equal(node.out.includes(address), false);
});

test('1.40: one EndpointSlice and the Endpoints with the same addresses', { skip }, async () => {
  const found = await slices('web');
  assert.equal(found.length, 1);
  const slice = found[0] as Slice;
  assert.match(slice.metadata.name, /^web-[a-z0-9]{5}$/);
  assert.equal(slice.addressType, 'IPv4');
  assert.deepEqual(
    slice.ports.map((port) => port.port),
    [80],
  );
  const addresses = slice.endpoints.map((endpoint) => endpoint.addresses[0] ?? '').sort();
  assert.equal(addresses.length, 3);
  for (const endpoint of slice.endpoints) assert.deepEqual([endpoint.conditions.ready, endpoint.nodeName], [true, 'node-1']);
  const endpoints = (await set.k(['-n', 'shop', 'get', 'endpoints', 'web', '-o', 'jsonpath={.subsets[0].addresses[*].ip}'])).split(' ').sort();
  assert.deepEqual(endpoints, addresses);
});

test('1.41: connections from pod, node and host reach every pod, a third each; a kept one stays', { skip }, async () => {
  const address = await clusterIP();
  assert.equal(await fetchPage(address), 200, 'from the host');
  assert.equal((await inClient('wget', '-q', '-O', '/dev/null', `http://${address}/`)).code, 0, 'from a pod');
  assert.match((await set.nodelet(['exec', '--', 'busybox', 'wget', '-q', '-O', '-', `http://${address}/`])).out, /It works|Welcome to nginx/, 'from the node');
  const pods = await podList(set, 'shop', 'app=web');
  for (const one of pods) await set.k(['-n', 'shop', 'exec', one.metadata.name, '--', 'sh', '-c', `echo ${one.metadata.name} > /usr/share/nginx/html/name`]);
  const counted = await inClient('sh', '-c', `for i in $(seq 90); do wget -q -O - http://${address}/name; done | sort | uniq -c`);
  const counts = counted.out
    .trim()
    .split('\n')
    .map((line) => Number(line.trim().split(' ')[0]));
  assert.equal(counts.length, 3, counted.out);
  for (const count of counts) assert.ok(count > 12 && count < 50, counted.out);
});

test('1.42: nobody answers a ping to the ClusterIP', { skip }, async () => {
  const answer = await inClient('ping', '-c', '2', '-W', '1', await clusterIP());
  assert.match(answer.out, /2 packets transmitted, 0 packets received/);
});

test('1.43: readiness takes a pod out and does not restart it, liveness restarts it; a wrong selector refuses', { skip, timeout: 120_000 }, async () => {
  await set.k(
    ['apply', '-f', '-'],
    pod(
      'probed',
      'containers:\n- name: m\n  image: "busybox:1.37"\n  command: [sh, -c, "touch /tmp/ready /tmp/alive; sleep 3600"]\n  readinessProbe: { exec: { command: [cat, /tmp/ready] }, periodSeconds: 1, failureThreshold: 1 }\n  livenessProbe: { exec: { command: [cat, /tmp/alive] }, periodSeconds: 1, failureThreshold: 2 }\n  ports: [{ containerPort: 80 }]',
      'shop',
      '{ app: probed }',
    ),
  );
  await set.k(['apply', '-f', '-'], shopService.replace('name: web', 'name: probed').replace('app: web', 'app: probed'));
  const before = await ready(set, 'shop', 'probed');
  await set.k(['-n', 'shop', 'exec', 'probed', '--', 'rm', '/tmp/ready']);
  await eventually('not ready in the slice', 10_000, async () => ((await slices('probed'))[0]?.endpoints[0]?.conditions.ready === false ? true : null));
  assert.equal((await podNamed(set, 'shop', 'probed')).status.containerStatuses?.[0]?.restartCount, 0);
  await set.k(['-n', 'shop', 'exec', 'probed', '--', 'rm', '/tmp/alive']);
  const after = await eventually('restarted', 60_000, async () => {
    const now = await podNamed(set, 'shop', 'probed');
    return now.status.containerStatuses?.[0]?.restartCount === 1 ? now : null;
  });
  assert.equal(after.status.podIP, before.status.podIP);
  await set.k(['apply', '-f', '-'], shopService.replace('name: web', 'name: typo').replace('app: web', 'app: wbe'));
  const resolved = await eventually('the name resolves', 5_000, async () => {
    const answer = await inClient('nslookup', 'typo.shop.svc.cluster.local');
    return answer.code === 0 ? answer.out : null;
  });
  assert.ok(resolved.includes(await set.k(['-n', 'shop', 'get', 'service', 'typo', '-o', 'jsonpath={.spec.clusterIP}'])));
  await eventually('refused', 5_000, async () => (/refused/i.test((await inClient('wget', '-q', '-O', '-', 'http://typo.shop/')).err) ? true : null));
  await set.k(['-n', 'shop', 'delete', 'pod', 'probed', '--grace-period=0', '--force']);
});

test('1.44: names of Services, short and whole', { skip }, async () => {
  const address = await clusterIP();
  for (const name of ['web.shop.svc.cluster.local', 'web.shop.svc.cluster.local.']) {
    const answer = await inClient('nslookup', name);
    assert.ok(answer.out.includes(address), answer.out);
  }
  for (const name of ['web', 'web.shop', 'web.shop.svc']) assert.equal((await inClient('wget', '-q', '-O', '/dev/null', `http://${name}/`)).code, 0, name);
  const unknown = await inClient('nslookup', 'nothing.shop.svc.cluster.local');
  assert.match(`${unknown.out}${unknown.err}`, /NXDOMAIN/);
});

test('1.45: a headless Service resolves to its pods, and each pod has a name', { skip }, async () => {
  await set.k(
    ['apply', '-f', '-'],
    pod(
      'redis-0',
      'hostname: redis-0\nsubdomain: redis\ncontainers:\n- { name: m, image: "busybox:1.37", command: [sleep, "3600"] }',
      'shop',
      '{ app: redis }',
    ),
  );
  await set.k(
    ['apply', '-f', '-'],
    'apiVersion: v1\nkind: Service\nmetadata: { name: redis, namespace: shop }\nspec: { clusterIP: None, selector: { app: redis }, ports: [{ port: 6379 }] }\n',
  );
  const one = await ready(set, 'shop', 'redis-0');
  for (const name of ['redis.shop.svc.cluster.local', 'redis-0.redis.shop.svc.cluster.local']) {
    await eventually(name, 10_000, async () => ((await inClient('nslookup', name)).out.includes(one.status.podIP ?? 'none') ? true : null));
  }
});

test('1.46: NodePort on the node’s address, LoadBalancer pending, ExternalName without a rule', { skip }, async () => {
  await set.k(['-n', 'shop', 'patch', 'service', 'web', '-p', '{"spec":{"type":"NodePort"}}']);
  const port = Number(await set.k(['-n', 'shop', 'get', 'service', 'web', '-o', 'jsonpath={.spec.ports[0].nodePort}']));
  assert.ok(port >= 30_000 && port <= 32_767);
  const node = (await set.status()).nodes[0]?.ip ?? '';
  await eventually('the NodePort answers', 5_000, async () => ((await fetchPage(node, port)) === 200 ? true : null));
  await set.k(['-n', 'shop', 'patch', 'service', 'web', '-p', '{"spec":{"type":"LoadBalancer"}}']);
  assert.equal((await set.k(['-n', 'shop', 'get', 'service', 'web', '--no-headers'])).split(/\s+/)[3], '<pending>');
  await set.k(['-n', 'shop', 'patch', 'service', 'web', '-p', '{"spec":{"type":"ClusterIP"}}']);
  await set.k(['-n', 'shop', 'create', 'service', 'externalname', 'far', '--external-name', 'example.com']);
  const answer = await inClient('nslookup', '-type=cname', 'far.shop.svc.cluster.local');
  assert.match(answer.out, /canonical name = example\.com/);
  assert.doesNotMatch((await set.nodelet(['exec', '--', 'nft', 'list', 'table', 'ip', 'kube-proxy'])).out, /shop\/far/);
});

test('1.47: port-forward to a Service', { skip }, async () => {
  const { kubeconfig } = await set.status();
  const child = spawn('kubectl', [`--kubeconfig=${kubeconfig}`, '-n', 'shop', 'port-forward', 'svc/web', ':80'], { stdio: ['ignore', 'pipe', 'inherit'] });
  let text = '';
  child.stdout.setEncoding('utf8').on('data', (chunk: string) => {
    text += chunk;
  });
  const ended = new Promise<void>((resolve) => child.on('close', () => resolve()));
  try {
    const port = await eventually('the local port', 10_000, async () => /Forwarding from 127\.0\.0\.1:(\d+) -> 80/.exec(text)?.[1] ?? null);
    for (let at = 0; at < 5; at += 1) assert.equal(await fetchPage('127.0.0.1', Number(port)), 200);
  } finally {
    child.kill();
    await ended;
  }
});
