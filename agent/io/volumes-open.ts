import type { Clock } from '../../base/clock.ts';
import type { KubeApi } from '../../base/kubeapi/types.ts';
import type { Log } from '../../base/log.ts';
import type { Rng } from '../../base/rng.ts';
import type { Sys } from '../../base/sys/types.ts';
import type { Node } from '../../proto/kube/types.ts';
import { stampOf } from '../core/volumes-writer.ts';
import type { EnvSources, Events } from '../seams.ts';
import { Ownership } from './ownership.ts';
import type { PodCertificates } from './pod-certificates.ts';
import type { Tokens } from './tokens.ts';
import type { TrustBundles } from './trust-bundles.ts';
import { Claims } from './volumes-claims.ts';
import { VolumeDisk } from './volumes-disk.ts';
import { MountedVolumes } from './volumes-mounted.ts';
import { PodVolumes } from './volumes.ts';
import type { VolumesOptions } from './volumes.ts';

export interface OpenVolumesOptions extends Omit<VolumesOptions, 'disk' | 'tokens' | 'claims' | 'sources' | 'mounted' | 'csi'> {
  readonly sys: Sys;
  readonly api: KubeApi;
  readonly rng: Rng;
  readonly clock: Clock;
  readonly log: Log;
  readonly sources: EnvSources;
  readonly events: Events;
  readonly csi: VolumesOptions['csi'];
  readonly tokens: Tokens;
  readonly node: () => Node | undefined;
  readonly certificates: PodCertificates;
  readonly trustBundles: TrustBundles;
  /** Stops refreshes that a change has begun. */
  readonly signal: AbortSignal;
  /** Bound of one batch of file operations; a hung disk costs the pod on it this much per attempt. */
  readonly diskTimeoutMs?: number;
}

/** Joins the parts of the volumes: disk, tokens, claims; a changed object is taken over as soon as its watch tells. */
export function openVolumes(options: OpenVolumesOptions): PodVolumes {
  const { sys, api, clock, rng, rootDir } = options;
  const stamp = (): string => stampOf(clock.nowMs(), rng.int(2 ** 31));
  const disk = new VolumeDisk({ sys, rootDir, timeoutMs: options.diskTimeoutMs ?? 5000, stamp });
  const volumes = new PodVolumes({
    ...options,
    disk,
    mounted: new MountedVolumes({
      sys,
      rootDir,
      remember: (uid, target) => disk.remember(uid, target),
      ownership: new Ownership({ sys, clock, events: options.events }),
      events: options.events,
    }),
    claims: new Claims(api, options.node),
  });
  options.sources.onChange((uid) => void volumes.objectChanged(uid, options.signal));
  return volumes;
}
