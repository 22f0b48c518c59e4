import { readFile, rm } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { OpError } from '../../base/errors.ts';
import { replaceFile } from '../../base/replace-file.ts';
import { findCgroup, removeEmptyCgroup } from '../../node/io/cgroup.ts';
import { inspectMachine } from '../../node/io/machine.ts';
import { firstProcess, servicesOf } from '../../node/io/running.ts';

/** How long a kubelet may take to end. */
const STOP_MS = 60_000;
const LOOK_MS = 200;
/** Where containers go for which a caller names no parent, as the suites that speak to the runtime do not. */
const NO_PARENT = '/k8s.io';
const KUBELET = /^service (agent|kubelet)$/m;

/** A node of a cluster whose kubelet stands still: nobody but the tests speaks to its runtime. */
export interface BareNode extends AsyncDisposable {
  /** Puts a command into the node's namespaces. */
  inside(argv: readonly string[]): [string, ...string[]];
}

/** Takes the kubelet of a node off its first process's list; disposing puts it back. `dir` is the node's folder. */
export async function bareNode(root: string, dir: string, signal: AbortSignal): Promise<BareNode> {
  const first = await firstProcess(dir);
  if (first === null) throw new OpError('unavailable', 'entering a node', `${dir} does not run`, { advice: 'start it with: nodelet node start' });
  const { cgroup } = await inspectMachine({ path: process.env['PATH'] ?? '' });
  // What is there before is somebody else's.
  const foreign = cgroup === null ? [] : await findCgroup(cgroup, NO_PARENT);
  const path = `${dir}/init.spec`;
  const aside = `${path}.whole`;
  const now = await readFile(path, 'utf8');
  const withoutKubelet = (text: string): string =>
    text
      .split('\n\n')
      .filter((stanza) => !KUBELET.test(stanza.trim()))
      .join('\n\n');
  // A run that was killed has left the node without its kubelet, and what it had been beside it.
  const before = withoutKubelet(now) === now ? await readFile(aside, 'utf8').catch(() => now) : now;
  const write = async (text: string): Promise<void> => {
    await replaceFile(path, text);
    process.kill(first.pid, 'SIGHUP');
  };
  const putBack = async (): Promise<void> => {
    await write(before);
    await rm(aside, { force: true });
  };
  await replaceFile(aside, before);
  try {
    await write(withoutKubelet(before));
    for (const deadline = performance.now() + STOP_MS; ; await delay(LOOK_MS, undefined, { signal })) {
      const running = await servicesOf(dir, first);
      if (!running.some((service) => service.name === 'agent' || service.name === 'kubelet')) break;
      if (performance.now() > deadline) throw new OpError('deadline', 'stopping the kubelet of a node', `it still runs after ${STOP_MS} ms`);
    }
  } catch (error) {
    await putBack();
    throw error;
  }
  return {
    inside: (argv) => [`${root}/dist/sys`, 'exec', '--pid', String(first.pid), '--', ...argv],
    [Symbol.asyncDispose]: async () => {
      await putBack();
      if (cgroup !== null) await removeEmptyCgroup({ ...cgroup, hierarchies: cgroup.hierarchies.filter((one) => !foreign.includes(one)) }, NO_PARENT);
    },
  };
}
