import type { ResourceInfo } from '../../proto/kube/schema-types.ts';
import { rfc3339 } from '../../base/clock.ts';
import { admitDelete } from '../core/admission.ts';
import { restrictNodeToken } from '../core/admission-node.ts';
import { nodeOf } from '../core/authorize.ts';
import { Failure, badRequest, conflict, invalid, methodNotAllowed, noSuchPath, notFound, tooManyRequests } from '../core/failure.ts';
import { defaultPodSpec } from '../core/defaults-pod.ts';
import { copy, isObject, same } from '../core/json.ts';
import type { Obj } from '../core/json.ts';
import { applyJsonPatch } from '../core/jsonpatch.ts';
import { applyMergePatch } from '../core/mergepatch.ts';
import { resizedPod } from '../core/pod-resize.ts';
import { selectorMatches } from '../core/strategies-apps.ts';
import { selectorText } from '../core/table-cells.ts';
import { parseBody } from './body.ts';
import { collectionOf } from './kernel.ts';
import type { Answer, Call, Kernel } from './kernel.ts';
import { get } from './read.ts';
import type { Entry } from './store.ts';
import type { Tokens } from './tokens.ts';
import { deleteObject, patch, update, updateObject } from './write.ts';

function required(kernel: Kernel, info: ResourceInfo, call: Call): Entry {
  const entry = kernel.store.get(collectionOf(info), info.namespaced ? call.info.namespace : '', call.info.name);
  if (entry === undefined) throw notFound(info, call.info.name);
  return entry;
}

const success = (status = 201): Answer => ({
  status,
  kind: 'object',
  object: { kind: 'Status', apiVersion: 'v1', metadata: {}, status: 'Success', code: status },
});

/** Subresources that read and write stored objects. Streams and proxies are the server's. */
export async function subresource(kernel: Kernel, tokens: Tokens, info: ResourceInfo, call: Call): Promise<Answer> {
  const path = `${info.resource}/${call.info.subresource}`;
  if (call.info.subresource === 'scale') return scale(kernel, info, call);
  if (call.info.subresource === 'status') return readOrWrite(kernel, info, call, statusOnly(kernel, info));
  switch (path) {
    case 'namespaces/finalize':
      return finalize(kernel, info, call);
    case 'pods/binding':
      return bind(kernel, info, call);
    case 'pods/eviction':
      return evict(kernel, info, call);
    case 'pods/ephemeralcontainers':
      return readOrWrite(kernel, info, call, withEphemeral);
    case 'pods/resize':
      return readOrWrite(kernel, info, call, (next, old) => resizedPod(next, old, kernel.view.get('', 'nodes', '', old['spec'].nodeName ?? '')));
    case 'serviceaccounts/token':
      return token(kernel, tokens, info, call);
    case 'certificatesigningrequests/approval':
      return readOrWrite(kernel, info, call, (next, old) => ({ ...old, status: { ...old['status'], conditions: next['status']?.conditions } }));
    default:
      throw noSuchPath();
  }
}

async function token(kernel: Kernel, tokens: Tokens, info: ResourceInfo, call: Call): Promise<Answer> {
  if (call.method !== 'POST') throw methodNotAllowed(info);
  const request = ((await parseBody(kernel, call)) ?? {}) as Obj;
  const { namespace, name } = call.info;
  const node = nodeOf(call.user);
  if (node !== undefined) restrictNodeToken(info, namespace, name, request, node, kernel.view);
  return { status: 201, kind: 'object', object: tokens.issue(namespace, name, request) };
}

async function readOrWrite(kernel: Kernel, info: ResourceInfo, call: Call, merge: (next: Obj, old: Obj) => Obj): Promise<Answer> {
  if (call.method === 'GET') return get(kernel, info, call);
  if (call.method === 'PUT') return update(kernel, info, call, { merge, skipValidation: true });
  if (call.method === 'PATCH') return patch(kernel, info, call, { merge, skipValidation: true });
  throw methodNotAllowed(info);
}

/** A status write changes the status, and of the metadata what its writer may. */
function statusOnly(kernel: Kernel, info: ResourceInfo): (next: Obj, old: Obj) => Obj {
  const strategy = kernel.strategy(info);
  return (next, old) => {
    const metadata = { ...next['metadata'], ownerReferences: old['metadata'].ownerReferences };
    if (metadata['ownerReferences'] === undefined) delete metadata['ownerReferences'];
    if (info.group !== '') {
      metadata['labels'] = old['metadata'].labels;
      if (metadata['labels'] === undefined) delete metadata['labels'];
    }
    const out: Obj = { ...old, metadata, status: next['status'] };
    if (out['status'] === undefined) delete out['status'];
    strategy.prepareStatus?.(out, old);
    return out;
  };
}

function withSpec(next: Obj, old: Obj, fields: Obj): Obj {
  const spec = { ...old['spec'], ...fields };
  for (const key of Object.keys(fields)) if (spec[key] === undefined) delete spec[key];
  return { ...old, metadata: { ...old['metadata'], managedFields: next['metadata'].managedFields }, spec };
}

