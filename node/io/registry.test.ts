import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdir, mkdtemp, readdir, readlink, rm } from 'node:fs/promises';
import { get, type IncomingMessage } from 'node:http';
import type { AddressInfo } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { blobPath, putBlob } from './images.ts';
import { imageServer } from './registry.ts';

async function isOpenHere(path: string): Promise<boolean> {
  const open = await Promise.all((await readdir('/proc/self/fd')).map((fd) => readlink(`/proc/self/fd/${fd}`).catch(() => '')));
  return open.includes(path);
}

test('a blob comes whole, and a runtime that goes away in the middle of it leaves no file open', async (t) => {
  const dir = await mkdtemp(join(tmpdir(), 'registry-'));
  t.after(() => rm(dir, { recursive: true }));
  const store = { dir };
  await mkdir(join(dir, 'blobs/sha256'), { recursive: true });
  // More than all buffers between the two.
  const bytes = Buffer.alloc(32 << 20, 7);
  const { digest } = await putBlob(store, bytes);
  const server = imageServer(store);
  server.listen(0, '127.0.0.1');
  await once(server, 'listening');
  t.after(() => void server.close());
  const ask = async (path: string): Promise<IncomingMessage> => {
    const [answer] = (await once(get({ host: '127.0.0.1', port: (server.address() as AddressInfo).port, path, agent: false }), 'response')) as [
      IncomingMessage,
    ];
    return answer;
  };
  let length = 0;
  for await (const chunk of await ask(`/v2/some/name/blobs/${digest}`)) length += (chunk as Buffer).length;
  assert.equal(length, bytes.length);
  const cut = await ask(`/v2/some/name/blobs/${digest}`);
  await once(cut, 'readable');
  assert.equal(await isOpenHere(blobPath(store, digest)), true);
  cut.destroy();
  for (let waited = 0; await isOpenHere(blobPath(store, digest)); waited += 1) {
    assert.ok(waited < 100, 'the blob stays open');
    await delay(20);
  }
  const missing = await ask(`/v2/some/name/blobs/sha256:${'0'.repeat(64)}`);
  missing.resume();
  assert.equal(missing.statusCode, 404);
});
