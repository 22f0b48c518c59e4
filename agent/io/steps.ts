import { BugError } from '../../base/assert.ts';
import type { PodSandboxConfig } from '../../proto/cri/types.ts';
import { sandboxConfig } from '../core/container-config.ts';
import { findContainer, keyOf, podText } from '../core/containers.ts';
import { withGroups } from '../core/security.ts';
import { hostnameOf } from '../core/hostname.ts';
import { podIPsOf } from '../core/status.ts';
import type { Kill, Step } from '../core/step.ts';
import { ignoreMissing, rpcErrorText } from './cri.ts';
import { sandboxOf } from './facts.ts';
import { killContainers } from './kill.ts';
import type { KillContext } from './kill.ts';
import { resizePod } from './resize.ts';
import { ensureImageVolumes, missingImage, startContainer } from './start.ts';
import type { ImageVolumes } from './start.ts';
import type { OpenSandbox, RunContext, StartFailure, StepDeps, StepsOutcome } from './step-types.ts';

/** Does the steps one after another. What fails is reported; nothing is decided here. */
export async function runSteps(deps: StepDeps, run: RunContext, steps: readonly Step[], signal: AbortSignal): Promise<StepsOutcome> {
  const outcome = await inOrder(deps, run, steps, signal);
  const failed = outcome.error !== null || outcome.failures.length > 0;
  if (failed && !signal.aborted && steps.some(({ kind }) => kind === 'create-sandbox')) deps.metrics?.roundFailed(run.pod);
  return outcome;
}

async function inOrder(deps: StepDeps, run: RunContext, steps: readonly Step[], signal: AbortSignal): Promise<StepsOutcome> {
  const started: string[] = [];
  const failures: StartFailure[] = [];
  /** What may run still, by name. */
  const stuck = new Map<string, string>();
  let done = 0;
  let resizeFailure: string | null = null;
  let sandbox: OpenSandbox | null = null;
  let images: ImageVolumes | null = null;
  try {
    for (const step of steps) {
      signal.throwIfAborted();
      if (step.kind === 'start-container') {
        const why = stuck.get(step.name);
        if (why !== undefined) {
          failures.push(mayStillRun(run, step.name, why));
          if (step.endsPlan) break;
          continue;
        }
        sandbox ??= await openSandbox(deps, run, step.sandboxAttempt, signal);
        images ??= await ensureImageVolumes(deps, run, sandbox, signal);
        const failure = await countedStart(deps, run, step, { sandbox, images }, signal);
        if (failure === null) {
          started.push(step.name);
          done += 1;
        } else {
          failures.push(failure);
          if (step.endsPlan) break;
        }
        continue;
      }
      if (step.kind === 'resize') {
        const beganMs = deps.clock.monoMs();
        try {
          await resizePod(deps, run, step.sandboxId, step.work, signal);
          deps.resizeDone?.(deps.clock.monoMs() - beganMs, false);
          done += 1;
        } catch (error) {
          signal.throwIfAborted();
          if (error instanceof BugError) throw error;
          deps.resizeDone?.(deps.clock.monoMs() - beganMs, true);
          resizeFailure = rpcErrorText(error);
        }
        continue;
      }
      // Neither brings what there is to do next, so neither asks for another look at once: what stays would be tried without a pause.
      if (step.kind === 'kill-beside') {
        for (const [name, words] of await killBeside(deps, run, step.kills, signal)) stuck.set(name, words);
        continue;
      }
      if (step.kind === 'remove-container' && step.mayStay === true) {
        await plainStep(deps, run, step, signal).catch((error: unknown) => goOn(deps, error, { step: 'remove', containerName: step.name }, signal));
        continue;
      }
      if (step.kind === 'create-sandbox') sandbox = await createSandbox(deps, run, step.attempt, signal);
      else await plainStep(deps, run, step, signal);
      if (step.kind !== 'tell') done += 1;
    }
    return { done, started, failures, resizeFailure, error: null };
  } catch (error) {
    return { done, started, failures, resizeFailure, error };
  }
}

async function countedStart(
  deps: StepDeps,
  run: RunContext,
  step: Extract<Step, { kind: 'start-container' }>,
  { sandbox, images }: { sandbox: OpenSandbox; images: ImageVolumes },
  signal: AbortSignal,
) {
  const place = findContainer(run.pod.spec, step.name);
  const kind = place?.kind ?? 'app';
  deps.metrics?.containerStarts(kind);
  const missing = place === undefined ? null : missingImage(run, place.container, images);
  if (missing !== null) return missing;
  const failure = await startContainer(deps, run, step, sandbox, images, signal);
  if (failure !== null) deps.metrics?.containerFailed(kind, failure.reason);
  const mounted = (place?.container.volumeMounts ?? []).map(({ name }) => name).filter((name) => images.has(name));
  deps.metrics?.imageVolumes(new Set(mounted).size, mounted.length, failure);
  return failure;
}

async function plainStep(
  deps: StepDeps,
  run: RunContext,
  step: Exclude<Step, { kind: 'start-container' | 'create-sandbox' | 'resize' | 'kill-beside' }>,
  signal: AbortSignal,
): Promise<void> {
  const { cri, timeoutMs } = deps;
  switch (step.kind) {
    case 'tell':
      run.tell(step.event);
      return;
    case 'kill':
      await killContainers(deps, killContext(deps, run), step.kills, signal);
      return;
    case 'stop-sandbox':
      await stopSandbox(deps, run, step.sandboxId, signal);
      return;
    case 'remove-container':
      await ignoreMissing(cri.runtime.removeContainer({ containerId: step.containerId }, { timeoutMs, signal }));
      return;
  }
}

