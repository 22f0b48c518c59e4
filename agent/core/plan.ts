import type { Container, Pod } from '../../proto/kube/types.ts';
import { assert } from '../../base/assert.ts';
import { heldUntilMs } from './backoff.ts';
import { anyAppCreated, initFailed, isSidecar, keyOf, latestOf, oldestFirst, podText, sandboxNeed, shouldStart, specContainers } from './containers.ts';
import { backOffKey, containerHash } from './hash.ts';
import { finishedOnce, planInit } from './plan-init.ts';
import type { Intent, PlanInput } from './plan-input.ts';
import { killAll, killOne } from './plan-kill.ts';
import { isWork, noWork, planContainer, planPod } from './resize/plan.ts';
import { allRemoved, planReset, restartsAll } from './restart-all.ts';
import type { Held, Kill, Plan, Step } from './step.ts';
import { durationText } from '../../base/duration.ts';
import type { ContainerFacts, ContainerKind, PodFacts } from './types.ts';

/**
 * What to do for a pod that is to run, in upstream's order: sandbox, kills, ephemeral, init, app containers.
 * Whatever is not done in one plan is found again by the next, so a plan may be cut off anywhere.
 */
export function planRun(input: PlanInput): Plan {
  const { pod, facts } = input;
  if (restartsAll(pod, facts, input.old) && !allRemoved(pod, facts)) return { steps: planReset(pod, facts), held: [], grows: [], wakeAtMs: null };
  const need = sandboxNeed(pod, facts);
  if (need !== undefined) return planNewSandbox(input, need);
  const sandbox = facts.sandboxes[0];
  assert(sandbox !== undefined, 'no new sandbox is needed, yet there is none');
  const intent: Intent = { start: [], startEphemeral: [], kill: [], killPod: false, resize: noWork() };
  for (const ephemeral of pod.spec.ephemeralContainers ?? []) {
    if (!ephemeralRan(pod, facts, ephemeral.name)) intent.startEphemeral.push(ephemeral);
  }
  const initialized = planInit(input, intent);
  if (!intent.killPod && initialized) planApps(input, intent);
  if (intent.killPod) return { steps: stopPod(pod, facts), held: [], grows: [], wakeAtMs: null };
  planPod(pod, initialized ? intent.start : [], input.actuated, intent.resize);
  const steps: Step[] = [];
  if (intent.kill.length > 0) steps.push({ kind: 'kill', kills: intent.kill.map((kill) => kill.step) });
  const beside = killBeside(pod, facts, new Set([...intent.start, ...intent.startEphemeral].map(({ name }) => name)));
  if (beside.first.length > 0) steps.push({ kind: 'kill-beside', kills: beside.first });
  steps.push(...prune(pod, facts));
  if (isWork(intent.resize)) steps.push({ kind: 'resize', sandboxId: sandbox.id, work: intent.resize });
  const plan = withStarts(input, steps, intent, { id: sandbox.id, attempt: sandbox.attempt });
  return beside.last.length === 0 ? plan : { ...plan, steps: [...plan.steps, { kind: 'kill-beside', kills: beside.last }] };
}

/** Stops every container that may run, then every sandbox. */
export function stopPod(pod: Pod, facts: PodFacts, graceOverrideSeconds?: number): Step[] {
  const steps: Step[] = [];
  const kills = killAll(pod, facts, graceOverrideSeconds);
  if (kills.length > 0) steps.push({ kind: 'kill', kills });
  for (const sandbox of facts.sandboxes) if (sandbox.ready) steps.push({ kind: 'stop-sandbox', sandboxId: sandbox.id });
  return steps;
}

function planNewSandbox(input: PlanInput, need: { attempt: number; replaces: string | null }): Plan {
  const { pod, facts } = input;
  const spec = pod.spec;
  const steps = stopEverySandbox(pod, facts);
  if (spec.restartPolicy === 'Never' && ranOnce(pod, facts)) return { steps, held: [], grows: [], wakeAtMs: null };
  const apps = spec.containers.filter((container) => {
    const once = (container.restartPolicy ?? spec.restartPolicy) === 'OnFailure';
    const latest = latestOf(facts, container.name);
    return !(once && latest?.state === 'exited' && latest.exitCode === 0);
  });
  if (apps.length === 0 && anyAppCreated(spec, facts)) return { steps, held: [], grows: [], wakeAtMs: null };
  if (need.replaces !== null)
    steps.unshift({ kind: 'tell', event: { type: 'Normal', reason: 'SandboxChanged', message: 'Pod sandbox changed, it will be killed and re-created.' } });
  const again = (spec.initContainers ?? []).filter((container) => !finishedOnce(pod, facts, container));
  const againNames = new Set(again.map((container) => container.name));
  for (const container of oldestFirst(facts)) {
    if (againNames.has(container.name)) steps.push(tryRemove(container));
  }
  steps.push({ kind: 'create-sandbox', attempt: need.attempt });
  const first = again[0];
  const intent: Intent = { start: first === undefined ? apps : [first], startEphemeral: [], kill: [], killPod: false, resize: noWork() };
  return withStarts(input, steps, intent, { id: null, attempt: need.attempt });
}

