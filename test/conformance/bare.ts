import { readFile, writeFile } from 'node:fs/promises';
import { setTimeout as delay } from 'node:timers/promises';
import { OpError } from '../../base/errors.ts';
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
  const before = await readFile(path, 'utf8');
  const write = async (text: string): Promise<void> => {
    await writeFile(path, text, { mode: 0o600 });
    process.kill(first.pid, 'SIGHUP');
  };
  const stanzas = before.split('\n\n');
  await write(stanzas.filter((stanza) => !KUBELET.test(stanza.trim())).join('\n\n'));
  for (const deadline = performance.now() + STOP_MS; ; await delay(LOOK_MS, undefined, { signal })) {
    const running = await servicesOf(dir, first);
    if (!running.some((service) => service.name === 'agent' || service.name === 'kubelet')) break;
    if (performance.now() > deadline) {
      await write(before);
      throw new OpError('deadline', 'stopping the kubelet of a node', `it still runs after ${STOP_MS} ms`);
    }
  }
  return {
    inside: (argv) => [`${root}/dist/sys`, 'exec', '--pid', String(first.pid), '--', ...argv],
    [Symbol.asyncDispose]: async () => {
      await write(before);
      if (cgroup !== null) await removeEmptyCgroup({ ...cgroup, hierarchies: cgroup.hierarchies.filter((one) => !foreign.includes(one)) }, NO_PARENT);
    },
  };
}
