import { readFile, readlink, writeFile } from 'node:fs/promises';
import { join } from 'node:path';
import { messageOf, OpError } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import { kernelDefaults, kernelProblems } from '../core/kernel-defaults.ts';

export interface KernelDefaultsOptions {
  readonly log: Log;
  /** `protectKernelDefaults`: nothing is changed, and a kernel that differs is refused. */
  readonly protect: boolean;
  /** /proc. */
  readonly proc?: string;
}

/** The inode that every kernel gives the first PID namespace. */
const firstPidNamespace = 'pid:[4026531836]';

/**
 * Sets the kernel parameters that a kubelet expects. In a PID namespace that is not the machine's first (a set, a kind
 * node) the machine is somebody else's, and what differs is only told; a refusal is a warning, as in a user namespace
 * (KubeletInUserNamespace). Throws OpError `invalid` for what is protected.
 */
export async function applyKernelDefaults({ log, protect, proc = '/proc' }: KernelDefaultsOptions): Promise<void> {
  const at = (name: string): string => join(proc, 'sys', name);
  const values = new Map(
    await Promise.all(Object.keys(kernelDefaults).map(async (name) => [name, await readFile(at(name), 'utf8').catch(() => null)] as const)),
  );
  const problems = kernelProblems((name) => values.get(name) ?? null);
  if (problems.length === 0) return;
  if (protect) throw new OpError('invalid', 'start the agent', problems.join('; '), { advice: 'Set them by sysctl, or set protectKernelDefaults: false.' });
  const ours = (await readlink(join(proc, 'self/ns/pid')).catch(() => '')) === firstPidNamespace;
  for (const [name, wanted] of Object.entries(kernelDefaults)) {
    const actual = values.get(name)?.trim();
    if (actual === undefined || actual === String(wanted)) continue;
    const fields = { flag: name, expectedValue: wanted, actualValue: actual };
    if (!ours) {
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
