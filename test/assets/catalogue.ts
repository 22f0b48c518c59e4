/** What the proving ground runs for real: one row a program. The modules that pin it all are in `test/cluster/go/`. */

export type ModuleName = keyof typeof MODULES;

/** Module → the version of what it is there for. A test holds these against each `go.mod`. */
export const MODULES = {
  kubernetes: '1.37.2',
  etcd: '3.7.3',
  'containerd-2.4': '2.4.2',
  'containerd-2.3': '2.3.7',
  runc: '1.4.4',
  cni: '1.10.0',
  coredns: '1.14.6',
  'cri-tools': '1.37.0',
  kind: '0.33.0',
  'network-policy': '0.3.0',
} as const;

/** How a program tells its version; the first group of the pattern is the version without its `v`. */
export interface Ask {
  readonly args: readonly string[];
  readonly pattern: RegExp;
}

export interface Row {
  readonly module: ModuleName;
  readonly package: string;
  /** `test` makes the package's test binary (`go test -c`). */
  readonly kind: 'build' | 'test';
  readonly cgo: boolean;
  readonly tags: string;
  /** Beside `-s -w`. */
  readonly ldflags: readonly string[];
  readonly version: string;
  /** Which versions found elsewhere will do: that one, any patch of its minor, or any from `least` on. */
  readonly fits: 'exact' | 'minor' | { readonly least: string };
  /** Null where the program tells none: then it counts only where somebody named the folder. */
  readonly ask: Ask | null;
  /** Where it is for a person: on PATH, in the folders of CNI plugins, or nowhere. */
  readonly place: 'path' | 'cni' | 'nowhere';
}

type Given = Pick<Row, 'module' | 'package'> & Partial<Row>;

const row = (given: Given): Row => ({
  kind: 'build',
  cgo: false,
  tags: '',
  ldflags: [],
  version: MODULES[given.module],
  fits: 'exact',
  ask: null,
  place: given.ask === undefined || given.ask === null ? 'nowhere' : 'path',
  ...given,
});

const ask = (args: string, pattern: RegExp): Ask => ({ args: args === '' ? [] : args.split(' '), pattern });

const K8S = MODULES.kubernetes;
const [K8S_MAJOR, K8S_MINOR] = K8S.split('.');
const STAMPS = ['k8s.io/component-base/version', 'k8s.io/client-go/pkg/version'].flatMap((path) => [
  `-X ${path}.gitVersion=v${K8S}`,
  `-X ${path}.gitMajor=${K8S_MAJOR}`,
  `-X ${path}.gitMinor=${K8S_MINOR}`,
  `-X ${path}.gitTreeState=clean`,
]);
const KUBERNETES = ask('--version', /Kubernetes v(\S+)/);

const kube = (name: string, given: Partial<Row> = {}): Row =>
  row({ module: 'kubernetes', package: `k8s.io/kubernetes/cmd/${name}`, ldflags: STAMPS, ask: KUBERNETES, ...given });

/** A program for an e2e image: of the Kubernetes module, and only inside that image. */
const image = (path: string, given: Partial<Row> = {}): Row => row({ module: 'kubernetes', package: `k8s.io/kubernetes/test/images/${path}`, ...given });

const containerd = (module: 'containerd-2.4' | 'containerd-2.3', name: string, how: Ask): Row =>
  row({
    module,
    package: `github.com/containerd/containerd/v2/cmd/${name}`,
    ldflags: [`-X github.com/containerd/containerd/v2/version.Version=v${MODULES[module]}`],
    fits: 'minor',
    ask: how,
  });
const TOLD = ask('--version', /\sv?(\d+\.\d+\.\d+\S*)/);
const SHIM = ask('-v', /Version:\s+v?(\S+)/);

const cni = (path: string): Row =>
  row({
    module: 'cni',
    package: `github.com/containernetworking/plugins/plugins/${path}`,
    ldflags: [`-X github.com/containernetworking/plugins/pkg/utils/buildversion.BuildVersion=v${MODULES.cni}`],
    fits: { least: '1.4.0' },
    ask: ask('', /CNI \S+ plugin v?(\S+)/),
    place: 'cni',
  });

const criTools = (name: string, given: Partial<Row>): Row =>
  row({
    module: 'cri-tools',
    package: `sigs.k8s.io/cri-tools/cmd/${name}`,
    ldflags: [`-X sigs.k8s.io/cri-tools/pkg/version.Version=v${MODULES['cri-tools']}`],
    fits: 'minor',
    ...given,
  });

