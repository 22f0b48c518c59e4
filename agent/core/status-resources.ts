import type { Container, ContainerStatus, Pod, PodStatus, ResourceRequirements } from '../../proto/kube/types.ts';
import { cpuShares, cpuWeight, sharesOfWeight } from './cgroups.ts';
import { podLimits, podRequests } from './qos.ts';
import type { Amounts } from './qos.ts';
import { compareQuantities, formatQuantity, milliQuantityOf, milliValueOf, parseQuantity, quantityOf } from './quantity.ts';
import type { Quantity } from './quantity.ts';
import type { PodCgroupValues } from './resize/moves.ts';
import type { ContainerFacts, ContainerResourceFacts } from './types.ts';

/** Below these the kernel's own minimum hides the value; 10 thousandths of quota, 2 of shares. */
const minLimitMilli = 10n;
const minRequestMilli = 2n;

/**
 * What a container has: the spec as allocated, with what the runtime reports in place of it where it runs and says so
 * (KEP-1287). `actuated` stands in for a runtime that reports nothing; `old` is what was told of the same run.
 */
export function containerResourcesStatus(
  container: Container,
  facts: ContainerFacts,
  actuated: ResourceRequirements | undefined,
  old: ContainerStatus | undefined,
): ResourceRequirements {
  const spec = container.resources ?? {};
  if (facts.state !== 'running') return spec;
  const actual = actualOf(facts.resources, actuated);
  const before = old?.state?.running === undefined ? undefined : old.resources;
  return {
    ...spec,
    ...(spec.limits === undefined ? {} : { limits: limitsStatus(spec.limits, actual, before?.limits) }),
    ...(spec.requests === undefined ? {} : { requests: requestsStatus(spec.requests, actual, before?.requests) }),
  };
}

interface Actual {
  readonly cpuLimitMilli: bigint | null;
  readonly cpuRequestMilli: bigint | null;
  readonly memoryLimit: Quantity | null;
  readonly memoryRequest: Quantity | null;
}

function actualOf(facts: ContainerResourceFacts | null, actuated: ResourceRequirements | undefined): Actual {
  const told = (list: Record<string, string> | undefined, name: string): Quantity | null => {
    const quantity = list?.[name] === undefined ? null : parseQuantity(list[name]);
    return quantity === null || quantity.nano === 0n ? null : quantity;
  };
  const milli = (quantity: Quantity | null): bigint | null => (quantity === null ? null : milliValueOf(`${quantity.nano}n`));
  // No runtime knows of memory requests.
  const memoryRequest = told(actuated?.requests, 'memory');
  const { cpuPeriod = null, cpuQuota = null, cpuShares: shares = null, memoryLimitBytes = null } = facts ?? {};
  if (cpuQuota === null && shares === null && memoryLimitBytes === null) {
    const [cpuLimit, cpuRequest] = [milli(told(actuated?.limits, 'cpu')), milli(told(actuated?.requests, 'cpu'))];
    return { cpuLimitMilli: cpuLimit, cpuRequestMilli: cpuRequest, memoryLimit: told(actuated?.limits, 'memory'), memoryRequest };
  }
  return {
    cpuLimitMilli: cpuPeriod !== null && cpuPeriod > 0 && cpuQuota !== null && cpuQuota > 0 ? BigInt(Math.floor((cpuQuota * 1000) / cpuPeriod)) : null,
    cpuRequestMilli: shares === null || shares < 2 ? null : milliOfShares(BigInt(shares)),
    memoryLimit: memoryLimitBytes === null || memoryLimitBytes <= 0 ? null : quantityOf(memoryLimitBytes, 'BinarySI'),
    memoryRequest,
  };
}

function limitsStatus(limits: Record<string, string>, actual: Actual, before: Record<string, string> | undefined): Record<string, string> {
  const result = { ...limits };
  if (actual.cpuLimitMilli === null) keep(result, 'cpu', before);
  else if (actual.cpuLimitMilli > minLimitMilli || milliValueOf(limits['cpu']) > minLimitMilli) put(result, 'cpu', milliQuantityOf(actual.cpuLimitMilli));
  if (actual.memoryLimit === null) keep(result, 'memory', before);
  else put(result, 'memory', actual.memoryLimit);
  return result;
}

