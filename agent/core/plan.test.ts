import assert from 'node:assert/strict';
import { test } from 'node:test';
import type { Pod } from '../../proto/kube/types.ts';
import { backoffRules } from './backoff.ts';
import { withoutMade } from './containers.ts';
import { planRun } from './plan.ts';
import type { ContainerFacts, ContainerState, PodFacts, SandboxFacts } from './types.ts';

const container = (name: string, attempt: number, state: ContainerState): ContainerFacts =>
  ({
    id: `${name}${attempt}`,
    name,
    attempt,
    state,
    sandboxId: 's',
    hash: '',
    exitCode: 1,
    finishedAtMs: 0,
    createdAtMs: attempt,
  }) as unknown as ContainerFacts;
const facts = (ready: boolean, ...containers: ContainerFacts[]): PodFacts => ({
  uid: 'u',
  namespace: 'n',
  name: 'p',
  sandboxes: [{ id: 's', attempt: 0, ready, hostNetwork: false, ips: ['10.0.0.1'] } as unknown as SandboxFacts],
  containers,
});
const pod: Pod = { metadata: { name: 'p', uid: 'u' }, spec: { restartPolicy: 'Always', terminationGracePeriodSeconds: 5, containers: [{ name: 'm' }] } };

/** Step by step what is done to which container. */
function plan(given: PodFacts, of: Pod = pod): string[] {
  const { steps } = planRun({ pod: of, facts: given, probes: {}, nowMs: 1e9, backoffs: {}, rules: backoffRules(), old: {}, actuated: undefined });
  return steps.map((step) => {
    if (step.kind === 'kill') return `kill ${step.kills.map(({ containerId }) => containerId).join(' ')}`;
    if (step.kind === 'kill-beside') return `kill beside ${step.kills.map(({ containerId }) => containerId).join(' ')}`;
    if (step.kind === 'remove-container') return `${step.mayStay === true ? 'try to ' : ''}remove ${step.containerId}`;
    return step.kind === 'start-container' ? `start ${step.name}${step.attempt} for ${step.replaces.join(' ')}` : step.kind;
  });
}

test('of one name at most one runs: what runs or may run beside it goes, and what waits to be started', () => {
  assert.deepEqual(plan(facts(true, container('m', 1, 'running'), container('m', 2, 'created'))), ['try to remove m2']);
  assert.deepEqual(plan(facts(true, container('m', 2, 'running'), container('m', 1, 'running'))), ['kill beside m1']);
  assert.deepEqual(
    plan(facts(true, container('x', 1, 'running'), container('x', 2, 'created'), container('m', 1, 'running'))),
    [],
    'what is not of the pod is not ours',
  );
  assert.deepEqual(plan(facts(true, container('m', 2, 'created'), container('m', 1, 'unknown'))), ['kill beside m1', 'start m3 for m2']);
  assert.deepEqual(plan(facts(true, container('m', 1, 'unknown'), container('m', 2, 'created'))), ['kill m1', 'start m3 for m2']);
});

test('where one runs, an older one in a state that is not known waits for the rest of the plan; where none does, it goes before the next is made', () => {
  const two: Pod = { ...pod, spec: { ...pod.spec, containers: [{ name: 'm' }, { name: 'n' }] } };
  assert.deepEqual(plan(facts(true, container('m', 2, 'running'), container('m', 1, 'unknown'), container('n', 0, 'exited')), two), [
    'start n1 for ',
    'kill beside m1',
  ]);
  assert.deepEqual(plan(facts(true, container('m', 2, 'exited'), container('m', 1, 'unknown'), container('n', 0, 'running')), two), [
    'kill beside m1',
    'start m3 for ',
  ]);
});

test('of several dead init containers the newest is removed last, so that a plan that is cut off is followed by the next number', () => {
  const withInit: Pod = { ...pod, spec: { ...pod.spec, initContainers: [{ name: 'i' }] } };
  assert.deepEqual(plan(facts(false, container('i', 2, 'exited'), container('i', 1, 'exited'), container('m', 0, 'exited')), withInit), [
    'tell',
    'stop-sandbox',
    'try to remove i1',
    'try to remove i2',
    'create-sandbox',
    'start i3 for ',
  ]);
});

test('while a plan is under way, what gave way to a container that does not run yet is still told of', () => {
  const look = (before: PodFacts | undefined, ...after: ContainerFacts[]): string[] =>
    withoutMade(facts(true, ...after), before).containers.map(({ id, state }) => `${id} ${state}`);
  const [old, made, next] = [container('m', 0, 'exited'), container('m', 1, 'created'), container('m', 2, 'created')];
  const before = facts(true, made, old);
  const ran = container('m', 1, 'running');
  assert.deepEqual(look(before, next, made, old), ['m1 created', 'm0 exited'], 'one that was made is no news');
  assert.deepEqual(look(before, next, old), ['m1 created', 'm0 exited'], 'the one before it went');
  assert.deepEqual(look(before, old), ['m1 created', 'm0 exited'], 'a look that came between the two');
  assert.deepEqual(look(facts(true, ran, old), next, old), ['m1 unknown', 'm0 exited'], 'the one before it had been started after all');
  const first = withoutMade(facts(true, next, old), facts(true, ran, old));
  assert.deepEqual(look(first, next, old), ['m1 unknown', 'm0 exited'], 'and at each look until the next one runs');
  assert.deepEqual(look(before, container('m', 2, 'running'), old), ['m2 running', 'm0 exited'], 'the next one runs');
  assert.deepEqual(look(facts(true, container('m', 0, 'running'), made), old), ['m0 exited'], 'what went beside one that ran was never told of');
  assert.deepEqual(look(undefined, next, old), ['m2 created', 'm0 exited'], 'who has never looked has made nothing');
});
