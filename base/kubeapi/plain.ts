import { KubeClient, type KubeApiOptions } from './kube-client.ts';
import { openPlainClient } from './plain-client.ts';
import type { KubeApi } from './types.ts';

/** As `createKubeApi` of client.ts, for a small process with a handful of watches: without undici. */
export function createPlainKubeApi(options: KubeApiOptions): KubeApi {
  return new KubeClient({ ...options, openClient: openPlainClient });
}