function requestsStatus(requests: Record<string, string>, actual: Actual, before: Record<string, string> | undefined): Record<string, string> {
  const result = { ...requests };
  if (actual.cpuRequestMilli === null) keep(result, 'cpu', before);
  else if (actual.cpuRequestMilli > minRequestMilli || milliValueOf(requests['cpu']) > minRequestMilli)
    put(result, 'cpu', milliQuantityOf(actual.cpuRequestMilli));
  if (actual.memoryRequest === null) keep(result, 'memory', before);
  else put(result, 'memory', actual.memoryRequest);
  return result;
}

/** What was told of the same run stands while nobody says otherwise. */
function keep(list: Record<string, string>, name: string, before: Record<string, string> | undefined): void {
  const told = before?.[name];
  if (told !== undefined && list[name] !== undefined) put(list, name, parseQuantity(told));
}

/** Keeps the spec's own way of writing an equal amount. */
function put(list: Record<string, string>, name: string, actual: Quantity): void {
  const present = list[name];
  if (present === undefined || compareQuantities(parseQuantity(present), actual) !== 0) list[name] = formatQuantity(actual);
}

/** cpu.shares → thousandths, as Kubernetes reads them back. */
function milliOfShares(shares: bigint): bigint {
  return (shares * 1000n + 1023n) / 1024n;
}

/**
 * What the pod as a whole was promised and has: KEP-5419. `values` null: its cgroup is not known, or it does not run yet. `old` is what was told
 * before: a limit that its cgroup does not have, as where only some containers are limited, stays as it was told while nothing ran, as upstream has it.
 */
export function podResourcesStatus(pod: Pod, values: PodCgroupValues | null, old: PodStatus): Pick<PodStatus, 'resources' | 'allocatedResources'> {
  const requests = listOf(podRequests(pod));
  const allocated = Object.keys(requests).length === 0 ? {} : { allocatedResources: requests };
  if (values === null || pod.status?.phase !== 'Running') {
    const limits = listOf(podLimits(pod));
    return { ...allocated, resources: { ...pod.spec.resources, ...some('limits', limits), ...some('requests', requests) } };
  }
  const has = { limits: { ...pod.spec.resources?.limits }, requests: { ...pod.spec.resources?.requests } };
  const told = old.phase === 'Running' ? old.resources?.limits : undefined;
  const request = milliOfShares(values.cpuShares);
  const asked = milliValueOf(has.requests['cpu']);
  const same = sharesOfWeight(cpuWeight(cpuShares(asked))) === values.cpuShares;
  if ((request > minRequestMilli || asked > minRequestMilli) && !same) put(has.requests, 'cpu', milliQuantityOf(request));
  if (has.requests['memory'] === undefined && requests['memory'] !== undefined) has.requests['memory'] = requests['memory'];
  if (values.cpuQuotaUs !== null) {
    const limit = (values.cpuQuotaUs * 1000n) / values.cpuPeriodUs;
    if (limit > minLimitMilli || milliValueOf(has.limits['cpu']) > minLimitMilli) put(has.limits, 'cpu', milliQuantityOf(limit));
  } else if (told?.['cpu'] !== undefined) put(has.limits, 'cpu', parseQuantity(told['cpu']));
  if (values.memoryBytes !== null) put(has.limits, 'memory', quantityOf(values.memoryBytes, 'BinarySI'));
  else if (told?.['memory'] !== undefined) put(has.limits, 'memory', parseQuantity(told['memory']));
  return { ...allocated, resources: { ...pod.spec.resources, ...some('limits', has.limits), ...some('requests', has.requests) } };
}

function some(field: 'limits' | 'requests', list: Record<string, string>): ResourceRequirements {
  return Object.keys(list).length === 0 ? {} : { [field]: list };
}

function listOf(amounts: Amounts): Record<string, string> {
  return Object.fromEntries([...amounts].map(([name, amount]) => [name, formatQuantity(amount)]));
}
