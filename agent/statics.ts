import { untilAborted } from '../base/abort.ts';
import type { Clock } from '../base/clock.ts';
import type { KubeApi } from '../base/kubeapi/types.ts';
import type { Log } from '../base/log.ts';
import type { Pod } from '../proto/kube/types.ts';
import type { KubeletConfiguration } from './core/config.ts';
import { durationMs } from '../base/duration.ts';
import { createMirrors } from './io/mirrors.ts';
import type { ApiPods } from './io/pods-api.ts';
import { createStaticPods, type StaticPods } from './io/pods-static.ts';
import { createUrlPods } from './io/pods-url.ts';
import type { Loop } from './loop.ts';
import type { NodeInfo, PodSourceReader, StatusWriter } from './seams.ts';

export interface StaticsOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly api: KubeApi;
  readonly node: NodeInfo;
  readonly config: Pick<KubeletConfiguration, 'staticPodPath' | 'fileCheckFrequency' | 'staticPodURL' | 'staticPodURLHeader' | 'httpCheckFrequency'>;
  readonly apiPods: ApiPods;
  /** Writes to the API server; the statuses of static pods go there by their mirrors. */
  readonly statuses: StatusWriter;
  readonly loop: () => Loop;
}

export interface Statics {
  readonly source: PodSourceReader;
  readonly statuses: StatusWriter;
  /** Whether a static pod has to wait for an earlier one of its name, which still stops: two of them would fight for ports and files. */
  mustWait(pod: Pod): boolean;
  run(signal: AbortSignal): Promise<void>;
}

/** Pods from files of this node, and the mirror pods by which the API server knows them. */
export function openStatics(options: StaticsOptions): Statics {
  const { clock, log, api, node, config, apiPods, loop } = options;
  const runsElsewhere = (namespace: string, name: string, butUid: string): boolean =>
    loop()
      .allFacts()
      .some(
        (facts) =>
          facts.uid !== butUid &&
          facts.namespace === namespace &&
          facts.name === name &&
          (facts.sandboxes.some(({ ready }) => ready) || facts.containers.some(({ state }) => state === 'running')),
      );
  const shared = { clock, log: log.child('static'), nodeName: node.name };
  const sources: StaticPods[] = [];
  if (config.staticPodPath !== '') sources.push(createStaticPods({ ...shared, path: config.staticPodPath, rescanMs: durationMs(config.fileCheckFrequency) }));
  if (config.staticPodURL !== '')
    sources.push(createUrlPods({ ...shared, url: config.staticPodURL, headers: config.staticPodURLHeader, periodMs: durationMs(config.httpCheckFrequency) }));
  const source = together(sources);
  const mirrors = createMirrors({
    clock,
    log: log.child('mirror'),
    api,
    node,
    statics: source,
    apiPods,
    mayRun: runsElsewhere,
    statuses: options.statuses,
    retell: (uid) => loop().kick(uid),
  });
  return {
    source,
    statuses: mirrors.statuses,
    mustWait: ({ metadata: { namespace = '', name = '', uid = '' } }) => runsElsewhere(namespace, name, uid),
    async run(signal) {
      await Promise.all([source.run(signal), mirrors.run(signal)]);
    },
  };
}

/** Files and URL as one source. */
function together(sources: readonly StaticPods[]): StaticPods {
  return {
    source: 'static',
    list: () => sources.flatMap((each) => each.list()),
    get: (uid) => sources.map((each) => each.get(uid)).find((view) => view !== undefined),
    synced: () => sources.every((each) => each.synced()),
    onUpdate: (callback) => sources.forEach((each) => each.onUpdate(callback)),
    async run(signal) {
      await Promise.all([...sources.map((each) => each.run(signal)), untilAborted(signal)]);
    },
  };
}
