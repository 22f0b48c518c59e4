import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { realClock } from '../../base/clock.ts';
import { failure } from '../../base/process.ts';
import { createCriClient } from '../client.ts';
import { serveFake } from '../fake-serve.ts';
import { FakeRuntime } from '../fake.ts';
import { findEndpoints } from '../io/endpoint.ts';
import { main } from '../main.ts';

/* The commands that ask a runtime, against the fake one behind a socket. */

let folder: string;
let socket: string;
let containerId: string;
let podSandboxId: string;
const closing: AsyncDisposable[] = [];

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'cri-ask-'));
  socket = join(folder, 'fake.sock');
  const fake = new FakeRuntime({ clock: realClock });
  fake.images.add({ name: 'busybox', present: true });
  const client = createCriClient(fake);
  const labels = { 'io.kubernetes.pod.name': 'web', 'io.kubernetes.pod.namespace': 'default', 'io.kubernetes.pod.uid': 'u1' };
  const metadata = { name: 'web', namespace: 'default', uid: 'u1', attempt: 0 };
  ({ podSandboxId } = await client.runtime.runPodSandbox({ config: { metadata, labels } }));
  ({ containerId } = await client.runtime.createContainer({
    podSandboxId,
    config: { metadata: { name: 'main', attempt: 0 }, image: { image: 'busybox' }, labels },
  }));
  await client.runtime.startContainer({ containerId });
  closing.push(await serveFake(fake, socket), client);
});
after(async () => {
  for (const open of closing) await open[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
});

/** Runs `nodelet cri …` against the fake. */
async function cri(...args: string[]): Promise<{ code: number; out: string; err: string }> {
  let out = '';
  let err = '';
  const host = {
    args,
    env: { CONTAINER_RUNTIME_ENDPOINT: `unix://${socket}` },
    pid: process.pid,
    stdout: (text: string) => void (out += text),
    stderr: (text: string) => void (err += text),
    signal: new AbortController().signal,
    isTerminal: false,
  };
  const code = await main(host).catch((error: unknown) => failure(host, error));
  return { code, out, err };
}

test('call: any method by name, its request checked, its answer as JSON', async () => {
  assert.equal((JSON.parse((await cri('call', 'Version')).out) as { runtimeName: string }).runtimeName, 'containerd');
  const listed = await cri('call', 'listcontainers', '{"filter": {"pod_sandbox_id": "nothing"}}', '--json');
  assert.deepEqual([listed.code, listed.out], [0, '{"containers":[]}\n']);
  await writeFile(join(folder, 'request.json'), JSON.stringify({ containerId }));
  const status = await cri('call', 'ContainerStatus', `@${join(folder, 'request.json')}`);
  assert.match(status.out, /"state": "CONTAINER_RUNNING"/);
  const wrong = await cri('call', 'ContainerStatus', '{"contanerId": "x"}');
  assert.deepEqual(
    [wrong.code, wrong.err],
    [2, 'nodelet: reading the request: contanerId is no field of ContainerStatusRequest\n  did you mean containerId?\n'],
  );
  assert.match((await cri('call', 'ContainerStatuss')).err, /did you mean ContainerStatus\?/);
  assert.match((await cri('call', 'ContainerStatus', '{')).err, /it is no JSON/);
  const absent = await cri('call', 'ContainerStatus', '{"containerId": "no"}');
  assert.equal(absent.code, 1);
  assert.match(absent.err, /code = NotFound/);
  assert.equal((await cri('call', '--list', '--json')).out.trim().split('\n').length, 43);
  assert.deepEqual(JSON.parse((await cri('call', 'StopContainer', '--template')).out), { containerId: '', timeout: '0' });
  assert.match((await cri('call', 'Version', '--count', '2')).err, /Version answers once/);
});

test('ps, pods, images: crictl’s columns, filters, ids alone, JSON', async () => {
  const [titles = '', row = ''] = (await cri('ps')).out.split('\n');
  assert.match(titles, /^CONTAINER +IMAGE +CREATED +STATE +NAME +ATTEMPT +POD ID +POD +NAMESPACE$/);
  assert.match(row, new RegExp(`^${containerId.slice(0, 13)} +busybox +\\S.* ago +Running +main +0 +${podSandboxId.slice(0, 13)} +web +default$`));
  assert.equal((await cri('ps', '-q', '--namespace', '^def', '--image', 'busybox')).out, `${containerId}\n`);
  assert.equal((await cri('ps', '-q', '--state', 'exited')).out, '');
  assert.equal((await cri('ps', '-q', '--name', 'other')).out, '');
  assert.equal((JSON.parse((await cri('ps', '--json')).out) as { id: string }).id, containerId);
  assert.match((await cri('pods')).out, new RegExp(`\n${podSandboxId.slice(0, 13)} +\\S.* ago +Ready +web +default +0 +\\(default\\)\n`));
  assert.equal((await cri('pods', '-q', '--label', 'io.kubernetes.pod.name=none')).out, '');
  assert.match((await cri('images')).out, /^IMAGE +TAG +IMAGE ID +SIZE\ndocker\.io\/library\/busybox +latest +\w{13} +\S+B\n$/);
  assert.match((await cri('images', 'busybox', '-q')).out, /^sha256:|^\w+\n$/);
  assert.equal((await cri('ps', '--label', 'nothing')).code, 2);
});

test('inspect: by name, by the beginning of an id, and what is ambiguous is told', async () => {
  assert.equal((JSON.parse((await cri('inspect', 'default/web/main')).out) as { kind: string }).kind, 'container');
  assert.equal((JSON.parse((await cri('inspect', podSandboxId.slice(0, 13), '--json')).out) as { kind: string }).kind, 'sandbox');
  assert.equal((JSON.parse((await cri('inspect', 'busybox')).out) as { kind: string }).kind, 'image');
  const several = await cri('inspect', '000');
  assert.equal(several.code, 2);
  assert.match(several.err, /"000" may be any of 2: container \w{13} default\/web\/main; sandbox \w{13} default\/web/);
  assert.match((await cri('inspect', 'nothing')).err, /no container, sandbox, image is called "nothing"/);
});

test('exec, logs: what goes together and what does not', async () => {
  assert.match((await cri('exec', '--sync', '-i', 'web', '--', 'true')).err, /--sync has neither input nor a terminal/);
  assert.match((await cri('exec', 'nothing', '--', 'true')).err, /no container is called "nothing"/);
  assert.match((await cri('logs', '--previous', 'web')).err, /main #0 has none|is called/);
  assert.match((await cri('logs', '--since', 'soon', 'web')).err, /"soon" is no time/);
});

test('the endpoint: flag, variable, crictl’s file, the usual places', async () => {
  const file = join(folder, 'crictl.yaml');
  await writeFile(file, 'runtime-endpoint: unix:///file.sock\nimage-endpoint: unix:///image.sock\n');
  const env = { CRI_CONFIG_FILE: file };
  const usual = [join(folder, 'absent.sock'), socket];
  assert.deepEqual(await findEndpoints({ runtimeEndpoint: 'unix:///flag.sock' }, { ...env, CONTAINER_RUNTIME_ENDPOINT: 'unix:///env.sock' }, usual), {
    runtime: 'unix:///flag.sock',
    image: 'unix:///flag.sock',
  });
  assert.equal((await findEndpoints({}, { ...env, CONTAINER_RUNTIME_ENDPOINT: 'unix:///env.sock' }, usual)).runtime, 'unix:///env.sock');
  assert.deepEqual(await findEndpoints({}, env, usual), { runtime: 'unix:///file.sock', image: 'unix:///image.sock' });
  await writeFile(file, '');
  assert.equal((await findEndpoints({}, env, usual)).runtime, `unix://${socket}`);
  await assert.rejects(findEndpoints({}, env, [join(folder, 'absent.sock')]), { code: 'not-found' });
});
