/** How often a runtime has set up a sandbox's network so far, and how long that took in all. */
export interface NetworkSetup {
  readonly count: number;
  readonly sumSeconds: number;
}

/** containerd 1.7 and later: around the whole set-up, which is the network plugin. */
const FAMILY = 'containerd_cri_sandbox_create_network_seconds';

/** Reads it from a runtime's metrics, as Prometheus reads them; null where they do not say. */
export function networkSetup(metrics: string): NetworkSetup | null {
  const value = (name: string): number | null => {
    const found = new RegExp(`^${FAMILY}_${name} (\\S+)$`, 'm').exec(metrics)?.[1];
    return found === undefined ? null : Number(found);
  };
  const count = value('count');
  const sumSeconds = value('sum');
  return count === null || sumSeconds === null ? null : { count, sumSeconds };
}
