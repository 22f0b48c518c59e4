import { mkdir } from 'node:fs/promises';
import type { Clock } from '../base/clock.ts';
import { durationMs } from '../base/duration.ts';
import type { KubeApi } from '../base/kubeapi/types.ts';
import type { Log } from '../base/log.ts';
import type { Rng } from '../base/rng.ts';
import type { Sys } from '../base/sys/types.ts';
import type { Pod } from '../proto/kube/types.ts';
import { Admission } from './admission.ts';
import { countedReason } from './core/admit.ts';
import { backoffRules } from './core/backoff.ts';
import type { KubeletConfiguration } from './core/config.ts';
import { keyOf } from './core/containers.ts';
import { declaredFeatures, withRuntime } from './core/feature-gate-state.ts';
import { gateEnabled } from '../base/feature-gates.ts';
import type { PressureCondition } from './core/evict-thresholds.ts';
import type { MachineFacts, RuntimeFacts } from './core/node-status.ts';
import { defaultMaskedPaths } from './core/security.ts';
import { memoryQosOf } from './core/settings.ts';
import type { VolumeStatsFacts } from './core/stats.ts';
import { isStatic } from './core/static-pod.ts';
import type { Verdict } from './core/status.ts';
import type { EventText } from './core/types.ts';
import { AllocationFile, textFile } from './io/allocation-file.ts';
import type { PodCgroups } from './io/cgroups.ts';
import { rpcErrorText } from './io/cri.ts';
import type { Cri } from './io/cri.ts';
import { PodDns } from './io/dns.ts';
import { CsiHealth } from './io/csi/health.ts';
import { openCsi } from './io/csi/open.ts';
import type { CsiSide } from './io/csi/open.ts';
import { openDra } from './io/dra/open.ts';
import type { DraSide } from './io/dra/open.ts';
import { createEnvironment } from './io/environment.ts';
import { createExecKill } from './io/exec-kill.ts';
import { createFactsReader } from './io/facts.ts';
import { createLastWords, createPodFiles } from './io/files.ts';
import { createHooks } from './io/hooks.ts';
import type { AgentMetrics } from './io/metrics.ts';
import { hasApparmor, hasSelinux, hasSwapController, hugePageSizes, selinuxFileContext, thermalPaths } from './io/kernel-facts.ts';
import { createApiPods } from './io/pods-api.ts';
import type { ApiPods } from './io/pods-api.ts';
import { PluginWatcher } from './io/plugin-watcher.ts';
import { createPodLines, linesOf } from './io/pod-lines.ts';
import { PodCertificates } from './io/pod-certificates.ts';
import { createProbes } from './io/probes.ts';
import { createProbeRunner } from './io/probes-run.ts';
import { openPulls } from './io/pulls.ts';
import type { PullRecords } from './io/pull-records.ts';
import { createRuntimeClasses } from './io/runtime-classes.ts';
import { Sources } from './io/sources.ts';
import { createStatusApi } from './io/status-api.ts';
import type { StepDeps } from './io/step-types.ts';
import { Tokens } from './io/tokens.ts';
import type { Tracer } from './io/tracer.ts';
import { TrustBundles } from './io/trust-bundles.ts';
import { UserNamespaces } from './io/user-namespaces.ts';
import { VolumeStats } from './io/volume-stats.ts';
import { openVolumes } from './io/volumes-open.ts';
import { createLoop } from './loop.ts';
import type { Loop } from './loop.ts';
import { Resizes } from './resizes.ts';
import { openStatics } from './statics.ts';
import type { Statics } from './statics.ts';
import type { OpenGrants } from './grants-open.ts';
import type { AgentSettings, Events, EventTarget, NodeInfo, Volumes } from './seams.ts';

