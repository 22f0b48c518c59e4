import { KubeClient, type KubeApiOptions } from './kube-client.ts';
import type { KubeApi } from './types.ts';
import { openUndiciClient } from './undici.ts';

/**
 * An API server over HTTP/2. Watches have sessions of their own with at most 90 streams each, lane `heartbeat` has one
 * that nothing else uses; dead connections are found by ping; changed certificate files are used by new connections.
 */
export function createKubeApi(options: KubeApiOptions): KubeApi {
  return new KubeClient({ ...options, openClient: openUndiciClient });
}
