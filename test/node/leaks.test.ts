import assert from 'node:assert/strict';
import { test } from 'node:test';
import { eventually, machineState, setProblem, testSet, type TestSet } from '../set.ts';
import { killAndWait, processOf } from '../../node/io/processes.ts';

const problem = await setProblem();
type MachineState = ReturnType<typeof machineState>;

/** Where other sets come and go meanwhile, only what bears this one's name, link or addresses can be told to be its own. */
function assertSame(before: MachineState, own: RegExp): void {
  const after = machineState();
  const beside = [...(before['links'] ?? []), ...(after['links'] ?? [])].some((link) => /^nodelet\d/.test(link));
  if (!beside) assert.deepEqual(after, before);
  for (const [kind, lines] of Object.entries(after)) {
    const left = lines.filter((line) => own.test(line) && before[kind]?.includes(line) !== true);
    assert.deepEqual(left, [], `${kind} that are left`);
  }
}

/** What only this set has: its name, its link and its subnet, which have the same number. */
async function marksOf(set: TestSet): Promise<RegExp> {
  const [, subnet = '', index = ''] = /\/\/((?:\d+\.){2}(\d+)\.)/.exec((await set.status()).server) ?? [];
  return new RegExp(`\\b${set.name}\\b|\\bnodelet${index}\\b|\\b${subnet.replaceAll('.', '[.]')}`);
}

test('after down the machine is as it was before up', { skip: problem ?? false }, async () => {
  const before = machineState();
  let own: RegExp;
  {
    await using set = await testSet('leaks', ['examples/web.yaml', '--nodes', '2']);
    assert.equal((await set.status()).running, true);
    own = await marksOf(set);
    assert.throws(() => assertSame(before, own), 'a running set is seen');
  }
  assertSame(before, own);
});

test('after kill -9 of everything down leaves nothing, and so does up, which brings the data back', { skip: problem ?? false }, async () => {
  const before = machineState();
  let own: RegExp;
  {
    await using set = await testSet('leaks', ['examples/web.yaml']);
    own = await marksOf(set);
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
  assertSame(before, own);
});

test('bad input gets one message and starts nothing', { skip: problem ?? false }, async (t) => {
  const before = machineState();
  const { execa } = await import('execa');
  const run = (args: readonly string[], env: Record<string, string> = {}) => execa(`${process.cwd()}/nodelet`, [...args], { reject: false, env });
  const cases: [string, readonly string[], RegExp, Record<string, string>?][] = [
    ['a missing file', ['up', 'nowhere.yaml', '--name', 'bad'], /nowhere\.yaml/],
    ['a bad name', ['up', '--name', 'Bad/..'], /not a name/],
    ['a taken subnet', ['up', '--name', 'bad', '--service-cidr', '127.0.0.0/16', '--subnet', '192.0.2.0/24'], /taken|subnet/],
    ['a wrong number', ['up', '--name', 'bad', '--nodes', 'many'], /--nodes/],
    ['no containerd there', ['up', '--name', 'bad', '--containerd', '/nowhere'], /containerd/],
    ['a state that nodes do not see', ['up', '--name', 'bad'], /nodes do not see \/run\/bad.*\n.*NODELET_STATE/, { NODELET_STATE: '/run/bad' }],
    ['an unknown set', ['kubectl', '--name', 'bad', 'get', 'pods'], /nodelet up/],
    ['an unknown option', ['up', '--nmae', 'x'], /unknown option/],
  ];
  for (const [name, args, message, env] of cases) {
    await t.test(name, async () => {
      const result = await run(args, env);
      assert.notEqual(result.exitCode, 0);
      assert.match(result.stderr, message);
      assert.doesNotMatch(result.stderr, /\n\s+at /);
    });
  }
  assertSame(before, /\bbad\b/);
});

test('a signal during up takes back what was started', { skip: problem ?? false, timeout: 240_000 }, async (t) => {
  const before = machineState();
  const { execa } = await import('execa');
  for (const afterStep of ['certificates and files', 'control plane started', 'node-1 started', 'API server answers', 'objects']) {
    await t.test(`after: ${afterStep}`, async () => {
      const up = execa(`${process.cwd()}/nodelet`, ['up', 'examples/web.yaml', '--name', 'stopped'], {
        reject: false,
        all: true,
        detached: true,
        stdin: 'ignore',
      });
      let said = '';
      up.all.on('data', (text: Buffer) => {
        said += text.toString();
      });
      await eventually(`"${afterStep}" is said`, 120_000, async () => (said.includes(afterStep) ? true : null));
      // To the whole group, as a terminal does.
      assert.ok(up.pid);
      process.kill(-up.pid, 'SIGINT');
      const result = await up;
      assert.equal(result.exitCode, 130, result.all);
      assert.match(result.all, /stopped by a signal/);
      assert.doesNotMatch(result.all, /\n\s+at /);
      assertSame(before, /\bstopped\b/);
    });
  }
});

test('a disk without room is refused, and a set on one that became full still goes', { skip: problem ?? false, timeout: 120_000 }, async () => {
  const { execa } = await import('execa');
  const { mkdtemp, rm, writeFile } = await import('node:fs/promises');
  const home = await mkdtemp('/tmp/nodelet-full-');
  const run = (args: readonly string[]) =>
    execa(`${process.cwd()}/nodelet`, [...args, '--name', 'full'], { reject: false, all: true, stdin: 'ignore', env: { NODELET_STATE: home } });
  await execa('mount', ['-t', 'tmpfs', '-o', 'size=1m', 'tmpfs', home]);
  try {
    const refused = await run(['up']);
    assert.equal(refused.exitCode, 1, refused.all);
    assert.match(refused.all, /MiB free, and a set needs.*\n {2}nothing was started; .*NODELET_STATE/);
    await execa('mount', ['-o', 'remount,size=300m', home]);
    const up = await run(['up']);
    assert.equal(up.exitCode, 0, up.all);
    await writeFile(`${home}/rest`, Buffer.alloc(300 * 2 ** 20)).catch(() => undefined);
    const down = await run(['down']);
    assert.equal(down.exitCode, 0, down.all);
    assert.match(down.all, /"full" is gone/);
  } finally {
    await execa('umount', [home], { reject: false });
    await rm(home, { recursive: true, force: true });
  }
});