export interface PodSideOptions {
  readonly clock: Clock;
  readonly rng: Rng;
  readonly log: Log;
  readonly sys: Sys;
  readonly api: KubeApi;
  readonly cri: Cri;
  readonly settings: AgentSettings;
  readonly config: KubeletConfiguration;
  readonly machine: MachineFacts;
  readonly node: NodeInfo & {
    /** The Node's status has something new to say. */
    kick(): void;
    readonly target: EventTarget;
  };
  readonly events: Events;
  readonly cgroups: PodCgroups;
  readonly runtime: () => RuntimeFacts;
  readonly metrics: AgentMetrics;
  readonly granted: Pick<OpenGrants, 'grants' | 'handler' | 'seen'>;
  /** What the node is short of. */
  readonly pressures: () => readonly PressureCondition[];
  readonly leastOomScoreAdj: number | null;
  /** Whether the machine is about to end: then no pod is taken. */
  readonly ending: () => { admit(): Verdict | null };
  readonly onBug: (error: unknown) => void;
  readonly tracer: Tracer;
  /** The agent's own environment, for the programs it starts. */
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Aborted when the agent ends. */
  readonly signal: AbortSignal;
}

export interface PodSide extends AsyncDisposable {
  /** What is remembered of image pulls; null where nothing is. */
  readonly records: PullRecords | null;
  readonly loop: Loop;
  readonly resizes: Resizes;
  readonly source: ApiPods;
  readonly statics: Statics;
  /** The pods that hold something of the node, at the size they were given. */
  readonly allocated: () => readonly Pod[];
  readonly volumes: Volumes;
  readonly csi: CsiSide;
  readonly dra: DraSide;
  /** How full a pod's volumes were when they were last measured. */
  readonly volumeStats: (uid: string) => readonly VolumeStatsFacts[];
  /** Finds plugins, and does what they are for. */
  readonly plugins: { run(signal: AbortSignal): Promise<void> };
}

export const containersLogDir = '/var/log/containers';

