/**
 * Fails the n-th call to the runtime, for n = 1, 2, … until a run is not hit any more: refused, done but with the answer
 * lost, refused from then on for a while; or the agent is killed during the call, which is never done, done, or done
 * when the next agent is at work already. Each time the pod must come to run, end when it is deleted, and leave
 * nothing; and no two containers of one name may ever run at once.
 */
import assert from 'node:assert/strict';
import { test } from 'node:test';
import { RpcError } from '../../cri/errors.ts';
import type { Interceptor } from '../../cri/transport.ts';
import { pods } from '../../base/kubeapi/refs.ts';
import type { Pod } from '../../proto/kube/types.ts';
import { AgentWorld } from './agent-world.ts';

type Mode = 'refused' | 'answer lost' | 'from then on' | 'killed, never done' | 'killed, done' | 'killed, done late';

const manifest = `
metadata: {name: p}
spec:
  terminationGracePeriodSeconds: 5
  initContainers: [{name: i}, {name: s, restartPolicy: Always}]
  containers: [{name: m, lifecycle: {preStop: {exec: {command: [bye]}}}}, {name: other}]
`;

class FaultyWorld extends AgentWorld {
  static hitAt = 0;
  static mode: Mode = 'refused';
  calls = 0;
  hits = 0;
  hitMethod = '';
  cured = false;

  override interceptors(recorder: Interceptor): Interceptor[] {
    const faulty: Interceptor = {
      call: async (call, options, next) => {
        const number = ++this.calls;
        const { hitAt, mode } = FaultyWorld;
        const hit = number === hitAt || (mode === 'from then on' && number > hitAt && !this.cured);
        if (!hit) return next(call, options);
        this.hits += 1;
        this.hitMethod ||= call.method;
        if (mode.startsWith('killed')) {
          // Nobody who could cut it off is left.
          const late = async (): Promise<void> => {
            await this.clock.sleep(mode === 'killed, done' ? 0 : 3000);
            await next(call, { timeoutMs: options.timeoutMs });
          };
          if (mode !== 'killed, never done') late().catch(() => undefined);
          this.kill();
          void this.start();
          return new Promise(() => {});
        }
        if (mode === 'answer lost') await next(call, options);
        throw new RpcError('Unknown', call.method, 'injected failure');
      },
    };
    return [recorder, faulty];
  }

  readonly #attempts = new Map<string, string>();

  /** More than one running container of a name is a defect whatever has failed, and so are two of one number. */
  audit(): void {
    for (const { id, config } of this.runtime.containers.values()) {
      const key = `${config.metadata?.name}#${config.metadata?.attempt}`;
      assert.equal(this.#attempts.get(key) ?? id, id, `two containers are ${key}\n${this.criLines.join('\n')}`);
      this.#attempts.set(key, id);
    }
    const running = [...this.runtime.containers.values()].filter(({ status }) => status.state === 'running').map(({ config }) => config.metadata?.name);
    assert.equal(new Set(running).size, running.length, `twins: ${running.join(' ')}`);
  }
}

/** Second by second until `done`, or as long as it may take. */
async function tick(world: FaultyWorld, seconds: number, done: () => boolean = () => false): Promise<void> {
  for (let second = 0; second < seconds && !done(); second += 1) {
    await world.clock.advance(1000);
    world.audit();
    assert.equal(world.bug, undefined);
  }
}

async function run(hitAt: number, mode: Mode): Promise<boolean> {
  FaultyWorld.hitAt = hitAt;
  FaultyWorld.mode = mode;
  await using world = new FaultyWorld();
  world.runtime.script('i', { exitAfterMs: 1000 });
  await world.start();
  await world.command(['pod', 'add'], manifest);
  const find = (): Pod | undefined => world.api.find<Pod>(pods('default', 'p'));
  const isReady = (): boolean => find()?.status?.conditions?.find((condition) => condition.type === 'Ready')?.status === 'True';
  const where = (): string => `call ${hitAt} (${world.hitMethod}) ${mode}\n${world.criLines.join('\n')}\n${JSON.stringify(find()?.status)}`;
  // What comes late has come when the pod is deleted.
  await tick(world, 8, mode === 'killed, done late' ? undefined : isReady);
  const hitEarly = world.hits > 0;
  world.cured = hitEarly;
  await tick(world, 60, isReady);
  assert.equal(isReady(), true, where());
  await world.command(['delete', 'p'], '');
  const isGone = (): boolean => find() === undefined && world.leftovers().length === 0;
  await tick(world, 8, isGone);
  world.cured = true;
  await tick(world, 60, isGone);
  assert.equal(find(), undefined, where());
  assert.deepEqual(world.leftovers(), [], where());
  return world.hits > 0;
}

for (const mode of ['refused', 'answer lost', 'from then on', 'killed, never done', 'killed, done', 'killed, done late'] satisfies Mode[]) {
  test(`any one call ${mode}`, async () => {
    let hitAt = 1;
    while (await run(hitAt, mode)) hitAt += 1;
    assert.ok(hitAt > 30, `only ${hitAt} calls`);
  });
}
