import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { silentLog } from '../../base/log.ts';
import { kernelDefaults } from '../core/kernel-defaults.ts';
import { applyKernelDefaults } from './kernel-defaults.ts';

async function procOf(t: TestContext): Promise<string> {
  const proc = await mkdtemp(join(tmpdir(), 'proc-'));
  t.after(() => rm(proc, { recursive: true }));
  for (const [name, value] of Object.entries({ ...kernelDefaults, 'kernel/panic': 0 })) {
    await mkdir(dirname(join(proc, 'sys', name)), { recursive: true });
    await writeFile(join(proc, 'sys', name), `${value}\n`);
  }
  return proc;
}

const panicOf = async (proc: string): Promise<string> => (await readFile(join(proc, 'sys/kernel/panic'), 'utf8')).trim();

test('a machine and a container get the parameters, one that is protected is refused', async (t) => {
  const own = await procOf(t);
  await assert.rejects(
    applyKernelDefaults({ log: silentLog, protect: true, isShared: false, proc: own }),
    /invalid kernel flag: kernel\/panic, expected value: 10, actual value: 0/,
  );
  assert.equal(await panicOf(own), '0');
  await applyKernelDefaults({ log: silentLog, protect: false, isShared: false, proc: own });
  assert.equal(await panicOf(own), '10');
  await applyKernelDefaults({ log: silentLog, protect: true, isShared: false, proc: own });
});

test('a kernel that is other people’s too keeps its own, and is refused where it is protected', async (t) => {
  const shared = await procOf(t);
  await applyKernelDefaults({ log: silentLog, protect: false, isShared: true, proc: shared });
  assert.equal(await panicOf(shared), '0');
  await assert.rejects(applyKernelDefaults({ log: silentLog, protect: true, isShared: true, proc: shared }), /invalid kernel flag/);
});

test('a parameter that the kernel does not have or refuses is told, and the others are set', async (t) => {
  const proc = await procOf(t);
  await rm(join(proc, 'sys/vm'), { recursive: true });
  await writeFile(join(proc, 'sys/kernel/keys/root_maxkeys'), '1\n');
  await rm(join(proc, 'sys/kernel/panic_on_oops'));
  await mkdir(join(proc, 'sys/kernel/panic_on_oops'));
  await applyKernelDefaults({ log: silentLog, protect: false, isShared: false, proc });
  assert.equal(await panicOf(proc), '10');
  assert.equal((await readFile(join(proc, 'sys/kernel/keys/root_maxkeys'), 'utf8')).trim(), '1000000');
});
