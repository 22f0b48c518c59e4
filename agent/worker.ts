import { hasCode, isRetriable, messageOf } from '../base/errors.ts';
import { BugError } from '../base/assert.ts';
import type { Log } from '../base/log.ts';
import type { Pod, PodStatus } from '../proto/kube/types.ts';
import { admitPod } from './admit-pod.ts';
import { grow, rebuiltOf } from './core/backoff.ts';
import type { Backoff } from './core/backoff.ts';
import { isUp, statesText, withoutMade } from './core/containers.ts';
import { orphanPod } from './core/orphan-pod.ts';
import { advance, deadlineOf, deadlineVerdict, endOf, endsUnprobed, graceLeftSeconds, mayRun, mayStart, shorten, wasPutBack } from './core/phase.ts';
import type { Eviction, PodEnd, PodLife } from './core/phase.ts';
import { planRun, stopPod } from './core/plan.ts';
import { Retries } from './core/retries.ts';
import { planText } from './core/step.ts';
import type { Plan, Step } from './core/step.ts';
import { lastStatus, rejectedStatus } from './core/status.ts';
import type { Verdict } from './core/status.ts';
import { isStatic } from './core/static-pod.ts';
import { isTerminalPhase } from './core/status-phase.ts';
import type { EventText, PodFacts, PodKey, PodView, SandboxFacts } from './core/types.ts';
import { whileRefreshed } from './io/refresh-ending.ts';
import { removeRemains } from './io/remains.ts';
import { attachLimitReached } from './io/volumes.ts';
import { runSteps } from './io/steps.ts';
import type { RunContext, StepsOutcome } from './io/step-types.ts';
import { Teller } from './teller.ts';
import type { SyncResult, WorkerDeps } from './worker-deps.ts';

const behindAll = 1e9;
const nodeWaitMs = 500;
const networkWaitMs = 1000;

/**
 * One pod, one thing at a time: read, plan, do, tell. `sync` is never called twice at once; what arrives meanwhile
 * makes the loop call it again. All that it keeps can be rebuilt from the runtime and the API server.
 */
export class PodWorker {
  readonly key: PodKey;
  readonly #deps: WorkerDeps;
  readonly #place: number;
  readonly #log: Log;
  readonly #teller: Teller;
  #life: PodLife = { phase: 'waiting' };
  /** The newest object; kept when the source has dropped it, for how to end it. */
  #known: Pod | undefined;
  #wanted = false;
  /** The source has dropped a static pod: it ends, even when its file is back before anybody has looked. */
  #dropped = false;
  #facts: PodFacts | undefined;
  #eviction: Eviction | null = null;
  #adopted = false;
  #hasStrays = false;
  /** By container name; without a prototype, for `constructor` is a name too. */
  readonly #backoffs = Object.create(null) as Record<string, Backoff | undefined>;
  readonly #preStopBegun = new Set<string>();
  readonly #retries: Retries;
  /** An earlier process may have left volumes that are to be asked for again: the first look does so, as upstream does. */
  #refreshedAtMs = Number.NEGATIVE_INFINITY;
  /** Cuts off what is being done, when it must not go on: an end, or a shorter one. */
  #doing: AbortController | null = null;
  readonly #stopped = Promise.withResolvers<void>();

  /** @param place the pod's place in the order in which pods came */
  constructor(deps: WorkerDeps, key: PodKey, place: number) {
    this.#deps = deps;
    this.key = key;
    this.#place = place;
    this.#log = deps.log;
    this.#teller = new Teller(deps, key);
    this.#retries = new Retries(key.uid);
  }

  get life(): PodLife {
    return this.#life;
  }

  /** What the last own look saw. */
  get facts(): PodFacts | undefined {
    return this.#facts;
  }

  get pod(): Pod | undefined {
    return this.#known;
  }

