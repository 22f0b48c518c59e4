import { OpError } from '../../base/errors.ts';
import type { LinuxContainerResourcesInput } from '../../proto/cri/types.ts';
import type { Container, Pod } from '../../proto/kube/types.ts';
import type { CgroupResources } from '../core/cgroups.ts';
import type { ConfigContext } from '../core/config-context.ts';
import { containerResources } from '../core/container-config.ts';
import { findContainer } from '../core/containers.ts';
import { requirementsOf } from '../core/resize/amounts.ts';
import { planMoves, shrinks } from '../core/resize/moves.ts';
import type { Move, PodCgroupValues } from '../core/resize/moves.ts';
import type { ResizeWork } from '../core/resize/plan.ts';
import { sandboxResources } from '../core/resize/sandbox.ts';
import { rpcErrorText } from './cri.ts';
import type { RunContext, StepDeps } from './step-types.ts';

/**
 * Gives a pod and its running containers the sizes they were allocated. Throws OpError with upstream's words when
 * that is not possible now: then either nothing was done, or what was done is recorded and the rest is planned anew.
 */
export async function resizePod(deps: StepDeps, run: RunContext, sandboxId: string, work: ResizeWork, signal: AbortSignal): Promise<void> {
  const { pod } = run;
  const current = await deps.cgroups.values(pod, signal);
  if (current === null) throw new OpError('failed', 'resize a pod', 'its cgroup cannot be read');
  const wanted = deps.cgroups.limitsOf(pod);
  const plan = planMoves({ work, current, wanted, usageBytes: await usageOf(deps, work, signal) });
  if (!plan.ok) throw new ResizeRefused(plan.message);
  let has = current;
  for (const move of plan.moves) {
    signal.throwIfAborted();
    has = await doMove(deps, pod, sandboxId, move, wanted, has, signal);
  }
}

/** A resize that would do harm now; the message is upstream's. */
export class ResizeRefused extends Error {
  override readonly name = 'ResizeRefused';
}

async function doMove(
  deps: StepDeps,
  pod: Pod,
  sandboxId: string,
  move: Move,
  wanted: CgroupResources,
  has: PodCgroupValues,
  signal: AbortSignal,
): Promise<PodCgroupValues> {
  const { cri, timeoutMs, resizes } = deps;
  switch (move.kind) {
    case 'pod': {
      const part = partOf(move.what, wanted);
      const next: PodCgroupValues = {
        ...has,
        ...(part.cpuShares === null ? {} : { cpuShares: part.cpuShares }),
        ...(part.cpuQuotaUs === null ? {} : { cpuQuotaUs: part.cpuQuotaUs }),
        ...(part.memoryBytes === null ? {} : { memoryBytes: part.memoryBytes }),
      };
      await tellSandbox(deps, pod, sandboxId, next, signal);
      await deps.cgroups.setLimits(pod, part, signal);
      return next;
    }
    case 'container': {
      const container = findContainer(pod.spec, move.resize.name)?.container;
      if (container === undefined) return has;
      const linux = updateOf(deps.context, pod, container, move);
      await cri.runtime.updateContainerResources({ containerId: move.resize.containerId, linux }, { timeoutMs, signal });
      await resizes.actuate(pod, container.name, move.sizes);
      return has;
    }
    case 'pod-level':
      await resizes.actuatePod(pod, move.resource);
      return has;
  }
}

/** What the runtime is asked for: the sizes of this move, everything else as at the container's start. */
function updateOf(context: ConfigContext, pod: Pod, container: Container, move: Extract<Move, { kind: 'container' }>): LinuxContainerResourcesInput {
  const sizes = requirementsOf(move.sizes);
  const others = (list: Record<string, string> | undefined): Record<string, string> =>
    Object.fromEntries(Object.entries(list ?? {}).filter(([name]) => name !== 'cpu' && name !== 'memory'));
  return containerResources(context, pod, {
    ...container,
    resources: {
      limits: { ...others(container.resources?.limits), ...sizes.limits },
      requests: { ...others(container.resources?.requests), ...sizes.requests },
    },
  });
}

const nothing: CgroupResources = { cpuShares: null, cpuQuotaUs: null, cpuPeriodUs: 100_000n, memoryBytes: null, pidsMax: null };

function partOf(what: Extract<Move, { kind: 'pod' }>['what'], wanted: CgroupResources): CgroupResources {
  switch (what) {
    case 'cpu-limit':
      return { ...nothing, cpuQuotaUs: wanted.cpuQuotaUs, cpuPeriodUs: wanted.cpuPeriodUs };
    case 'cpu-request':
      return { ...nothing, cpuShares: wanted.cpuShares };
    case 'memory-limit':
      // What is protected and where it is slowed follow the sizes.
      return { ...nothing, memoryBytes: wanted.memoryBytes, ...(wanted.unified === undefined ? {} : { unified: wanted.unified }) };
  }
}

/** Runtimes that keep a virtual machine for each pod want to know; many do not implement it. */
async function tellSandbox(deps: StepDeps, pod: Pod, sandboxId: string, next: PodCgroupValues, signal: AbortSignal): Promise<void> {
  const { cri, timeoutMs, context } = deps;
  try {
    await cri.runtime.updatePodSandboxResources({ podSandboxId: sandboxId, ...sandboxResources(context, pod, next) }, { timeoutMs, signal });
  } catch (error) {
    if (isUnimplemented(error)) return;
    throw error;
  }
}

function isUnimplemented(error: unknown): boolean {
  return error instanceof OpError && (error.code === 'unsupported' || rpcErrorText(error).includes('not implemented'));
}

/** Memory in use by the containers whose limit shrinks. */
async function usageOf(deps: StepDeps, work: ResizeWork, signal: AbortSignal): Promise<ReadonlyMap<string, bigint>> {
  const { cri, timeoutMs } = deps;
  const usage = new Map<string, bigint>();
  for (const { name, containerId, from, to } of work.memory) {
    if (!shrinks(from, to)) continue;
    const { stats } = await cri.runtime.containerStats({ containerId }, { timeoutMs, signal });
    const bytes = stats?.memory?.usageBytes ?? stats?.memory?.workingSetBytes ?? null;
    if (bytes !== null) usage.set(name, BigInt(bytes.value));
  }
  return usage;
}
