import { spawn } from 'node:child_process';
import { setTimeout as delay } from 'node:timers/promises';
import { OpError } from '../../base/errors.ts';
import type { BareNode } from '../conformance/bare.ts';

const START_MS = 30_000;
const STOP_MS = 20_000;

/** A tap as a process in a node's namespaces, recording; `stop` gives its last words, and may be called again. */
export interface InsideTap {
  stop(): Promise<string>;
}

export async function startTap(root: string, node: BareNode, at: { listen: string; upstream: string; record: string }): Promise<InsideTap> {
  const [program, ...args] = node.inside([
    process.execPath,
    '--disable-warning=ExperimentalWarning',
    `${root}/dist/nodelet.mjs`,
    ...['cri', 'tap', '--listen', at.listen, '--upstream', at.upstream, '--record', at.record, '--quiet'],
  ]);
  const child = spawn(program, args, { stdio: ['ignore', 'ignore', 'pipe'] });
  let said = '';
  child.stderr.setEncoding('utf8').on('data', (text: string) => (said += text));
  const closed = new Promise<void>((resolve) => child.on('close', () => resolve()));
  const ended = { done: false };
  void closed.then(() => (ended.done = true));
  for (const deadline = performance.now() + START_MS; !said.includes('listening at'); await delay(50)) {
    if (!ended.done && performance.now() < deadline) continue;
    child.kill('SIGKILL');
    throw new OpError('failed', 'starting the tap', said.trim() || 'it does not listen');
  }
  return {
    async stop() {
      child.kill('SIGTERM');
      const isDone = await Promise.race([closed.then(() => true), delay(STOP_MS, false, { ref: false })]);
      if (!isDone) child.kill('SIGKILL');
      await closed;
      return said.trim().split('\n').at(-1) ?? '';
    },
  };
}
