import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import assert from 'node:assert/strict';
import { mkdtemp, rm } from 'node:fs/promises';
import { request as ask, type IncomingHttpHeaders } from 'node:http';
import { connect } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { hasCode, OpError } from '../base/errors.ts';
import type { RecordedEntry, RecordedTime } from './core/recording.ts';
import type { WebCallBodies, WebEvent, WebFault, WebHello } from './core/web-wire.ts';
import { RecordingWriter } from './io/recording-write.ts';
import { webPage } from './io/web-page.ts';
import { serveWeb, type FaultDoor, type WebServer } from './io/web-serve.ts';
import { WebStore } from './io/web-store.ts';

const never = new AbortController().signal;
const hello: WebHello = { version: 'a test', name: 'a test', upstream: '', live: true, canBreak: true };
let folder: string;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'web-serve-'));
});
after(() => rm(folder, { recursive: true }));

function time(ms: number): RecordedTime {
  return { wall: new Date(1_700_000_000_000 + ms).toISOString(), monoMs: ms };
}

const header: RecordedEntry = { type: 'recording', version: 1, recorder: '', startedAt: time(0), listen: '', upstream: '', redacted: true };

/** Calls with a message that says which one it is, and so many bytes. */
function* calls(count: number, sizeBytes = 10): Generator<RecordedEntry> {
  yield header;
  for (let call = 1; call <= count; call += 1)
    yield {
      type: 'call',
      call,
      connection: 1,
      stream: call,
      service: 'runtime.v1.RuntimeService',
      method: 'Version',
      start: time(call),
      end: time(call + 0.5),
      requests: [{ fields: { version: `call ${call}` }, sizeBytes }],
      responses: [{ fields: { runtimeName: 'x'.repeat(sizeBytes) }, sizeBytes }],
      status: { code: 0, name: 'OK', message: '' },
    };
}

async function* feed(entries: Iterable<RecordedEntry>): AsyncGenerator<RecordedEntry> {
  for (const entry of entries) {
    yield entry;
    await Promise.resolve();
  }
}

interface Answer {
  readonly code: number;
  readonly headers: IncomingHttpHeaders;
  readonly text: string;
}

function fetched(url: string, options: { method?: string; headers?: Record<string, string>; body?: string } = {}): Promise<Answer> {
  const { method = 'GET', headers = {}, body } = options;
  return new Promise((resolve, reject) => {
    const request = ask(url, { method, headers, agent: false }, (response) => {
      let text = '';
      response.setEncoding('utf8');
      response.on('data', (chunk: string) => (text += chunk));
      response.on('end', () => resolve({ code: response.statusCode ?? 0, headers: response.headers, text }));
    });
    request.on('error', reject);
    request.end(body);
  });
}

async function serving(store: WebStore, faults: FaultDoor | null = null): Promise<WebServer> {
  return serveWeb({ listen: '127.0.0.1:0', page: { html: '<p>page</p>', policy: "default-src 'none'" }, hello, store, faults });
}

/** Reads events until so many calls have come. */
async function read(url: string, wanted: number, headers: Record<string, string> = {}): Promise<{ events: WebEvent[]; lastId: string }> {
  const events: WebEvent[] = [];
  let lastId = '';
  await new Promise<void>((resolve, reject) => {
    let text = '';
    let got = 0;
    const request = ask(`${url}events`, { agent: false, headers }, (response) => {
      response.setEncoding('utf8');
      response.on('data', (chunk: string) => {
        text += chunk;
        const parts = text.split('\n\n');
        text = parts.pop() ?? '';
        for (const part of parts) {
          lastId = /^id: (\d+)$/m.exec(part)?.[1] ?? lastId;
          const data = /^data: (.*)$/m.exec(part)?.[1];
          if (data === undefined) continue;
          const event = JSON.parse(data) as WebEvent;
          events.push(event);
          got += event.calls?.length ?? 0;
        }
        if (got >= wanted) request.destroy();
      });
      response.on('close', resolve);
    });
    request.on('error', (error: NodeJS.ErrnoException) => (error.code === 'ECONNRESET' ? resolve() : reject(error)));
    request.end();
  });
  return { events, lastId };
}