/** Everything that runs pods, joined by hand. */
export async function openPods(options: PodSideOptions): Promise<PodSide> {
  const { clock, rng, log, sys, api, cri, settings, machine, node, events, cgroups, metrics, granted, signal } = options;
  const { rootDir, podLogsDir, clusterDomain, runtimeRequestTimeoutMs: timeoutMs } = settings;
  const sources = new Sources({ api, clock, log: log.child('sources') });
  const environment = createEnvironment({ sources, node, rootDir, sys });
  const recursiveReadOnly = (): boolean => options.runtime().handlers.some((handler) => handler.features['recursiveReadOnlyMounts'] === true);
  const onChange = (uid: string): void => {
    void volumes.objectChanged(uid, signal);
    loop.kick(uid);
  };
  const tell = teller(events);
  const trustBundles = new TrustBundles({ api, clock, rng, onChange, log: log.child('trust') });
  const certificates = new PodCertificates({
    api,
    clock,
    rng,
    tell,
    onChange,
    onBug: options.onBug,
    log: log.child('podcertificate'),
    nodeName: node.name,
    nodeUid: () => node.node()?.metadata.uid,
  });
  const tokens = new Tokens({ api, clock, rng, log: log.child('tokens') });
  const selinux = await hasSelinux();
  const csi = await openCsi({
    api,
    clock,
    rng,
    log: log.child('csi'),
    sys,
    rootDir,
    node,
    events,
    tokens,
    signal,
    selinux: selinux ? { fileContext: await selinuxFileContext(), mountsAll: gateEnabled(options.config.featureGates, 'SELinuxMount') } : null,
    onCall: (driver, method, status, tookMs) => metrics.csiCalled(driver, method, status, tookMs),
    report: () => node.kick(),
    kick: (uid) => loop.kick(uid),
    synced: () => loop.synced(),
  });
  const dra = await openDra({
    api,
    clock,
    log: log.child('dra'),
    rootDir,
    ofGroups: gateEnabled(options.config.featureGates, 'DRAWorkloadResourceClaims'),
    node,
    signal,
    onCall: (driver, method, status, tookMs) => metrics.draCalled(driver, method, status, tookMs),
    onDone: (operation, wasError, tookMs) => metrics.draDone(operation, wasError, tookMs),
    synced: () => loop.synced(),
    isActive: (uid) => loop.holdsResources(uid),
    kick: (uid) => loop.kick(uid),
  });
  const volumes = openVolumes({
    events,
    csi: csi.volumes,
    tokens,
    node: () => node.node(),
    metrics: metrics.volumes,
    certificates,
    trustBundles,
    api,
    sys,
    clock,
    rng,
    rootDir,
    clusterDomain,
    sources,
    signal,
    log: log.child('volumes'),
    allocatable: () => node.node()?.status?.allocatable ?? {},
    supportsRecursiveReadOnly: recursiveReadOnly,
    hasSelinux: selinux,
    gates: {
      emptyDirMode: gateEnabled(options.config.featureGates, 'EmptyDirVolumeMode'),
      fileUsers: gateEnabled(options.config.featureGates, 'AtomicWriteVolumeUserFields'),
    },
    async env(pod, container, podIPs, stop) {
      const result = await environment(pod, container, podIPs, stop);
      if (!result.ok) return { ok: false, reason: 'CreateContainerConfigError', message: result.message };
      return { ok: true, env: new Map(result.env.map((pair) => [pair.name, pair.value])) };
    },
  });
  const statsPeriodMs = durationMs(options.config.volumeStatsAggPeriod);
  const volumeHealth = gateEnabled(options.config.featureGates, 'CSIVolumeHealth')
    ? new CsiHealth({
        clock,
        log: log.child('csi'),
        rootDir,
        drivers: csi.drivers,
        nodeObject: csi.nodeObject,
        volumes: () => volumes.asked(),
        kick: (uid) => loop.kick(uid),
        periodMs: statsPeriodMs > 0 ? statsPeriodMs : 60_000,
      })
    : null;
  const probes = createProbes({
    clock,
    rng,
    log: log.child('prober'),
    events,
    run: createProbeRunner(cri.runtime, clock, {
      kill: settings.wishes.has('KillTimedOutExecProbes') ? createExecKill({ clock, sys, runtime: cri.runtime, log: log.child('prober') }) : null,
      grpcTls: gateEnabled(options.config.featureGates, 'GRPCContainerProbeTLS'),
      h2c: gateEnabled(options.config.featureGates, 'H2CContainerProbe'),
    }),
    onResult: (labels, result, tookMs) => metrics.probed(labels, result, tookMs),
    onGone: (labels) => metrics.probeGone(labels),
    forgets: gateEnabled(options.config.featureGates, 'ChangeContainerStatusOnKubeletRestart'),
  });
  const statuses = createStatusApi({ clock, rng, log: log.child('status'), api, onWritten: (ms) => metrics.statusWritten(ms) });
  const files = createPodFiles(rng);
  const { images, records } = await openPulls({ ...options, sources, tokens });
  const admission: Admission = new Admission({
    clock,
    events,
    node: { node: () => granted.seen(node.node()) },
    signal,
    log: log.child('admission'),
    pods: () => loop,
    others: (pod) => othersThan(pod, loop, resizes),
    allowedUnsafeSysctls: settings.allowedUnsafeSysctls,
    pressures: options.pressures,
    hasApparmor: await hasApparmor(),
    declaredFeatures: () => withRuntime(declaredFeatures(options.config.featureGates), options.runtime().abilities ?? {}),
    schedulerPreempts: gateEnabled(options.config.featureGates, 'InPlacePodVerticalScalingSchedulerPreemption'),
    comparesTaints: gateEnabled(options.config.featureGates, 'TaintTolerationComparisonOperators'),
    refusesPodResources: !gateEnabled(options.config.featureGates, 'PodLevelResources'),
    preempted: (resource) => metrics.preempted(resource),
  });
  const resizes = await openResizes(
    options,
    () => loop,
    (pod) => admission.resize(pod),
  );
  const dns = new PodDns({
    resolvConf: settings.resolvConf,
    clusterDNS: settings.clusterDNS,
    clusterDomain,
    nodeIPs: () => node.hostIPs(),
    tellNode: ({ type, reason, message }) => events.event(node.target, type, reason, message),
  });
  await dns.checkLimits();
  const steps: StepDeps = {
    cri,
    clock,
    timeoutMs,
    volumes,
    cgroups,
    images,
    files,
    node,
    environment,
    clusterDomain,
    containersLogDir,
    log: log.child('steps'),
    hooks: createHooks({
      cri,
      clock,
      tell: (pod, reason, message) => tell(pod, { type: 'Warning', reason, message }),
      metrics: metrics.lives,
    }),
    dns,
    runtimeClasses: createRuntimeClasses(api),
    resizes,
    grants: granted.grants,
    claims: dra.claims,
    imagesByHandler: gateEnabled(options.config.featureGates, 'RuntimeClassInImageCriApi'),
    metrics: metrics.lives,
    userNamespaces: await UserNamespaces.open({
      sys,
      rng,
      rootDir,
      log: log.child('userns'),
      idsPerPod: (options.config.userNamespaces as { idsPerPod?: number } | null)?.idsPerPod ?? null,
      maxPods: settings.maxPods,
      supports: (handler) => options.runtime().handlers.some(({ name, features }) => name === handler && features['userNamespaces'] === true),
    }),
    resizeDone: (ms, failed) => metrics.resizes.actuated(ms, failed),
    lines: createPodLines(clock, linesOf(machine.cpus)),
    context: {
      podLogsDir,
      rootDir,
      cpuCFSQuota: settings.cpuCFSQuota,
      cpuCFSQuotaPeriodUs: settings.cpuCFSQuotaPeriodMs * 1000,
      seccompDefault: settings.seccompDefault,
      cgroupVersion: cgroups.version,
      singleProcessOOMKill: settings.singleProcessOOMKill,
      memoryCapacityBytes: BigInt(machine.memoryBytes),
      leastOomScoreAdj: options.leastOomScoreAdj,
      hugePageSizes: await hugePageSizes(),
      swapControllerAvailable: await hasSwapController(cgroups.version),
      swap: { behavior: settings.memorySwapBehavior, capacityBytes: BigInt(machine.swapBytes) },
      memoryQos: memoryQosOf(options.config, machine),
      hasSelinux: selinux,
      maskedPaths: [...defaultMaskedPaths, ...(await thermalPaths())],
      nodeName: node.name,
      defaultPodSysctls: options.config.defaultPodSysctls,
    },
  };
  const source = createApiPods({ api, nodeName: node.name, log: log.child('pods'), clock });
  const statics = openStatics({ clock, log, api, node, config: options.config, apiPods: source, statuses, loop: () => loop });
  const loop: Loop = createLoop({
    clock,
    tracer: options.tracer,
    log,
    metrics,
    sources: [statics.source, source],
    onBug: options.onBug,
    worker: {
      clock,
      steps,
      volumes,
      sources,
      cgroups,
      probes,
      statuses: statics.statuses,
      events,
      node,
      files,
      recursiveReadOnly,
      imageDigests: gateEnabled(options.config.featureGates, 'ImageVolumeWithDigest'),
      stopSignals: gateEnabled(options.config.featureGates, 'ContainerStopSignals'),
      resizes,
      grants: granted.grants,
      claims: dra.claims,
      volumeHealth: volumeHealth ?? undefined,
      containersLogDir,
      log: log.child('pod'),
      facts: createFactsReader({
        cri,
        timeoutMs,
        lastWords: createLastWords({ sys, rootDir, podLogsDir }),
        clock,
        onRead: (ms) => metrics.pleg.looked(ms),
        onUnreadable: (uid, error) => {
          const pod = loop.byUid(uid);
          if (pod !== undefined)
            events.event({ apiVersion: 'v1', kind: 'Pod', ...keyOf(pod) }, 'Warning', 'FailedSync', `error determining status: ${rpcErrorText(error)}`);
        },
      }),
      rules: backoffRules(settings.crashLoopMaxMs, gateEnabled(options.config.featureGates, 'ReduceDefaultCrashLoopBackOffDecay')),
      runtimeName: () => options.runtime().version.split('://')[0] ?? '',
      networkProblem: () => options.runtime().troubles.find((trouble) => trouble.startsWith('container runtime network not ready')) ?? null,
      syncFrequencyMs: settings.syncFrequencyMs,
      wishes: settings.wishes,
      podLogDir: ({ namespace, name, uid }) => `${podLogsDir}/${namespace}_${name}_${uid}`,
      admit(pod) {
        const current = node.node();
        if (isStatic(pod) && statics.mustWait(pod)) return 'later';
        const refusal = options.ending().admit();
        if (refusal !== null) return refusal;
        // A control plane of static pods must start before there is anybody to register with.
        if (current === undefined) return isStatic(pod) ? null : 'later';
        return admission.admit(pod);
      },
      metrics: metrics.lives,
      rejected: (reason) => metrics.rejected(countedReason(reason)),
    },
  });
  const volumeStats = new VolumeStats({
    clock,
    log: log.child('volumes'),
    sys,
    drivers: csi.drivers,
    volumes: () => volumes.measured(),
    periodMs: statsPeriodMs,
  });
  metrics.also.push(() => volumeStats.text());
  if (volumeHealth !== null) metrics.also.push(() => volumeHealth.text());
  const watcher = new PluginWatcher({
    clock,
    log: log.child('plugins'),
    dir: `${rootDir}/plugins_registry`,
    handlers: { CSIPlugin: csi.drivers, DRAPlugin: dra.plugins, DevicePlugin: granted.handler },
  });
  metrics.also.push(
    () => metrics.volumes.text({ ...volumes.counts(), ...watcher.counts() }),
    () => metrics.resizes.text(resizes.all()),
    () => dra.claims.text(),
  );
  return {
    loop,
    resizes,
    source,
    statics,
    allocated: () =>
      loop
        .list()
        .filter(({ metadata }) => loop.holdsResources(metadata.uid ?? ''))
        .map((pod) => resizes.allocatedPod(pod)),
    volumes,
    records,
    csi,
    dra,
    volumeStats: (uid) => volumeStats.of(uid),
    plugins: {
      async run(stop) {
        await Promise.all([watcher.run(stop), csi.run(stop), dra.run(stop), volumeStats.run(stop), volumeHealth?.run(stop)]);
      },
    },
    async [Symbol.asyncDispose]() {
      await csi[Symbol.asyncDispose]();
      dra[Symbol.dispose]();
      probes[Symbol.dispose]();
      await statuses[Symbol.asyncDispose]();
      await sources[Symbol.asyncDispose]();
      await trustBundles[Symbol.asyncDispose]();
      await certificates[Symbol.asyncDispose]();
    },
  };
}

