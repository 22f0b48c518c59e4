/** The room's door: what commands outside it share with its own. */
export { buildSys, sysIsStale } from './io/build.ts';
export { createProgress, type Progress } from './io/progress.ts';
