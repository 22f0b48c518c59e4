/** The e2e images of Kubernetes 1.37 as data: what stands in which layer, and what the image is told to run. */
import type { ImageSettings } from '../../node/core/oci.ts';
import type { AssetName } from '../assets/catalogue.ts';
import { CSI_IMAGES, CSI_LAYERS, STORAGE } from './csi.ts';
import { CRITEST_IMAGES, CRITEST_LAYERS } from './critest.ts';
import { DOCUMENT_IMAGES, DOCUMENT_LAYERS } from './documents.ts';
import { KIND_IMAGES, KIND_LAYERS } from './kind.ts';
import { AGNHOST, BUSYBOX, NGINX, PATH, PAUSE, SHELL } from './settings.ts';
import { AGNHOST_GROUP, AGNHOST_PASSWD, BUSYBOX_GROUP, BUSYBOX_PASSWD, GROUP, NGINX_CONF, OS_RELEASE, PASSWD, WGET } from './texts.ts';

/** Where a program's binary comes from. */
export type ProgramSource =
  /** One that `nodelet assets` finds or builds. */
  | { readonly kind: 'asset'; readonly asset: AssetName }
  /** One of ours, in `c/`, compiled here and linked statically. */
  | { readonly kind: 'c'; readonly source: string }
  /**
   * A program of a Go module, built in that module's own tree, so that its replacements hold; or one of ours, in `c/`, where
   * that is not built and may not be, or the module cannot be had.
   */
  | { readonly kind: 'module'; readonly module: string; readonly version: string; readonly package: string; readonly otherwise?: string };

export interface LayerFile {
  /** Absolute path in the image. */
  readonly path: string;
  readonly mode?: number;
  readonly content:
    | { readonly kind: 'text'; readonly text: string }
    | { readonly kind: 'link'; readonly to: string }
    | { readonly kind: 'directory' }
    | { readonly kind: 'program'; readonly source: ProgramSource }
    /** A file below `test/images` of Kubernetes' own sources. */
    | { readonly kind: 'upstream'; readonly file: string };
}

export interface LayerRecipe {
  /** The distribution's packages, with what they depend on, without what the layers below brought. */
  readonly packages?: readonly string[];
  /** Keep what only configuration scripts need (perl, debconf); for the image that is about perl. */
  readonly withScripting?: boolean;
  /** A busybox in the layer or below gets a link in this folder for each of its applets that nothing else has. */
  readonly applets?: { readonly binary: string; readonly into: string };
  readonly files?: readonly LayerFile[];
  /** Fills `/var/registry` with this image in the layout of agnhost's fake-registry-server. */
  readonly registryOf?: { readonly image: string; readonly as: string; readonly tag: string };
  /** Without its programs the layer is left out and said so, instead of the whole image. */
  readonly optional?: boolean;
}

export interface E2eImage {
  /** Full name. */
  readonly name: string;
  /** Lowest first. */
  readonly layers: readonly string[];
  readonly settings: ImageSettings;
  /** Images of one identity are the same image under several names; absent means that the name is it. */
  readonly identity?: string;
  /** Only the storage suite needs it; made when asked for, because its program takes minutes to build. */
  readonly storage?: boolean;
  /** Made only when it is named: no suite asks for it. */
  readonly onRequest?: boolean;
}

const E2E = 'registry.k8s.io/e2e-test-images';
const text = (path: string, content: string, mode = 0o644): LayerFile => ({ path, mode, content: { kind: 'text', text: content } });
const link = (path: string, to: string): LayerFile => ({ path, content: { kind: 'link', to } });
const folder = (path: string, mode = 0o755): LayerFile => ({ path, mode, content: { kind: 'directory' } });
const upstream = (path: string, file: string): LayerFile => ({ path, mode: 0o644, content: { kind: 'upstream', file } });
const program = (path: string, source: ProgramSource, mode = 0o755): LayerFile => ({ path, mode, content: { kind: 'program', source } });
const asset = (name: AssetName): ProgramSource => ({ kind: 'asset', asset: name });

const FOLDERS = [
  '/dev',
  '/proc',
  '/sys',
  '/home',
  '/mnt',
  '/opt',
  '/run',
  '/srv',
  '/var',
  '/var/log',
  '/var/run',
  '/var/spool',
  '/usr/local',
  '/usr/local/bin',
];

