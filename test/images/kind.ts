/** The images that a cluster of kind 0.33 with Kubernetes 1.37 starts from: those that kubeadm lists, and one that is network and storage. */
import type { AssetName } from '../assets/catalogue.ts';
import type { E2eImage, LayerRecipe } from './recipes.ts';
import { PATH } from './settings.ts';

const VERSION = 'v1.37.2';
/** Programs that kubeadm runs as static pods from an image of their own, and the proxy. */
const PARTS = ['kube-apiserver', 'kube-controller-manager', 'kube-scheduler', 'kube-proxy'] as const satisfies readonly AssetName[];

const programLayer = (asset: AssetName): LayerRecipe => ({
  files: [
    { path: `/usr/local/bin/${asset}`, mode: 0o755, content: { kind: 'program', source: { kind: 'asset', asset } } },
    { path: '/tmp', mode: 0o1777, content: { kind: 'directory' } },
  ],
});

export const KIND_LAYERS: Readonly<Record<string, LayerRecipe>> = {
  ...Object.fromEntries(PARTS.map((name): [string, LayerRecipe] => [name, programLayer(name)])),
  'coredns-alone': { files: [{ path: '/coredns', mode: 0o755, content: { kind: 'program', source: { kind: 'asset', asset: 'coredns' } } }] },
  kubectl: programLayer('kubectl'),
  // What the release's Node is linked to.
  cxx: { packages: ['libstdc++6'] },
};

/** The name under which the node image's manifests ask for a shell with kubectl, ip and nft. */
export const KIND_TOOLS = 'localhost/nodelet/kind-tools:1';

/** What the image of our proxy stands on. */
export const PROXY_BASE = 'localhost/nodelet/proxy-base:1';

export const KIND_IMAGES: readonly E2eImage[] = [
  ...PARTS.map((name): E2eImage => ({
    name: `registry.k8s.io/${name}:${VERSION}`,
    layers: name === 'kube-proxy' ? ['base', 'iptables', name] : [name],
    settings: { env: [PATH], entrypoint: [`/usr/local/bin/${name}`] },
    onRequest: true,
  })),
  { name: 'registry.k8s.io/coredns/coredns:v1.14.6', layers: ['coredns-alone'], settings: { entrypoint: ['/coredns'] }, onRequest: true },
  { name: PROXY_BASE, layers: ['base', 'iptables', 'cxx'], settings: { env: [PATH] }, onRequest: true },
  { name: KIND_TOOLS, layers: ['base', 'network', 'iptables', 'kubectl'], settings: { env: [PATH], cmd: ['/bin/sh'] }, onRequest: true },
];

/** All that a node image holds. */
export const PRELOADED: readonly string[] = [
  'registry.k8s.io/pause:3.10.2',
  'registry.k8s.io/etcd:3.7.0-0',
  ...KIND_IMAGES.map(({ name }) => name).filter((name) => name !== PROXY_BASE),
];
