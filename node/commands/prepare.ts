import { realpath } from 'node:fs/promises';
import { OpError } from '../../base/errors.ts';
import type { CniKind } from '../core/plan.ts';
import { buildSys, sysIsStale } from '../io/build.ts';
import type { Machine } from '../io/machine.ts';
import { installPackages, missingPackages, missingForTests } from '../io/packages.ts';
import { lookAtMachine, type Context } from './context.ts';

/** Brings what is missing of the distribution's packages and our C program, and refuses a machine that cannot run a node. */
export async function prepareMachine(context: Context, options: { containerd: string | undefined; forTests: boolean; cni?: CniKind }): Promise<Machine> {
  const { containerd, forTests } = options;
  await requireVisible(context);
  let machine = await lookAtMachine(context, containerd);
  if (machine.cgroup === null) {
    throw new OpError('unsupported', 'looking at this machine', 'no cgroup hierarchy with cpu, memory and pids is mounted', {
      advice: 'mount cgroup2 on /sys/fs/cgroup, or run this container privileged',
    });
  }
  if (containerd !== undefined && machine.containerdVersion === null)
    throw new OpError('not-found', 'reading --containerd', `there is no containerd at ${containerd} that runs here`);
  const stale = await sysIsStale(context.root);
  const missing = [
    ...missingPackages(machine, { wantCompiler: stale || forTests, wantPlugins: options.cni !== 'nodelet' }),
    ...(forTests ? missingForTests(machine) : []),
  ];
  if (missing.length > 0) {
    if (machine.programs['apt-get'] === undefined) {
      throw new OpError('not-found', 'looking at this machine', `missing: ${missing.join(', ')}, and there is no apt-get to install them`, {
        advice: 'install them by hand, or give a containerd with --containerd',
      });
    }
    await context.progress.step(`packages installed: ${missing.join(' ')}`, () => installPackages(missing));
    machine = await lookAtMachine(context, containerd);
  }
  if (stale) await context.progress.step('sys built', () => buildSys(context.root));
  if (machine.cgroup?.version === 1 && !forTests) context.progress.note('  cgroup v1 here: the kubelet is configured with failCgroupV1: false');
  return machine;
}

/** A node has a /run and a /var/log of its own: what lies below them on this machine is not there for its programs. */
async function requireVisible(context: Context): Promise<void> {
  for (const [folder, advice] of [
    [context.root, 'nothing was started; clone the repository to another folder'],
    [context.home, 'nothing was started; name another folder with NODELET_STATE'],
  ] as const) {
    const path = await realpath(folder).catch(() => folder);
    const hidden = ['/run/', '/var/log/', '/proc/', '/sys/'].find((place) => path.startsWith(place));
    if (hidden !== undefined)
      throw new OpError('unsupported', 'looking at this machine', `nodes do not see ${path}: they have a ${hidden} of their own`, { advice });
  }
}
