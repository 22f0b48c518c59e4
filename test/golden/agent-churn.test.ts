/**
 * Histories of one pod, drawn by a seed: every call to the runtime and the API server takes its time, the agent is killed
 * in the midst of them (and what it asked for is done late, or never), containers and sandboxes die, the runtime goes
 * away, forgets, loses the state of containers and cannot stop them for a while. The auditor of `nodelet churn` may find nothing. Time is the fake clock's, so that a slow machine is
 * one more draw.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { pods } from '../../base/kubeapi/refs.ts';
import { seededRng, type Rng } from '../../base/rng.ts';
import { RpcError } from '../../cri/errors.ts';
import type { FakeContainer } from '../../cri/fake-state.ts';
import type { CallOptions, Interceptor, RuntimeCall, Transport } from '../../cri/transport.ts';
import type { Pod } from '../../proto/kube/types.ts';
import { Auditor } from '../churn/auditor.ts';
import { AgentWorld } from './agent-world.ts';

const never = new Promise<never>(() => {});
const uidOf = ({ config }: FakeContainer): string => config.labels?.['io.kubernetes.pod.uid'] ?? '';
const nameOf = ({ config }: FakeContainer): string => config.metadata?.name ?? '';
const attemptOf = ({ config }: FakeContainer): number => config.metadata?.attempt ?? 0;

class ChurnedWorld extends AgentWorld {
  readonly #draw: Rng;
  readonly #slow: number;
  /** Which process is the living one; an older one hears nothing and changes nothing of its own any more. */
  #process = 0;

  constructor(draw: Rng, slow: number) {
    super();
    this.#draw = draw;
    this.#slow = slow;
  }

  override interceptors(): Interceptor[] {
    return [{ call: (call, options, next) => this.#slowly(call, options, next) }];
  }

  override async start(): Promise<void> {
    const mine = this.#process;
    const api = this.api;
    const slowly = <T>(work: () => Promise<T>): Promise<T> => {
      const turn = async (): Promise<T> => {
        await this.clock.sleep(this.#draw.int(100 * this.#slow));
        if (mine !== this.#process) return never;
        const done = await work();
        await this.clock.sleep(this.#draw.int(100 * this.#slow));
        return mine === this.#process ? done : never;
      };
      return mine === this.#process ? turn() : never;
    };
    const own = new Proxy(api, {
      get: (target, key): unknown => {
        const value: unknown = Reflect.get(target, key, target);
        if (typeof value !== 'function') return value;
        const bound = value.bind(target) as (...given: unknown[]) => Promise<unknown>;
        return key === 'reflect' || key === 'find' ? bound : (...given: unknown[]) => slowly(async () => await bound(...given));
      },
    });
    Object.assign(this, { api: own });
    try {
      await super.start();
    } finally {
      Object.assign(this, { api });
    }
  }

  override kill(): void {
    this.#process += 1;
    super.kill();
  }

  /** A call that takes its time; cut off by its caller or with it, it is done all the same or not. */
  #slowly(call: RuntimeCall, { timeoutMs, signal }: CallOptions, next: Transport['call']): Promise<object> {
    const mine = this.#process;
    const looks = call.method.startsWith('List') || call.method.endsWith('Status');
    const draw = (): number => this.#draw.int((looks ? 250 : 1500) * this.#slow);
    const [beforeMs, afterMs, isDoneAllTheSame] = [draw(), draw(), this.#draw.int(2) === 0];
    const { promise, resolve, reject } = Promise.withResolvers<object>();
    let isCut = false;
    const cut = (status: 'DeadlineExceeded' | 'Canceled'): void => {
      isCut = true;
      if (mine === this.#process) reject(new RpcError(status, call.method, 'cut off'));
    };
    const timer = Number.isFinite(timeoutMs) ? this.clock.after(timeoutMs, () => cut('DeadlineExceeded')) : undefined;
    signal?.addEventListener('abort', () => cut('Canceled'), { once: true });
    const isHeard = (): boolean => !isCut && mine === this.#process;
    const work = async (): Promise<void> => {
      await this.clock.sleep(beforeMs);
      if (!isHeard() && !isDoneAllTheSame) return;
      this.#log(call);
      try {
        const answer = await next(call, { timeoutMs });
        await this.clock.sleep(afterMs);
        if (isHeard()) resolve(answer);
      } catch (error) {
        if (isHeard()) reject(error);
      } finally {
        timer?.[Symbol.dispose]();
      }
    };
    void work();
    return promise;
  }

  /** The runtime opens a container's log when it starts it, not when it makes it. */
  #log({ method, request }: RuntimeCall): void {
    const container = this.runtime.containers.get((request as { containerId?: string }).containerId ?? '');
    if (method !== 'StartContainer' || container?.status.state !== 'created') return;
    if (this.runtime.sandboxes.get(container.sandboxId)?.ready !== true) return;
    const dir = container.logPath.slice(0, container.logPath.lastIndexOf('/'));
    this.files.attempts.set(dir, Math.max(this.files.attempts.get(dir) ?? 0, attemptOf(container) + 1));
  }
}

const lives: Readonly<Record<string, { exitAfterMs: number; exitCode: number }>> = {
  done: { exitAfterMs: 500, exitCode: 0 },
  fails: { exitAfterMs: 1500, exitCode: 1 },
  crashes: { exitAfterMs: 3000, exitCode: 3 },
};
const restartAllOn3 = { action: 'RestartAllContainers', exitCodes: { operator: 'In', values: [3] } };
const kinds: readonly Pod['spec'][] = [
  { containers: [{ name: 'm' }] },
  { containers: [{ name: 'm' }, { name: 'crashes' }] },
  { initContainers: [{ name: 'done' }, { name: 'fails' }], containers: [{ name: 'm' }] },
  { initContainers: [{ name: 'done' }], containers: [{ name: 'm' }, { name: 'b' }] },
  { initContainers: [{ name: 's', restartPolicy: 'Always' }], containers: [{ name: 'm' }] },
  { restartPolicy: 'Never', containers: [{ name: 'fails' }, { name: 'crashes' }] },
  { restartPolicy: 'OnFailure', containers: [{ name: 'fails' }] },
  { restartPolicy: 'Never', containers: [{ name: 'm' }, { name: 'crashes', restartPolicy: 'Never', restartPolicyRules: [restartAllOn3] }] },
];

async function history(seed: number, slow: number): Promise<string[]> {
  const rng = seededRng(seed);
  const world = new ChurnedWorld(rng, slow);
  for (const [name, life] of Object.entries(lives)) world.runtime.script(name, life);
  const auditor = new Auditor(2 * slow);
  const stop = new AbortController();
  const nowMs = (): number => world.clock.nowMs();
  await world.start();
  const told = {
    replaced: (items: Pod[]) => auditor.list(items, nowMs()),
    changed: (type: 'ADDED' | 'MODIFIED' | 'DELETED', pod: Pod) => auditor.pod(type, pod, nowMs()),
  };
  void world.api.reflect<Pod>(pods('default'), {}, told, stop.signal);
  await world.command(['pod', 'add'], JSON.stringify({ metadata: { name: 'p' }, spec: { terminationGracePeriodSeconds: 2, ...rng.pick(kinds) } }));
  for (let quarter = 0; quarter < 4 * 90; quarter += 1) {
    await world.clock.advance(250);
    audit(world, auditor);
    if (rng.int(16) === 0) await hurt(world, auditor, rng);
  }
  stop.abort();
  world.kill();
  assert.equal(world.bug, undefined, `seed ${seed}`);
  return auditor.violations.map(({ rule, what }) => `seed ${seed}, slow ${slow}: ${rule}: ${what}`);
}

function audit({ runtime, clock }: ChurnedWorld, auditor: Auditor): void {
  const containers = [...runtime.containers.values()].map((each) => {
    const { id, status, createdAtNs } = each;
    // One whose state is not known may run.
    const running = status.state === 'running' || status.state === 'unknown';
    const ran = running || (status.state === 'exited' && status.startedAtNs > 0n);
    return { id, uid: uidOf(each), name: nameOf(each), attempt: attemptOf(each), running, ran, createdAtMs: Number(createdAtNs / 1_000_000n) };
  });
  const sandboxes = [...runtime.sandboxes.values()].map(({ id, config, ready }) => ({ id, uid: config.metadata?.uid ?? '', ready }));
  auditor.listing({ fromMs: clock.nowMs(), toMs: clock.nowMs(), containers, sandboxes });
}

async function hurt(world: ChurnedWorld, auditor: Auditor, rng: Rng): Promise<void> {
  const { runtime, clock } = world;
  const all = [...runtime.containers.values()];
  const running = all.filter(({ status }) => status.state === 'running');
  const dead = all.filter(({ status }) => status.state !== 'running');
  const sandbox = [...runtime.sandboxes.values()].find(({ ready }) => ready);
  const deed = rng.pick(['exit', 'exit', 'exit', 'kill', 'kill', 'sandbox', 'away', 'take', 'unknown', 'stuck']);
  if (deed === 'exit' && running.length > 0) runtime.exit(rng.pick(running), 137);
  if (deed === 'sandbox' && sandbox !== undefined) await runtime.stopSandbox(sandbox);
  if (deed === 'unknown' && running.length > 0) {
    const one = rng.pick(running);
    if (one.status.state === 'running') one.status = { state: 'unknown', startedAtNs: one.status.startedAtNs };
  }
  if (deed === 'stuck') await world.command(['fail', 'StopContainer', `${1 + rng.int(6)}*error(unknown: stuck)->off`], '');
  if (deed === 'kill') {
    world.kill();
    await clock.advance(rng.int(3000));
    await world.start();
  }
  if (deed === 'away') {
    runtime.goAway();
    await clock.advance(rng.int(5000));
    runtime.back();
  }
  if (deed !== 'take' || dead.length === 0) return;
  const taken = rng.pick(dead);
  auditor.taken({ id: taken.id, uid: uidOf(taken), name: nameOf(taken) });
  runtime.removeContainerNow(taken);
}

for (const slow of [1, 3]) {
  test(`fifty histories of a pod that is hurt again and again, calls ${slow} times as slow`, async () => {
    const found: string[] = [];
    for (let seed = 1; seed <= 50; seed += 1) found.push(...(await history(seed, slow)));
    assert.deepEqual(found, []);
  });
}