/** In the order in which they are built: what others wait for comes first. A name is also the place below the assets folder. */
export const PROGRAMS = {
  etcd: row({ module: 'etcd', package: 'go.etcd.io/etcd/server/v3', fits: 'minor', ask: ask('--version', /etcd Version: (\S+)/) }),
  'kube-apiserver': kube('kube-apiserver'),
  'kube-controller-manager': kube('kube-controller-manager'),
  'kube-scheduler': kube('kube-scheduler'),
  kubelet: kube('kubelet'),
  'kube-proxy': kube('kube-proxy'),
  kubectl: kube('kubectl', { ask: ask('version --client --output=json', /"gitVersion":\s*"v([^"]+)"/) }),
  kubeadm: kube('kubeadm', { ask: ask('version -o short', /^v(\S+)/m) }),
  'containerd-2.4/containerd': containerd('containerd-2.4', 'containerd', TOLD),
  'containerd-2.4/containerd-shim-runc-v2': containerd('containerd-2.4', 'containerd-shim-runc-v2', SHIM),
  'containerd-2.4/ctr': containerd('containerd-2.4', 'ctr', TOLD),
  runc: row({
    module: 'runc',
    package: 'github.com/opencontainers/runc',
    cgo: true,
    tags: 'seccomp',
    fits: { least: '1.3.0' },
    ask: ask('--version', /runc version (\S+)/),
  }),
  'cni/ptp': cni('main/ptp'),
  'cni/host-local': cni('ipam/host-local'),
  'cni/loopback': cni('main/loopback'),
  'cni/portmap': cni('meta/portmap'),
  'cni/bridge': cni('main/bridge'),
  'cni/bandwidth': cni('meta/bandwidth'),
  'cni/firewall': cni('meta/firewall'),
  'cni/dhcp': cni('ipam/dhcp'),
  'cni/static': cni('ipam/static'),
  'cni/dummy': cni('main/dummy'),
  'cni/host-device': cni('main/host-device'),
  'cni/ipvlan': cni('main/ipvlan'),
  'cni/macvlan': cni('main/macvlan'),
  'cni/vlan': cni('main/vlan'),
  'cni/sbr': cni('meta/sbr'),
  'cni/tuning': cni('meta/tuning'),
  'cni/vrf': cni('meta/vrf'),
  coredns: row({ module: 'coredns', package: 'github.com/coredns/coredns', fits: 'minor', ask: ask('-version', /CoreDNS-(\S+)/) }),
  'e2e.test': kube('', { package: 'k8s.io/kubernetes/test/e2e', kind: 'test', ask: ask('--version', /^v(\S+)/m) }),
  ginkgo: row({
    module: 'kubernetes',
    package: 'github.com/onsi/ginkgo/v2/ginkgo',
    version: '2.32.0',
    ask: ask('version', /Ginkgo Version (\S+)/),
  }),
  agnhost: image('agnhost', { version: '2.66.1', ldflags: ['-X main.Version=2.66.1'], ask: ask('--version', /^app version (\S+)/), place: 'nowhere' }),
  crictl: criTools('crictl', { ask: ask('--version', /crictl version v?(\S+)/) }),
  critest: criTools('critest', { kind: 'test', ask: ask('--version', /critest version: v?(\S+)/) }),
  'e2e_node.test': kube('', { package: 'k8s.io/kubernetes/test/e2e_node', kind: 'test', ask: null, place: 'nowhere' }),
  'containerd-2.3/containerd': containerd('containerd-2.3', 'containerd', TOLD),
  'containerd-2.3/containerd-shim-runc-v2': containerd('containerd-2.3', 'containerd-shim-runc-v2', SHIM),
  'containerd-2.3/ctr': containerd('containerd-2.3', 'ctr', TOLD),
  kind: row({ module: 'kind', package: 'sigs.k8s.io/kind', fits: 'minor', ask: ask('version', /kind v(\S+)/) }),
  'network-policy.test': row({ module: 'network-policy', package: 'sigs.k8s.io/network-policy-api/conformance', kind: 'test' }),
  'images/apparmor-loader': image('apparmor-loader'),
  'images/regression-issue-74839': image('regression-issue-74839'),
  'images/resource-consumer': image('resource-consumer'),
  'images/consume-cpu': image('resource-consumer/consume-cpu'),
  'images/sample-device-plugin': image('sample-device-plugin'),
} as const satisfies Readonly<Record<string, Row>>;

export type AssetName = keyof typeof PROGRAMS;
/** Folders of programs that belong together. */
export type AssetFolder = 'containerd-2.4' | 'containerd-2.3' | 'cni';

export const ASSET_NAMES = Object.keys(PROGRAMS) as AssetName[];
export const rowOf = (name: AssetName): Row => PROGRAMS[name];
export const isAssetName = (name: string): name is AssetName => Object.hasOwn(PROGRAMS, name);

/** What a folder must hold to be used as one; CNI plugins beyond these are extras. */
export const FOLDER_NEEDS: Readonly<Record<AssetFolder, readonly AssetName[]>> = {
  'containerd-2.4': ['containerd-2.4/containerd', 'containerd-2.4/containerd-shim-runc-v2', 'containerd-2.4/ctr'],
  'containerd-2.3': ['containerd-2.3/containerd', 'containerd-2.3/containerd-shim-runc-v2', 'containerd-2.3/ctr'],
  cni: ['cni/ptp', 'cni/host-local', 'cni/loopback', 'cni/portmap', 'cni/bridge', 'cni/bandwidth', 'cni/firewall'],
};

export const isFolder = (name: string): name is AssetFolder => Object.hasOwn(FOLDER_NEEDS, name);
