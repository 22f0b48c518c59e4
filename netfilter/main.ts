import { writeFile } from 'node:fs/promises';
import { availableParallelism, hostname } from 'node:os';
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
import type { ProxyConfig } from './core/config.ts';
import { wantsLocalhostNodePorts } from './core/node.ts';
import { ProxyHealth } from './health.ts';
import { announceStart, DEFAULT_MODE_NOTE } from './io/birth.ts';
import { HELP, readCommand, type RunCommand } from './io/flags.ts';
import { splitHostPort } from './io/http.ts';
import { machineAddresses, setOomScore } from './io/machine.ts';
import { proxyMetrics, type Metrics } from './io/metrics.ts';
import { metricsPage } from './io/page.ts';
import { reachApi } from './io/reach.ts';
import { HealthPorts, serveHealthz, serveMetrics } from './io/servers.ts';
import { setConntrackSysctls } from './io/sysctls.ts';
import { allowLocalhostNodePorts, openMode, removeAll } from './modes.ts';
import { Proxy } from './proxy.ts';

/** Without the C program by util-linux, which takes more to load than the proxy itself. */
async function openSys(host: Host, log: Log): Promise<Sys> {
  const path = host.env['NODELET_SYS'] ?? '';
  return path === '' ? (await import('../base/sys/fallback.ts')).createFallbackSys({ log }) : createSysClient({ path, log });
}

/** Starts one of the HTTP servers; a taken address only ends the program when that was asked for. */
async function listen(
  what: string,
  address: string,
  config: ProxyConfig,
  log: Log,
  open: (at: { host: string; port: number }) => Promise<AsyncDisposable>,
): Promise<AsyncDisposable> {
  const nothing: AsyncDisposable = { [Symbol.asyncDispose]: async () => {} };
  const at = splitHostPort(address);
  if (address === '' || at.port === 0) return nothing;
  try {
    return await open(at);
  } catch (error) {
    if (config.bindAddressHardFail) throw error;
    log.error(`Failed to start the ${what} server`, { address, error });
    return nothing;
  }
}

async function runProxy(host: Host, { config, document, master }: RunCommand, sys: Sys, log: Log): Promise<number> {
  const clock = realClock;
  // Pauses of this proxy are to differ from those of others, and nobody is to be kept from guessing them.
  const rng = seededRng(host.pid ^ clock.nowMs());
  const nodeName = (config.hostnameOverride === '' ? hostname() : config.hostnameOverride).trim().toLowerCase();
  const kubeConfig = await reachApi(config.kubeconfig, master, host.env);
  const metrics: Metrics = proxyMetrics();
  const tracking = setConntrackSysctls(sys, config.conntrack, availableParallelism(), log);
  // The rules of this mode depend on how connections are tracked; otherwise none of these waits for another.
  if (config.mode === 'iptables') await tracking;
  const [mode] = await Promise.all([openMode(sys, { config, metrics, log }), tracking, setOomScore(host.pid, config.oomScoreAdj, log)]);
  using loopDelay = watchLoopDelay();
  const requests = new ClientMetrics(clock);
  const page = metricsPage({ metrics, requests, loopDelay, startedSeconds: clock.nowMs() / 1000, readCounters: () => mode.readCounters(), log });
  const health = new ProxyHealth({ clock, timeoutMs: 2 * config.syncPeriodMs });
  await using api = createPlainKubeApi({
    config: kubeConfig,
    log,
    clock,
    rng,
    userAgent: `nodelet-netfilter/${version}`,
    observer: requests,
  });
  await using _healthz = await listen('healthz', config.healthzBindAddress, config, log, (at) => serveHealthz(at, health, metrics));
  await using _metrics = await listen('metrics', config.metricsBindAddress, config, log, (at) => serveMetrics(at, page, config.mode, document));
  await using healthPorts = new HealthPorts({ log, isHealthy: () => health.healthy });
  const proxy = new Proxy({ ...mode, config, nodeName, healthPorts, health, metrics, clock, log, machineAddresses });
  log.info('Starting the service proxy', { version, nodeName, mode: config.mode, minSyncPeriodMs: config.minSyncPeriodMs, syncPeriodMs: config.syncPeriodMs });
  if (config.detectLocalMode === 'ClusterCIDR' && config.clusterCIDRs.length === 0)
    log.warn('Detect-local-mode set to ClusterCIDR, but no cluster CIDR is given: traffic from outside to a ClusterIP is not masqueraded');
  const facts = { nodeName, clock, rng, log };
  void announceStart(api, { type: 'Normal', reason: 'Starting' }, facts, host.signal);
  if (config.modeDefaulted) {
    log.warn(DEFAULT_MODE_NOTE);
    void announceStart(api, { type: 'Warning', reason: 'KubeProxyDefaultMode', note: DEFAULT_MODE_NOTE }, facts, host.signal);
  }
  await proxy.run(api, host.signal);
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
    const log = createLog({
      name: 'netfilter',
      verbosity: command.verbosity,
      nowMs: () => realClock.nowMs(),
      pid: host.pid,
      write: (line) => host.stderr(line),
    });
    if (command.kind === 'write') {
      await writeFile(command.path, await (await import('../base/yaml.ts')).printYaml(command.document), { mode: 0o644 });
      log.info('Wrote configuration', { file: command.path });
      return 0;
    }
    await using sys = await openSys(host, log);
    if (command.kind === 'cleanup') return await removeAll(sys, log);
    if (command.ignored.length > 0) log.warn('Flags that the configuration file covers are ignored', { flags: command.ignored.join(' ') });
    if (command.initOnly) {
      await setConntrackSysctls(sys, command.config.conntrack, availableParallelism(), log);
      if (wantsLocalhostNodePorts(command.config)) await allowLocalhostNodePorts(sys, log);
      return 0;
    }
    return await runProxy(host, command, sys, log);
  } catch (error) {
    if (!(error instanceof OpError)) throw error;
    host.stderr(`nodelet netfilter: ${messageOf(error)}${error.advice === '' ? '' : `\n  ${error.advice}`}\n`);
    return 1;
  }
}