/**
 * Whether a pod that never restarts has had its one run: an app container was started, or an init container failed.
 * A sandbox that could not be made, or died under a container that was only created, is no run.
 */
function ranOnce(pod: Pod, facts: PodFacts): boolean {
  const apps = new Set(pod.spec.containers.map((container) => container.name));
  const inits = new Set((pod.spec.initContainers ?? []).filter((container) => !isSidecar(container)).map((container) => container.name));
  return facts.containers.some(
    (container) => container.startedAtMs !== 0 && (apps.has(container.name) || (inits.has(container.name) && initFailed(container))),
  );
}

function stopEverySandbox(pod: Pod, facts: PodFacts): Step[] {
  const steps: Step[] = [];
  const kills = killAll(pod, facts);
  if (kills.length > 0) steps.push({ kind: 'kill', kills });
  // Stopping is idempotent and also frees the network of a sandbox whose pause process died.
  for (const sandbox of facts.sandboxes) steps.push({ kind: 'stop-sandbox', sandboxId: sandbox.id });
  return steps;
}

/** App containers: start what should run, kill what fails its probes or has changed. */
function planApps(input: PlanInput, intent: Intent): void {
  const { pod, facts, probes } = input;
  let kept = 0;
  let starting = 0;
  for (const container of pod.spec.containers) {
    const latest = latestOf(facts, container.name);
    if (latest?.state !== 'running') {
      if (!shouldStart(container, pod, facts)) continue;
      starting += 1;
      intent.start.push(container);
      if (latest?.state === 'unknown') {
        intent.kill.push({
          container,
          facts: latest,
          step: killOne(pod, container, latest, 'unknown', 'Container is in "unknown" state, try killing it before restart'),
        });
      }
      continue;
    }
    const results = probes[container.name]?.containerId === latest.id ? probes[container.name] : undefined;
    const changed = latest.hash !== '' && latest.hash !== containerHash(container);
    const why = changed ? 'changed' : results?.liveness === 'failure' ? 'liveness' : results?.startup === 'failure' ? 'startup' : undefined;
    if (why === undefined) {
      if (planContainer(pod, container, latest, input.actuated, intent.resize) === 'keep') {
        kept += 1;
        continue;
      }
      starting += 1;
      intent.start.push(container);
      intent.kill.push({
        container,
        facts: latest,
        step: killOne(pod, container, latest, 'resize', `Container ${container.name} resize requires restart`),
      });
      continue;
    }
    const restart = changed || (container.restartPolicy ?? pod.spec.restartPolicy ?? 'Always') !== 'Never';
    const text = changed ? `Container ${container.name} definition changed` : `Container ${container.name} failed ${why} probe`;
    intent.kill.push({ container, facts: latest, step: killOne(pod, container, latest, why, restart ? `${text}, will be restarted` : text) });
    if (restart) {
      starting += 1;
      intent.start.push(container);
    }
  }
  if (kept === 0 && starting === 0) intent.killPod = true;
}

/** Ephemeral containers run once in a pod's life, also when the runtime has lost all trace of the run. */
function ephemeralRan(pod: Pod, facts: PodFacts, name: string): boolean {
  if (latestOf(facts, name) !== undefined) return true;
  const told = pod.status?.ephemeralContainerStatuses?.find((status) => status.name === name);
  return told?.state?.running !== undefined || told?.state?.terminated !== undefined;
}

/**
 * Of one name at most one runs: what runs beside it, or may, goes. Calls of a process that was killed can come through late.
 * `first`: before anything is started; `last`: whatever cannot be stopped holds nobody up there.
 */
