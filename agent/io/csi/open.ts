import type { Clock } from '../../../base/clock.ts';
import { messageOf } from '../../../base/errors.ts';
import type { KubeApi } from '../../../base/kubeapi/types.ts';
import type { Log } from '../../../base/log.ts';
import type { Rng } from '../../../base/rng.ts';
import type { Sys } from '../../../base/sys/types.ts';
import { isSafeUid } from '../../core/volumes-paths.ts';
import type { Events, NodeInfo } from '../../seams.ts';
import { Ownership } from '../ownership.ts';
import type { Tokens } from '../tokens.ts';
import { Turns } from '../../../base/turns.ts';
import { Attachments } from './attach.ts';
import { CsiDisk } from './disk.ts';
import { followAllocatable } from './allocatable.ts';
import { Drivers } from './drivers.ts';
import type { OnCsiCall } from './drivers.ts';
import { Expansions } from './expand.ts';
import { CsiNodeObject } from './node-object.ts';
import { CsiDriverObjects } from './objects.ts';
import { CsiUnstage } from './unstage.ts';
import type { SelinuxNode } from '../../core/selinux.ts';
import { CsiVolumes } from './volumes.ts';

export interface OpenCsiOptions {
  readonly api: KubeApi;
  readonly clock: Clock;
  readonly rng: Rng;
  readonly log: Log;
  readonly sys: Sys;
  readonly rootDir: string;
  readonly node: NodeInfo;
  readonly events: Events;
  readonly tokens: Pick<Tokens, 'getStatus'>;
  /** Absent: the node has no SELinux. */
  readonly selinux?: SelinuxNode | null;
  readonly onCall: OnCsiCall;
  /** The Node's status has something new to say. */
  readonly report: () => void;
  /** Looks at a pod again soon. */
  readonly kick: (uid: string) => void;
  /** Whether it is known which pods are to run here. */
  readonly synced: () => boolean;
  readonly signal: AbortSignal;
}

export interface CsiSide extends AsyncDisposable {
  readonly drivers: Drivers;
  readonly nodeObject: CsiNodeObject;
  readonly volumes: CsiVolumes;
  /** Names for the Node's `volumesInUse`. */
  inUse(): readonly string[];
  /** Makes the CSINode, and takes off what an earlier process left staged for nobody. */
  run(signal: AbortSignal): Promise<void>;
}

const syncPollMs = 1000;
/** Pods that are to run have asked for their volumes by then. */
const sweepAfterMs = 10_000;
const retryMs = 10_000;

/** Joins the parts of CSI, and reads what an earlier process left on the disk. */
export async function openCsi(options: OpenCsiOptions): Promise<CsiSide> {
  const { api, clock, rng, log, sys, rootDir, node, events, signal } = options;
  const nodeName = node.name;
  const nodeObject = new CsiNodeObject({ api, clock, log, nodeName });
  const objects = new CsiDriverObjects({ api, clock, log, signal });
  const waiting = new Set<string>();
  const drivers = new Drivers({
    clock,
    log,
    nodeObject,
    onCall: options.onCall,
    onChange: () => {
      for (const uid of waiting) options.kick(uid);
      waiting.clear();
    },
  });
  const disk = new CsiDisk(sys, rootDir);
  const attachments = new Attachments({ api, node, report: options.report, kick: options.kick });
  const expansions = new Expansions({ api, clock, events, nodeName });
  const unstage = new CsiUnstage({ clock, rng, log, disk, drivers, attachments, expansions, turns: new Turns() });
  const volumes = new CsiVolumes({
    api,
    clock,
    log,
    nodeName,
    disk,
    objects,
    attachments,
    expansions,
    ownership: new Ownership({ sys, clock, events }),
    events,
    unstage,
    tokens: options.tokens,
    selinux: options.selinux ?? null,
    signal,
    drivers,
    waits: (uid) => waiting.add(uid),
  });
  await unstage.find((await disk.list('pods')).filter(isSafeUid));
  return {
    drivers,
    nodeObject,
    volumes,
    inUse: () => attachments.inUse(),
    async run(stop) {
      await node.ready(stop);
      objects.start();
      await Promise.all([
        followAllocatable({ clock, log, drivers, objects }, stop),
        ensureNodeObject(nodeObject, { clock, log }, stop),
        sweepOnce(unstage, options, stop),
      ]);
      // Aborted meanwhile, the signal tells nobody any more.
      if (!stop.aborted) await new Promise<void>((resolve) => stop.addEventListener('abort', () => resolve(), { once: true }));
    },
    async [Symbol.asyncDispose]() {
      await unstage[Symbol.asyncDispose]();
    },
  };
}

async function ensureNodeObject(nodeObject: CsiNodeObject, { clock, log }: { clock: Clock; log: Log }, signal: AbortSignal): Promise<void> {
  while (!signal.aborted) {
    try {
      await nodeObject.ensure(signal);
      return;
    } catch (error) {
      if (signal.aborted) return;
      log.error('Failed to initialize CSINode', { err: messageOf(error) });
      await clock.sleep(retryMs, signal).catch(() => undefined);
    }
  }
}

async function sweepOnce(unstage: CsiUnstage, { clock, synced }: OpenCsiOptions, signal: AbortSignal): Promise<void> {
  while (!signal.aborted && !synced()) await clock.sleep(syncPollMs, signal).catch(() => undefined);
  await clock.sleep(sweepAfterMs, signal).catch(() => undefined);
  if (!signal.aborted) unstage.sweep();
}
