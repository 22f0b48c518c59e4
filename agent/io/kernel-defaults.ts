import { readFile, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf, OpError } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import { kernelDefaults, kernelProblems } from '../core/kernel-defaults.ts';

export interface KernelDefaultsOptions {
  readonly log: Log;
  /** `protectKernelDefaults`: nothing is changed, and a kernel that differs is refused. */
  readonly protect: boolean;
  /** Whoever started the agent says that the kernel is other people's too (a set on a developer's machine): nothing is changed. */
  readonly isShared: boolean;
  /** /proc. */
  readonly proc?: string;
}

/**
 * Sets the kernel parameters that a kubelet expects, in a container (a kind node) as on a machine of its own: so does
 * upstream's. What is shared is left alone, and what differs only told; where upstream's kubelet ends because the kernel
 * refuses one, ours says so and goes on. Throws OpError `invalid` for what is protected.
 */
export async function applyKernelDefaults({ log, protect, isShared, proc = '/proc' }: KernelDefaultsOptions): Promise<void> {
  const at = (name: string): string => join(proc, 'sys', name);
  const values = new Map(
    await Promise.all(Object.keys(kernelDefaults).map(async (name) => [name, await readFile(at(name), 'utf8').catch(() => null)] as const)),
  );
  const problems = kernelProblems((name) => values.get(name) ?? null);
  if (problems.length === 0) return;
  if (protect) throw new OpError('invalid', 'start the agent', problems.join('; '), { advice: 'Set them by sysctl, or set protectKernelDefaults: false.' });
  for (const [name, wanted] of Object.entries(kernelDefaults)) {
    const actual = values.get(name)?.trim();
    if (actual === undefined || actual === String(wanted)) continue;
    const fields = { flag: name, expectedValue: wanted, actualValue: actual };
    if (isShared) {
      log.debug(2, 'Invalid kernel flag', fields);
      continue;
    }
    try {
      await writeFile(at(name), String(wanted));
      log.info('Updated kernel flag', fields);
    } catch (error) {
      log.warn('Updating kernel flag failed', { ...fields, err: messageOf(error) });
    }
  }
}
