import assert from 'node:assert/strict';
import { test } from 'node:test';
import { createFakeClock } from '../../base/fake-clock.ts';
import { hasCode } from '../../base/errors.ts';
import { silentLog } from '../../base/log.ts';
import { serve } from './http.ts';
import { listen, type ListenOptions } from './listen.ts';

const open: ListenOptions['open'] = (at) => serve(at.host, at.port, (_request, response) => response.end('ours'));

const ask = async (port: number): Promise<string> => await (await fetch(`http://127.0.0.1:${port}`)).text();

test('an address that somebody else has is served once it is free', async () => {
  const clock = createFakeClock();
  const holder = await serve('127.0.0.1', 0, (_request, response) => response.end('other'));
  const address = `127.0.0.1:${holder.port}`;
  {
    const { promise: opened, resolve } = Promise.withResolvers<void>();
    const openAndTell: ListenOptions['open'] = async (at) => {
      const server = await open(at);
      resolve();
      return server;
    };
    await using _server = await listen({ what: 'healthz', address, hardFail: false, clock, log: silentLog, open: openAndTell });
    assert.equal(await ask(holder.port), 'other');
    await holder[Symbol.asyncDispose]();
    await clock.advance(4999);
    await assert.rejects(ask(holder.port));
    await clock.advance(1);
    await opened;
    assert.equal(await ask(holder.port), 'ours');
  }
  await assert.rejects(ask(holder.port));
});

test('it ends a proxy that is to fail hard, and an attempt that goes on ends with its owner', async () => {
  await using holder = await serve('127.0.0.1', 0, (_request, response) => response.end('other'));
  const common = { what: 'metrics', address: `127.0.0.1:${holder.port}`, clock: createFakeClock(), log: silentLog, open };
  await assert.rejects(listen({ ...common, hardFail: true }), (error) => hasCode(error, 'exists'));
  await (await listen({ ...common, hardFail: false }))[Symbol.asyncDispose]();
  await (await listen({ ...common, address: '', hardFail: true }))[Symbol.asyncDispose]();
});
