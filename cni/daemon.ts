import { messageOf, OpError } from '../base/errors.ts';
import type { Clock } from '../base/clock.ts';
import type { KubeApi } from '../base/kubeapi/types.ts';
import type { Log } from '../base/log.ts';
import type { DaemonConfig } from './core/conflist.ts';
import { CniError } from './core/errors.ts';
import type { Engine } from './engine.ts';
import type { Kernel } from './io/kernel.ts';
import { serveCalls } from './io/socket.ts';
import { NodeNetwork } from './node-network.ts';
import type { PolicyNetwork } from './policy.ts';
import { reconcile } from './reconcile.ts';

/** What dead pods hold is taken back this often, beside the looks at a start and when a range is full. */
const RECONCILE_MS = 60_000;

export interface DaemonOptions {
  readonly config: DaemonConfig;
  readonly engine: Engine;
  readonly kernel: Kernel;
  readonly policy: PolicyNetwork;
  /** Null: this node's part is somebody else's. */
  readonly api: KubeApi | null;
  readonly clock: Clock;
  readonly log: Log;
}

/** Answers the plugin's calls and keeps the ways to other nodes and the policies until `signal` is aborted. Rules, links and routes stay. */
export async function runDaemon(options: DaemonOptions, signal: AbortSignal): Promise<void> {
  const { config, engine, kernel, policy, api, clock, log } = options;
  const workshop = await engine.workshop(config.dataDir);
  // Callers first: a pod that waits is worth more than what dead ones left.
  await using _calls = await serveCalls(config.socket, (env, stdin) => engine.call(env, stdin), log);
  const network = new NodeNetwork({ config, kernel, clock, log });
  await network.begin();
  log.info('The pod network answers', { socket: config.socket, dataDir: config.dataDir });
  const look = async (): Promise<void> => {
    for (let isWritten = false; !signal.aborted;) {
      try {
        // At the start, and after a failure: the store may know of less than the table still has.
        if (!isWritten) await workshop.table.rebuild();
        isWritten = false;
        await reconcile(workshop);
        isWritten = true;
      } catch (error) {
        if (!(error instanceof OpError || error instanceof CniError)) throw error;
        log.error('What dead pods left could not be taken back', { error: messageOf(error) });
      }
      await clock.sleep(RECONCILE_MS, signal);
    }
  };
  try {
    await Promise.all([look(), ...(api === null ? [] : [network.run(api, signal), policy.run(api, signal)])]);
  } catch (error) {
    if (!signal.aborted) throw error;
  }
}