export const LAYERS: Readonly<Record<string, LayerRecipe>> = {
  // What every image with a userland of its own stands on: the tools that Alpine's busybox would bring, as the distribution has them.
  base: {
    packages: [
      'base-files',
      'bash',
      'busybox',
      'coreutils',
      'findutils',
      'grep',
      'gzip',
      'hostname',
      'iputils-ping',
      'libc-bin',
      'mawk',
      'procps',
      'sed',
      'tar',
      'util-linux',
    ],
    applets: { binary: '/usr/bin/busybox', into: '/usr/bin' },
    files: [
      ...FOLDERS.map((path) => folder(path)),
      folder('/root', 0o700),
      folder('/tmp', 0o1777),
      folder('/var/tmp', 0o1777),
      text('/etc/passwd', PASSWD),
      text('/etc/group', GROUP),
      text('/etc/nsswitch.conf', 'passwd: files\ngroup: files\nhosts: files dns\nservices: files\n'),
      text('/etc/shells', '/bin/sh\n/bin/bash\n'),
      link('/etc/mtab', '../proc/self/mounts'),
      // bash keeps environment names such as data-1 for the programs it starts; dash and busybox do not.
      link('/usr/bin/sh', 'bash'),
      program('/usr/bin/nmeter', { kind: 'c', source: 'nmeter.c' }),
    ],
  },
  dns: { packages: ['bind9-host', 'bind9-dnsutils'] },
  network: {
    packages: ['ca-certificates', 'curl', 'iperf', 'iproute2', 'netcat-openbsd', 'socat', 'wget'],
    files: [link('/usr/bin/nc', 'nc.openbsd'), link('/usr/bin/netcat', 'nc.openbsd'), link('/usr/local/bin/iperf', '/usr/bin/iperf')],
  },
  coredns: { files: [program('/coredns', asset('coredns'))], optional: true },
  registry: { registryOf: { image: 'registry.k8s.io/pause:3.10.2', as: 'pause', tag: 'testing' } },
  agnhost: {
    files: [
      program('/agnhost', asset('agnhost')),
      link('/agnhost-2', 'agnhost'),
      upstream('/localhost.crt', 'agnhost/porter/localhost.crt'),
      upstream('/localhost.key', 'agnhost/porter/localhost.key'),
      folder('/uploads'),
      text('/etc/passwd', AGNHOST_PASSWD),
      text('/etc/group', AGNHOST_GROUP),
      text('/etc/os-release', OS_RELEASE),
      folder('/home/user-defined-in-image'),
    ],
  },
  kitten: { files: [upstream('/kitten.jpg', 'kitten/html/kitten.jpg'), upstream('/data.json', 'kitten/html/data.json')] },
  nautilus: { files: [upstream('/nautilus.jpg', 'nautilus/html/nautilus.jpg'), upstream('/data.json', 'nautilus/html/data.json')] },
  busybox: {
    packages: ['bash-static', 'busybox-static'],
    applets: { binary: '/bin/busybox', into: '/bin' },
    files: [
      ...['/dev', '/proc', '/sys', '/home', '/root', '/run', '/sbin', '/usr', '/usr/bin', '/usr/sbin', '/var', '/var/spool', '/var/www', '/lib', '/lib64'].map(
        (path) => folder(path),
      ),
      folder('/tmp', 0o1777),
      program('/bin/sh', { kind: 'c', source: 'sh.c' }),
      program('/bin/nmeter', { kind: 'c', source: 'nmeter.c' }),
      link('/bin/bash', 'bash-static'),
      text('/bin/wget', WGET, 0o755),
      text('/etc/passwd', BUSYBOX_PASSWD),
      text('/etc/group', BUSYBOX_GROUP),
      text('/etc/nsswitch.conf', 'hosts: files dns\n'),
      link('/bin/env', 'busybox'),
      link('/usr/bin/env', '/bin/busybox'),
    ],
  },
  pause: { files: [program('/pause', { kind: 'c', source: 'pause.c' })] },
  nonewprivs: { files: [program('/usr/local/bin/nnp', { kind: 'c', source: 'nnp.c' }, 0o6755)] },
  nginx: {
    packages: ['nginx'],
    files: [
      text('/etc/nginx/nginx.conf', NGINX_CONF),
      folder('/etc/nginx/conf.d'),
      folder('/var/log/nginx'),
      folder('/var/lib/nginx'),
      link('/var/log/nginx/access.log', '/dev/stdout'),
      link('/var/log/nginx/error.log', '/dev/stderr'),
    ],
  },
  perl: { packages: ['perl'], withScripting: true },
  stress: { packages: ['stress'] },
  consumer: { files: [program('/consumer', asset('images/resource-consumer')), program('/consume-cpu', asset('images/consume-cpu'))] },
  regression: { files: [program('/regression-issue-74839', asset('images/regression-issue-74839'))] },
  deviceplugin: { files: [program('/sampledeviceplugin', asset('images/sample-device-plugin'))] },
  apparmor: { packages: ['apparmor'] },
  apparmorloader: { files: [program('/usr/bin/loader', asset('images/apparmor-loader'))] },
  apiserver: {
    files: [program('/sample-apiserver', { kind: 'module', module: 'k8s.io/sample-apiserver', version: 'v0.29.2', package: '.' }), folder('/tmp', 0o1777)],
  },
  etcd: { files: [program('/usr/local/bin/etcd', asset('etcd'))] },
  // The distribution's client: none is among the assets, and it speaks the same protocol.
  etcdctl: { packages: ['etcd-client'] },
  iptables: {
    packages: ['conntrack', 'iptables', 'kmod', 'nftables'],
    // What Debian's alternatives would choose.
    files: ['iptables', 'iptables-save', 'iptables-restore', 'ip6tables', 'ip6tables-save', 'ip6tables-restore'].map((name) =>
      link(`/usr/sbin/${name}`, 'xtables-nft-multi'),
    ),
  },
  ...CRITEST_LAYERS,
  ...CSI_LAYERS,
  ...KIND_LAYERS,
  ...DOCUMENT_LAYERS,
};

