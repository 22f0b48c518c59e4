/** The door of the room: what other rooms may use. */
export { main } from './main.ts';
export { openPods } from './pods.ts';
export type { PodSide, PodSideOptions } from './pods.ts';
export { createLoop } from './loop.ts';
export type { Loop } from './loop.ts';
