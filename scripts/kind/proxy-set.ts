import { isDeepStrictEqual } from 'node:util';
import { hasCode, OpError } from '../../base/errors.ts';
import type { Place } from './place.ts';
import { until } from './until.ts';

/** A node with this label has no pod of the DaemonSet kube-proxy while a proxy of ours is anywhere. */
export const LABEL = 'nodelet.dev/proxy';
/** On the DaemonSet: what its update strategy was. */
const WAS = 'nodelet.dev/update-strategy';
const SET = ['--namespace=kube-system', 'daemonset/kube-proxy'] as const;
const PODS = ['--namespace=kube-system', '--selector=k8s-app=kube-proxy'] as const;
/** By which the DaemonSet's controller knows from which template a pod was made. */
const HASH = 'controller-revision-hash';
const COUNTED_MS = 15_000;

type Tree = Readonly<Record<string, unknown>>;

interface DaemonSet {
  readonly metadata: { readonly uid?: string; readonly generation?: number; readonly annotations?: Readonly<Record<string, string>> };
  readonly spec: { readonly updateStrategy?: object; readonly template: { readonly spec: { readonly affinity?: object } } };
  readonly status?: { readonly observedGeneration?: number; readonly updatedNumberScheduled?: number; readonly desiredNumberScheduled?: number };
}

export interface Revision {
  readonly metadata: { readonly labels?: Readonly<Record<string, string>>; readonly ownerReferences?: readonly { readonly uid: string }[] };
  readonly data?: { readonly spec?: { readonly template?: Tree } };
  readonly revision: number;
}

/** The pods of other nodes stay as they are: a strategy of OnDelete leaves them, though the template changes. */
const away = {
  nodeAffinity: { requiredDuringSchedulingIgnoredDuringExecution: { nodeSelectorTerms: [{ matchExpressions: [{ key: LABEL, operator: 'DoesNotExist' }] }] } },
};

const readSet = async (place: Place): Promise<DaemonSet> => JSON.parse(await place.kubectl(['get', ...SET, '--output=json'])) as DaemonSet;
const patchSet = (place: Place, patch: object): Promise<string> => place.kubectl(['patch', ...SET, `--patch=${JSON.stringify(patch)}`]);
const quoted = (patch: object): string => `'${JSON.stringify(patch)}'`;

/**
 * How the DaemonSet kube-proxy is kept from nodes with our label: the patch, and the same as somebody would type it;
 * null when it is kept from them already. Throws OpError `unsupported` when it has an affinity of its own.
 */
export async function planLeaving(place: Place, doing: string): Promise<{ readonly patch: object; readonly command: string } | null> {
  const set = await readSet(place);
  const was = set.metadata.annotations?.[WAS];
  const { affinity } = set.spec.template.spec;
  if (was !== undefined && affinity !== undefined) return null;
  if (affinity !== undefined) throw new OpError('unsupported', doing, 'the DaemonSet kube-proxy has an affinity of its own, which this would replace');
  const patch = {
    // A way back that did not come to its end has left the annotation, and the strategy of now is not the cluster's.
    metadata: { annotations: { [WAS]: was ?? JSON.stringify(set.spec.updateStrategy ?? { type: 'RollingUpdate' }) } },
    spec: { updateStrategy: { $retainKeys: ['type'], type: 'OnDelete' }, template: { spec: { affinity: away } } },
  };
  return { patch, command: `kubectl patch ${SET.join(' ')} --patch=${quoted(patch)}` };
}

export async function leave(place: Place, patch: object): Promise<void> {
  await patchSet(place, patch);
}

/** A template without what an API server or the controller adds to it. */
function plain(tree: unknown): unknown {
  if (Array.isArray(tree)) return tree.map(plain);
  if (typeof tree !== 'object' || tree === null) return tree;
  return Object.fromEntries(
    Object.entries(tree)
      .filter(([key, value]) => key !== '$patch' && value !== null)
      .map(([key, value]) => [key, plain(value)]),
  );
}

/**
 * From which hash to which the pods go that the changed template made: they are the same to the letter, because the
 * controller puts the node's name in the place of the affinity that the change is about. Null when there is no revision
 * of the template without it, or when it is the newest.
 */
export function planRelabel(uid: string, template: object, revisions: readonly Revision[]): { readonly from: string; readonly to: string } | null {
  const own = revisions
    .filter(({ metadata }) => metadata.ownerReferences?.some((owner) => owner.uid === uid) === true)
    .toSorted((a, b) => b.revision - a.revision);
  const { spec, ...rest } = plain(template) as { spec: Tree };
  const { affinity: _changed, ...without } = spec;
  const before = own.find(({ data }) => isDeepStrictEqual(plain(data?.spec?.template), { ...rest, spec: without }));
  const from = own[0]?.metadata.labels?.[HASH];
  const to = before?.metadata.labels?.[HASH];
  return from === undefined || to === undefined || from === to ? null : { from, to };
}

/**
 * Puts the DaemonSet back as it was before the first swap, unless a proxy of ours is left on one of `others`. The pods
 * of nodes that were restored before this one would be replaced, because the changed template made them: they get the
 * label of the other first, as the controller itself does with two revisions that are the same.
 */
export async function comeBack(place: Place, others: readonly string[]): Promise<void> {
  const set = await readSet(place);
  const was = set.metadata.annotations?.[WAS];
  if (others.length > 0 || was === undefined) return;
  const relabelled = await relabel(place, set);
  const template = { spec: { affinity: null } };
  if (relabelled > 0) {
    await patchSet(place, { spec: { template } });
    await counted(place);
  }
  await patchSet(place, { metadata: { annotations: { [WAS]: null } }, spec: { updateStrategy: JSON.parse(was) as object, template } });
}

async function relabel(place: Place, set: DaemonSet): Promise<number> {
  const { items } = JSON.parse(await place.kubectl(['get', 'controllerrevisions', ...PODS, '--output=json'])) as { items: readonly Revision[] };
  const plan = planRelabel(set.metadata.uid ?? '', set.spec.template, items);
  if (plan === null) return 0;
  const [namespace, selector] = PODS;
  const pods = (await place.kubectl(['get', 'pods', namespace, `${selector},${HASH}=${plan.from}`, '--output=name'])).split('\n').filter((name) => name !== '');
  if (pods.length > 0) await place.kubectl(['label', namespace, ...pods, `${HASH}=${plan.to}`, '--overwrite']);
  return pods.length;
}

/** Waits until the controller has seen the template and the labels; where its count never fills, the strategy may follow all the same. */
async function counted(place: Place): Promise<void> {
  await until(place, 'the DaemonSet kube-proxy counts its pods as up to date', { timeoutMs: COUNTED_MS }, async () => {
    const { metadata, status = {} } = await readSet(place);
    return (status.observedGeneration ?? 0) >= (metadata.generation ?? 0) && (status.updatedNumberScheduled ?? 0) >= (status.desiredNumberScheduled ?? 0);
  }).catch((error: unknown) => {
    if (!hasCode(error, 'deadline')) throw error;
  });
}