const agnhost = ['base', 'dns', 'network', 'coredns', 'registry', 'agnhost'];
/** Names and versions: test/utils/image/manifest.go and the manifests of test/e2e/testing-manifests, v1.37.2. In the order of their use. */
export const IMAGES: readonly E2eImage[] = [
  { name: 'registry.k8s.io/pause:3.10.2', layers: ['pause'], settings: PAUSE },
  { name: `${E2E}/busybox:1.37.0-2`, layers: ['busybox'], settings: BUSYBOX },
  { name: `${E2E}/nonewprivs:1.4`, layers: ['base', 'nonewprivs'], settings: { env: [PATH], cmd: ['nnp'] } },
  { name: `${E2E}/nonroot:1.5`, layers: ['busybox'], settings: { ...BUSYBOX, user: '1234' } },
  { name: `${E2E}/nginx:1.27.0-2`, layers: ['base', 'nginx'], settings: NGINX },
  { name: `${E2E}/nginx:1.28.0-2`, layers: ['base', 'nginx'], settings: NGINX },
  { name: `${E2E}/agnhost:2.66.1`, layers: agnhost, settings: AGNHOST },
  { name: `${E2E}/agnhost:2.55`, layers: agnhost, settings: AGNHOST },
  { name: `${E2E}/kitten:1.8`, layers: [...agnhost, 'kitten'], settings: { ...AGNHOST, cmd: ['test-webserver'] } },
  { name: `${E2E}/nautilus:1.8`, layers: [...agnhost, 'nautilus'], settings: { ...AGNHOST, cmd: ['test-webserver'] } },
  { name: `${E2E}/glibc-dns-testing:2.1.1`, layers: ['base', 'dns', 'coredns'], settings: { env: [PATH], cmd: ['bash'] } },
  { name: 'registry.k8s.io/etcd:3.7.0-0', layers: ['base', 'etcdctl', 'etcd'], settings: { env: [PATH] } },
  { name: `${E2E}/sample-apiserver:1.29.2`, layers: ['apiserver'], settings: { env: [PATH], entrypoint: ['/sample-apiserver'] } },
  { name: `${E2E}/ipc-utils:1.4`, layers: ['base'], settings: SHELL },
  { name: `${E2E}/perl:5.26`, layers: ['base', 'perl'], settings: { env: [PATH], cmd: ['perl', '-de0'] } },
  {
    name: `${E2E}/resource-consumer:1.14`,
    layers: ['base', 'stress', 'consumer'],
    settings: { env: [PATH], entrypoint: ['/consumer'], exposedPorts: ['8080/tcp'] },
  },
  { name: `${E2E}/regression-issue-74839:1.5`, layers: ['base', 'regression'], settings: { env: [PATH], entrypoint: ['/regression-issue-74839'] } },
  { name: 'registry.k8s.io/build-image/distroless-iptables:v0.9.9', layers: ['base', 'iptables'], settings: { env: [PATH] } },
  {
    name: `${E2E}/apparmor-loader:1.4`,
    layers: ['base', 'apparmor', 'apparmorloader'],
    settings: { env: [PATH], entrypoint: ['/usr/bin/loader', '-logtostderr', '-v=2'], cmd: ['/profiles'] },
  },
  ...['1.7', '1.8.0'].map((tag) => ({
    name: `${E2E}/sample-device-plugin:${tag}`,
    layers: ['base', 'deviceplugin'],
    settings: { env: [PATH], entrypoint: ['/sampledeviceplugin', '-alsologtostderr'] },
  })),
  { name: `${E2E}/busybox:1.36.1-1`, layers: ['busybox'], settings: BUSYBOX },
  ...CRITEST_IMAGES,
  ...CSI_IMAGES,
  ...KIND_IMAGES,
  ...DOCUMENT_IMAGES,
];

