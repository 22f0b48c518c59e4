import { cpus, hostname } from 'node:os';
import { realClock } from '../base/clock.ts';
import { messageOf, OpError } from '../base/errors.ts';
import type { Host } from '../base/host.ts';
import { createPlainKubeApi } from '../base/kubeapi/plain.ts';
import { ClientMetrics } from '../base/kubeapi/client-metrics.ts';
import { createLog, silentLog, type Log } from '../base/log.ts';
import { watchLoopDelay } from '../base/loop-delay.ts';
import { seededRng } from '../base/rng.ts';
import { createSysClient } from '../base/sys/client.ts';
import type { Sys } from '../base/sys/types.ts';
import { kubernetesVersion, version } from '../base/version.ts';
import { checkFamilies, configWarnings } from './core/config-warnings.ts';
import { wantsLocalhostNodePorts } from './core/node.ts';
import { ProxyHealth } from './health.ts';
import { announce, DEFAULT_MODE_NOTE, type ProxyEvent } from './io/birth.ts';
import { DebugPages } from './io/debug-pages.ts';
import { watchConfigFile } from './io/config-watch.ts';
import { HELP, readCommand, type RunCommand } from './io/flags.ts';
import { listen, type ListenOptions } from './io/listen.ts';
import { LoopbackPorts } from './io/loopback-ports.ts';
import { machineAddresses, setOomScore } from './io/machine.ts';
import { proxyMetrics, type Metrics } from './io/metrics.ts';
import { metricsPage } from './io/page.ts';
import { reachApi } from './io/reach.ts';
import { serveMetrics } from './io/metrics-server.ts';
import { HealthPorts, serveHealthz } from './io/servers.ts';
import { setConntrackSysctls } from './io/sysctls.ts';
import { startWatching } from './io/watch.ts';
import { allowLocalhostNodePorts, openMode, removeAll } from './modes.ts';
import { Proxy } from './proxy.ts';

/** Without the C program by util-linux, which takes more to load than the proxy itself. */
async function openSys(host: Host, log: Log): Promise<Sys> {
  const path = host.env['NODELET_SYS'] ?? '';
  return path === '' ? (await import('../base/sys/fallback.ts')).createFallbackSys({ log }) : createSysClient({ path, log });
}

