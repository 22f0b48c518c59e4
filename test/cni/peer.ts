/**
 * A server or a client in a namespace, for tests of the pod network.
 *   node peer.ts serve NAME PORT…          TCP and UDP on all addresses: answers "NAME CLIENT"
 *   node peer.ts ask tcp|udp HOST PORT     prints the answer, or "none"
 *   node peer.ts send HOST PORT [FROM]     UDP from one socket, a datagram a 100 ms; each answer on a line; by the address FROM
 *   node peer.ts hear PORT                 UDP; each sender's address on a line, once
 *   node peer.ts sink PORT                 TCP; milliseconds from a connection's first byte to its end, on a line
 *   node peer.ts pour HOST PORT BYTES      TCP; so many bytes at once
 */
import { createSocket } from 'node:dgram';
import { connect, createServer } from 'node:net';

const [what = '', ...rest] = process.argv.slice(2);
const plain = (address: string | undefined): string => (address ?? '').replace(/^::ffff:/, '');
const WAIT_MS = 3_000;
const EVERY_MS = 100;

if (what === 'serve') {
  const [name, ...ports] = rest;
  for (const port of ports.map(Number)) {
    createServer((socket) => {
      socket.on('error', () => {});
      socket.end(`${name} ${plain(socket.remoteAddress)}`);
    }).listen(port, '::', () => process.stdout.write('listening\n'));
    const udp = createSocket('udp6');
    udp.on('message', (_, from) => udp.send(`${name} ${plain(from.address)}`, from.port, from.address));
    udp.bind(port, '::', () => process.stdout.write('listening\n'));
  }
} else if (what === 'ask') {
  const [protocol, host = '', port] = rest;
  const timer = setTimeout(() => {
    process.stdout.write('none');
    process.exit(0);
  }, WAIT_MS);
  const done = (text: string): void => {
    clearTimeout(timer);
    process.stdout.write(text, () => process.exit(0));
  };
  if (protocol === 'udp') {
    const socket = createSocket(host.includes(':') ? 'udp6' : 'udp4');
    socket.on('message', (message) => done(message.toString()));
    socket.on('error', () => done('none'));
    socket.send('?', Number(port), host);
  } else {
    let text = '';
    const socket = connect({ host, port: Number(port) });
    socket.on('data', (chunk) => (text += chunk.toString()));
    socket.on('end', () => done(text));
    socket.on('error', () => done('none'));
  }
} else if (what === 'send') {
  const [host = '', port, from] = rest;
  const socket = createSocket(host.includes(':') ? 'udp6' : 'udp4');
  socket.on('message', (message) => process.stdout.write(`${message.toString()}\n`));
  socket.on('error', () => {});
  socket.bind({ address: from });
  setInterval(() => socket.send('?', Number(port), host), EVERY_MS);
} else if (what === 'hear') {
  const heard = new Set<string>();
  const socket = createSocket('udp6');
  socket.on('message', (_, from) => {
    if (heard.has(from.address)) return;
    heard.add(from.address);
    process.stdout.write(`${plain(from.address)}\n`);
  });
  socket.bind(Number(rest[0]), '::', () => process.stdout.write('listening\n'));
} else if (what === 'sink') {
  createServer((socket) => {
    let begunAt = 0;
    socket.on('error', () => {});
    socket.on('data', () => (begunAt ||= performance.now()));
    socket.on('end', () => process.stdout.write(`${performance.now() - begunAt}\n`));
  }).listen(Number(rest[0]), '::', () => process.stdout.write('listening\n'));
} else if (what === 'pour') {
  const [host = '', port, bytes] = rest;
  connect({ host, port: Number(port) }).end(Buffer.alloc(Number(bytes)));
}
