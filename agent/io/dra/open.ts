import type { Clock } from '../../../base/clock.ts';
import type { KubeApi } from '../../../base/kubeapi/types.ts';
import type { Log } from '../../../base/log.ts';
import type { NodeInfo } from '../../seams.ts';
import { DraClaims } from './claims.ts';
import { DraPlugins } from './plugins.ts';

export interface OpenDraOptions {
  readonly api: KubeApi;
  readonly clock: Clock;
  readonly log: Log;
  readonly rootDir: string;
  readonly node: NodeInfo;
  /** `DRAWorkloadResourceClaims`. */
  readonly ofGroups: boolean;
  /** Each call to a driver, and each round for a pod. */
  readonly onCall: (driver: string, method: string, status: string, tookMs: number) => void;
  readonly onDone: (operation: string, failed: boolean, tookMs: number) => void;
  /** Whether it is known which pods are to run here. */
  readonly synced: () => boolean;
  /** Whether the pod may still use what it was given. */
  readonly isActive: (uid: string) => boolean;
  /** Looks at a pod again soon. */
  readonly kick: (uid: string) => void;
  readonly signal: AbortSignal;
}

export interface DraSide extends Disposable {
  readonly plugins: DraPlugins;
  readonly claims: DraClaims;
  run(signal: AbortSignal): Promise<void>;
}

/** Joins the parts of dynamic resources, and reads what an earlier process had prepared. */
export async function openDra(options: OpenDraOptions): Promise<DraSide> {
  const { api, clock, log, rootDir, node, signal, ofGroups, onCall, onDone } = options;
  const plugins = new DraPlugins({
    api,
    clock,
    log,
    nodeName: node.name,
    onCall,
    signal,
    onHealth: (driver, devices) => {
      for (const uid of claims.usersOf(driver, devices)) options.kick(uid);
    },
  });
  const claims: DraClaims = await DraClaims.open({ api, clock, log, plugins, ofGroups, onDone, file: `${rootDir}/dra_manager_state` });
  return {
    plugins,
    claims,
    async run(stop) {
      await node.ready(stop);
      // Drivers publish anew when they register; of those that never come nothing is to be left.
      await Promise.all([plugins.wipe('', stop), claims.run(options.isActive, options.synced, stop)]);
    },
    [Symbol.dispose]() {
      plugins[Symbol.dispose]();
    },
  };
}
