/** The door of the embedded control plane. */
export { issueKubeconfig, issueServingCert, openPki } from './io/pki.ts';
export { startDns } from './dns/mod.ts';