/** Ephemeral containers are only ever added: `kubectl debug`. */
function withEphemeral(next: Obj, old: Obj): Obj {
  const list: Obj[] | undefined = next['spec']?.ephemeralContainers;
  const had: Obj[] = old['spec'].ephemeralContainers ?? [];
  for (const before of had) {
    const now = (list ?? []).find((item) => item['name'] === before['name']);
    if (now !== undefined && same(now, before)) continue;
    throw invalid('', 'Pod', old['metadata'].name, [
      {
        reason: 'FieldValueForbidden',
        field: 'spec.ephemeralContainers',
        message: `Forbidden: existing ephemeral containers "${before['name']}" may not be ${now === undefined ? 'removed' : 'changed'}`,
      },
    ]);
  }
  const out = withSpec(next, old, { ephemeralContainers: list });
  defaultPodSpec(out['spec']);
  return { ...out, metadata: { ...out['metadata'], generation: old['metadata'].generation } };
}

function scaleOf(entry: Entry): Obj {
  const { metadata, spec, status = {} } = entry.object as { metadata: Obj; spec: Obj; status?: Obj };
  const selector =
    spec['selector']?.matchLabels !== undefined || spec['selector']?.matchExpressions !== undefined
      ? selectorText(spec['selector'])
      : selectorText({ matchLabels: spec['selector'] });
  return {
    kind: 'Scale',
    apiVersion: 'autoscaling/v1',
    metadata: {
      name: metadata['name'],
      namespace: metadata['namespace'],
      uid: metadata['uid'],
      resourceVersion: metadata['resourceVersion'],
      creationTimestamp: metadata['creationTimestamp'],
    },
    spec: { replicas: spec['replicas'] ?? 0 },
    status: { replicas: status['replicas'] ?? 0, selector },
  };
}

async function scale(kernel: Kernel, info: ResourceInfo, call: Call): Promise<Answer> {
  const entry = required(kernel, info, call);
  if (call.method === 'GET') {
    await kernel.store.committed();
    return { status: 200, kind: 'object', object: scaleOf(entry) };
  }
  const body = await parseBody(kernel, call);
  let asked: Obj;
  if (call.method === 'PUT') asked = body as Obj;
  else if (call.method === 'PATCH')
    asked = call.contentType.startsWith('application/json-patch') ? applyJsonPatch(scaleOf(entry), body) : (applyMergePatch(scaleOf(entry), body) as Obj);
  else throw methodNotAllowed(info);
  if (!isObject(asked) || !isObject(asked['spec'])) throw badRequest('a Scale with a spec is expected');
  const replicas = asked['spec'].replicas ?? 0;
  if (typeof replicas !== 'number' || replicas < 0) {
    throw invalid('autoscaling', 'Scale', call.info.name, [
      { reason: 'FieldValueInvalid', field: 'spec.replicas', message: `Invalid value: ${JSON.stringify(replicas)}: must be greater than or equal to 0` },
    ]);
  }
  const current = required(kernel, info, call);
  const next = copy(current.object);
  next['spec'].replicas = replicas;
  const version = asked['metadata']?.resourceVersion;
  if (version === undefined || version === '') delete next['metadata'].resourceVersion;
  else next['metadata'].resourceVersion = version;
  updateObject(kernel, info, call, current, next);
  await kernel.store.committed();
  return { status: 200, kind: 'object', object: scaleOf(required(kernel, info, call)) };
}

/** Takes finalizers of a namespace's spec away; the last one that goes lets it end. */
async function finalize(kernel: Kernel, info: ResourceInfo, call: Call): Promise<Answer> {
  if (call.method !== 'PUT') throw methodNotAllowed(info);
  const answer = await update(kernel, info, call, {
    merge: (next, old) => ({ ...old, spec: { ...old['spec'], finalizers: next['spec']?.finalizers ?? [] } }),
    skipValidation: true,
  });
  const entry = kernel.store.get('/namespaces', '', call.info.name);
  const isDone =
    entry?.object['metadata'].deletionTimestamp !== undefined &&
    (entry.object['spec']?.finalizers ?? []).length === 0 &&
    (entry.object['metadata'].finalizers ?? []).length === 0;
  if (isDone) {
    kernel.store.remove('/namespaces', '', entry.name, entry.object);
    await kernel.store.committed();
  }
  return answer;
}

const TOPOLOGY = ['topology.kubernetes.io/zone', 'topology.kubernetes.io/region'];

