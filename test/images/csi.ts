/** The CSI hostpath driver and its sidecars, as the storage suite deploys them. */
import type { E2eImage, LayerRecipe, ProgramSource } from './recipes.ts';

export const STORAGE = 'registry.k8s.io/sig-storage';

interface Csi {
  readonly image: string;
  readonly tag: string;
  readonly module: string;
  readonly package: string;
  readonly binary: string;
  /** The binary calls mount, mkfs and the like. */
  readonly withTools?: boolean;
  /** Also for what is not about storage: one of ours does what is asked for there. */
  readonly otherwise?: string;
}

const csi: readonly Csi[] = [
  {
    image: 'hostpathplugin',
    tag: 'v1.17.1',
    module: 'github.com/kubernetes-csi/csi-driver-host-path',
    package: './cmd/hostpathplugin',
    binary: 'hostpathplugin',
    withTools: true,
    otherwise: 'hostpathplugin.c',
  },
  ...(
    [
      ['csi-provisioner', 'v6.3.0', 'external-provisioner/v6'],
      ['csi-attacher', 'v4.12.0', 'external-attacher/v4'],
      ['csi-resizer', 'v2.2.0', 'external-resizer/v2'],
      ['csi-snapshotter', 'v8.6.0', 'external-snapshotter/v8'],
      ['csi-external-health-monitor-controller', 'v0.18.0', 'external-health-monitor'],
      ['csi-snapshot-metadata', 'v1.0.0', 'external-snapshot-metadata'],
    ] as const
  ).map(([image, tag, path]) => ({
    image,
    tag,
    module: `github.com/kubernetes-csi/${path}`,
    package: `./cmd/${image}`,
    binary: image,
  })),
];

const source = (entry: Csi): ProgramSource => ({
  kind: 'module',
  module: entry.module,
  version: entry.tag,
  package: entry.package,
  ...(entry.otherwise === undefined ? {} : { otherwise: entry.otherwise }),
});

export const CSI_LAYERS: Readonly<Record<string, LayerRecipe>> = {
  'csi-tools': { packages: ['e2fsprogs', 'mount', 'xfsprogs'] },
  ...Object.fromEntries(
    csi.map((entry): [string, LayerRecipe] => [
      `csi-${entry.binary}`,
      { files: [{ path: `/${entry.binary}`, mode: 0o755, content: { kind: 'program', source: source(entry) } }] },
    ]),
  ),
};

export const CSI_IMAGES: readonly E2eImage[] = csi.map((entry) => ({
  name: `${STORAGE}/${entry.image}:${entry.tag}`,
  layers: [...(entry.withTools === true ? ['base', 'csi-tools'] : []), `csi-${entry.binary}`],
  settings: { entrypoint: [`/${entry.binary}`] },
  ...(entry.otherwise === undefined ? { storage: true } : {}),
}));