/** Tells Events about pods as a whole. */
function teller(events: Events): (pod: Pod, event: EventText) => void {
  return (pod, { type, reason, message }) => events.event({ apiVersion: 'v1', kind: 'Pod', ...keyOf(pod) }, type, reason, message);
}

/** What pods were given is read back before any of them is looked at. */
async function openResizes(options: PodSideOptions, loop: () => Loop, admit: (pod: Pod) => Verdict | null): Promise<Resizes> {
  const { clock, log, events, settings, machine } = options;
  const { rootDir } = settings;
  await mkdir(rootDir, { recursive: true });
  const file = (name: string): Promise<AllocationFile> => AllocationFile.open(textFile(`${rootDir}/${name}`), name);
  const resizes: Resizes = new Resizes({
    clock,
    log: log.child('resize'),
    allocated: await file('allocated_pods_state'),
    actuated: await file('actuated_pods_state'),
    metrics: options.metrics.resizes,
    swaps: settings.memorySwapBehavior === 'LimitedSwap' && machine.swapBytes > 0,
    statics: staticsOf(options.config),
    synced: () => loop().synced(),
    podOf: (uid) => loop().byUid(uid),
    holds: (uid) => loop().holdsResources(uid),
    isKnown: (uid) => loop().isKnown(uid),
    kick: (uid) => loop().kick(uid),
    tell: teller(events),
    admit,
  });
  return resizes;
}

/** The other pods that hold something of the node, at the size they hold. */
function othersThan(pod: Pod, loop: Loop, resizes: Resizes): Pod[] {
  const { uid } = pod.metadata;
  return loop
    .list()
    .filter((other) => other.metadata.uid !== uid && loop.holdsResources(other.metadata.uid ?? ''))
    .map((other) => resizes.heldPod(other));
}

/** Which resources a resize may not change, because they are given for good. */
function staticsOf({ cpuManagerPolicy, memoryManagerPolicy, featureGates }: KubeletConfiguration): { cpu: boolean; memory: boolean } {
  return {
    cpu: cpuManagerPolicy === 'static' && !gateEnabled(featureGates, 'InPlacePodVerticalScalingExclusiveCPUs'),
    memory: memoryManagerPolicy === 'Static' && !gateEnabled(featureGates, 'InPlacePodVerticalScalingExclusiveMemory'),
  };
}