test('who asks for the head of the events alone holds no place', async () => {
  await using store = new WebStore();
  await using server = await serving(store);
  for (let asked = 0; asked < 20; asked++) assert.equal((await fetched(`${server.url}events`, { method: 'HEAD' })).code, 200);
  await store.follow(feed(calls(1)));
  const { events } = await read(server.url, 1);
  assert.equal(events.flatMap((event) => event.calls ?? []).length, 1);
});

test('only the whole address, its own host and its own page are answered', async () => {
  await using store = new WebStore();
  const armed: WebFault[] = [];
  const faults: FaultDoor = {
    list: () => Promise.resolve(armed),
    arm: (text) => {
      if (text === 'nonsense') return Promise.reject(new OpError('invalid', 'reading the rule', 'it is nonsense', { advice: 'write sense' }));
      armed.push({ number: armed.length + 1, text, matched: 0, fired: 0 });
      return Promise.resolve(armed);
    },
    disarm: (number) => Promise.resolve(armed.splice(number - 1, 1)),
  };
  await using server = await serving(store, faults);
  const { url } = server;
  assert.match(url, /^http:\/\/127\.0\.0\.1:\d+\/[\w-]{32}\/$/);
  const { host, origin } = new URL(url);
  const page = await fetched(url);
  assert.equal(page.code, 200);
  assert.equal(page.headers['content-security-policy'], "default-src 'none'");
  assert.equal(page.headers['access-control-allow-origin'], undefined);
  assert.equal(page.headers['referrer-policy'], 'no-referrer');
  const post = (headers: Record<string, string>, body: object | null): Promise<Answer> =>
    fetched(`${url}faults`, { method: 'POST', headers: { 'content-type': 'application/json', origin, ...headers }, body: JSON.stringify(body) });
  const codes = {
    'another token': (await fetched(`${origin}/${'a'.repeat(32)}/`)).code,
    'no token': (await fetched(`${origin}/`)).code,
    'the host of a rebound name': (await fetched(url, { headers: { host: `evil.example:${new URL(url).port}` } })).code,
    localhost: (await fetched(url, { headers: { host: host.replace('127.0.0.1', 'localhost') } })).code,
    'another method': (await fetched(url, { method: 'PUT' })).code,
    'a call that never was': (await fetched(`${url}call/7`)).code,
    'no such thing': (await fetched(`${url}../etc/passwd`)).code,
    'a rule from another page': (await post({ origin: 'http://evil.example' }, { arm: 'Version hang' })).code,
    'a rule as a form': (await post({ 'content-type': 'text/plain' }, { arm: 'Version hang' })).code,
    'a rule that is none': (await post({}, { arm: 'nonsense' })).code,
    'no object': (await post({}, null)).code,
    'too much': (await post({}, { arm: 'x'.repeat(100_000) })).code,
    'a rule': (await post({}, { arm: 'Version hang' })).code,
  };
  assert.deepEqual(codes, {
    'another token': 404,
    'no token': 404,
    'the host of a rebound name': 421,
    localhost: 200,
    'another method': 405,
    'a call that never was': 410,
    'no such thing': 404,
    'a rule from another page': 403,
    'a rule as a form': 403,
    'a rule that is none': 400,
    'no object': 400,
    'too much': 400,
    'a rule': 200,
  });
  assert.equal((await post({}, { arm: 'nonsense' })).text, 'reading the rule: it is nonsense; write sense\n');
  assert.deepEqual(JSON.parse((await fetched(`${url}faults`)).text), [{ number: 1, text: 'Version hang', matched: 0, fired: 0 }]);
  await assert.rejects(serveWeb({ listen: 'somewhere', page: { html: '', policy: '' }, hello, store, faults: null }), (error) => hasCode(error, 'invalid'));
});

