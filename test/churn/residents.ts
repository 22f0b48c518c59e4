import type { KubeObject } from '../../base/kubeapi/types.ts';

export interface Deployment extends KubeObject {
  readonly spec?: { readonly replicas?: number };
  readonly status?: { readonly observedGeneration?: number; readonly readyReplicas?: number };
}

/** Names of the Deployments whose pods are not all Ready, or that no controller has seen yet. */
export function unfinished(deployments: readonly Deployment[]): string[] {
  return deployments
    .filter(
      ({ metadata, spec, status }) => (status?.readyReplicas ?? 0) < (spec?.replicas ?? 1) || (status?.observedGeneration ?? 0) < (metadata.generation ?? 0),
    )
    .map(({ metadata }) => `${metadata.namespace ?? ''}/${metadata.name ?? ''}`);
}
