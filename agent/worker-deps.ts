import type { Log } from '../base/log.ts';
import type { AdmitPodDeps } from './admit-pod.ts';
import type { BackoffRules } from './core/backoff.ts';
import type { PodKey } from './core/types.ts';
import type { DraClaims } from './io/dra/claims.ts';
import type { FactsReader } from './io/facts.ts';
import type { PodFiles } from './io/files.ts';
import type { RefreshEndingDeps } from './io/refresh-ending.ts';
import type { StepDeps } from './io/step-types.ts';
import type { Cgroups, EnvSources, Volumes } from './seams.ts';
import type { TellerDeps } from './teller.ts';

/** What every worker shares. */
export interface WorkerDeps extends TellerDeps, AdmitPodDeps, RefreshEndingDeps {
  readonly log: Log;
  readonly facts: FactsReader;
  readonly steps: StepDeps;
  readonly volumes: Volumes;
  /** Dynamic resources; absent: no pod has any. */
  readonly claims?: Pick<DraClaims, 'prepare' | 'unprepare' | 'withHealth'>;
  readonly sources: EnvSources;
  readonly cgroups: Cgroups;
  readonly files: PodFiles;
  readonly rules: BackoffRules;
  /** The node did not take a pod. */
  readonly rejected?: (reason: string) => void;
  /** Why no pod network can be had now, in upstream's words; null: it can. */
  readonly networkProblem: () => string | null;
  readonly podLogDir: (key: PodKey) => string;
  readonly containersLogDir: string;
}

/** When to look again; null: only when something happens. */
export interface SyncResult {
  readonly again: 'now' | number | null;
  readonly gone: boolean;
}