function killContext(deps: StepDeps, { pod, facts, tell, preStopBegun }: RunContext): KillContext {
  return { pod, podIPs: podIPsOf(pod, facts.sandboxes[0]?.ips ?? [], deps.node.hostIPs()), tell, preStopBegun };
}

/** Why something could not be stopped, by name. */
async function killBeside(deps: StepDeps, run: RunContext, kills: readonly Kill[], signal: AbortSignal): Promise<Map<string, string>> {
  const stuck = new Map<string, string>();
  const stop = async (kill: Kill): Promise<void> => {
    try {
      await killContainers(deps, killContext(deps, run), [kill], signal);
    } catch (error) {
      goOn(deps, error, { step: 'stop', containerName: kill.name }, signal);
      stuck.set(kill.name, rpcErrorText(error));
    }
  };
  await Promise.all(kills.map(stop));
  return stuck;
}

/** What has failed holds up nothing else. */
function goOn({ log }: StepDeps, error: unknown, what: Record<string, string>, signal: AbortSignal): void {
  signal.throwIfAborted();
  if (error instanceof BugError) throw error;
  log.warn('A container beside the one that counts stays for now', { ...what, err: rpcErrorText(error) });
}

/** Nothing is started beside what may run. */
function mayStillRun(run: RunContext, name: string, why: string): StartFailure {
  const message = `another container ${name} may still run: ${why}`;
  run.tell({ type: 'Warning', reason: 'Failed', message: `Error: ${message}`, container: name });
  return { name, reason: 'RunContainerError', message };
}

async function stopSandbox({ cri, timeoutMs, lines }: StepDeps, run: RunContext, podSandboxId: string, signal: AbortSignal): Promise<void> {
  using _turn = await lines.ends.take(run.place, signal);
  await ignoreMissing(cri.runtime.stopPodSandbox({ podSandboxId }, { timeoutMs, signal }));
}

/** The configuration of a sandbox; the same for the one that is made and for what containers are made in it. */
async function configOf(deps: StepDeps, run: RunContext, attempt: number, runtimeHandler: string, signal: AbortSignal): Promise<PodSandboxConfig> {
  const { pod } = run;
  const hostname = hostnameOf(pod, deps.clusterDomain);
  if (!hostname.ok) throw new Error(hostname.message);
  const dns = await deps.dns.forPod(pod, signal);
  for (const event of dns.events) run.tell(event);
  // Running it without what it asked for would hand root on the node to a pod that gave it up.
  if (pod.spec.hostUsers === false && deps.userNamespaces === undefined)
    throw new Error("can't set `spec.hostUsers: false`, runtime does not support user namespaces");
  const userNamespace = await deps.userNamespaces?.of(pod, runtimeHandler);
  return sandboxConfig(deps.context, {
    pod: withGroups(pod, deps.volumes.groupsOf?.(keyOf(pod).uid) ?? []),
    attempt,
    ...(userNamespace === undefined ? {} : { userNamespace }),
    cgroupParent: deps.cgroups.parentOf(pod),
    hostname: hostname.kernel,
    dns,
  });
}

async function createSandbox(deps: StepDeps, run: RunContext, attempt: number, signal: AbortSignal): Promise<OpenSandbox> {
  const { cri, timeoutMs } = deps;
  let id: string;
  let config: PodSandboxConfig;
  let runtimeHandler = '';
  deps.metrics?.podStarts(run.pod);
  try {
    runtimeHandler = await deps.runtimeClasses.handlerOf(run.pod.spec.runtimeClassName, signal);
    config = await configOf(deps, run, attempt, runtimeHandler, signal);
    await deps.files.mkdir(config.logDirectory ?? '');
    using _turn = await deps.lines.starts.take(run.place, signal);
    // What came before may have taken its time. From here on it is not cut off: a sandbox half made would be known to nobody.
    signal.throwIfAborted();
    ({ podSandboxId: id } = await cri.runtime.runPodSandbox({ config, runtimeHandler }, { timeoutMs: timeoutMs * 2 }));
  } catch (error) {
    if (!signal.aborted) {
      deps.metrics?.podFailed();
      run.tell({ type: 'Warning', reason: 'FailedCreatePodSandBox', message: `Failed to create pod sandbox: ${rpcErrorText(error)}` });
    }
    throw error;
  }
  try {
    const { status } = await cri.runtime.podSandboxStatus({ podSandboxId: id }, { timeoutMs });
    if (status === null) throw new Error('pod sandbox status is nil');
    const facts = sandboxOf(status, runtimeHandler);
    run.onSandbox(facts);
    return { id, config, ips: facts.ips, runtimeHandler };
  } catch (error) {
    run.tell({ type: 'Warning', reason: 'FailedPodSandBoxStatus', message: `Unable to get pod sandbox status: ${rpcErrorText(error)}` });
    throw error;
  }
}

async function openSandbox(deps: StepDeps, run: RunContext, attempt: number, signal: AbortSignal): Promise<OpenSandbox> {
  const sandbox = run.facts.sandboxes[0];
  if (sandbox === undefined) throw new Error(`pod ${podText(keyOf(run.pod))} has no sandbox to start containers in`);
  return {
    id: sandbox.id,
    config: await configOf(deps, run, attempt, sandbox.runtimeHandler, signal),
    ips: sandbox.ips,
    runtimeHandler: sandbox.runtimeHandler,
  };
}
