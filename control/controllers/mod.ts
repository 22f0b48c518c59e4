import { startClaimProtection } from './claim-protection.ts';
import { startDaemonSetController } from './daemonset.ts';
import { startDeploymentController } from './deployment.ts';
import type { ControlDeps } from './deps.ts';
import { startEndpointsController, startEndpointSliceController } from './endpoints.ts';
import { startGarbageCollector } from './gc.ts';
import { startNamespaceController } from './namespace.ts';
import { startRootCaPublisher, startServiceAccountController } from './namespace-defaults.ts';
import { startNodeIpam, startNodeLifecycle, startPodGc, startTaintEviction } from './nodes.ts';
import { startReplicaSetController } from './replicaset.ts';
import { endWith } from './end.ts';
import { Stores } from './store.ts';

export type { ControlDeps } from './deps.ts';

/** Starts every controller on one set of watches; they end with `deps.signal` or when disposed. */
export function startControllers(deps: ControlDeps): AsyncDisposable {
  const stores = new Stores(deps.api, deps.clock, deps.log, deps.signal);
  const starts = [
    startServiceAccountController,
    startRootCaPublisher,
    startDeploymentController,
    startReplicaSetController,
    startDaemonSetController,
    startEndpointSliceController,
    startEndpointsController,
    startNodeLifecycle,
    startTaintEviction,
    startPodGc,
    startClaimProtection,
    startNamespaceController,
    startGarbageCollector,
    ...(deps.config.allocateNodeCIDRs === false ? [] : [startNodeIpam]),
  ];
  const controllers = starts.map((start) => start(deps, stores));
  return endWith(deps.signal, async () => {
    await Promise.all(controllers.map((controller) => controller[Symbol.asyncDispose]()));
    await stores[Symbol.asyncDispose]();
  });
}