test('the page is one file whose policy names its own script and style, and nothing else', async () => {
  const { html, policy } = await webPage();
  assert.match(policy, /^default-src 'none'; script-src 'sha256-[^']+'; style-src 'sha256-[^']+'; connect-src 'self';/);
  assert.doesNotMatch(html, /<script src|<link rel="stylesheet|@import|https?:\/\//);
  assert.ok(html.length < 200_000, `${html.length} bytes`);
});

test('events begin where the browser was, and both messages are found: in a file, across its frames', async () => {
  const file = join(folder, 'two.crirec');
  for (const append of [false, true]) {
    using writer = new RecordingWriter(file, { maxBytes: 1e9, append });
    for (const entry of calls(3_000, 300)) writer.add(entry);
  }
  await using store = new WebStore();
  await store.readFile(file, never);
  await using server = await serving(store);
  const { events, lastId } = await read(server.url, 6_000);
  assert.deepEqual(events[0], { hello });
  assert.equal(events.flatMap((event) => event.calls ?? []).length, 6_000);
  assert.ok(events.every((event) => (event.calls?.length ?? 0) <= 1_000));
  const rest = await read(server.url, 1_000, { 'last-event-id': String(Number(lastId) - 1_000) });
  assert.equal(rest.events.flatMap((event) => event.calls ?? [])[0]?.[0], 5_000);
  // The second recording counts its calls from 1 again.
  for (const [id, call] of [
    [0, 1],
    [2_999, 3_000],
    [3_000, 1],
    [5_999, 3_000],
  ]) {
    const bodies = JSON.parse((await fetched(`${server.url}call/${id}`)).text) as WebCallBodies;
    assert.deepEqual([bodies.call, bodies.requests], [call, [{ fields: { version: `call ${call}` }, sizeBytes: 300 }]]);
  }
});

test('messages of a feed are held in memory, those of a stream together', async () => {
  await using store = new WebStore();
  await store.follow(feed(calls(2_000, 500)));
  const of = { connection: 1, stream: 9, service: 'runtime.v1.RuntimeService', method: 'GetContainerEvents', start: time(5_000) };
  const stream: RecordedEntry[] = [
    { ...of, type: 'opening', call: 5_000, requests: [{ fields: {}, sizeBytes: 0 }] },
    ...Array.from({ length: 230 }, (_, at): RecordedEntry => ({ type: 'message', call: 5_000, at: time(5_001), message: { fields: { at }, sizeBytes: 1 } })),
    { ...of, type: 'call', call: 5_000, end: time(6_000), requests: [], responses: [], responsesBefore: 230, status: null, cut: 'the caller reset it' },
  ];
  await store.follow(feed(stream));
  const first = await store.bodies(0);
  assert.deepEqual(first?.requests, [{ fields: { version: 'call 1' }, sizeBytes: 500 }]);
  const last = await store.bodies(2_000);
  assert.deepEqual([last?.requests.length, last?.responses.length, last?.moreResponses, last?.cut], [1, 200, 30, 'the caller reset it']);
  assert.equal(await store.bodies(2_001), null);
});

/** What nobody holds any more must not be counted as held. */
function collect(): void {
  setFlagsFromString('--expose-gc');
  (runInNewContext('gc') as () => void)();
}

test('a browser that does not read holds up nobody, and what it has not read is not held for it', async () => {
  await using store = new WebStore();
  await using server = await serving(store);
  const { hostname, port, pathname } = new URL(server.url);
  const slow = connect({ host: hostname, port: Number(port) });
  slow.on('error', () => {});
  slow.write(`GET ${pathname}events HTTP/1.1\r\nHost: ${hostname}:${port}\r\n\r\n`);
  slow.pause();
  try {
    await delay(100);
    collect();
    const heldBefore = process.memoryUsage().arrayBuffers + process.memoryUsage().external;
    await store.follow(feed(calls(40_000)));
    const { events } = await read(server.url, 40_000);
    assert.equal(events.flatMap((event) => event.calls ?? []).at(-1)?.[0], 39_999);
    // 40,000 calls are 5 MB of events; of those the slow one has some kilobytes, and the store a megabyte of messages.
    // A thread of the engine gives back what was collected, when it gets to it.
    let held = Infinity;
    for (const begunAt = performance.now(); held >= 6 * 1024 ** 2 && performance.now() - begunAt < 10_000; await delay(20)) {
      collect();
      held = process.memoryUsage().arrayBuffers + process.memoryUsage().external - heldBefore;
    }
    assert.ok(held < 6 * 1024 ** 2, `${held} bytes more`);
  } finally {
    slow.destroy();
  }
});

test('what a stopped reader has missed of a long feed is told as a number', async () => {
  await using store = new WebStore(5_000);
  await store.follow(feed(calls(7_500)));
  await using server = await serving(store);
  const { events } = await read(server.url, 1);
  assert.equal(events.find((event) => event.left !== undefined)?.left, 2_000);
});
