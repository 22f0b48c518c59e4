import { backoffRules } from '../../agent/core/backoff.ts';
import { defaultMaskedPaths } from '../../agent/core/security.ts';
import type { Admission } from '../../agent/admission.ts';
import type { Wish } from '../../agent/core/wishes.ts';
import { plainAdmission } from './agent-admission.ts';
import { timeMs } from '../../base/time.ts';
import { everybodyMay, FakeCgroups, FakeDns, FakeEvents, FakeNode, FakePodFiles, FakeProbes, FakeSources, FakeVolumes } from '../../agent/fake.ts';
import { createEnvironment } from '../../agent/io/environment.ts';
import { createFactsReader } from '../../agent/io/facts.ts';
import { createHooks } from '../../agent/io/hooks.ts';
import { AllocationFile } from '../../agent/io/allocation-file.ts';
import type { TextFile } from '../../agent/io/allocation-file.ts';
import { createHeldPods } from '../../agent/io/held-pods.ts';
import { createImagePuller } from '../../agent/io/images.ts';
import { createApiPods } from '../../agent/io/pods-api.ts';
import { createStatusApi } from '../../agent/io/status-api.ts';
import type { StepDeps } from '../../agent/io/step-types.ts';
import { PodMetrics } from '../../agent/io/pod-metrics.ts';
import { createPodLines } from '../../agent/io/pod-lines.ts';
import { createLoop } from '../../agent/loop.ts';
import type { Loop } from '../../agent/loop.ts';
import { keyOf } from '../../agent/core/containers.ts';
import { Resizes } from '../../agent/resizes.ts';
import { createFakeClock } from '../../base/fake-clock.ts';
import type { FakeClock } from '../../base/fake-clock.ts';
import { FakeKubeApi } from '../../base/kubeapi/fake.ts';
import { pods } from '../../base/kubeapi/refs.ts';
import { silentLog } from '../../base/log.ts';
import { seededRng } from '../../base/rng.ts';
import { readYaml } from '../../base/yaml.ts';
import type { ConfigMap, EphemeralContainer, Pod } from '../../proto/kube/types.ts';
import { createCriClient } from '../../cri/client.ts';
import { failpoints } from '../../cri/failpoint.ts';
import type { Failpoints } from '../../cri/failpoint.ts';
import { FakeRuntime } from '../../cri/fake.ts';
import type { ContainerScript, ExecScript } from '../../cri/fake-state.ts';
import { CallRenderer } from '../../cri/render.ts';
import { compose } from '../../cri/transport.ts';
import type { Interceptor } from '../../cri/transport.ts';
import type { GoldenWorld } from '../golden.ts';
import { fullPod, milliseconds, sizesText, stateWords, statusText } from './agent-words.ts';

const timeoutMs = 120_000;

/** Calls that only look. */
const quiet = new Set(['ListPodSandbox', 'ListContainers', 'PodSandboxStatus', 'ContainerStatus', 'ImageStatus', 'Version', 'Status', 'ContainerStats']);

/** The real loop, workers, planner, puller and status writer between a fake runtime and a fake API server. */
export class AgentWorld implements GoldenWorld {
  readonly clock: FakeClock = createFakeClock();
  readonly rng = seededRng(1);
  readonly api: FakeKubeApi;
  readonly runtime: FakeRuntime;
  readonly failpoints: Failpoints;
  readonly cri;
  /** Calls that change something, each with its moment. */
  readonly criLines: string[] = [];
  /** How often each method was called. */
  readonly counts = new Map<string, number>();
  readonly volumes = new FakeVolumes();
  readonly sources = new FakeSources();
  readonly cgroups = new FakeCgroups();
  readonly events = new FakeEvents();
  readonly node = new FakeNode();
  readonly files = new FakePodFiles();
  /** Pods of this node's own files. */
  readonly statics = createHeldPods();
  /** The files that outlive an agent. */
  readonly disk = new Map<string, string>();
  probes = new FakeProbes();
  readonly worked: string[] = [];
  readonly lives = new PodMetrics(this.clock);
  readonly #metrics = { lives: this.lives, podStarted() {}, podWorked: (operation: string) => void this.worked.push(operation) };
  userNamespaces: Pick<StepDeps, 'userNamespaces'> = {};
  crashLoopMaxMs: number | undefined;
  serial = true;
  maxParallel = 0;
  startsAtOnce = 4;
  wishes: readonly Wish[] = [];
  #agent: { stop: AbortController; loop: Loop; done: Promise<unknown> } | undefined;
  readonly #startMs: number;
  readonly #seen = { events: 0, cri: 0, patches: 0 };
  /** Images that a script has said more about than that they are there. */
  readonly #declared = new Set<string>();
  bug: unknown;