function killBeside(pod: Pod, facts: PodFacts, starting: ReadonlySet<string>): { first: Kill[]; last: Kill[] } {
  const first: Kill[] = [];
  const last: Kill[] = [];
  for (const { container } of specContainers(pod.spec)) {
    for (const other of facts.containers.filter(({ name }) => name === container.name).slice(1)) {
      if (other.state !== 'running' && other.state !== 'unknown') continue;
      const kill = killOne(pod, container, other, 'unknown', `Stopping another container ${container.name}`);
      if (other.state === 'running' || starting.has(container.name)) first.push(kill);
      else last.push(kill);
    }
  }
  return { first, last };
}

/** Only the newest dead run of each init container is kept, and nothing that was made beside what runs. */
function prune(pod: Pod, facts: PodFacts): Step[] {
  const steps: Step[] = [];
  for (const init of pod.spec.initContainers ?? []) {
    const dead = facts.containers.filter((container) => container.name === init.name && (container.state === 'exited' || container.state === 'unknown'));
    for (const container of dead.slice(1)) steps.push(tryRemove(container));
  }
  // Beside one that runs it would only wait to be started by a call that comes late.
  for (const { container } of specContainers(pod.spec)) {
    if (latestOf(facts, container.name)?.state !== 'running') continue;
    for (const other of facts.containers) if (other.name === container.name && other.state === 'created') steps.push(tryRemove(other));
  }
  return steps;
}

/** What is in nobody's way, and holds nobody up when it cannot go. */
function tryRemove({ id, name }: ContainerFacts): Step {
  return { kind: 'remove-container', containerId: id, name, keepLogs: false, mayStay: true };
}

/** Adds the starts that no back-off holds; what it holds is named with the moment at which it ends. */
function withStarts(input: PlanInput, before: readonly Step[], intent: Intent, sandbox: { id: string | null; attempt: number }): Plan {
  const { pod, facts, nowMs } = input;
  const steps = [...before];
  const held: Held[] = [];
  const grows: { key: string; endedAtMs: number }[] = [];
  let wakeAtMs: number | null = null;
  const initNames = new Set((pod.spec.initContainers ?? []).map((container) => container.name));
  const all: { container: Container; kind: ContainerKind }[] = [
    ...intent.startEphemeral.map((container) => ({ container, kind: 'ephemeral' as const })),
    ...intent.start.map((container) => ({
      container,
      kind: initNames.has(container.name) ? (isSidecar(container) ? ('sidecar' as const) : ('init' as const)) : ('app' as const),
    })),
  ];
  for (const { container, kind } of all) {
    const ended = facts.containers.find((each) => each.name === container.name && each.state === 'exited');
    if (ended !== undefined) {
      const key = backOffKey(container);
      const untilMs = heldUntilMs(input.backoffs[key], input.rules, ended.finishedAtMs, nowMs);
      if (untilMs !== null) {
        held.push(crashLoop(pod, container, input.backoffs[key]?.delayMs ?? 0));
        wakeAtMs = wakeAtMs === null ? untilMs : Math.min(wakeAtMs, untilMs);
        if (kind === 'init') break;
        continue;
      }
      grows.push({ key, endedAtMs: ended.finishedAtMs });
    }
    const own = facts.containers.filter(({ name }) => name === container.name);
    steps.push({
      kind: 'start-container',
      name: container.name,
      containerKind: kind,
      sandboxId: sandbox.id,
      sandboxAttempt: sandbox.attempt,
      attempt: own.length === 0 ? null : Math.max(...own.map(({ attempt }) => attempt)) + 1,
      replaces: own.filter(({ state }) => state === 'created').map(({ id }) => id),
      targetId: kind === 'ephemeral' ? targetOf(pod, facts, container.name) : null,
      endsPlan: kind === 'init',
    });
  }
  return { steps, held, grows, wakeAtMs };
}

function crashLoop(pod: Pod, container: Container, delayMs: number): Held {
  const message = `back-off ${durationText(delayMs)} restarting failed container=${container.name} pod=${podText(keyOf(pod))}`;
  return { name: container.name, reason: 'CrashLoopBackOff', message };
}

/** '' when the target named was never created: the start then fails with upstream's words. */
function targetOf(pod: Pod, facts: PodFacts, name: string): string | null {
  const target = pod.spec.ephemeralContainers?.find((each) => each.name === name)?.targetContainerName;
  if (target === undefined || target === '') return null;
  return latestOf(facts, target)?.id ?? '';
}
