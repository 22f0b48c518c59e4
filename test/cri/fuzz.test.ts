import assert from 'node:assert/strict';
import { createHash } from 'node:crypto';
import { once } from 'node:events';
import { mkdtemp, rm } from 'node:fs/promises';
import { connect, constants, type ClientHttp2Session } from 'node:http2';
import { connect as connectSocket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { realClock } from '../../base/clock.ts';
import { seededRng, type Rng } from '../../base/rng.ts';
import { ArmedRules } from '../../cri/core/fault-rules.ts';
import { openActing } from '../../cri/io/acting.ts';
import { openTap } from '../../cri/io/tap.ts';
import { FuzzRuntime, message, type Script, type Seen } from './fuzz-runtime.ts';
import { sys } from './splice-way.ts';

/*
 * The same calls straight, through the tap that records, and through the proxy that acts when no rule is armed: what
 * caller and runtime see of them must be the same. NODELET_FUZZ_SEED makes other calls, NODELET_FUZZ_CALLS more of them.
 */

const SEED = Number(process.env['NODELET_FUZZ_SEED'] ?? 1);
const CALLS = Number(process.env['NODELET_FUZZ_CALLS'] ?? 100);
const AT_ONCE = 16;
/** Room for the largest call while the machine is busy, so that the tap sees every call whole. */
const BUFFER_BYTES = 128 * 1024 * 1024;
const LARGE_BYTES = 40 * 1024 * 1024;
const WAYS = ['straight', 'tapped', 'acting'] as const;
type Way = (typeof WAYS)[number];

interface Plan extends Script {
  readonly path: string;
  readonly metadata: string;
  /** Bytes of each message of the request. */
  readonly requests: readonly number[];
  /** Ends the request only after the answer's end. */
  readonly late: boolean;
}

interface Outcome {
  readonly headers: string;
  readonly trailers: string;
  readonly bytes: number;
  readonly hash: string;
  readonly code: number;
}

let folder: string;
let runtime: FuzzRuntime;
let made = 0;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'cri-fuzz-'));
  runtime = await FuzzRuntime.listen(join(folder, 'runtime.sock'));
});
after(async () => {
  await runtime[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
});

const plain: Script = { id: 0, responses: [10], early: false, end: 'trailers', code: 0, crowd: 0, holds: false };

function size(rng: Rng): number {
  const kind = rng.int(20);
  if (kind === 0) return 256 * 1024 + rng.int(4 * 1024 * 1024);
  if (kind < 4) return rng.int(200_000);
  return kind < 6 ? 0 : rng.int(3_000);
}

function plans(count: number): Plan[] {
  const rng = seededRng(SEED);
  const sizes = (most: number): number[] => Array.from({ length: rng.int(most + 1) }, () => size(rng));
  return Array.from({ length: count }, (_, index) => {
    const late = rng.int(5) === 0;
    const end = rng.pick(['trailers', 'trailers', 'trailers', 'bare', 'reset'] as const);
    const known = rng.pick(['RuntimeService/ListContainers', 'RuntimeService/GetContainerEvents', 'ImageService/PullImage', 'RuntimeService/NotKnown']);
    return {
      ...plain,
      id: index + 1,
      responses: sizes(4),
      early: late || rng.int(6) === 0,
      end,
      code: end === 'reset' ? rng.pick([2, 7, 8, 11]) : rng.int(17),
      path: rng.int(10) === 0 ? '/other.v9.Service/Method' : `/runtime.v1.${known}`,
      metadata: rng.suffix(1 + rng.int(2_000)),
      requests: late ? sizes(2) : sizes(3),
      late,
    };
  });
}

/** Opens a connection by one of the ways. */
async function open(way: Way): Promise<{ session: ClientHttp2Session; calls: () => Promise<number | null> } & AsyncDisposable> {
  const upstream = join(folder, 'runtime.sock');
  const number = ++made;
  const path = join(folder, `${way}-${number}.sock`);
  const tap =
    way === 'tapped'
      ? await openTap({
          listen: path,
          upstream,
          recorder: 'test',
          clock: realClock,
          sys,
          record: { path: join(folder, `${number}.crirec`), maxBytes: 2 ** 30, append: false },
          bufferBytes: BUFFER_BYTES,
        })
      : null;
  const acting = way === 'acting' ? await openActing({ path, upstream, clock: realClock, armed: () => new ArmedRules([], () => 0), onFired: () => {} }) : null;
  const session = connect('http://localhost', {
    createConnection: () => connectSocket({ path: way === 'straight' ? upstream : path }),
    maxSessionMemory: 2_000,
    settings: { initialWindowSize: 1024 * 1024 },
    peerMaxConcurrentStreams: 100_000,
  });
  session.on('error', () => {});
  await once(session, 'connect');
  return {
    session,
    calls: async () => (await tap?.stop())?.calls ?? null,
    [Symbol.asyncDispose]: async () => {
      session.destroy();
      await tap?.stop();
      await acting?.[Symbol.asyncDispose]();
    },
  };
}

function headersText(headers: object | undefined): string {
  return JSON.stringify(
    Object.entries(headers ?? {})
      .filter(([name]) => name !== 'date')
      .toSorted(([a], [b]) => a.localeCompare(b)),
  );
}

/** Makes one call as planned. */
async function run(session: ClientHttp2Session, plan: Plan): Promise<Outcome> {
  const { path, metadata, requests, late, ...script } = plan;
  const stream = session.request({
    ':method': 'POST',
    ':path': path,
    'content-type': 'application/grpc',
    te: 'trailers',
    'user-agent': 'fuzz/1',
    'grpc-timeout': '99S',
    'x-metadata': metadata,
    'x-script': JSON.stringify(script),
  });
  stream.on('error', () => {});
  const hash = createHash('sha256');
  let bytes = 0;
  let headers = '';
  let trailers = '';
  stream.on('response', (given) => (headers = headersText(given)));
  stream.on('trailers', (given) => (trailers = headersText(given)));
  stream.on('data', (chunk: Buffer) => {
    bytes += chunk.length;
    hash.update(chunk);
  });
  const closed = new Promise<void>((resolve) => stream.once('close', resolve));
  const send = async (): Promise<void> => {
    for (const [index, size] of requests.entries()) {
      if (stream.destroyed) return;
      if (!stream.write(message(plan.id + 100 + index, size))) await Promise.race([once(stream, 'drain'), closed]);
    }
  };
  if (late) {
    await Promise.race([new Promise<void>((resolve) => stream.once('end', resolve)), closed]);
    await send();
    stream.end();
  } else {
    await send();
    stream.end();
  }
  await closed;
  // What was on its way when a reset came may be thrown away by whoever gets it.
  const isWhole = plan.end !== 'reset';
  return { headers: isWhole ? headers : '', trailers, bytes: isWhole ? bytes : 0, hash: isWhole ? hash.digest('hex').slice(0, 16) : '', code: stream.rstCode };
}

/** Makes all calls, so many at once; what both sides saw of each. */
async function runAll(way: Way, all: readonly Plan[], atOnce: number): Promise<Map<number, { outcome: Outcome | undefined; seen: Seen | undefined }>> {
  await using opened = await open(way);
  runtime.seen.clear();
  const outcomes = new Map<number, Outcome>();
  const queue = [...all];
  await Promise.all(
    Array.from({ length: Math.min(atOnce, all.length) }, async () => {
      for (let plan = queue.shift(); plan !== undefined; plan = queue.shift()) outcomes.set(plan.id, await run(opened.session, plan));
    }),
  );
  const seen = await settled(all.length);
  assert.equal(opened.session.destroyed, false, `${way}: the connection is there still`);
  const calls = await opened.calls();
  if (calls !== null) assert.equal(calls, all.length, 'the tap saw each call');
  return new Map(all.map(({ id }) => [id, { outcome: outcomes.get(id), seen: seen.get(id) }]));
}

async function settled(count: number): Promise<typeof runtime.seen> {
  for (let tries = 0; tries < 600 && runtime.seen.size < count; tries++) await new Promise((resolve) => setTimeout(resolve, 50));
  return new Map(runtime.seen);
}

async function same(all: readonly Plan[], atOnce: number): Promise<void> {
  const straight = await runAll('straight', all, atOnce);
  for (const way of WAYS.slice(1)) {
    const other = await runAll(way, all, atOnce);
    for (const plan of all) {
      assert.deepEqual(other.get(plan.id), straight.get(plan.id), `${way}, seed ${SEED}: ${JSON.stringify({ ...plan, metadata: plan.metadata.length })}`);
    }
  }
}

test(`${CALLS} calls of chance: messages up to 4 MiB, early and late ends, resets, unknown methods and services`, { timeout: 600_000 }, async () => {
  await same(plans(CALLS), AT_ONCE);
});

test('messages of 40 MiB both ways', { timeout: 300_000 }, async () => {
  await same(
    [{ ...plain, id: 1, responses: [LARGE_BYTES], path: '/runtime.v1.RuntimeService/ListContainers', metadata: '', requests: [LARGE_BYTES], late: false }],
    1,
  );
});

test('1,000 calls that are open at once', { timeout: 300_000 }, async () => {
  const all = Array.from({ length: 1_000 }, (_, index) => ({
    ...plain,
    id: index + 1,
    responses: [index],
    crowd: 1_000,
    path: '/runtime.v1.RuntimeService/ContainerStatus',
    metadata: 'm',
    requests: [index],
    late: false,
  }));
  await same(all, all.length);
});

test('5,000 calls cancelled in a row, and the next one on the same connection', { timeout: 600_000 }, async () => {
  for (const way of WAYS) {
    await using opened = await open(way);
    const { session } = opened;
    const first = { ...plain, id: 9_998, path: '/runtime.v1.RuntimeService/Version', metadata: '', requests: [3], late: false };
    await run(session, first);
    const before = { aborted: runtime.aborted, connections: runtime.connections };
    runtime.seen.clear();
    for (let id = 1; id <= 5_000; id++) {
      const stream = session.request({
        ':method': 'POST',
        ':path': '/runtime.v1.RuntimeService/GetContainerEvents',
        'x-script': JSON.stringify({ ...plain, id, early: true, holds: true }),
      });
      stream.on('error', () => {});
      const closed = once(stream, 'close');
      // Every other one is cancelled without a look at what comes.
      if (id % 2 === 0) await once(stream, 'response');
      stream.close(constants.NGHTTP2_CANCEL);
      await closed;
    }
    const { code, bytes, trailers } = await run(session, { ...first, id: 9_999 });
    assert.deepEqual([code, bytes, /"grpc-status","0"/.test(trailers)], [0, 15, true], way);
    assert.equal(session.destroyed, false, way);
    const seen = await settled(2_501);
    // One that was cancelled at once may never have reached the runtime, straight as well.
    for (let id = 2; id <= 5_000; id += 2)
      assert.deepEqual([seen.get(id)?.end, seen.get(id)?.code], ['aborted', constants.NGHTTP2_CANCEL], `${way}: call ${id}`);
    assert.ok(runtime.aborted - before.aborted >= 2_500, `${way}: the runtime saw ${runtime.aborted - before.aborted} cancelled`);
    assert.equal(runtime.connections - before.connections, 0, `${way}: no connection was made anew`);
  }
});
