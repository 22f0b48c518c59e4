import type { ImageServiceMethods, RuntimeServiceMethods } from '../../proto/cri/types.ts';

/** How a CRI method is called; what cri/mod.ts offers fits. */
export interface RuntimeCallOptions {
  timeoutMs: number;
  signal?: AbortSignal;
}

export type RuntimeCall<M extends keyof RuntimeServiceMethods> = (request: RuntimeServiceMethods[M]['request'], options: RuntimeCallOptions) => Promise<RuntimeServiceMethods[M]['response']>;
export type ImageCall<M extends keyof ImageServiceMethods> = (request: ImageServiceMethods[M]['request'], options: RuntimeCallOptions) => Promise<ImageServiceMethods[M]['response']>;