/** Names that the suites mention and nothing here makes, each with its reason. */
export const ABSENT: readonly { readonly name: string; readonly why: string }[] = [
  { name: 'invalid.registry.k8s.io/invalid/alpine:3.1', why: 'must not exist: tests want its pull to fail' },
  { name: 'gcr.io/k8s-authenticated-test/agnhost:2.6', why: 'needs the credentials of a cloud: its tests skip themselves elsewhere' },
  { name: `${E2E}/node-perf/npb-ep:1.6.0`, why: "sources of NASA's benchmarks are in no package: [Feature:NodePerformance] only" },
  { name: `${E2E}/node-perf/npb-is:1.7.0`, why: "sources of NASA's benchmarks are in no package: [Feature:NodePerformance] only" },
  { name: `${E2E}/node-perf/pytorch-wide-deep:1.0.0`, why: 'a training run with PyTorch and a data set: [Feature:NodePerformance] only' },
  ...['node-driver-registrar:v2.17.0', 'livenessprobe:v2.19.0'].map((name) => ({
    name: `${STORAGE}/${name.startsWith('node') ? `csi-${name}` : name}`,
    why: 'its module has tags of version 2 and a path of version 1: Go cannot fetch it by that version',
  })),
  { name: `${STORAGE}/hello-populator:v1.0.1`, why: '[Feature:AnyVolumeDataSource] only' },
  { name: `${STORAGE}/volume-data-source-validator:v1.0.0`, why: '[Feature:AnyVolumeDataSource] only' },
  { name: 'registry.k8s.io/cloud-provider-gcp/gcp-compute-persistent-disk-csi-driver:v1.4.0', why: 'a driver of a cloud' },
  { name: `${E2E}/volume/nfs:1.6.0`, why: 'a kernel NFS server: needs nfsd in the kernel' },
  { name: `${E2E}/volume/iscsi:2.7`, why: 'a kernel iSCSI target: needs target_core in the kernel' },
  { name: `${STORAGE}/nfs-provisioner:v4.0.8`, why: 'a user space NFS server (Ganesha) and NFS mounts: needs nfs in the kernel' },
  {
    name: 'gcr.io/k8s-staging-cri-tools/test-image-digest@sha256:9700f9a2f5bf2c45f2f605a0bd3bce7cf37420ec9d3ed50ac2758413308766bf',
    why: 'named by digest: only the original has it (critest, one image spec)',
  },
  { name: 'gcr.io/cadvisor/cadvisor:v0.47.2', why: 'for benchmarks of e2e_node only; not to be had as a package' },
  { name: 'registry.k8s.io/node-problem-detector/node-problem-detector:v1.35.2', why: '[Feature:NodeProblemDetector] only' },
  { name: 'registry.k8s.io/nvidia-gpu-device-plugin (by digest)', why: 'needs GPUs' },
  {
    name: `${E2E}/busybox@sha256:a9155b13325b2abef48e71de77bb8ac015412a566829f621d06bfae5c699b1b9`,
    why: 'named by digest: only the original has it (e2e_node ImageID)',
  },
];

/** The image that `text` means: a full name, or the part of one that names no other. */
export function imagesNamed(text: string): readonly E2eImage[] {
  const exact = IMAGES.filter((image) => image.name === text);
  if (exact.length > 0) return exact;
  return IMAGES.filter((image) => {
    const last = image.name.slice(image.name.lastIndexOf('/') + 1);
    return last === text || last.split(':')[0] === text;
  });
}
