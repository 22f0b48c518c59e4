import assert from 'node:assert/strict';
import { cp, mkdtemp, readFile, rm } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { after, before, test } from 'node:test';
import { execa } from 'execa';
import { eventually } from '../set.ts';

let dir = '';
before(async () => {
  dir = await mkdtemp(`${tmpdir()}/nodelet-units-`);
  await cp(new URL('units', import.meta.url).pathname, `${dir}/units`, { recursive: true });
});
after(() => rm(dir, { recursive: true, force: true }));

const call = async (program: string, ...args: string[]): Promise<string> => (await execa(`${dir}/units/${program}`, args, { cwd: dir, all: true })).all;
const running = (): Promise<string> => call('systemctl', 'list-units', '*kubelet*', '--state=running');
const log = (): Promise<string> => readFile(`${dir}/kubelet.log`, 'utf8');

test('a unit is started, killed, seen as stopped, and started again with the same words', async () => {
  const script = 'echo "began: $1"; trap "echo ended; exit 0" TERM; while :; do sleep 0.05; done';
  const escaped = script.replaceAll('$', '$$$$');
  await call(
    'systemd-run',
    '-p',
    'Delegate=true',
    '--unit=kubelet-20261130T000000.service',
    '--slice=runtime.slice',
    'sh',
    '-c',
    escaped,
    'sh',
    "it's 50%% $$1",
  );
  try {
    await eventually('its first words', 5000, async () => ((await log()) === "began: it's 50% $1\n" ? true : null));
    assert.match(await running(), /kubelet-20261130T000000/);
    await call('sudo', `${dir}/units/systemctl`, 'kill', 'kubelet-20261130T000000');
    await eventually('nothing runs', 5000, async () => ((await running()) === '' ? true : null));
    assert.match(await call('systemctl', 'list-units', '*kubelet*'), /kubelet-20261130T000000\.service loaded active exited/);
    await call('systemctl', 'reset-failed', 'kubelet-20261130T000000');
    await call('systemctl', 'restart', 'kubelet-20261130T000000');
    await eventually('its words again', 5000, async () => ((await log()) === "began: it's 50% $1\nended\nbegan: it's 50% $1\n" ? true : null));
  } finally {
    await call('systemctl', 'stop', 'kubelet-20261130T000000');
  }
  assert.equal(await running(), '');
});

test('a unit that there is not is refused', async () => {
  await assert.rejects(call('systemctl', 'restart', 'kubelet-none'), /Unit kubelet-none not found/);
  await assert.rejects(call('systemctl', 'mask', 'x'), /Unknown command verb/);
});
