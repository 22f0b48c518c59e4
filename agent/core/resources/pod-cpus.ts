import type { Pod } from '../../../proto/kube/types.ts';
import { keyOf } from '../containers.ts';
import { alignmentProblem, availableCpus, sharedCpusProblem, takeCpus, takeNear } from './cpu-static.ts';
import type { CpuOutcome, CpuState, StaticCpuRules } from './cpu-static.ts';
import { difference, union } from './cpuset.ts';
import type { CpuSet } from './cpuset.ts';
import type { NumaMask } from './numa-mask.ts';
import { containersOf, exclusiveCpus, exclusivePodCpus, isRegularInit } from './requests.ts';

/**
 * Gives a pod the CPUs that it asks for as a whole, and of them to each container its own (KEP-5526). Init containers
 * that end before the next have all that sidecars before them left; who owns none shares what nobody owns.
 */
export function givePodCpus(rules: StaticCpuRules, state: CpuState, pod: Pod, nodes: NumaMask | null): CpuOutcome {
  const count = exclusivePodCpus(pod, true);
  const { uid } = keyOf(pod);
  if (count === 0 || state.pods?.has(uid) === true) return { ok: true, state };
  const empty = sharedCpusProblem(pod);
  if (empty !== null) return { ok: false, refusal: { kind: 'shared-pool', message: empty } };
  const misaligned = alignmentProblem(rules, state, count);
  if (misaligned !== null) return { ok: false, refusal: { kind: 'smt', message: misaligned } };
  const whole = takeNear(rules, availableCpus(rules, state), count, nodes);
  if (!whole.ok) return { ok: false, refusal: { kind: 'unexpected', message: whole.message } };
  const own = new Map<string, CpuSet>();
  let pool = whole.cpus;
  for (const container of containersOf(pod)) {
    const wanted = exclusiveCpus(pod, container, true);
    const isInit = isRegularInit(pod, container.name);
    if (wanted === 0) {
      if (isInit) own.set(container.name, pool);
      continue;
    }
    const taken = takeCpus(rules, pool, wanted);
    if (!taken.ok) return { ok: false, refusal: { kind: 'unexpected', message: taken.message } };
    own.set(container.name, taken.cpus);
    if (!isInit) pool = difference(pool, taken.cpus);
  }
  const containers = new Map(containersOf(pod).map(({ name }): [string, CpuSet] => [name, own.get(name) ?? pool]));
  return {
    ok: true,
    state: {
      shared: difference(state.shared, whole.cpus),
      given: new Map([...state.given, [uid, containers]]),
      pods: new Map([...(state.pods ?? []), [uid, union(whole.cpus)]]),
    },
  };
}