  constructor() {
    this.#startMs = this.clock.nowMs();
    this.statics.replace(new Map());
    this.api = new FakeKubeApi({ clock: this.clock, rng: this.rng });
    this.runtime = new FakeRuntime({ clock: this.clock });
    this.failpoints = failpoints(this.clock);
    const recorder = new CallRenderer().recorder(
      (line) => this.criLines.push(`${this.stamp()} ${line.replaceAll('default/', '')}`),
      (method) => !quiet.has(method),
    );
    this.cgroups.onChange = (line) => this.criLines.push(`${this.stamp()} ${line}`);
    this.cri = createCriClient(compose(this.runtime, ...this.interceptors(recorder)));
  }

  /** What stands between the agent and the runtime; the simulation adds its own. */
  interceptors(recorder: Interceptor): Interceptor[] {
    const counter: Interceptor = {
      call: (call, options, next) => {
        this.counts.set(call.method, (this.counts.get(call.method) ?? 0) + 1);
        return next(call, options);
      },
    };
    return [counter, recorder, this.failpoints];
  }

  #file(name: string): TextFile {
    return {
      read: async () => this.disk.get(name) ?? '',
      write: async (text) => void this.disk.set(name, text),
    };
  }

  stamp(): string {
    return `${((this.clock.nowMs() - this.#startMs) / 1000).toFixed(1)}s`;
  }

  get loop(): Loop {
    return this.#agent!.loop;
  }

  /** A new agent process: nothing of the last one is left but what runtime, disk and API server hold. */
  async start(): Promise<void> {
    const { clock, rng, api, cri, volumes, sources, cgroups, events, node, files } = this;
    const log = silentLog;
    this.probes = new FakeProbes();
    const probes = this.probes;
    const statuses = createStatusApi({ clock, rng, log, api });
    const apiPods = createApiPods({ api, nodeName: 'node-1', log, clock });
    const rules = backoffRules(this.crashLoopMaxMs);
    const images = createImagePuller({
      cri,
      clock,
      rules: backoffRules(),
      records: everybodyMay,
      credentials: { forImage: async () => ({ auths: [], missing: [] }) },
      serial: this.serial,
      maxParallel: this.maxParallel,
      timeoutMs,
    });
    const stop = new AbortController();
    const admission: Admission = plainAdmission({ clock, log, events, node, signal: stop.signal, loop: () => loop, resizes: () => resizes });
    const resizes: Resizes = new Resizes({
      clock,
      log,
      allocated: await AllocationFile.open(this.#file('allocated'), 'allocated_pods_state'),
      actuated: await AllocationFile.open(this.#file('actuated'), 'actuated_pods_state'),
      swaps: false,
      synced: () => loop.synced(),
      podOf: (uid) => loop.byUid(uid),
      holds: (uid) => loop.holdsResources(uid),
      isKnown: (uid) => loop.isKnown(uid),
      kick: (uid) => loop.kick(uid),
      tell: (pod, event) => events.event({ apiVersion: 'v1', kind: 'Pod', ...keyOf(pod) }, event.type, event.reason, event.message),
      admit: (pod) => admission.resize(pod),
    });
    const steps: StepDeps = {
      cri,
      clock,
      log,
      volumes,
      cgroups,
      images,
      files,
      node,
      environment: createEnvironment({ sources, node, rootDir: '/var/lib/kubelet', sys: { readBeneath: async () => new Uint8Array() } }),
      hooks: createHooks({ cri, clock, tell: () => {} }),
      dns: new FakeDns(),
      clusterDomain: 'cluster.local',
      containersLogDir: '/var/log/containers',
      timeoutMs,
      runtimeClasses: { handlerOf: async () => '' },
      metrics: this.lives,
      ...this.userNamespaces,
      resizes,
      lines: createPodLines(clock, this.startsAtOnce),
      context: {
        podLogsDir: '/var/log/pods',
        rootDir: '/var/lib/kubelet',
        cpuCFSQuota: true,
        cpuCFSQuotaPeriodUs: 100_000,
        seccompDefault: false,
        cgroupVersion: 2,
        singleProcessOOMKill: null,
        memoryCapacityBytes: 8n << 30n,
        hugePageSizes: [],
        swapControllerAvailable: false,
        hasSelinux: false,
        maskedPaths: defaultMaskedPaths,
        nodeName: 'node-1',
      },
    };
    const loop: Loop = createLoop({
      clock,
      log,
      sources: [this.statics, apiPods],
      onBug: (error) => (this.bug = error),
      metrics: this.#metrics,
      worker: {
        clock,
        log,
        steps,
        volumes,
        sources,
        cgroups,
        probes,
        statuses,
        events,
        node,
        files,
        rules,
        facts: createFactsReader({ cri, lastWords: { of: async () => '' }, timeoutMs }),
        runtimeName: () => 'fake',
        recursiveReadOnly: () => false,
        networkProblem: () => null,
        syncFrequencyMs: 60_000,
        wishes: new Set(this.wishes),
        resizes,
        admit: (pod) => admission.admit(pod),
        podLogDir: ({ namespace, name, uid }) => `/var/log/pods/${namespace}_${name}_${uid}`,
        containersLogDir: '/var/log/containers',
      },
    });
    const done = Promise.all([apiPods.run(stop.signal), loop.run(stop.signal)]).then(() => statuses[Symbol.asyncDispose]());
    this.#agent = { stop, loop, done };
    await clock.settle();
  }

  async stop(): Promise<void> {
    const agent = this.#agent;
    this.#agent = undefined;
    agent?.stop.abort();
    // Calls that were under way end with the process.
    await this.clock.advance(1);
    await agent?.done;
  }

  /** Ends the process as SIGKILL does: nobody waits for what it has under way. */
  kill(): void {
    this.#agent?.stop.abort();
    this.#agent = undefined;
  }

  async command(words: readonly string[], input: string): Promise<string> {
    const answer = await this.#command(words, input);
    if (this.bug !== undefined) throw this.bug;
    return answer;
  }

  async #command(words: readonly string[], text: string): Promise<string> {
    const input = text === '' ? undefined : await readYaml(text, 'golden script');
    const [verb = '', ...rest] = words;
    switch (`${verb} ${rest[0] ?? ''}`) {
      case 'pod add':
        return this.#add(input as Pod);
      case 'pod status': {
        const pod = this.#pod(rest[1]!);
        this.api.put(pods('default', rest[1]), { ...pod, status: { ...pod.status, ...(input as object) } });
        return this.#settle();
      }
      case 'configmap add': {
        const map = input as ConfigMap;
        this.sources.configMaps.set(`${map.metadata.namespace}/${map.metadata.name}`, map);
        this.sources.changed();
        return this.#settle();
      }
      case 'api away':
        this.api.goAway();
        return '';
      case 'api back':
        this.api.back();
        return '';
      case 'runtime away':
        this.runtime.goAway();
        return '';
      case 'runtime back':
        this.runtime.back();
        return '';
      case 'wall +1h':
      case 'wall -1h':
        this.clock.jumpWall(rest[0] === '+1h' ? 3_600_000 : -3_600_000);
        return '';
      case 'agent stop':
        await this.stop();
        return '';
      case 'agent start':
        await this.start();
        return '';
      case 'agent set':
        Object.assign(this, input);
        return '';
    }
    switch (verb) {
      case 'tick':
        await this.clock.advance(milliseconds(rest[0]!));
        return '';
      case 'cri': {
        const from = this.#seen.cri;
        this.#seen.cri = this.criLines.length;
        return this.criLines.slice(from).join('\n');
      }
      case 'calls': {
        const lines = [...this.counts].map(([method, count]) => `${method} ${count}`).toSorted();
        this.counts.clear();
        return lines.join('\n');
      }
      case 'events': {
        const from = this.#seen.events;
        this.#seen.events = this.events.lines.length;
        return this.events.lines.slice(from).join('\n');
      }
      case 'patches': {
        const all = this.patches();
        const from = this.#seen.patches;
        this.#seen.patches = all.length;
        return all.slice(from).join('\n');
      }
      case 'status':
        return statusText(this.api.find<Pod>(pods('default', rest[0])));
      case 'delete': {
        const grace = rest[1] === undefined ? undefined : Number(rest[1]);
        const pod = this.#pod(rest[0]!);
        await this.api.delete(pods('default', rest[0]), { gracePeriodSeconds: grace ?? pod.spec.terminationGracePeriodSeconds ?? 30 });
        return this.#settle();
      }
      case 'remove':
        this.api.remove(pods('default', rest[0]));
        return this.#settle();
      case 'image':
        this.#declared.add((input as { name: string }).name);
        this.runtime.images.add(input as { name: string });
        return '';
      case 'script':
        this.runtime.script(rest[0]!, ...(input as ContainerScript[]));
        return '';
      case 'exit':
        this.runtime.exit(this.runtime.container(rest[0]!)!, Number(rest[1]), rest[2]);
        return this.#settle();
      case 'lose':
        // As somebody with a tool of the runtime's own: the container is gone without a trace.
        this.runtime.containers.delete(this.runtime.container(rest[0]!)!.id);
        return '';
      case 'unknown': {
        const container = this.runtime.container(rest[0]!)!;
        container.status = {
          state: 'unknown',
          startedAtNs: container.status.state === 'created' ? 0n : container.status.startedAtNs,
        } as typeof container.status;
        return '';
      }
      case 'kill-sandbox':
        this.runtime.killSandbox([...this.runtime.sandboxes.values()].findLast((sandbox) => sandbox.config.metadata?.name === rest[0])!);
        return '';
      case 'fail':
        this.failpoints.set(rest[0]!, rest[1] ?? '');
        return '';
      case 'probe': {
        const uid = this.#pod(rest[0]!).metadata.uid!;
        this.probes.set(uid, rest[1]!, rest[2] as 'readiness', rest[3] as 'success');
        return this.#settle();
      }
      case 'condition': {
        const pod = this.#pod(rest[0]!);
        const conditions = (pod.status?.conditions ?? []).filter((condition) => condition.type !== rest[1]);
        this.api.put(pods('default', rest[0]), { ...pod, status: { ...pod.status, conditions: [...conditions, { type: rest[1]!, status: rest[2]! }] } });
        return this.#settle();
      }
      case 'ready-message':
        return this.#pod(rest[0]!).status?.conditions?.find((condition) => condition.type === 'Ready')?.message ?? '';
      case 'own-writes': {
        // Types of conditions that the agent has ever named.
        const named = this.api.calls
          .filter((call) => call.verb === 'patch')
          .flatMap((call) => ((call.body as Pod).status?.conditions ?? []).map((condition) => condition.type));
        return [...new Set(named)].toSorted().join(' ');
      }
      case 'debug': {
        const pod = this.#pod(rest[0]!);
        pod.spec.ephemeralContainers = [...(pod.spec.ephemeralContainers ?? []), input as EphemeralContainer];
        this.api.put(pods('default', rest[0]), pod);
        return this.#settle();
      }
      case 'set-image': {
        const pod = this.#pod(rest[0]!);
        pod.spec.containers.find((container) => container.name === rest[1])!.image = rest[2]!;
        this.api.put(pods('default', rest[0]), pod);
        return this.#settle();
      }
      case 'resize': {
        const pod = this.#pod(rest[0]!);
        const asked = input as { containers?: Pod['spec']['containers']; initContainers?: Pod['spec']['containers']; resources?: object };
        for (const each of [...(asked.containers ?? []), ...(asked.initContainers ?? [])]) {
          const container = [...pod.spec.containers, ...(pod.spec.initContainers ?? [])].find(({ name }) => name === each.name)!;
          container.resources = each.resources!;
        }
        if (asked.resources !== undefined) pod.spec.resources = asked.resources;
        pod.metadata.generation = (pod.metadata.generation ?? 0) + 1;
        this.api.put(pods('default', rest[0]), pod);
        return this.#settle();
      }
      case 'sizes':
        return sizesText(this.#pod(rest[0]!));
      case 'usage':
        this.cgroups.usageBytes.set(rest[0]!, BigInt(rest[1]!));
        return '';
      case 'node':
        this.node.current = {
          ...this.node.current,
          status: { ...this.node.current.status, allocatable: { ...this.node.current.status?.allocatable, ...(input as object) } },
        };
        return '';
      case 'evict':
        void this.loop.evict(this.#pod(rest[0]!).metadata.uid!, input as Parameters<Loop['evict']>[1], new AbortController().signal);
        return this.#settle();
      case 'exec-answers': {
        const answer = input as ExecScript;
        this.runtime.onExec = () => answer;
        return '';
      }
      case 'leftovers':
        return this.leftovers().join('\n');
      default:
        throw new Error(`no such command: ${words.join(' ')}`);
    }
  }

  /** What is left of pods in the runtime and on the node. */
  leftovers(): string[] {
    return [
      ...[...this.runtime.sandboxes.values()].map((sandbox) => `sandbox of ${sandbox.config.metadata?.name}`),
      ...[...this.runtime.containers.values()].map((container) => `container ${container.config.metadata?.name}`),
      ...[...this.volumes.dirs].map((uid) => `volumes of ${uid}`),
      ...[...this.cgroups.pods].map((uid) => `cgroup of ${uid}`),
      ...[...this.sources.held].map((uid) => `sources of ${uid}`),
      ...[...this.files.dirs].map((dir) => `log directory ${dir}`),
    ];
  }

  /** One line a status write: what of it a person wants to know. */
  patches(): string[] {
    return this.api.calls
      .filter((call) => call.verb === 'patch' && call.path.endsWith('/status'))
      .map((call) => {
        const status = (call.body as Pod).status ?? {};
        const conditions = (status.conditions ?? [])
          .filter((condition) => condition.status !== undefined)
          .map((condition) => `${condition.type}=${condition.status}`);
        const containers = [...(status.initContainerStatuses ?? []), ...(status.containerStatuses ?? [])].map(
          (each) => `${each.name}:${stateWords(each.state)}${each.ready ? ',ready' : ''}`,
        );
        return [call.path.split('/').at(-2), status.phase ?? '', ...conditions, ...containers].filter((part) => part !== '').join(' ');
      });
  }

  async #add(short: Pod): Promise<string> {
    const pod = fullPod(short, this.rng.uuid());
    for (const { image = '' } of [...pod.spec.containers, ...(pod.spec.initContainers ?? [])]) {
      if (!image.startsWith('missing') && !this.#declared.has(image)) this.runtime.images.add({ name: image, present: true });
    }
    this.api.put(pods('default', pod.metadata.name), pod);
    return this.#settle();
  }

  #pod(name: string): Pod {
    const pod = this.api.find<Pod>(pods('default', name));
    if (pod === undefined) throw new Error(`no pod ${name}`);
    return pod;
  }

  async #settle(): Promise<string> {
    await this.clock.settle();
    return '';
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.stop();
  }

  /** Wall-clock seconds since the start of the world, of an API time. */
  sinceStart(time: string | undefined): number {
    return (timeMs(time) - this.#startMs) / 1000;
  }
}

export async function makeAgentWorld(): Promise<AgentWorld> {
  const world = new AgentWorld();
  await world.start();
  return world;
}
