import type { CSINode, CSINodeDriver, Node } from '../../../proto/kube/types.ts';

/** What a driver says of itself on this node (NodeGetInfo). */
export interface DriverNodeInfo {
  readonly driver: string;
  readonly nodeId: string;
  /** 0: it does not say. */
  readonly maxVolumes: number;
  readonly topology: Readonly<Record<string, string>>;
}

const nodeIdAnnotation = 'csi.volume.kubernetes.io/nodeid';
const migratedAnnotation = 'storage.alpha.kubernetes.io/migrated-plugins';
/** In-tree plugins whose volumes the control plane may hand to CSI drivers; every kubelet of today says so. */
const migrated = ['aws-ebs', 'azure-disk', 'azure-file', 'cinder', 'gce-pd', 'portworx-volume', 'vsphere-volume'];
const migratedText = migrated.map((name) => `kubernetes.io/${name}`).join(',');
const mostVolumes = 2 ** 31 - 1;

/** A CSINode without drivers. */
export function newCsiNode(node: Node): CSINode {
  const name = node.metadata.name ?? '';
  return {
    apiVersion: 'storage.k8s.io/v1',
    kind: 'CSINode',
    metadata: {
      name,
      annotations: { [migratedAnnotation]: migratedText },
      ownerReferences: [{ apiVersion: 'v1', kind: 'Node', name, uid: node.metadata.uid ?? '' }],
    },
    spec: { drivers: [] },
  };
}

/** Whether the CSINode belongs to this very Node; one of a deleted namesake is to go. */
export function ownsCsiNode(node: Node, object: CSINode): boolean {
  return (object.metadata.ownerReferences ?? []).some(({ kind, name, uid }) => kind === 'Node' && name === node.metadata.name && uid === node.metadata.uid);
}

/** The CSINode with the annotation that every node has; null when it is there. */
export function withMigrated(object: CSINode): CSINode | null {
  if (object.metadata.annotations?.[migratedAnnotation] === migratedText) return null;
  return { ...object, metadata: { ...object.metadata, annotations: { ...object.metadata.annotations, [migratedAnnotation]: migratedText } } };
}

/** The CSINode with this driver in it; null when it says so already. */
export function withDriver(object: CSINode, info: DriverNodeInfo): CSINode | null {
  const keys = Object.keys(info.topology).toSorted();
  const count = Math.min(info.maxVolumes, mostVolumes);
  const entry: CSINodeDriver = { name: info.driver, nodeID: info.nodeId, topologyKeys: keys.length === 0 ? undefined : keys };
  if (keys.length === 0) delete entry.topologyKeys;
  if (count > 0) entry.allocatable = { count };
  const others = driversOf(object);
  const before = others.find(({ name }) => name === info.driver);
  if (before !== undefined && sameDriver(before, entry)) return null;
  return { ...object, spec: { drivers: [...others.filter(({ name }) => name !== info.driver), entry] } };
}

/** An API server writes an empty list as null. */
function driversOf(object: CSINode): readonly CSINodeDriver[] {
  const { drivers }: { drivers: CSINodeDriver[] | null } = object.spec;
  return drivers ?? [];
}

function sameDriver(left: CSINodeDriver, right: CSINodeDriver): boolean {
  const keys = (driver: CSINodeDriver): string => (driver.topologyKeys ?? []).toSorted().join(',');
  return left.nodeID === right.nodeID && keys(left) === keys(right) && left.allocatable?.count === right.allocatable?.count;
}

/** The CSINode without this driver; null when it is not in it. */
export function withoutDriver(object: CSINode, driver: string): CSINode | null {
  const drivers = driversOf(object).filter(({ name }) => name !== driver);
  return drivers.length === driversOf(object).length ? null : { ...object, spec: { drivers } };
}

type NodePatch = { metadata: { labels?: Record<string, string>; annotations?: Record<string, string | null> } };

/** The Node's own record of a driver: its ID in an annotation, its topology as labels; null patch when they are there. */
export function nodePatch(node: Node, info: DriverNodeInfo): { ok: true; patch: NodePatch | null } | { ok: false; message: string } {
  const ids = idsOf(node);
  if (ids === null) return { ok: false, message: `failed to parse node's "${nodeIdAnnotation}" annotation value` };
  const metadata: NodePatch['metadata'] = {};
  if (ids[info.driver] !== info.nodeId) metadata.annotations = { [nodeIdAnnotation]: idsText({ ...ids, [info.driver]: info.nodeId }) };
  const labels: Record<string, string> = {};
  for (const [key, value] of Object.entries(info.topology)) {
    const have = node.metadata.labels?.[key];
    if (have !== undefined && have !== value)
      return {
        ok: false,
        message: `detected topology value collision: driver reported ${quoted(key)}:${quoted(value)} but existing label is ${quoted(key)}:${quoted(have)}`,
      };
    if (have === undefined) labels[key] = value;
  }
  if (Object.keys(labels).length > 0) metadata.labels = labels;
  return { ok: true, patch: Object.keys(metadata).length === 0 ? null : { metadata } };
}

/** Takes a driver off the Node's annotation; its topology labels stay, as upstream leaves them. */
export function nodePatchWithout(node: Node, driver: string): NodePatch | null {
  const ids = idsOf(node);
  if (ids === null || !Object.hasOwn(ids, driver)) return null;
  const rest = Object.fromEntries(Object.entries(ids).filter(([name]) => name !== driver));
  return { metadata: { annotations: { [nodeIdAnnotation]: Object.keys(rest).length === 0 ? null : idsText(rest) } } };
}

function idsOf(node: Node): Record<string, string> | null {
  const text = node.metadata.annotations?.[nodeIdAnnotation] ?? '';
  if (text === '') return {};
  try {
    const parsed: unknown = JSON.parse(text);
    return typeof parsed === 'object' && parsed !== null ? (parsed as Record<string, string>) : null;
  } catch {
    return null;
  }
}

function idsText(ids: Readonly<Record<string, string>>): string {
  return JSON.stringify(Object.fromEntries(Object.entries(ids).toSorted(([left], [right]) => (left < right ? -1 : 1))));
}

const quoted = (text: string): string => JSON.stringify(text);
