/** What the whole node needs of the pod network, beside its command. */
export { conflist, readDaemonConfig } from './core/conflist.ts';
export { installPlugin } from './io/install.ts';
