import { uptime } from 'node:os';
import { realClock } from '../base/clock.ts';
import { BugError } from '../base/assert.ts';
import { OpError, messageOf } from '../base/errors.ts';
import type { Host } from '../base/host.ts';
import { createLog } from '../base/log.ts';
import { realRng } from '../base/rng.ts';
import { createSysClient } from '../base/sys/client.ts';
import { createFallbackSys } from '../base/sys/fallback.ts';
import type { Container, Pod } from '../proto/kube/types.ts';
import { version } from '../base/version.ts';
import { compose, connectRuntime, createCriClient, type CriClient } from '../cri/mod.ts';
import type { PressureCondition } from './core/evict-thresholds.ts';
import { withReservedCpus } from './core/resources/reserved.ts';
import { ClientMetrics } from '../base/kubeapi/client-metrics.ts';
import { readCommand } from './io/config-file.ts';
import type { AgentCommand } from './io/config-file.ts';
import { createEventsApi } from './io/events-api.ts';
import { applyKernelDefaults } from './io/kernel-defaults.ts';
import { nodeAddresses, readMachine, waitForAddresses } from './io/machine.ts';
import { AgentMetrics, countCalls, countsOf } from './io/metrics.ts';
import { setOomScore } from './io/oom-score.ts';
import { openNodeCgroups, waitForRuntime } from './io/runtime-start.ts';
import { agentSettings } from './io/settings.ts';
import { loggedEvents } from './io/standalone.ts';
import { CgroupReader } from './io/cgroup-usage.ts';
import { createStats } from './io/stats.ts';
import { openTracer, traceCalls } from './io/tracer.ts';
import { createSystemd, isSystemd } from './io/systemd.ts';
import { openGrants } from './grants-open.ts';
import { openIdentity } from './identity.ts';
import { openNode, tellStart } from './node.ts';
import { runParts } from './parts.ts';
import { openPods } from './pods.ts';
import { openServing } from './serving.ts';
import { openSupervision, type Supervision } from './supervision.ts';
import { openUpkeep } from './upkeep.ts';

type RunCommand = Extract<AgentCommand, { kind: 'run' }>;

/** `nodelet agent`: the kubelet. Ends with 0 at SIGTERM, with 1 and one sentence for what cannot work. */
export async function main(host: Host): Promise<number> {
  try {
    const command = await readCommand(host.args);
    if (command.kind !== 'run') {
      host.stdout(command.text);
      return 0;
    }
    return await run(command, host);
  } catch (error) {
    if (host.signal.aborted) return 0;
    const advice = error instanceof OpError && error.advice !== '' ? ` ${error.advice}` : '';
    host.stderr(`nodelet agent: ${messageOf(error)}.${advice}\n`);
    if (error instanceof BugError && error.stack !== undefined) host.stderr(`${error.stack}\n`);
    return 1;
  }
}

