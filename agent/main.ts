import { uptime } from 'node:os';
import { realClock } from '../base/clock.ts';
import { BugError } from '../base/assert.ts';
import { OpError, messageOf } from '../base/errors.ts';
import type { Host } from '../base/host.ts';
import { realRng } from '../base/rng.ts';
import type { Container, Pod } from '../proto/kube/types.ts';
import { version } from '../base/version.ts';
import { configurationText } from './core/config-log.ts';
import type { PressureCondition } from './core/evict-thresholds.ts';
import { withReservedCpus } from './core/resources/reserved.ts';
import { ClientMetrics } from '../base/kubeapi/client-metrics.ts';
import { readCommand, type AgentCommand } from './io/config-file.ts';
import { applyKernelDefaults } from './io/kernel-defaults.ts';
import { takeLockFile } from './io/lock-file.ts';
import { nodeAddresses, readMachine, waitForAddresses } from './io/machine.ts';
import { AgentMetrics, countsOf } from './io/metrics.ts';
import { setOomScore } from './io/oom-score.ts';
import { openNodeCgroups } from './io/runtime-start.ts';
import { agentSettings } from './io/settings.ts';
import { openEvents } from './io/standalone.ts';
import { openTracer } from './io/tracer.ts';
import { createSystemd, isSystemd } from './io/systemd.ts';
import { openGrants } from './grants-open.ts';
import { openLog, openSys } from './host.ts';
import { openIdentity } from './identity.ts';
import { openStats } from './measuring.ts';
import { openNode, tellStart } from './node.ts';
import { runParts, untilDefect } from './parts.ts';
import { openPods } from './pods.ts';
import { openRuntime } from './runtime.ts';
import { openServing } from './serving.ts';
import { openSupervision, type Supervision } from './supervision.ts';
import { openUpkeep } from './upkeep.ts';

type RunCommand = Extract<AgentCommand, { kind: 'run' }>;

/** `nodelet agent`: the kubelet. Ends with 0 at SIGTERM and where it has to give its lock file up, with 1 and one sentence for what cannot work. */
export async function main(outside: Host): Promise<number> {
  const contended = new AbortController();
  const host = { ...outside, signal: AbortSignal.any([outside.signal, contended.signal]) };
  try {
    const command = await readCommand(host.args);
    if (command.kind !== 'run') {
      host.stdout(command.text);
      return 0;
    }
    return await run(command, host, () => contended.abort());
  } catch (error) {
    if (host.signal.aborted) return 0;
    const advice = error instanceof OpError && error.advice !== '' ? ` ${error.advice}` : '';
    host.stderr(`nodelet agent: ${messageOf(error)}.${advice}\n`);
    if (error instanceof BugError && error.stack !== undefined) host.stderr(`${error.stack}\n`);
    return 1;
  }
}

/** Builds the parts in the order in which they need each other, then runs them until the first ends. */
async function run({ flags, config: asked, warnings, given }: RunCommand, host: Host, end: () => void): Promise<number> {
  process.title = 'kubelet';
  const clock = realClock;
  const rng = realRng;
  const verbosity = { level: flags.v };
  const log = openLog(host, clock, asked, verbosity);
  for (const warning of warnings) log.warn(warning);
  log.info('Effective KubeletConfiguration', { config: configurationText(asked) });
  const { signal, onBug, rethrow } = untilDefect(host.signal);

  const leastOomScoreAdj = await setOomScore(asked.oomScoreAdj, log);
  await applyKernelDefaults({ log, protect: asked.protectKernelDefaults, isShared: host.env['NODELET_SHARED_KERNEL'] === '1' });
  await using sys = openSys(host, log);
  await using lock = await takeLockFile({ sys, clock, log, path: flags.lockFile, onContention: flags.exitOnLockContention ? end : null }, signal);
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
    counts: () => countsOf(pods.loop, pods.source.mirrors().length, events.dropped),
    upMs: uptime() * 1000,
    featureGates: config.featureGates,
  };
  using metrics: AgentMetrics = new AgentMetrics({ clock, nodeName, ...counted });
  const observer = new ClientMetrics(clock, tracer);
  metrics.also.push(() => observer.text());
  await using identity = await openIdentity({ clock, rng, log, config, flags, nodeName, certificates: metrics.certificates, observer }, signal);
  const { api } = identity;
  await using containers = await openRuntime({ clock, log, config, metrics, tracer }, signal);
  const { cri, driver } = containers;
  await using systemd = (await isSystemd()) ? createSystemd({ clock, log: log.child('systemd'), uid: process.getuid?.() ?? 0 }) : null;
  const hasOwnCpus = (uid: string): boolean => granted.grants.hasOwnCpus(uid);
  const onDone: AgentMetrics['cgroupDone'] = (operation, tookMs) => metrics.cgroupDone(operation, tookMs);
  const cgroups = await openNodeCgroups({ sys, clock, log: log.child('cgroups'), config, machine, driver, systemd, hasOwnCpus, onDone }, signal);

  const events = openEvents({ clock, rng, log: log.child('event'), api, nodeName, config, isAlone: flags.kubeconfig === '' });
  await waitForAddresses(clock, flags.nodeIPs, signal);
  const addresses = await nodeAddresses(nodeName, flags.nodeIPs);
  const shared = { clock, rng, log, sys, api, cri, events, config, machine, tracer };
  const late = { loop: () => pods.loop, kickNode: () => node.kick(), dynamic: (...of: [Pod, Container]) => pods.dra.claims.resourcesOf(...of) };
  await using granted = await openGrants({ ...shared, settings, metrics, ...late });
  const pressures = (): readonly PressureCondition[] => upkeep.pressures();
  const ending = (): Supervision['shutdown'] => supervision.shutdown;
  const plegUnhealthy = (): string | null => pods.loop.pleg.unhealthy();
  const sees = { pressures, ending, plegUnhealthy, volumesInUse: (): readonly string[] => pods.csi.inUse(), devices: () => granted.offer() };
  const nodeSide = openNode({ ...shared, ...sees, flags, addresses, startup: metrics.startup });
  const { node, runtime } = nodeSide;
  const told = { runtime: () => runtime.facts(), pressures, ending, onBug };
  const podDeps = { ...shared, ...told, env: host.env, settings, leastOomScoreAdj, node, cgroups, metrics, granted, signal };
  await using pods = await openPods(podDeps);
  await runtime.check(signal);
  const { rootDir, certDir } = flags;
  const upkeep = openUpkeep({
    ...shared,
    rootDir,
    deadContainers: flags.deadContainers,
    target: node.target,
    cgroups,
    pods,
    metrics,
    onPressure: () => node.kick(),
  });
  const stats = openStats({ ...shared, settings, cgroups, pods, rootDir });
  const served = { stats, metrics, certificates: metrics.certificates, pods: pods.loop, allocated: pods.allocated };
  await using serving = await openServing({ ...shared, ...served, given, verbosity, rootDir, certDir, nodeName, addresses });
  const supervision = openSupervision({ ...shared, settings, host, rootDir, systemd, metrics, node, pods });
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
  tellStart(events, node.target, cgroups, config, machine);
  await sys.notify('READY=1');
  await runParts(parts, signal, onBug);
  rethrow();
  return 0;
}
