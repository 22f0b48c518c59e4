export { Turns } from '../../base/turns.ts';
