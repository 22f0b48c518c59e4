/** The door of the embedded control plane. */
export { issueKubeconfig, issueServingCert, openPki } from './io/pki.ts';
export type { KubeconfigRequest, ServingRequest } from './io/pki.ts';
export { startControl } from './io/start.ts';
export type { Control, ControlOptions } from './io/start.ts';
export { startDns } from './dns/mod.ts';
