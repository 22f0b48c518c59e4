export { startScheduler } from './scheduler.ts';