/** Builds the parts in the order in which they need each other, then runs them until the first ends. */
async function run({ flags, config: asked, warnings, given }: RunCommand, host: Host): Promise<number> {
  process.title = 'kubelet';
  const clock = realClock;
  const rng = realRng;
  const verbosity = { level: flags.v };
  const log = createLog({
    name: 'agent',
    format: asked.logging.format === 'json' ? 'json' : 'text',
    verbosity: () => verbosity.level,
    nowMs: () => clock.nowMs(),
    pid: host.pid,
    write: (line) => host.stderr(line),
  });
  for (const warning of warnings) log.warn(warning);
  const stop = new AbortController();
  const signal = AbortSignal.any([host.signal, stop.signal]);
  let bug: unknown;
  const onBug = (error: unknown): void => {
    bug ??= error;
    stop.abort();
  };

  const leastOomScoreAdj = await setOomScore(asked.oomScoreAdj, log);
  await applyKernelDefaults({ log, protect: asked.protectKernelDefaults });
  const sysPath = host.env['NODELET_SYS'];
  const notify = host.env['NOTIFY_SOCKET'] === undefined ? {} : { notifySocket: host.env['NOTIFY_SOCKET'] };
  await using sys =
    sysPath === undefined ? createFallbackSys({ log: log.child('sys'), ...notify }) : createSysClient({ path: sysPath, log: log.child('sys'), ...notify });
  await using lock = flags.lockFile === '' ? null : await sys.lock(flags.lockFile);
  void lock;
  const config = withReservedCpus(asked);
  const machine = await readMachine();
  const settings = agentSettings(config, flags, machine.hostname);
  const { nodeName } = settings;
  const tracer = openTracer(config.tracing, { clock, log: log.child('trace'), hostname: machine.hostname });
  log.info('Kubelet version', { kubeletVersion: version, node: nodeName });
  const counted = {
    cgroupVersion: () => cgroups.version,
    memoryQos: () => cgroups.memoryQos,
    counts: () =>
      countsOf({ ...pods.loop, workers: pods.loop.working(), isActive: (uid) => pods.loop.holdsResources(uid) }, pods.source.mirrors().length, events.dropped),
    upMs: uptime() * 1000,
    featureGates: config.featureGates,
  };
  using metrics: AgentMetrics = new AgentMetrics({ clock, nodeName, ...counted });
  const observer = new ClientMetrics(clock, tracer);
  metrics.also.push(() => observer.text());
  await using identity = await openIdentity({ clock, rng, log, config, flags, nodeName, certificates: metrics.certificates, observer }, signal);
  const { api } = identity;
  const connect = (endpoint: string): CriClient => createCriClient(compose(connectRuntime(endpoint), countCalls(clock, metrics), traceCalls(tracer)));
  await using runtimeClient = connect(config.containerRuntimeEndpoint);
  // Images may be served by a socket of their own.
  await using imageClient = config.imageServiceEndpoint === '' ? null : connect(config.imageServiceEndpoint);
  const cri: CriClient = { ...runtimeClient, images: (imageClient ?? runtimeClient).images };
  const driver = await waitForRuntime({ cri, clock, log, fallback: config.cgroupDriver }, signal);
  await using systemd = (await isSystemd()) ? createSystemd({ clock, log: log.child('systemd'), uid: process.getuid?.() ?? 0 }) : null;
  const hasOwnCpus = (uid: string): boolean => granted.grants.hasOwnCpus(uid);
  const cgroups = await openNodeCgroups({ sys, clock, log: log.child('cgroups'), config, machine, driver, systemd, hasOwnCpus }, signal);

  const eventLog = log.child('event');
  const events =
    flags.kubeconfig === ''
      ? loggedEvents(eventLog)
      : createEventsApi({ clock, rng, log: eventLog, api, nodeName, qps: config.eventRecordQPS, burst: config.eventBurst });
  await waitForAddresses(clock, flags.nodeIPs, signal);
  const addresses = await nodeAddresses(nodeName, flags.nodeIPs);
  const shared = { clock, rng, log, sys, api, cri, events, config, machine, tracer };
  const late = { loop: () => pods.loop, kickNode: () => node.kick(), dynamic: (...of: [Pod, Container]) => pods.dra.claims.resourcesOf(...of) };
  await using granted = await openGrants({ ...shared, settings, metrics, ...late });
  const pressures = (): readonly PressureCondition[] => upkeep.pressures();
  const plegUnhealthy = (): string | null => pods.loop.pleg.unhealthy();
  const ending = (): Supervision['shutdown'] => supervision.shutdown;
  const nodeSide = openNode({
    ...shared,
    flags,
    addresses,
    plegUnhealthy,
    volumesInUse: () => pods.csi.inUse(),
    pressures,
    devices: () => granted.offer(),
    startup: metrics.startup,
    ending,
  });
  const { node, runtime } = nodeSide;
  const told = { runtime: () => runtime.facts(), pressures, ending, onBug };
  const podDeps = { ...shared, ...told, env: host.env, settings, leastOomScoreAdj, node, cgroups, metrics, granted, signal };
  await using pods = await openPods(podDeps);
  await runtime.check(signal);
  const { rootDir, certDir } = flags;
  const upkeep = openUpkeep({ ...shared, rootDir, target: node.target, cgroups, pods, metrics, onPressure: () => node.kick() });
  const timeoutMs = settings.runtimeRequestTimeoutMs;
  const groups = new CgroupReader({
    ...shared,
    cgroups,
    cgroupRoot: config.cgroupRoot,
    system: { kubelet: config.kubeletCgroups, runtime: '', misc: config.systemCgroups },
  });
  const measured = { groups, podLogsDir: config.podLogsDir, volumes: pods.volumeStats };
  const stats = createStats({ ...shared, ...cri, ...measured, log: log.child('stats'), pods: pods.loop, nodeName, rootDir, timeoutMs });
  await using serving = await openServing({
    ...shared,
    given,
    verbosity,
    rootDir,
    certificates: metrics.certificates,
    certDir,
    nodeName,
    addresses,
    metrics,
    stats,
    allocated: () =>
      pods.loop
        .list()
        .filter(({ metadata }) => pods.loop.holdsResources(metadata.uid ?? ''))
        .map((pod) => pods.resizes.allocatedPod(pod)),
    pods: pods.loop,
  });

  const supervision = openSupervision({ ...shared, host, rootDir, systemd, metrics, node, pods });
  const parts: readonly [string, Promise<void>][] = [
    ['supervision', supervision.run(signal)],
    ['events', events.run(signal)],
    ['traces', tracer.run(signal)],
    ['node', nodeSide.run(signal)],
    ['pod source', pods.source.run(signal)],
    ['static pods', pods.statics.run(signal)],
    ['pods', pods.loop.run(signal)],
    ['plugins', pods.plugins.run(signal)],
    ['grants', granted.run(signal)],
    ['upkeep', upkeep.run(signal)],
    ['serving', serving.run(signal)],
    ['client certificate', identity.run(signal)],
  ];
  tellStart(events, node.target, cgroups.version, config);
  await sys.notify('READY=1');
  await runParts(parts, signal, onBug);
  if (bug !== undefined) throw bug;
  return 0;
}