/** The scheduler's write: a pod gets its node once and for all. */
export async function bind(kernel: Kernel, pods: ResourceInfo, call: Call): Promise<Answer> {
  if (call.method !== 'POST') throw methodNotAllowed(pods);
  const body = (await parseBody(kernel, call)) as Obj | undefined;
  const name = call.info.name === '' ? (body?.['metadata']?.name ?? '') : call.info.name;
  const node: string = body?.['target']?.name ?? '';
  if (node === '') throw invalid('', 'Binding', name, [{ reason: 'FieldValueRequired', field: 'target.name', message: 'Required value' }]);
  const entry = kernel.store.get('/pods', call.info.namespace, name);
  if (entry === undefined) throw notFound(pods, name);
  const pod = entry.object;
  const { metadata } = pod as { metadata: Obj };
  const wanted = body?.['metadata'] ?? {};
  if ((wanted.uid ?? '') !== '' && wanted.uid !== metadata['uid'])
    throw conflict(pods, name, `Precondition failed: UID in precondition: ${wanted.uid}, UID in object meta: ${metadata['uid']}`);
  if (metadata['deletionTimestamp'] !== undefined) throw conflict(pods, name, `pod ${name} is being deleted, cannot be assigned to a host`);
  if ((pod['spec'].nodeName ?? '') !== '') throw conflict(pods, name, `pod ${name} is already assigned to node ${JSON.stringify(pod['spec'].nodeName)}`);
  if ((pod['spec'].schedulingGates ?? []).length > 0) throw conflict(pods, name, `pod ${name} has non-empty .spec.schedulingGates`);
  const others = (pod['status']?.conditions ?? []).filter((item: Obj) => item['type'] !== 'PodScheduled');
  const condition = { type: 'PodScheduled', status: 'True', lastProbeTime: null, lastTransitionTime: rfc3339(kernel.clock.nowMs()) };
  const annotations = wanted.annotations === undefined ? metadata['annotations'] : { ...metadata['annotations'], ...wanted.annotations };
  const { nominatedNodeName: _, ...status } = pod['status'] ?? {};
  const next: Obj = { ...pod, metadata: { ...metadata }, spec: { ...pod['spec'], nodeName: node }, status: { ...status, conditions: [...others, condition] } };
  // A pod knows the zone and region of its node, so that the downward API can tell it.
  const places = Object.entries(kernel.view.get('', 'nodes', '', node)?.['metadata'].labels ?? {}).filter(([key]) => TOPOLOGY.includes(key));
  const labels = { ...Object.fromEntries(places), ...wanted.labels };
  if (Object.keys(labels).length > 0) next['metadata'].labels = { ...metadata['labels'], ...labels };
  if (annotations !== undefined) next['metadata'].annotations = annotations;
  if ((call.query.get('dryRun') ?? '') === '') kernel.store.put('/pods', call.info.namespace, name, next);
  await kernel.store.committed();
  return success();
}

/** A polite delete: refused while a disruption budget has nothing left. */
async function evict(kernel: Kernel, pods: ResourceInfo, call: Call): Promise<Answer> {
  if (call.method !== 'POST') throw methodNotAllowed(pods);
  const body = ((await parseBody(kernel, call)) ?? {}) as Obj;
  const entry = required(kernel, pods, call);
  const pod = entry.object;
  admitDelete(pods, pod, call.user);
  const isDryRun = (call.query.get('dryRun') ?? '') !== '' || (body['deleteOptions']?.dryRun ?? []).length > 0;
  const isBusy = !['Succeeded', 'Failed', 'Pending'].includes(pod['status']?.phase) && pod['metadata'].deletionTimestamp === undefined;
  const budgets = isBusy
    ? [...kernel.view.list('policy', 'poddisruptionbudgets', call.info.namespace)].filter(
        (budget) => budget['spec']?.selector !== undefined && selectorMatches(budget['spec'].selector, pod['metadata'].labels),
      )
    : [];
  if (budgets.length > 1)
    throw new Failure(500, 'InternalError', `This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.`);
  const budget = budgets[0];
  if (budget !== undefined) {
    const left = budget['status']?.disruptionsAllowed ?? 0;
    const isStale = (budget['status']?.observedGeneration ?? 0) < (budget['metadata'].generation ?? 0);
    if (left <= 0 || isStale) {
      const refused = tooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", isStale ? 10 : 0);
      const { name } = budget['metadata'];
      const message = `The disruption budget ${name} needs ${budget['status']?.desiredHealthy ?? 0} healthy pods and has ${budget['status']?.currentHealthy ?? 0} currently`;
      throw new Failure(429, refused.reason, refused.message, { causes: [{ reason: 'DisruptionBudget', message }] });
    }
    if (!isDryRun) {
      const status = {
        ...budget['status'],
        disruptionsAllowed: left - 1,
        disruptedPods: { ...budget['status'].disruptedPods, [entry.name]: rfc3339(kernel.clock.nowMs()) },
      };
      kernel.store.put('policy/poddisruptionbudgets', call.info.namespace, budget['metadata'].name, { ...budget, status });
    }
  }
  if (!isDryRun) {
    const others = (pod['status']?.conditions ?? []).filter((item: Obj) => item['type'] !== 'DisruptionTarget');
    const condition = {
      type: 'DisruptionTarget',
      status: 'True',
      reason: 'EvictionByEvictionAPI',
      message: 'Eviction API: evicting',
      lastProbeTime: null,
      lastTransitionTime: rfc3339(kernel.clock.nowMs()),
    };
    const marked = kernel.store.put('/pods', entry.namespace, entry.name, { ...pod, status: { ...pod['status'], conditions: [...others, condition] } });
    deleteObject(kernel, pods, call, marked, body['deleteOptions'] ?? {});
  }
  await kernel.store.committed();
  return success();
}
