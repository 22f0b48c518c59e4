export { startDns } from './server.ts';
