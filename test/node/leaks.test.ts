import assert from 'node:assert/strict';
import { test } from 'node:test';
import { eventually, machineState, setProblem, testSet } from '../set.ts';
import { killAndWait, processOf } from '../../node/io/processes.ts';

const problem = await setProblem();

test('after down the machine is as it was before up', { skip: problem ?? false }, async () => {
  const before = machineState();
  {
    await using set = await testSet('leaks', ['examples/web.yaml', '--nodes', '2']);
    assert.equal((await set.status()).running, true);
    assert.notDeepEqual(machineState()['links'], before['links']);
  }
  assert.deepEqual(machineState(), before);
});

test('after kill -9 of everything down leaves nothing, and so does up, which brings the data back', { skip: problem ?? false }, async () => {
  const before = machineState();
  {
    await using set = await testSet('leaks', ['examples/web.yaml']);
    const killAll = async (): Promise<void> => {
      const { processes } = await set.status();
      for (const { pid } of processes.filter((row) => row.name === 'init')) {
        const found = pid === null ? null : await processOf(pid);
        if (found !== null) assert.equal(await killAndWait(found, 10_000), true);
      }
    };
    await killAll();
    await eventually('nothing of it runs', 5_000, async () => ((await set.status()).processes.length === 0 ? true : null));
    const again = await set.nodelet(['up', 'examples/web.yaml']);
    assert.equal(again.code, 0, again.err);
    await killAll();
  }
  assert.deepEqual(machineState(), before);
});

test('bad input gets one message and starts nothing', { skip: problem ?? false }, async (t) => {
  const before = machineState();
  const { execa } = await import('execa');
  const run = (args: readonly string[], env: Record<string, string> = {}) => execa(`${process.cwd()}/nodelet`, [...args], { reject: false, env });
  const cases: [string, readonly string[], RegExp][] = [
    ['a missing file', ['up', 'nowhere.yaml', '--name', 'bad'], /nowhere\.yaml/],
    ['a bad name', ['up', '--name', 'Bad/..'], /not a name/],
    ['a taken subnet', ['up', '--name', 'bad', '--service-cidr', '127.0.0.0/16', '--subnet', '192.0.2.0/24'], /taken|subnet/],
    ['a wrong number', ['up', '--name', 'bad', '--nodes', 'many'], /--nodes/],
    ['no containerd there', ['up', '--name', 'bad', '--containerd', '/nowhere'], /containerd/],
    ['an unknown set', ['kubectl', '--name', 'bad', 'get', 'pods'], /nodelet up/],
    ['an unknown option', ['up', '--nmae', 'x'], /unknown option/],
  ];
  for (const [name, args, message] of cases) {
    await t.test(name, async () => {
      const result = await run(args);
      assert.notEqual(result.exitCode, 0);
      assert.match(result.stderr, message);
      assert.doesNotMatch(result.stderr, /\n\s+at /);
    });
  }
  assert.deepEqual(machineState(), before);
});
