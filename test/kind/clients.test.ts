import assert from 'node:assert/strict';
import { once } from 'node:events';
import { createServer, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import { after, before, describe, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { Clients, together } from './clients.ts';

describe('clients outside the nodes', { timeout: 30_000 }, () => {
  let server: Server;
  let url = '';
  let connections = 0;
  let served = 0;
  let isGood = true;

  before(async () => {
    server = createServer((_request, answer) => {
      served += 1;
      answer.statusCode = isGood ? 200 : 503;
      answer.end('pod-a');
    });
    server.on('connection', () => void (connections += 1));
    server.listen(0, '127.0.0.1');
    await once(server, 'listening');
    url = `http://127.0.0.1:${(server.address() as AddressInfo).port}/`;
  });
  after(() => void server.close());

  const until = async (isSo: () => boolean): Promise<void> => {
    while (!isSo()) await delay(10);
  };

  test('ask with new connections and with two that are kept, and count each answer', async () => {
    await using clients = new Clients([{ name: 'here', netns: null, urls: { 'the server': url } }]);
    await until(() => served >= 30);
    const all = await clients.end();
    assert.deepEqual(Object.keys(all), ['here: the server']);
    const { requests, failures, byPod } = together(all);
    assert.equal(requests, served);
    assert.deepEqual(failures, []);
    assert.deepEqual(byPod, { 'pod-a': served });
    assert.ok(connections > 3, `${connections} connections`);
    assert.ok(connections < served, 'some are kept');
  });

  test('tell each failure with its time and whose it was', async () => {
    const before = served;
    isGood = false;
    const clients = new Clients([{ name: 'here', netns: null, urls: { 'the server': url, nobody: 'http://127.0.0.1:1/' } }]);
    await until(() => served >= before + 9);
    const { failures, requests, byPod } = together(await clients.end());
    assert.deepEqual(byPod, {});
    assert.equal(failures.length, requests);
    assert.ok(
      failures.some((text) => /^here: the server: \d{4}-.*Z (new|kept): status 503$/.test(text)),
      failures[0],
    );
    assert.ok(failures.some((text) => /^here: nobody: .*ECONNREFUSED/.test(text)));
  });

  test('say why they cannot stand somewhere', async () => {
    const clients = new Clients([{ name: 'nowhere', netns: '/nonexistent', urls: { it: url } }]);
    await assert.rejects(clients.end(), /asking from nowhere: nsenter: .*No such file/);
  });
});
