import assert from 'node:assert/strict';
import { mkdir, mkdtemp, readFile, rm, symlink, writeFile } from 'node:fs/promises';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { test, type TestContext } from 'node:test';
import { silentLog } from '../../base/log.ts';
import { kernelDefaults } from '../core/kernel-defaults.ts';
import { applyKernelDefaults } from './kernel-defaults.ts';

async function procOf(t: TestContext, namespace: string): Promise<string> {
  const proc = await mkdtemp(join(tmpdir(), 'proc-'));
  t.after(() => rm(proc, { recursive: true }));
  for (const [name, value] of Object.entries({ ...kernelDefaults, 'kernel/panic': 0 })) {
    await mkdir(dirname(join(proc, 'sys', name)), { recursive: true });
    await writeFile(join(proc, 'sys', name), `${value}\n`);
  }
  await mkdir(join(proc, 'self/ns'), { recursive: true });
  await symlink(namespace, join(proc, 'self/ns/pid'));
  return proc;
}

const panicOf = async (proc: string): Promise<string> => (await readFile(join(proc, 'sys/kernel/panic'), 'utf8')).trim();

test('a machine of its own gets the parameters, one that is shared keeps its own, one that is protected is refused', async (t) => {
  const own = await procOf(t, 'pid:[4026531836]');
  await applyKernelDefaults({ log: silentLog, protect: false, proc: own });
  assert.equal(await panicOf(own), '10');
  await applyKernelDefaults({ log: silentLog, protect: true, proc: own });
  const shared = await procOf(t, 'pid:[4026532000]');
  await applyKernelDefaults({ log: silentLog, protect: false, proc: shared });
  assert.equal(await panicOf(shared), '0');
  await assert.rejects(
    applyKernelDefaults({ log: silentLog, protect: true, proc: shared }),
    /invalid kernel flag: kernel\/panic, expected value: 10, actual value: 0/,
  );
});
