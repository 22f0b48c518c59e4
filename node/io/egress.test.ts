import assert from 'node:assert/strict';
import { once } from 'node:events';
import { connect, createServer, type AddressInfo } from 'node:net';
import { test } from 'node:test';
import { silentLog } from '../../base/log.ts';
import { connectProxy } from './egress.ts';

/** What the proxy answers to CONNECT, up to the end of the head. */
async function ask(port: number, target: string): Promise<string> {
  const socket = connect({ host: '127.0.0.1', port });
  socket.write(`CONNECT ${target} HTTP/1.1\r\nHost: x\r\n\r\n`);
  const [chunk] = (await once(socket, 'data')) as [Buffer];
  socket.destroy();
  return chunk.toString().split('\r\n')[0] ?? '';
}

test('the proxy refuses loopback by address and by name, and clients of other networks', async () => {
  const secret = createServer((socket) => socket.end('secret')).listen(0, '127.0.0.1');
  await once(secret, 'listening');
  const { port: inside } = secret.address() as AddressInfo;
  for (const from of ['127.0.0.0/24', '10.89.1.0/24']) {
    const proxy = connectProxy({ log: silentLog, from }).listen(0, '127.0.0.1');
    await once(proxy, 'listening');
    const { port } = proxy.address() as AddressInfo;
    for (const host of ['127.0.0.1', 'localhost', '[::1]', '2130706433', '0'])
      assert.equal(await ask(port, `${host}:${inside}`), 'HTTP/1.1 403 Forbidden', `${host} from ${from}`);
    proxy.close();
  }
  secret.close();
});

test('a name is connected to at the addresses it was judged by', async () => {
  const target = createServer((socket) => socket.end()).listen(0, '127.0.0.1');
  await once(target, 'listening');
  const proxy = connectProxy({ log: silentLog, from: '127.0.0.0/24', mayReach: (address) => address === '127.0.0.1' }).listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  const name = `localhost:${(target.address() as AddressInfo).port}`;
  assert.equal(await ask((proxy.address() as AddressInfo).port, name), 'HTTP/1.1 200 Connection established');
  proxy.close();
  target.close();
});

test('a target that does not answer is a bad gateway', async () => {
  const proxy = connectProxy({ log: silentLog, from: '127.0.0.0/24', mayReach: () => true }).listen(0, '127.0.0.1');
  await once(proxy, 'listening');
  assert.equal(await ask((proxy.address() as AddressInfo).port, '127.0.0.1:1'), 'HTTP/1.1 502 Bad Gateway');
  proxy.close();
});
