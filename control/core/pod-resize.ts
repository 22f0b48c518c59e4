import type { Node, Pod } from '../../proto/kube/types.ts';
import { qosClassOf } from './defaults-pod.ts';
import { forbidden, invalid } from './failure.ts';
import type { Cause } from './failure.ts';
import { same } from './json.ts';
import type { Obj } from './json.ts';
import { forbiddenField, wrong } from './names.ts';
import { allocatable, podRequests } from './scheduler/resources.ts';
import { checkPodSpec } from './validate-pod.ts';

const SIZED = ['cpu', 'memory'];

/**
 * What a write to `pods/resize` makes of a pod: CPU and memory of its containers and of itself, and nothing else.
 * `node`: where it runs, if it does. Throws the Failure that upstream answers with.
 */
export function resizedPod(next: Obj, old: Obj, node: Obj | undefined): Obj {
  const { name } = old['metadata'];
  const problems = check(next, old);
  if (problems.length > 0) throw invalid('', 'Pod', name, problems);
  const spec: Obj = { ...old['spec'] };
  for (const list of ['containers', 'initContainers']) {
    if (spec[list] !== undefined)
      spec[list] = spec[list].map((container: Obj, at: number) => ({ ...container, resources: next['spec'][list][at].resources ?? {} }));
  }
  if (next['spec'].resources !== undefined) spec['resources'] = next['spec'].resources;
  const pod: Obj = { ...old, metadata: { ...old['metadata'], managedFields: next['metadata'].managedFields }, spec };
  if (!same(spec, old['spec']) && node !== undefined) checkRoom(pod, node);
  return pod;
}

function check(next: Obj, old: Obj): Cause[] {
  if (old['metadata'].annotations?.['kubernetes.io/config.mirror'] !== undefined) return [forbiddenField('', 'static pods cannot be resized')];
  const problems = checkPodSpec(next['spec'], 'spec');
  const qos = old['status']?.qosClass ?? qosClassOf(old);
  if (qosClassOf(next) !== qos) problems.push(wrong('spec', next['status']?.qosClass ?? qos, 'Pod QOS Class may not change as a result of resizing'));
  problems.push(...checkPodLevel(next['spec'].resources, old['spec'].resources));
  const order = ['containers', 'initContainers'].flatMap((list) => checkOrder(list, next['spec'][list] ?? [], old['spec'][list] ?? []));
  if (order.length > 0) return [...problems, ...order];
  for (const list of ['initContainers', 'containers'])
    (old['spec'][list] ?? []).forEach((before: Obj, at: number) => problems.push(...checkContainer(list, at, next['spec'][list][at], before)));
  if (problems.length === 0 && !same(fixed(next['spec']), fixed(old['spec'])))
    problems.push(forbiddenField('spec', 'only cpu and memory resources are mutable'));
  return problems;
}

function checkOrder(list: string, next: readonly Obj[], old: readonly Obj[]): Cause[] {
  if (next.length !== old.length) return [forbiddenField(`spec.${list}`, `${list} may not be added or removed on resize`)];
  return old.flatMap((before, at) =>
    next[at]?.['name'] === before['name'] ? [] : [forbiddenField(`spec.${list}[${at}].name`, `${list} may not be renamed or reordered on resize`)],
  );
}

function checkPodLevel(next: Obj | undefined, old: Obj | undefined): Cause[] {
  if (old === undefined) return [];
  if (next === undefined) return [forbiddenField('spec.resources', 'pod-level resources cannot be removed')];
  const problems = ['requests', 'limits'].flatMap((kind) =>
    isRemoved(next[kind], old[kind]) ? [forbiddenField(`spec.resources.${kind}`, `pod-level resource ${kind} cannot be removed`)] : [],
  );
  if (!same(others(next), others(old))) problems.push(forbiddenField('spec', 'only cpu and memory resources are mutable at pod-level'));
  return problems;
}

function checkContainer(list: string, at: number, next: Obj, old: Obj): Cause[] {
  const field = `spec.${list}[${at}]`;
  const problems = ['requests', 'limits'].flatMap((kind) =>
    isRemoved(next['resources']?.[kind], old['resources']?.[kind]) ? [forbiddenField(`${field}.resources.${kind}`, `resource ${kind} cannot be removed`)] : [],
  );
  const rest = (container: Obj): Obj => ({ ...container, resources: others(container['resources']) });
  if (!same(rest(next), rest(old))) {
    problems.push(
      list === 'containers'
        ? forbiddenField('spec', 'only cpu and memory resources are mutable')
        : forbiddenField(field, 'only cpu and memory resources for init or sidecar containers are mutable'),
    );
  }
  const isPlainInit = list === 'initContainers' && old['restartPolicy'] !== 'Always';
  if (isPlainInit && !same(next, old) && (old['resizePolicy'] ?? []).some((policy: Obj) => policy['restartPolicy'] === 'RestartContainer'))
    problems.push(forbiddenField(field, 'non-sidecar init containers with a resize policy of RestartContainer cannot be resized'));
  return problems;
}

function isRemoved(next: Obj | undefined, old: Obj | undefined): boolean {
  return Object.keys(old ?? {}).some((name) => next?.[name] === undefined);
}

/** What of resources a resize may not change. */
function others(resources: Obj | undefined): Obj {
  const list = (amounts: Obj | undefined): Obj => Object.fromEntries(Object.entries(amounts ?? {}).filter(([name]) => !SIZED.includes(name)));
  return { limits: list(resources?.['limits']), requests: list(resources?.['requests']), claims: resources?.['claims'] ?? [] };
}

/** All of a spec but the sizes. */
function fixed(spec: Obj): Obj {
  const { containers: _, initContainers: __, resources: ___, ...rest } = spec;
  return rest;
}

/** What no node of this size can ever give is refused at once. */
function checkRoom(pod: Obj, node: Obj): void {
  const wanted = podRequests(pod as unknown as Pod);
  const has = allocatable(node as unknown as Node);
  const lacking = SIZED.filter((name) => (wanted[name] ?? 0) > (has[name] ?? 0)).map(
    (name) => `${name}, requested: ${wanted[name]}, allocatable: ${has[name] ?? 0}`,
  );
  if (lacking.length === 0) return;
  const refusal = forbidden({ group: '', resource: 'pods' }, pod['metadata'].name, `node didn't have enough allocatable resources: ${lacking.join('; ')}`);
  refusal.details!['causes'] = [{ reason: 'NodeCapacity' }];
  throw refusal;
}
