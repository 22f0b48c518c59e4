import assert from 'node:assert/strict';
import { execFileSync, spawn, type ChildProcess } from 'node:child_process';
import { once } from 'node:events';
import { openSync, closeSync } from 'node:fs';
import { mkdir, mkdtemp, readdir, rm, statfs, writeFile } from 'node:fs/promises';
import { request } from 'node:https';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { eventually } from '../set.ts';
import { freePort } from '../control/control.ts';
import { bareConfiguration } from './bare-configuration.ts';

/*
 * The agent on a disk that is full: below its root directory and below its own log. It must stay, and start, for it is the one
 * that makes room. The disk is a small tmpfs, the runtime the one in memory.
 */
const repo = new URL('../..', import.meta.url).pathname;
const skip = process.getuid?.() !== 0 ? 'needs root: it mounts' : false;
if (skip !== false) console.log(`full disk: skipped, ${skip}`);

interface Place {
  readonly folder: string;
  readonly disk: string;
  readonly start: () => ChildProcess;
  readonly pods: () => Promise<string>;
  readonly fill: () => Promise<void>;
  readonly manifest: (name: string, spec?: object) => Promise<void>;
}

async function open(t: TestContext): Promise<Place> {
  const folder = await mkdtemp(join(tmpdir(), 'full-disk-'));
  const disk = join(folder, 'disk');
  await mkdir(join(folder, 'manifests'));
  await mkdir(disk);
  execFileSync('mount', ['-t', 'tmpfs', '-o', 'size=2m', 'tmpfs', disk]);
  const socket = join(folder, 'cri.sock');
  const runtime = spawn(process.execPath, [join(repo, 'test/cri/fake-runtime.ts'), socket, 'pulls'], { stdio: ['ignore', 'pipe', 'inherit'] });
  const children: ChildProcess[] = [runtime];
  t.after(async () => {
    for (const child of children) {
      const ended = child.exitCode === null && child.signalCode === null ? once(child, 'exit') : null;
      child.kill('SIGKILL');
      await ended;
    }
    execFileSync('umount', ['-R', '-l', disk]);
    await rm(folder, { recursive: true, force: true });
  });
  await once(runtime.stdout, 'data');
  const port = await freePort();
  const config = bareConfiguration({ folder, port, logs: join(disk, 'logs') });
  await writeFile(join(folder, 'kubelet.yaml'), JSON.stringify(config));
  return {
    folder,
    disk,
    start() {
      const log = openSync(join(disk, 'agent.log'), 'a');
      const own = [
        `--config=${join(folder, 'kubelet.yaml')}`,
        '--hostname-override=n1',
        `--root-dir=${join(disk, 'root')}`,
        `--cert-dir=${join(disk, 'pki')}`,
        '--v=2',
      ];
      const child = spawn(process.execPath, ['--disable-warning=ExperimentalWarning', join(repo, 'node/main.ts'), 'agent', ...own], {
        stdio: ['ignore', 'ignore', log],
      });
      closeSync(log);
      children.push(child);
      return child;
    },
    async pods() {
      const sent = request({ host: '127.0.0.1', port, path: '/pods', rejectUnauthorized: false, agent: false });
      sent.end();
      const [response] = (await once(sent, 'response')) as [AsyncIterable<Buffer>];
      let text = '';
      for await (const piece of response) text += String(piece);
      const { items } = JSON.parse(text) as { items: { metadata: { name: string }; status?: { phase?: string } }[] };
      return items
        .map(({ metadata, status }) => `${metadata.name} ${status?.phase}`)
        .toSorted()
        .join();
    },
    async fill() {
      for (const bytes of [65_536, 4096, 1]) {
        for (let count = 0; ; count += 1) {
          try {
            await writeFile(join(disk, `fill-${bytes}`), Buffer.alloc(bytes), { flag: 'a' });
          } catch (error) {
            assert.equal((error as NodeJS.ErrnoException).code, 'ENOSPC');
            break;
          }
          assert.ok(count < 10_000);
        }
      }
      assert.equal((await statfs(disk)).bavail, 0);
    },
    async manifest(name, spec = {}) {
      const pod = { hostNetwork: true, containers: [{ name: 'c', image: 'registry.example/app:1', imagePullPolicy: 'IfNotPresent' }], ...spec };
      await writeFile(
        join(folder, 'manifests', `${name}.yaml`),
        JSON.stringify({ apiVersion: 'v1', kind: 'Pod', metadata: { name, namespace: 'kube-system' }, spec: pod }),
      );
    },
  };
}

test('the agent stays on a full disk, starts on it, and goes on when there is room', { skip, timeout: 240_000 }, async (t) => {
  const place = await open(t);
  const until = (expected: string): Promise<unknown> =>
    eventually(`the pods ${expected}`, 60_000, async () => ((await place.pods().catch(() => '')) === expected ? true : null));
  await place.manifest('one');
  const first = place.start();
  await until('one-n1 Running');
  await place.fill();
  // What is asked of it now needs directories, records and lines in the log.
  await place.manifest('two');
  for (let count = 0; count < 5; count += 1) {
    await place.pods();
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
  assert.equal(first.exitCode, null, 'it has ended');
  const ended = once(first, 'exit');
  first.kill('SIGKILL');
  await ended;
  const second = place.start();
  await eventually('that it answers', 60_000, async () => {
    assert.equal(second.exitCode, null, 'it does not start');
    return (await place.pods().catch(() => '')) === '' ? null : true;
  });
  for (const name of (await readdir(place.disk)).filter((each) => each.startsWith('fill-'))) await rm(join(place.disk, name));
  await until('one-n1 Running,two-n1 Running');
  assert.equal(second.exitCode, null);
});
