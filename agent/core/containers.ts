import type { Container, EphemeralContainer, Pod, PodSpec } from '../../proto/kube/types.ts';
import type { ContainerFacts, PodFacts, PodKey, SandboxFacts, SpecContainer } from './types.ts';

export function keyOf(pod: Pod): PodKey {
  return { uid: pod.metadata.uid ?? '', namespace: pod.metadata.namespace ?? '', name: pod.metadata.name ?? '' };
}

/** `name_namespace(uid)`, as events and errors of Kubernetes name a pod. */
export function podText(key: PodKey): string {
  return `${key.name}_${key.namespace}(${key.uid})`;
}

/** An init container that stays: KEP-753. */
export function isSidecar(container: Container): boolean {
  return container.restartPolicy === 'Always';
}

/** All containers of the spec in the order in which they may start. */
export function specContainers(spec: PodSpec): SpecContainer[] {
  return [
    ...(spec.initContainers ?? []).map((container, index): SpecContainer => ({ kind: isSidecar(container) ? 'sidecar' : 'init', index, container })),
    ...spec.containers.map((container, index): SpecContainer => ({ kind: 'app', index, container })),
    ...(spec.ephemeralContainers ?? []).map((container, index): SpecContainer => ({
      kind: 'ephemeral',
      index,
      container: container satisfies EphemeralContainer,
    })),
  ];
}

export function findContainer(spec: PodSpec, name: string): SpecContainer | undefined {
  return specContainers(spec).find((each) => each.container.name === name);
}

/** The container of this name that runs, of whichever sandbox; when none does, the newest. */
export function latestOf(facts: PodFacts, name: string): ContainerFacts | undefined {
  return facts.containers.find((container) => container.name === name);
}

/** Name by name the order in which to remove: while it is under way, and if it is cut off, the newest is still the newest. */
export function oldestFirst(facts: PodFacts): ContainerFacts[] {
  return [...Map.groupBy(facts.containers, ({ name }) => name).values()].flatMap((containers) => containers.toReversed());
}

/** The newest container of this name in the sandbox that is in use. */
export function activeOf(facts: PodFacts, name: string): ContainerFacts | undefined {
  const sandbox = readySandbox(facts);
  return sandbox === undefined ? undefined : facts.containers.find((container) => container.name === name && container.sandboxId === sandbox.id);
}

/** The newest sandbox when it is ready; an older one that is ready beside it does not count. */
export function readySandbox(facts: PodFacts): SandboxFacts | undefined {
  const newest = facts.sandboxes[0];
  return newest?.ready === true ? newest : undefined;
}

/** Whether an app container was created in any sandbox: then all init containers have run. */
export function anyAppCreated(spec: PodSpec, facts: PodFacts): boolean {
  return spec.containers.some((container) => {
    const latest = latestOf(facts, container.name);
    return latest !== undefined && latest.state !== 'unknown';
  });
}

/** Whether an app container was made in the sandbox in use: then its init containers have run there. */
export function anyAppHere(spec: PodSpec, facts: PodFacts): boolean {
  return spec.containers.some((container) => activeOf(facts, container.name) !== undefined);
}

type RestartRule = NonNullable<Container['restartPolicyRules']>[number];

/** The first rule whose exit codes match: KEP-5307. */
export function matchingRule(container: Container, exitCode: number): RestartRule | undefined {
  return (container.restartPolicyRules ?? []).find((rule) => {
    const codes = rule.exitCodes;
    if (codes === undefined) return false;
    const listed = (codes.values ?? []).includes(exitCode);
    return codes.operator === 'In' ? listed : codes.operator === 'NotIn' && !listed;
  });
}

/** Whether an exited container runs again: its own rules, its own policy, then the pod's. */
export function restartsAfter(container: Container, spec: PodSpec, exitCode: number): boolean {
  if (container.restartPolicy !== undefined) {
    const rule = matchingRule(container, exitCode);
    if (rule?.action === 'Restart' || rule?.action === 'RestartAllContainers') return true;
  }
  switch (container.restartPolicy ?? spec.restartPolicy ?? 'Always') {
    case 'Never':
      return false;
    case 'OnFailure':
      return exitCode !== 0;
    default:
      return true;
  }
}

