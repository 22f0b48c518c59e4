import assert from 'node:assert/strict';
import { once } from 'node:events';
import { mkdtempSync, rmSync } from 'node:fs';
import { connect } from 'node:http2';
import type { ClientHttp2Session, ClientHttp2Stream } from 'node:http2';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import type { FakeClock } from '../../base/fake-clock.ts';
import { silentLog } from '../../base/log.ts';
import { seededRng } from '../../base/rng.ts';
import { startControl } from './start.ts';

async function withServer(run: (session: ClientHttp2Session, clock: FakeClock) => Promise<void>): Promise<void> {
  const dir = mkdtempSync(join(tmpdir(), 'server-'));
  const clock = createFakeClock(Date.now());
  try {
    await using control = await startControl({
      dataDir: join(dir, 'data'),
      pkiDir: join(dir, 'pki'),
      bindAddress: '127.0.0.1',
      extraSans: [],
      durability: 'process',
      config: {
        serviceCidr: '10.96.0.0/16',
        clusterCidr: '10.244.0.0/16',
        advertiseAddress: '127.0.0.1',
        securePort: 0,
        kubeletPort: 10250,
        dnsAddress: '127.0.0.1',
        dnsPort: 53,
        dnsUpstreams: [],
        clusterDomain: 'cluster.local',
      },
      clock,
      rng: seededRng(1),
      log: silentLog,
      fatal: (error) => assert.fail(String(error)),
    });
    const session = connect(`https://127.0.0.1:${control.port}`, { ca: control.caPem });
    session.on('error', () => {});
    await once(session, 'connect');
    await run(session, clock);
    session.destroy();
  } finally {
    rmSync(dir, { recursive: true });
  }
}

const slowPost = (session: ClientHttp2Session): ClientHttp2Stream => {
  const stream = session.request({ ':method': 'POST', ':path': '/api/v1/namespaces/default/pods' }, { endStream: false });
  stream.write('{');
  return stream;
};

test('requests whose bodies do not come take nobody else’s place', async () => {
  await withServer(async (session) => {
    for (let count = 0; count < 620; count++) slowPost(session);
    const healthy = session.request({ ':path': '/healthz' });
    const [headers] = (await once(healthy, 'response')) as [{ ':status': number }];
    assert.equal(headers[':status'], 200);
  });
});

test('a body is not waited for longer than a minute', async () => {
  await withServer(async (session, clock) => {
    const slow = slowPost(session);
    const healthy = session.request({ ':path': '/healthz' });
    await once(healthy, 'response');
    const closed = once(slow, 'close');
    await clock.advance(61_000);
    await closed;
  });
});

test('a request target that is no URL is the client’s mistake', async () => {
  await withServer(async (session) => {
    for (const path of ['//', '//[', '/%zz']) {
      const [headers] = (await once(session.request({ ':path': path }), 'response')) as [{ ':status': number }];
      assert.ok(headers[':status'] >= 400 && headers[':status'] < 500, `${path}: ${headers[':status']}`);
    }
  });
});