  /** The newest wish, before the sync that follows it; ends work that must not go on. */
  wish(view: PodView | undefined): void {
    this.#wanted = view !== undefined;
    if (view !== undefined) this.#known = view.pod;
    else this.#dropped ||= this.#known !== undefined && isStatic(this.#known);
    if (this.#doing === null) return;
    const end = this.#endNow();
    if (end === null) return;
    const isShorter = this.#life.phase === 'terminating' && shorten(this.#life.end, end) !== this.#life.end;
    // Without the wish a call that waits goes on with the first grace, as upstream's does.
    if (mayStart(this.#life) || (isShorter && this.#deps.wishes.has('ShortenGraceAtSecondDelete'))) this.#doing.abort();
  }

  /** The status on the API server has changed: when somebody else wrote it, what was told is written again. */
  reconcile(view: PodView | undefined): void {
    if (view === undefined) return;
    this.#known = view.pod;
    const told = this.#deps.statuses.current(this.key.uid);
    if (told !== undefined && this.#life.phase !== 'gone') this.#deps.statuses.set(view.pod, told);
  }

  /** Ends the pod for a reason of the node's own; resolves when nothing of it runs. */
  evict(eviction: Eviction): Promise<void> {
    this.#eviction ??= eviction;
    if (this.#doing !== null && mayStart(this.#life)) this.#doing.abort();
    return this.#stopped.promise;
  }

  /** Tells what is known now without waiting for what is being done (readiness during a long stop or pull). */
  retell(): void {
    if (this.#doing === null || this.#facts === undefined || this.#known === undefined || !this.#wanted) return;
    this.#tell(this.#known, this.#facts, false);
  }

  /** Looks and tells while a start takes long (a slow pull beside containers that run already). */
  async observe(): Promise<void> {
    const doing = this.#doing;
    const pod = this.#known;
    if (doing === null || pod === undefined || !this.#wanted || !mayStart(this.#life)) return;
    try {
      const facts = withoutMade(await this.#deps.facts.read(this.key.uid, doing.signal), this.#facts);
      if (this.#doing !== doing) return;
      this.#facts = facts;
      this.#teller.probe(pod, facts, false);
      this.#tell(pod, facts, false);
    } catch (error) {
      if (error instanceof BugError) throw error;
      // The work itself will meet the same trouble and say so.
    }
  }

  /** Whether a listing of the runtime shows nothing that the last own look did not. */
  knows(listed: PodFacts | undefined): boolean {
    return this.#facts !== undefined && statesText(this.#facts) === (listed === undefined ? '' : statesText(listed));
  }

  /** A listing of the runtime: what a process asked for that was killed meanwhile may come up when the pod has ended. */
  listed(facts: PodFacts | undefined): void {
    if (this.#life.phase === 'terminated' && facts !== undefined && isUp(facts)) this.#hasStrays = true;
  }

  async sync(signal: AbortSignal): Promise<SyncResult> {
    const doing = new AbortController();
    this.#doing = doing;
    const stop = AbortSignal.any([signal, doing.signal]);
    try {
      return await this.#sync(stop, signal);
    } catch (error) {
      if (error instanceof BugError) throw error;
      if (signal.aborted || doing.signal.aborted) return { again: signal.aborted ? null : 'now', gone: false };
      return this.#skip(error, this.#retries.pauseMs());
    } finally {
      this.#doing = null;
    }
  }

  async #sync(stop: AbortSignal, signal: AbortSignal): Promise<SyncResult> {
    if (this.#life.phase === 'terminated') {
      if (this.#hasStrays) await this.#stopStrays(this.#life, signal);
      return this.#terminated(signal);
    }
    const facts = await this.#deps.facts.read(this.key.uid, stop);
    this.#facts = facts;
    this.#adopt(facts);
    const end = this.#endNow();
    if (end?.cause === 'deadline' && mayStart(this.#life)) this.#event(this.#known!, { type: 'Normal', ...deadlineVerdict });
    if (end !== null && mayStart(this.#life)) this.#move({ phase: 'terminating', end });
    else if (end !== null && this.#life.phase === 'terminating') this.#move({ phase: 'terminating', end: shorten(this.#life.end, end) });
    if (this.#life.phase === 'terminating') return this.#terminate(facts, this.#life.end, stop, signal);
    const pod = this.#known!;
    if (this.#life.phase === 'waiting') {
      const verdict = await admitPod(this.#deps, pod, facts, () => this.#move({ phase: 'starting' }), stop);
      if (verdict === 'later') return { again: nodeWaitMs, gone: false };
      if (verdict !== null) return this.#reject(pod, verdict);
    }
    return this.#run(pod, facts, stop);
  }

  /* ---------- a pod that is to run ---------- */

  async #run(wanted: Pod, facts: PodFacts, stop: AbortSignal): Promise<SyncResult> {
    const { clock, probes, sources, resizes } = this.#deps;
    const pod = resizes.allocatedPod(wanted);
    resizes.look(pod, facts);
    if (this.#teller.cgroupIsOld && pod.status?.phase === 'Running') {
      this.#teller.cgroup = await this.#deps.cgroups.values(pod, stop);
      this.#teller.cgroupIsOld = this.#teller.cgroup === null;
    }
    sources.hold(pod);
    this.#teller.probe(pod, facts, false);
    const plan = planRun({
      pod,
      facts,
      probes: probes.results(this.key.uid),
      nowMs: clock.nowMs(),
      backoffs: this.#backoffs,
      rules: this.#deps.rules,
      old: this.#deps.statuses.current(this.key.uid) ?? pod.status ?? {},
      actuated: resizes.actuated(this.key.uid),
    });
    this.#teller.hold(plan);
    const told = this.#tell(pod, facts, false);
    if (this.#life.phase === 'starting' && told.phase === 'Running') this.#move({ phase: 'running' });
    if (isTerminalPhase(told.phase)) {
      this.#move({ phase: 'terminating', end: { cause: 'completed', graceSeconds: null, sinceMs: clock.monoMs(), verdict: null } });
      return { again: 'now', gone: false };
    }
    this.#take(pod, plan);
    if (plan.steps.length > 0) this.#log.debug(2, 'Plan', { pod: this.#name(), plan: planText(plan) });
    // What is acted on is on disk first: another process must not give the pod something else.
    if (plan.steps.some((step) => step.kind === 'resize' || step.kind === 'create-sandbox')) await resizes.saved();
    stop.throwIfAborted();
    const ready = await this.#ready(pod, plan, facts, stop);
    if (ready !== null) return { again: ready, gone: false };
    const outcome = await this.#do(pod, facts, plan.steps, stop);
    return this.#after(pod, plan, outcome, stop);
  }

  /** Cgroup and volumes, before anything is made that needs them. A number is when to try again. */
  async #ready(pod: Pod, plan: Plan, facts: PodFacts, stop: AbortSignal): Promise<number | null> {
    const { clock, cgroups, volumes } = this.#deps;
    const makes = plan.steps.some((step) => step.kind === 'create-sandbox' || step.kind === 'start-container');
    const network = this.#deps.networkProblem();
    if (makes && network !== null && pod.spec.hostNetwork !== true) {
      this.#event(pod, { type: 'Warning', reason: 'NetworkNotReady', message: `network is not ready: ${network}` });
      return networkWaitMs;
    }
    if (!makes) {
      if (clock.monoMs() - this.#refreshedAtMs >= this.#deps.syncFrequencyMs) {
        this.#refreshedAtMs = clock.monoMs();
        await volumes.refresh(pod, stop);
      }
      return null;
    }
    try {
      const isRunning = facts.containers.some((container) => container.state === 'running');
      await cgroups.ensurePod(pod, stop, isRunning);
      if (!isRunning) await this.#deps.resizes.actuatePod(pod);
    } catch (error) {
      stop.throwIfAborted();
      this.#event(pod, { type: 'Warning', reason: 'FailedCreatePodContainer', message: `unable to ensure pod container exists: ${messageOf(error)}` });
      throw error;
    }
    const prepared = await volumes.prepare(pod, stop);
    for (const event of prepared.events ?? []) this.#event(pod, event);
    this.#refreshedAtMs = clock.monoMs();
    if (prepared.ok) return this.#prepareClaims(pod, stop);
    if (prepared.reason === attachLimitReached) {
      this.#event(pod, { type: 'Warning', reason: prepared.reason, message: prepared.message });
      this.#deps.rejected?.(prepared.reason);
      void this.evict({ graceMs: 0, verdict: { reason: prepared.reason, message: `Pod was rejected: ${prepared.message}` } });
      return 0;
    }
    this.#log.warn('Unable to attach or mount volumes for pod; skipping pod', { pod: this.#name(), err: prepared.message });
    return this.#retries.pauseMs();
  }

  /** Dynamic resources, after the volumes and before the sandbox. */
  async #prepareClaims(pod: Pod, stop: AbortSignal): Promise<number | null> {
    const prepared = (await this.#deps.claims?.prepare(pod, stop)) ?? { ok: true };
    if (prepared.ok) return null;
    for (const event of prepared.events ?? []) this.#event(pod, event);
    return this.#retries.pauseMs();
  }

  async #do(pod: Pod, facts: PodFacts, steps: readonly Step[], stop: AbortSignal): Promise<StepsOutcome> {
    const run: RunContext = {
      pod,
      // Who has failed has had its turn: those that came after it go first.
      place: this.#place + (this.#retries.isBehind ? behindAll : 0),
      facts,
      preStopBegun: this.#preStopBegun,
      tell: (event) => this.#event(pod, event),
      onSandbox: (sandbox: SandboxFacts) => {
        this.#deps.facts.saw(this.key.uid, sandbox);
        // The plan has ended what ran in the last one, and that may have been looked at and told since.
        const seen = this.#facts ?? facts;
        const older = seen.sandboxes.filter(({ id }) => id !== sandbox.id).map((each) => ({ ...each, ready: false }));
        this.#facts = { ...seen, sandboxes: [sandbox, ...older] };
        if (this.#wanted) this.#tell(pod, this.#facts, false);
      },
    };
    // What condemned a container must not condemn it twice; readiness goes on to the end.
    for (const step of steps) {
      if ((step.kind === 'kill' || step.kind === 'kill-beside') && mayStart(this.#life))
        for (const kill of step.kills) this.#deps.probes.forget(this.key.uid, kill.containerId);
    }
    return runSteps(this.#deps.steps, run, steps, stop);
  }

  #after(pod: Pod, plan: Plan, outcome: StepsOutcome, stop: AbortSignal): SyncResult {
    for (const name of outcome.started) this.#teller.waiting[name] = undefined;
    this.#resized(pod, plan, outcome);
    let retryAtMs: number | null = plan.wakeAtMs;
    const sooner = (ms: number): void => {
      retryAtMs = retryAtMs === null ? ms : Math.min(retryAtMs, ms);
    };
    for (const { name, reason, message } of outcome.failures) this.#teller.waiting[name] = { reason, message };
    if (outcome.failures.length > 0) sooner(this.#deps.clock.nowMs() + this.#retries.startPauseMs(outcome.done > 0));
    if (outcome.error !== null) {
      const isRefused = plan.steps.some((step) => step.kind === 'create-sandbox') && !hasCode(outcome.error, 'unavailable');
      if (stop.aborted || !isRefused || outcome.error instanceof BugError) throw outcome.error;
      return this.#skip(outcome.error, this.#retries.startPauseMs(outcome.done > 0));
    }
    if (outcome.resizeFailure !== null) {
      if (this.#facts !== undefined) this.#tell(pod, this.#facts, false);
      sooner(this.#deps.clock.nowMs() + this.#retries.pauseMs());
      if (outcome.done === 0 && outcome.failures.length === 0) return { again: this.#until(pod, retryAtMs), gone: false };
    }
    if (outcome.failures.length > 0) {
      if (this.#facts !== undefined) this.#tell(pod, this.#facts, false);
      // What did start is looked at now, the rest when its pause is over.
      if (outcome.started.length === 0) return { again: this.#until(pod, retryAtMs), gone: false };
    } else if (outcome.done > 0) this.#retries.done();
    if (outcome.done > 0) return { again: 'now', gone: false };
    return { again: this.#until(pod, retryAtMs), gone: false };
  }

  /** After a resize, whatever came of it: what is known of sizes is asked for anew. */
  #resized(pod: Pod, plan: Plan, outcome: StepsOutcome): void {
    for (const step of plan.steps) {
      if (step.kind !== 'resize') continue;
      this.#teller.cgroupIsOld = true;
      // Files that tell containers of their sizes are due.
      this.#refreshedAtMs = Number.NEGATIVE_INFINITY;
      for (const { containerId } of [...step.work.memory, ...step.work.cpu]) this.#deps.facts.forgetContainer(containerId);
    }
    if (outcome.resizeFailure === null) return;
    this.#log.warn('Pod resize failed', { pod: this.#name(), err: outcome.resizeFailure });
    this.#deps.resizes.failed(pod, outcome.resizeFailure);
  }

  /** The pause until the next look that nothing asks for: a back-off's end, the pod's deadline, the usual rhythm. */
  #until(pod: Pod, atMs: number | null): number {
    const nowMs = this.#deps.clock.nowMs();
    const deadlineMs = deadlineOf(pod, this.#deps.statuses.current(this.key.uid)?.startTime ?? pod.status?.startTime);
    const limits = [this.#deps.syncFrequencyMs, ...(atMs === null ? [] : [atMs - nowMs]), ...(deadlineMs === null ? [] : [deadlineMs - nowMs])];
    return Math.max(0, Math.min(...limits));
  }

  /** Keeps what a plan says about back-off, and tells of it. */
  #take(pod: Pod, plan: Plan): void {
    const nowMs = this.#deps.clock.nowMs();
    for (const { key, endedAtMs } of plan.grows) this.#backoffs[key] = grow(this.#backoffs[key], this.#deps.rules, endedAtMs, nowMs);
    this.#teller.backOffs(pod, plan);
  }

  /* ---------- the end ---------- */

  async #terminate(facts: PodFacts, end: PodEnd, stop: AbortSignal, signal: AbortSignal): Promise<SyncResult> {
    const pod = this.#known ?? orphanPod(this.key, facts);
    this.#teller.probe(pod, facts, true, endsUnprobed(end) && !this.#deps.wishes.has('ProbeReadinessOfEvictedPods'));
    if (this.#wanted) this.#tell(pod, facts, false);
    const steps = stopPod(pod, facts, graceLeftSeconds(end, this.#deps.clock.monoMs()));
    if (steps.length > 0) this.#log.debug(2, 'Plan', { pod: this.#name(), plan: planText({ steps, held: [], grows: [], wakeAtMs: null }) });
    const outcome = await whileRefreshed(this.#deps, pod, stop, () => this.#do(pod, facts, steps, stop));
    if (outcome.error !== null) {
      if (!stop.aborted) this.#event(pod, { type: 'Warning', reason: 'FailedKillPod', message: `error killing pod: ${messageOf(outcome.error)}` });
      throw outcome.error;
    }
    const after = outcome.done === 0 ? facts : await this.#deps.facts.read(this.key.uid, signal);
    this.#facts = after;
    if (isUp(after)) return { again: this.#retries.pauseMs(), gone: false };
    await this.#deps.claims?.unprepare(this.key.uid, signal);
    this.#deps.probes.remove(this.key.uid);
    this.#move({ phase: 'terminated', end, cleaned: false });
    if (this.#wanted && !wasPutBack(pod, end)) this.#tell(pod, after, true);
    this.#stopped.resolve();
    return this.#terminated(signal);
  }

  /** What came up after the end goes down again, and with it what was made for it. */
  async #stopStrays(life: Extract<PodLife, { phase: 'terminated' }>, signal: AbortSignal): Promise<void> {
    const facts = await this.#deps.facts.read(this.key.uid, signal);
    const pod = this.#known ?? orphanPod(this.key, facts);
    this.#log.warn('Stopping what came up after the end of its pod', { pod: this.#name(), podUID: this.key.uid });
    const { error } = await this.#do(pod, facts, stopPod(pod, facts, 0), signal);
    if (error !== null) throw error;
    this.#facts = await this.#deps.facts.read(this.key.uid, signal);
    this.#hasStrays = false;
    this.#move({ ...life, cleaned: false });
  }

  async #terminated(signal: AbortSignal): Promise<SyncResult> {
    const life = this.#life;
    if (life.phase !== 'terminated') return { again: null, gone: life.phase === 'gone' };
    const { uid } = this.key;
    const { volumes, cgroups, sources, statuses } = this.#deps;
    if (!life.cleaned) {
      await volumes.teardown(uid, signal);
      await cgroups.removePod(uid, signal);
      sources.release(uid);
      this.#deps.steps.images.forget(uid);
      this.#deps.steps.userNamespaces?.release(uid);
      this.#move({ ...life, cleaned: true });
    }
    const pod = this.#known;
    if (this.#wanted && pod !== undefined && !wasPutBack(pod, life.end)) {
      const told = statuses.current(uid) ?? pod.status ?? {};
      await statuses.finish(pod, life.end.cause === 'rejected' ? told : lastStatus(pod, told), signal);
      return { again: null, gone: false };
    }
    // Since it ended nothing has been made for it; what comes up all the same, the next listing shows as nobody's.
    if (!this.#wanted || pod?.spec.restartPolicy !== 'Always')
      await removeRemains(this.#deps, this.key, this.#facts ?? (await this.#deps.facts.read(uid, signal)), signal);
    statuses.forget(uid);
    this.#deps.facts.forget(uid);
    this.#deps.resizes.forget(uid);
    this.#move({ phase: 'gone' });
    return { again: null, gone: true };
  }

  #reject(pod: Pod, verdict: Verdict): SyncResult {
    const nowMs = this.#deps.clock.nowMs();
    this.#event(pod, { type: 'Warning', reason: verdict.reason, message: verdict.message });
    this.#deps.rejected?.(verdict.reason);
    this.#deps.statuses.set(pod, rejectedStatus(pod, verdict, nowMs));
    this.#move({ phase: 'terminated', end: { cause: 'rejected', graceSeconds: 0, sinceMs: this.#deps.clock.monoMs(), verdict }, cleaned: false });
    this.#stopped.resolve();
    return { again: 'now', gone: false };
  }

  /* ---------- what all of it shares ---------- */

  #endNow(): PodEnd | null {
    const startTime = this.#deps.statuses.current(this.key.uid)?.startTime ?? this.#known?.status?.startTime;
    const { clock } = this.#deps;
    const wish = { pod: this.#wanted && !this.#dropped ? this.#known : undefined, known: this.#known, eviction: this.#eviction, startTime };
    return endOf({ ...wish, nowMs: clock.nowMs(), monoMs: clock.monoMs() });
  }

  #tell(pod: Pod, facts: PodFacts, stopped: boolean): PodStatus {
    return this.#teller.tell(pod, facts, this.#life, stopped);
  }

  /** The first look at a pod that was there before this process: its restarts so far set the back-off. */
  #adopt(facts: PodFacts): void {
    if (this.#adopted || this.#known === undefined) return;
    this.#adopted = true;
    this.#teller.adopt(this.#known);
    if (facts.containers.length > 0 || facts.sandboxes.length > 0) this.#deps.resizes.take(this.#known);
    this.#deps.resizes.adopt(this.#known);
    Object.assign(this.#backoffs, rebuiltOf(this.#known, facts, this.#deps.rules));
  }

  #event(pod: Pod, event: EventText): void {
    this.#teller.event(pod, event);
  }

  #move(life: PodLife): void {
    if (life.phase !== this.#life.phase) this.#log.debug(3, 'Pod life', { pod: this.#name(), from: this.#life.phase, to: life.phase });
    const held = mayRun(this.#life);
    this.#life = advance(this.#life, life);
    if (held && !mayRun(life)) this.#deps.resizes.freed();
  }

  #skip(error: unknown, pauseMs: number): SyncResult {
    this.#log.warn('Error syncing pod, skipping', { pod: this.#name(), podUID: this.key.uid, err: messageOf(error), retriable: isRetriable(error) });
    return { again: pauseMs, gone: false };
  }

  #name(): string {
    return `${this.key.namespace}/${this.key.name}`;
  }
}
