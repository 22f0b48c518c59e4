import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import { versionText, type RuntimeFacts } from '../core/node-status.ts';
import type { Cri } from './cri.ts';

/** The two CRI calls that tell how the runtime is. */
export type RuntimeStatusCalls = Pick<Cri['runtime'], 'version' | 'status'>;

export interface RuntimeWatchOptions {
  clock: Clock;
  log: Log;
  runtime: RuntimeStatusCalls;
  /** Upstream's sentence when the pods have not been listed for too long; null when all is well. */
  plegUnhealthy: () => string | null;
  onChange: () => void;
}

export interface RuntimeWatch {
  facts(): RuntimeFacts;
  /** Asks now and then every 5 s until `signal` is aborted. */
  run(signal: AbortSignal): Promise<void>;
  /** Asks once. */
  check(signal?: AbortSignal): Promise<void>;
}

const periodMs = 5_000;
/** How old the last good answer may be. */
const silenceMs = 30_000;

type Answer = Awaited<ReturnType<RuntimeStatusCalls['status']>>;
type Condition = NonNullable<Answer['status']>['conditions'][number];

/** Follows the runtime's own status; what it says becomes part of the node's Ready condition. */
export function watchRuntime(options: RuntimeWatchOptions): RuntimeWatch {
  const { clock, log, runtime } = options;
  let version = '';
  let askVersion = true;
  let answer: Answer | undefined;
  let lastGoodMs: number | undefined;
  let lastTroubles = '';

  const troubles = (): string[] => {
    const found: string[] = [];
    if (lastGoodMs === undefined) found.push('container runtime status check may not have completed yet');
    else if (clock.monoMs() - lastGoodMs >= silenceMs) found.push('container runtime is down');
    const pleg = options.plegUnhealthy();
    if (pleg !== null) found.push(pleg.startsWith('PLEG is not healthy') ? pleg : `PLEG is not healthy: ${pleg}`);
    if (answer === undefined) return found;
    const runtimeReady = conditionOf(answer, 'RuntimeReady');
    if (runtimeReady?.status !== true) found.push(`container runtime not ready: ${conditionText(runtimeReady)}`);
    const networkReady = conditionOf(answer, 'NetworkReady');
    if (networkReady?.status !== true) found.push(`container runtime network not ready: ${conditionText(networkReady)}`);
    return found;
  };
  const tell = (): void => {
    const now = troubles().join('; ');
    if (now === lastTroubles) return;
    lastTroubles = now;
    options.onChange();
  };
  const check = async (signal?: AbortSignal): Promise<void> => {
    const call = { timeoutMs: 20_000, ...(signal === undefined ? {} : { signal }) };
    try {
      if (askVersion) {
        const { runtimeName, runtimeVersion } = await runtime.version({ version: '0.1.0' }, call);
        version = `${runtimeName}://${versionText(runtimeVersion)}`;
        askVersion = false;
      }
      answer = await runtime.status({ verbose: false }, call);
      if (conditionOf(answer, 'RuntimeReady')?.status === true) lastGoodMs = clock.monoMs();
    } catch (error) {
      if (signal?.aborted === true) return;
      // The next answer may come from another version: the runtime may have been upgraded meanwhile.
      askVersion = true;
      log.error('Container runtime sanity check failed', { err: messageOf(error) });
    }
    tell();
  };

  return {
    check,
    facts: () => ({
      version,
      handlers: (answer?.runtimeHandlers ?? []).map(({ name, features }) => ({
        name,
        features: { recursiveReadOnlyMounts: features?.recursiveReadOnlyMounts ?? false, userNamespaces: features?.userNamespaces ?? false },
      })),
      supplementalGroupsPolicy: answer?.features?.supplementalGroupsPolicy ?? false,
      abilities: {
        userNamespacesHostNetwork: answer?.features?.userNamespacesHostNetwork ?? false,
        mountOptions: answer?.features?.mountOptions ?? false,
      },
      troubles: troubles(),
    }),
    async run(signal) {
      while (!signal.aborted) {
        await check(signal);
        await clock.sleep(periodMs, signal).catch(() => undefined);
      }
    },
  };
}

function conditionOf(answer: Answer, type: string): Condition | undefined {
  return answer.status?.conditions.find((condition) => condition.type === type);
}

/** As Go prints a RuntimeCondition. */
function conditionText(condition: Condition | undefined): string {
  if (condition === undefined) return '<nil>';
  return `${condition.type}=${condition.status} reason:${condition.reason} message:${condition.message}`;
}