/** Whether the container is to be started (again), given all that is known of it. */
export function shouldStart(container: Container, pod: Pod, facts: PodFacts): boolean {
  if (pod.metadata.deletionTimestamp !== undefined) return false;
  const latest = latestOf(facts, container.name);
  if (latest === undefined) return true;
  switch (latest.state) {
    case 'running':
      return false;
    case 'created':
    case 'unknown':
      return true;
    case 'exited':
      return restartsAfter(container, pod.spec, latest.exitCode);
  }
}

/** An init container that ran out of memory has failed whatever its exit code says. */
export function initFailed(container: ContainerFacts): boolean {
  return container.reason === 'OOMKilled' || container.state === 'unknown' || (container.state === 'exited' && container.exitCode !== 0);
}

/** Why a new sandbox is needed, with upstream's words for the condition; undefined when the one there serves. */
export function sandboxNeed(pod: Pod, facts: PodFacts): { attempt: number; replaces: string | null; message: string } | undefined {
  const newest = facts.sandboxes[0];
  if (newest === undefined) return { attempt: 0, replaces: null, message: 'no pod sandbox exists' };
  const attempt = newest.attempt + 1;
  if (facts.sandboxes.filter((sandbox) => sandbox.ready).length > 1)
    return { attempt, replaces: newest.id, message: 'multiple pod sandboxes are ready and need to be reconciled' };
  if (!newest.ready) return { attempt, replaces: newest.id, message: 'pod sandbox is not ready' };
  const hostNetwork = pod.spec.hostNetwork === true;
  if (newest.hostNetwork !== hostNetwork) return { attempt, replaces: null, message: 'network namespace mode changed and sandbox needs to be recreated' };
  if (!hostNetwork && newest.ips.length === 0) return { attempt, replaces: newest.id, message: 'pod sandbox has no IP address' };
  return undefined;
}

/** Whether anything of a pod runs. */
export function isUp(facts: PodFacts): boolean {
  return facts.containers.some((container) => container.state === 'running') || facts.sandboxes.some((sandbox) => sandbox.ready);
}

/** What there is of a pod and in which state, to be told apart from another look. What is made and does not run yet is no news to anybody. */
export function statesText(facts: PodFacts): string {
  const containers = facts.containers.filter(({ state }) => state !== 'created');
  return [...facts.sandboxes.map((each) => `${each.id}=${each.ready}`), ...containers.map((each) => `${each.id}=${each.state}`)].toSorted().join();
}

/**
 * A look, taken while a plan is under way, without the containers that were made since the one before and do not run yet:
 * a run counts when it has begun. Until then what gave way to it is still told of, or an older run would be the newest
 * again: one that never ran as it was, one that ran after all as one that cannot be found.
 */
export function withoutMade(facts: PodFacts, before: PodFacts | undefined): PodFacts {
  // Who has never looked has made nothing yet either.
  if (before === undefined) return facts;
  const known = new Set(before.containers.map(({ id }) => id));
  const made = facts.containers.filter(({ id, state }) => state === 'created' && !known.has(id));
  const names = new Set(made.map(({ name }) => name));
  const there = new Set(facts.containers.map(({ id }) => id));
  const shown = facts.containers.filter((each) => !made.includes(each));
  const isNewer = ({ name, attempt }: ContainerFacts): boolean => shown.every((each) => each.name !== name || each.attempt < attempt);
  const gone = before.containers.filter((each) => !there.has(each.id) && latestOf(before, each.name) === each && isNewer(each));
  const replaced = gone.flatMap((each): ContainerFacts[] => {
    if (each.state === 'created') return [each];
    return each.state !== 'exited' && names.has(each.name) ? [{ ...each, state: 'unknown' }] : [];
  });
  return { ...facts, containers: [...replaced, ...shown] };
}
