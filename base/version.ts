/** The Kubernetes release whose behaviour this program claims. */
export const kubernetesVersion = 'v1.37.2';

/** Fits semver and the pattern kubeadm reads `--version` with. */
export const version = `${kubernetesVersion}+nodelet.0.1`;