async function runProxy(
  host: Host,
  { config, document, master, file, flagz }: RunCommand,
  { sys, log, setVerbosity }: { sys: Sys; log: Log; setVerbosity: (level: number) => void },
): Promise<number> {
  const outdated = new AbortController();
  // Before all that takes time: what is written meanwhile counts too.
  await using _file = file === '' ? null : await watchConfigFile(file, () => outdated.abort());
  const clock = realClock;
  const startedMs = clock.nowMs();
  // Pauses of this proxy are to differ from those of others, and nobody is to be kept from guessing them.
  const rng = seededRng(host.pid ^ clock.nowMs());
  const nodeName = (config.hostnameOverride === '' ? hostname() : config.hostnameOverride).trim().toLowerCase();
  const kubeConfig = await reachApi(config.kubeconfig, master, host.env);
  const metrics: Metrics = proxyMetrics();
  using loopDelay = watchLoopDelay();
  const requests = new ClientMetrics(clock);
  await using api = createPlainKubeApi({
    config: kubeConfig,
    log,
    clock,
    rng,
    userAgent: `nodelet-netfilter/${version}`,
    observer: requests,
  });
  // Lists come while the rest starts.
  using watching = startWatching(api, nodeName, log, host.signal);
  const tracking = setConntrackSysctls(sys, config.conntrack, cpus().length, log);
  // The rules of this mode depend on how connections are tracked; otherwise none of these waits for another.
  if (config.mode === 'iptables') await tracking;
  const [mode] = await Promise.all([openMode(sys, { config, metrics, log }), tracking, setOomScore(host.pid, config.oomScoreAdj, log)]);
  checkFamilies(config, mode.families);
  const page = metricsPage({ metrics, requests, loopDelay, startedSeconds: startedMs / 1000, readCounters: () => mode.readCounters(), log });
  const health = new ProxyHealth({ clock, timeoutMs: 2 * config.syncPeriodMs });
  const tell = (event: ProxyEvent): Promise<void> => announce(api, event, { nodeName, clock, rng, log }, host.signal);
  const server = async (what: 'healthz' | 'metrics', open: ListenOptions['open']): Promise<AsyncDisposable> => {
    const address = config[`${what}BindAddress`];
    try {
      return await listen({ what, address, hardFail: config.bindAddressHardFail, clock, log, open });
    } catch (error) {
      await tell({ type: 'Warning', reason: what === 'healthz' ? 'FailedToStartProxierHealthcheck' : 'FailedToStartMetricServer', note: messageOf(error) });
      throw error;
    }
  };
  const debug = config.profiling ? new DebugPages({ clock, args: [process.execPath, ...host.args], setVerbosity }) : null;
  await using _healthz = await server('healthz', (at) => serveHealthz(at, health, metrics));
  await using _metrics = await server('metrics', (at) =>
    serveMetrics(at, { page, mode: config.mode, document, flagz: config.flagz ? flagz : null, statusz: config.statusz, debug, clock, startedMs }),
  );
  const failed = (service: string, note: string): void =>
    void tell({ type: 'Warning', reason: 'FailedToStartServiceHealthcheck', action: 'Listen', note, service });
  await using healthPorts = new HealthPorts({ log, isHealthy: () => health.healthy, failed });
  await using loopbackPorts = new LoopbackPorts({ clock, rng, metrics, log });
  const proxy = new Proxy({ ...mode, config, nodeName, healthPorts, loopbackPorts, health, metrics, clock, log, machineAddresses });
  log.info('Starting the service proxy', { version, nodeName, mode: config.mode, minSyncPeriodMs: config.minSyncPeriodMs, syncPeriodMs: config.syncPeriodMs });
  for (const warning of configWarnings(config, mode.families)) log.warn(warning);
  void tell({ type: 'Normal', reason: 'Starting' });
  if (config.modeDefaulted) {
    log.warn(DEFAULT_MODE_NOTE);
    void tell({ type: 'Warning', reason: 'KubeProxyDefaultMode', note: DEFAULT_MODE_NOTE });
  }
  await proxy.run(api, AbortSignal.any([host.signal, outdated.signal]), watching);
  if (outdated.signal.aborted) throw new OpError('conflict', 'run the proxy', `the configuration ${file} was changed`, { advice: 'Start it again.' });
  log.info('Stopped; the rules stay in place');
  return 0;
}

/** `nodelet netfilter`: kube-proxy for this network namespace. */
export async function main(host: Host): Promise<number> {
  if (host.args[0] === 'trace' || host.args[0] === 'diff') {
    await using sys = await openSys(host, silentLog);
    return await (await import('./inspect.ts')).inspect(host, sys);
  }
  try {
    const command = await readCommand(host.args);
    if (command.kind === 'help') {
      host.stdout(HELP);
      return 0;
    }
    if (command.kind === 'version') {
      host.stdout(`Kubernetes ${kubernetesVersion} (nodelet ${version})\n`);
      return 0;
    }
    let { verbosity } = command;
    const log = createLog({
      name: 'netfilter',
      verbosity: () => verbosity,
      nowMs: () => realClock.nowMs(),
      pid: host.pid,
      write: (line) => host.stderr(line),
    });
    if (command.kind === 'write') {
      await (await import('./io/config-write.ts')).writeConfig(command.path, command.document);
      log.info('Wrote configuration', { file: command.path });
      return 0;
    }
    await using sys = await openSys(host, log);
    if (command.kind === 'cleanup') return await removeAll(sys, log);
    if (command.ignored.length > 0) log.warn('Flags that the configuration file covers are ignored', { flags: command.ignored.join(' ') });
    if (command.unknown.length > 0) log.warn('The configuration file has fields that there are not; they are ignored', { fields: command.unknown.join(' ') });
    if (command.initOnly) {
      await setConntrackSysctls(sys, command.config.conntrack, cpus().length, log);
      if (wantsLocalhostNodePorts(command.config)) await allowLocalhostNodePorts(sys, log);
      return 0;
    }
    return await runProxy(host, command, { sys, log, setVerbosity: (level) => (verbosity = level) });
  } catch (error) {
    if (!(error instanceof OpError)) throw error;
    host.stderr(`nodelet netfilter: ${messageOf(error)}${error.advice === '' ? '' : `\n  ${error.advice}`}\n`);
    return 1;
  }
}
