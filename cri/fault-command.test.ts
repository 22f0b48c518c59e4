import assert from 'node:assert/strict';
import { mkdtemp, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { after, before, test } from 'node:test';
import { setTimeout as delay } from 'node:timers/promises';
import { realClock } from '../base/clock.ts';
import { hasCode } from '../base/errors.ts';
import { createCriClient } from './client.ts';
import { printRule } from './core/fault-text.ts';
import { serveFake, type ServedRuntime } from './fake-serve.ts';
import { FakeRuntime } from './fake.ts';
import { fault, type FaultFlags } from './fault-command.ts';
import { connectRuntime } from './grpc.ts';
import { readRules, rulesOfText } from './io/fault-file.ts';
import { openTap } from './io/tap.ts';

let folder: string;
let fake: FakeRuntime;
let server: ServedRuntime;

before(async () => {
  folder = await mkdtemp(join(tmpdir(), 'fault-command-'));
  fake = new FakeRuntime({ clock: realClock });
  server = await serveFake(fake, join(folder, 'runtime'));
});

after(async () => {
  await server[Symbol.asyncDispose]();
  await rm(folder, { recursive: true });
});

interface Said {
  code: number;
  out: string;
  err: string;
}

async function run(
  lines: readonly string[],
  flags: Partial<FaultFlags>,
  signal = new AbortController().signal,
  said: Said = { code: -1, out: '', err: '' },
): Promise<Said> {
  const host = {
    args: [],
    env: {},
    pid: process.pid,
    isTerminal: false,
    signal,
    stdout: (text: string) => void (said.out += text),
    stderr: (text: string) => void (said.err += text),
  };
  said.code = await fault(host, lines, { list: false, clear: false, add: false, json: false, ...flags }, realClock, 'a test');
  return said;
}

test('rules come as lines, YAML and JSON', async () => {
  const lines = async (text: string): Promise<string[]> => (await rulesOfText(text, 'a file')).map(printRule);
  const wanted = ['Version hang', 'Status nth=2 drop'];
  assert.deepEqual(await lines('# why\nVersion hang\n\nStatus nth=2 drop # twice\n'), wanted);
  assert.deepEqual(await lines('# why\n- Version hang\n- {method: Status, nth: 2, drop: call}\n'), wanted);
  assert.deepEqual(await lines('rules:\n  - Version hang\n  - method: Status\n    nth: 2\n    drop: call\n'), wanted);
  assert.deepEqual(await lines('["Version hang", {"method": "Status", "nth": 2, "drop": "call"}]'), wanted);
  await assert.rejects(rulesOfText('rules: 3', 'a file'), (error) => hasCode(error, 'invalid'));
  await assert.rejects(readRules(join(folder, 'none')), (error) => hasCode(error, 'not-found'));
});

test('a wrong command line is said in one message, and nothing is done', async () => {
  for (const [lines, flags, words] of [
    [[], {}, /say which rule/],
    [['Version hang'], { list: true }, /each stand alone/],
    [[], { list: true, add: true }, /--add goes with rules/],
    [['Version hnag'], {}, /the nearest is hang; write for instance/],
  ] as const) {
    const { code, err } = await run(lines, flags);
    assert.equal(code, 2);
    assert.match(err, words);
  }
});

test('rules are armed in a tap that runs, listed and cleared', async () => {
  const listen = join(folder, 'tap');
  const tap = await openTap({ listen, upstream: join(folder, 'runtime'), recorder: 'a test', clock: realClock, control: { pid: process.pid } });
  const control = tap.control ?? '';
  const file = join(folder, 'rules');
  await writeFile(file, 'Version error unavailable\n');
  const armed = await run(['Status drop'], { tap: control, file });
  assert.match(armed.out, /^1 {2}Version error Unavailable .*\n2 {2}Status drop .*\n$/);
  assert.match(armed.err, /until nodelet cri fault --clear/);
  await using client = createCriClient(connectRuntime(listen));
  await assert.rejects(client.runtime.version({}), (error) => hasCode(error, 'unavailable'));
  await run(['RuntimeConfig hang'], { tap: control, add: true });
  const listed = JSON.parse((await run([], { tap: control, list: true, json: true })).out) as { rules: { text: string; fired: number }[] };
  assert.deepEqual(
    listed.rules.map(({ text, fired }) => [text, fired]),
    [
      ['Version error Unavailable', 1],
      ['Status drop', 0],
      ['RuntimeConfig hang', 0],
    ],
  );
  assert.match((await run([], { tap: control, clear: true })).out, /no rule is armed/);
  await client.runtime.version({});
  await client[Symbol.asyncDispose]();
  await tap.stop();
});

test('a tap of its own has the rules for as long as the command runs', async () => {
  const stop = new AbortController();
  const listen = join(folder, 'own');
  const said: Said = { code: -1, out: '', err: '' };
  const running = run(['Version nth=1 error unavailable'], { listen, upstream: join(folder, 'runtime') }, stop.signal, said);
  for (let tries = 0; !said.err.includes('Ctrl-C ends it'); tries++) {
    assert.ok(tries < 1000, said.err);
    await delay(20);
  }
  await using client = createCriClient(connectRuntime(listen));
  await assert.rejects(client.runtime.version({}), (error) => hasCode(error, 'unavailable'));
  await client.runtime.version({});
  stop.abort();
  assert.equal((await running).code, 0);
  assert.match(said.err, /rule 1 was done to Version/);
  assert.match(said.out, /fits 2 calls so far, done to 1\n$/);
});
