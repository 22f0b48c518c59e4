import { OpError } from '../../base/errors.ts';
import { UNIT } from './look.ts';
import type { Place } from './place.ts';
import { ReadyWatch } from './ready.ts';
import { until } from './until.ts';

const READY_MS = 120_000;
const STOP_MS = 60_000;
const HEALTHY_ROUNDS = 3;
/** So many ends of a fresh kubelet are no accident; the node would turn NotReady while one waits for more. */
const DEATHS = 3;
const LOOK_MS = 1_000;

/** What the change of a node's kubelet did. */
export interface Changed {
  readonly to: string;
  /** From the stop of one kubelet to the first word of the other at the API server. */
  readonly gapSeconds: number;
  readonly isReadyThroughout: boolean;
  /** Age of the node's Lease when the other kubelet renewed it. */
  readonly leaseGapSeconds: number;
  readonly containers: { readonly kept: number; readonly lost: readonly string[]; readonly added: readonly string[] };
}

/** Restarts the unit as its files now say, and waits for the other kubelet's word, its health and its Lease. */
export async function changeKubelet(place: Place, isOther: (kubeletVersion: string) => boolean): Promise<Changed> {
  const before = await containersOf(place);
  await using watch = new ReadyWatch(place);
  await watch.until(`${place.node} is seen`, ({ ready }) => ready !== '', STOP_MS);
  const leaseBefore = await leaseOf(place);
  await place.inside(['systemctl', 'daemon-reload']);
  const begunAt = place.clock.monoMs();
  await restartKubelet(place);
  const seen = await whileItLives(place, () =>
    watch.until('the other kubelet reports', ({ ready, kubeletVersion }) => ready === 'True' && isOther(kubeletVersion), READY_MS),
  );
  const gapSeconds = (place.clock.monoMs() - begunAt) / 1000;
  const leaseGapSeconds = await renewed(place, leaseBefore);
  await healthy(place);
  const after = await containersOf(place);
  const lost = [...before].filter(([id]) => !after.has(id)).map(([, name]) => name);
  const added = [...after].filter(([id]) => !before.has(id)).map(([, name]) => name);
  const { isReadyThroughout } = watch.seen;
  return { to: seen.kubeletVersion, gapSeconds, isReadyThroughout, leaseGapSeconds, containers: { kept: before.size - lost.length, lost, added } };
}

/** The same without a look at what the pods felt: what counts is that the node is Ready with it. */
export async function settleKubelet(place: Place, isWanted: (kubeletVersion: string) => boolean): Promise<void> {
  const leaseBefore = await leaseOf(place);
  await place.inside(['systemctl', 'daemon-reload']);
  await restartKubelet(place);
  await using watch = new ReadyWatch(place);
  await whileItLives(place, async () => {
    // The Node still says what the one before has said: only what is new counts.
    await renewed(place, leaseBefore);
    await watch.until(`${place.node} is Ready again`, ({ ready, kubeletVersion }) => ready === 'True' && isWanted(kubeletVersion), READY_MS);
  });
  await healthy(place);
}

/** Waits for something of a kubelet that was just started; OpError `failed` with its last words when it ends again and again. */
async function whileItLives<T>(place: Place, wait: () => Promise<T>): Promise<T> {
  const stop = new AbortController();
  const signal = AbortSignal.any([stop.signal, place.engine.signal]);
  const dying = async (): Promise<never> => {
    for (;;) {
      await place.clock.sleep(LOOK_MS, signal);
      const shown = await place.ask(['systemctl', 'show', UNIT, '--property=NRestarts']);
      const deaths = Number(/^NRestarts=(\d+)$/m.exec(shown.stdout)?.[1] ?? 0);
      if (deaths < DEATHS) continue;
      const said = await place.ask(['journalctl', `--unit=${UNIT}`, '--identifier=kubelet', '--lines=1', '--output=cat', '--quiet']);
      throw new OpError(
        'failed',
        `starting the other kubelet of ${place.node}`,
        `it ended ${deaths} times; its last words: ${said.stdout.trim().slice(0, 500)}`,
      );
    }
  };
  try {
    return await Promise.race([wait(), dying()]);
  } finally {
    stop.abort();
  }
}

async function restartKubelet(place: Place): Promise<void> {
  // A unit that died too often in a row is not started again before this.
  await place.ask(['systemctl', 'reset-failed', UNIT]);
  await place.inside(['systemctl', 'restart', UNIT], { timeoutMs: STOP_MS });
}

/** Names of a node's running containers by their ids. */
async function containersOf(place: Place): Promise<Map<string, string>> {
  const list = JSON.parse(await place.inside(['crictl', 'ps', '--state=Running', '--output=json'])) as {
    containers: { id: string; metadata: { name: string }; labels: Record<string, string> }[];
  };
  return new Map(
    list.containers.map(({ id, metadata, labels }) => [
      id,
      `${labels['io.kubernetes.pod.namespace'] ?? ''}/${labels['io.kubernetes.pod.name'] ?? ''}/${metadata.name}`,
    ]),
  );
}

async function leaseOf(place: Place): Promise<number> {
  const time = await place.kubectl(['get', 'lease', '--namespace=kube-node-lease', place.node, '--output=jsonpath={.spec.renewTime}']);
  return Date.parse(time);
}

async function renewed(place: Place, before: number): Promise<number> {
  let now = before;
  await until(place, `the Lease of ${place.node} is renewed`, { timeoutMs: READY_MS, pauseMs: 500 }, async () => {
    now = await leaseOf(place);
    return now > before;
  });
  return (now - before) / 1000;
}

/** A kubelet that starts and dies again and again is Ready in between: it must answer for a while. */
async function healthy(place: Place): Promise<void> {
  let rounds = 0;
  let pid = '';
  await until(place, `the kubelet of ${place.node} stays healthy`, { timeoutMs: READY_MS, pauseMs: 500 }, async () => {
    const { stdout } = await place.ask(['sh', '-c', `curl -fsS -m 2 http://127.0.0.1:10248/healthz && systemctl show ${UNIT} --property=MainPID`]);
    const now = /MainPID=(\d+)/.exec(stdout)?.[1] ?? '';
    rounds = stdout.startsWith('ok') && (pid === '' || now === pid) ? rounds + 1 : 0;
    pid = now;
    return rounds >= HEALTHY_ROUNDS;
  });
}
