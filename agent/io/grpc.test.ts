import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { test } from 'node:test';
import { realClock } from '../../base/clock.ts';
import { RpcError } from '../../cri/mod.ts';
import health from '../../proto/plugins/dra_health.json' with { type: 'json' };
import type { DRAResourceHealthMethods } from '../../proto/plugins/dra_health.ts';
import registration from '../../proto/plugins/registration.json' with { type: 'json' };
import type { RegistrationMethods } from '../../proto/plugins/registration.ts';
import { GrpcClient, served, serveGrpc, serviceOf } from './grpc.ts';

test('calls, streams and refusals go over a unix socket, a service under an older name too', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'grpc-'));
  const service = serviceOf<RegistrationMethods>(registration, 'pluginregistration.Registration');
  const older = serviceOf<DRAResourceHealthMethods>(health, 'v1.DRAResourceHealth', 'v1alpha1.DRAResourceHealth');
  const heard: object[] = [];
  try {
    await using server = await serveGrpc(`${dir}/a.sock`, [
      served(service, {
        GetInfo: () => ({ type: 'CSIPlugin', name: 'a.example', supportedVersions: ['1.0.0'] }),
        NotifyRegistrationStatus(status) {
          heard.push(status);
          throw new RpcError('FailedPrecondition', 'NotifyRegistrationStatus', 'not now');
        },
      }),
      served(older, {
        async *NodeWatchResources() {
          yield { devices: [{ device: { poolName: 'p', deviceName: 'd' }, health: 'UNHEALTHY' }] };
          yield { devices: [] };
        },
      }),
    ]);
    void server;
    using client = new GrpcClient(service, `unix://${dir}/a.sock`, realClock);
    assert.deepEqual(await client.call('GetInfo', {}, { timeoutMs: 5000 }), {
      type: 'CSIPlugin',
      name: 'a.example',
      endpoint: '',
      supportedVersions: ['1.0.0'],
    });
    await assert.rejects(
      client.call('NotifyRegistrationStatus', { pluginRegistered: false, error: 'no' }, { timeoutMs: 5000 }),
      (error) => error instanceof RpcError && error.goMessage === 'rpc error: code = FailedPrecondition desc = not now',
    );
    assert.deepEqual(heard, [{ pluginRegistered: false, error: 'no' }]);
    using watcher = new GrpcClient(older, `${dir}/a.sock`, realClock);
    const seen: number[] = [];
    for await (const { devices } of watcher.stream('NodeWatchResources', {}, new AbortController().signal)) seen.push(devices.length);
    assert.deepEqual(seen, [1, 0]);
  } finally {
    await rm(dir, { recursive: true });
  }
});

test('a socket where nobody listens is unavailable at once', async () => {
  const service = serviceOf<RegistrationMethods>(registration, 'pluginregistration.Registration');
  using client = new GrpcClient(service, '/nonexistent/a.sock', realClock);
  await assert.rejects(client.call('GetInfo', {}, { timeoutMs: 5000 }), (error) => error instanceof RpcError && error.code === 'unavailable');
});

test('a reader that stands still does not fill the memory', async () => {
  const dir = await mkdtemp(join(tmpdir(), 'grpc-'));
  const service = serviceOf<DRAResourceHealthMethods>(health, 'v1.DRAResourceHealth');
  const message = { devices: Array.from({ length: 1000 }, (_, at) => ({ device: { poolName: 'p'.repeat(100), deviceName: String(at) } })) };
  let made = 0;
  const over = Promise.withResolvers<void>();
  try {
    await using server = await serveGrpc(`${dir}/a.sock`, [
      served(service, {
        async *NodeWatchResources(_, signal) {
          try {
            for (; !signal.aborted; made += 1) {
              await realClock.sleep(0);
              yield message;
            }
          } finally {
            over.resolve();
          }
        },
      }),
    ]);
    void server;
    using client = new GrpcClient(service, `${dir}/a.sock`, realClock);
    const stop = new AbortController();
    const reader = client.stream('NodeWatchResources', {}, stop.signal);
    await reader.next();
    await realClock.sleep(500);
    const held = made;
    assert.ok(held < 100, `${held} messages were made for a reader that took one`);
    for (let count = 0; count < 2 * held; count += 1) await reader.next();
    stop.abort();
    await reader.return(undefined).catch(() => undefined);
    await over.promise;
  } finally {
    await rm(dir, { recursive: true });
  }
});
