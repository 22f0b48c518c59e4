import type { Clock } from '../../../base/clock.ts';
import { messageOf, OpError } from '../../../base/errors.ts';
import type { KubeApi } from '../../../base/kubeapi/types.ts';
import { pathOf, resourceSlices } from '../../../base/kubeapi/refs.ts';
import type { Log } from '../../../base/log.ts';
import dra from '../../../proto/plugins/dra.json' with { type: 'json' };
import type { DRAPluginMethods } from '../../../proto/plugins/dra.ts';
import health from '../../../proto/plugins/dra_health.json' with { type: 'json' };
import type { DRAResourceHealthMethods } from '../../../proto/plugins/dra_health.ts';
import { RpcError } from '../../../cri/mod.ts';
import { healthMessage } from '../../core/dra/health.ts';
import type { DeviceHealth } from '../../core/dra/health.ts';
import { GrpcClient, serviceOf } from '../grpc.ts';
import type { PluginHandler, RegisteredPlugin } from '../plugin-watcher.ts';

export interface DraPluginsOptions {
  readonly api: KubeApi;
  readonly clock: Clock;
  readonly log: Log;
  readonly nodeName: string;
  /** Devices of a driver are told to be well or not: `pool/device`. */
  readonly onHealth: (driver: string, devices: readonly string[]) => void;
  readonly onCall: (driver: string, method: string, status: string, tookMs: number) => void;
  readonly signal: AbortSignal;
}

const servicePrefix = 'k8s.io.kubelet.pkg.apis.dra.';
const services = ['v1.DRAPlugin', 'v1beta1.DRAPlugin'];
const healthServices = ['v1.DRAResourceHealth', 'v1alpha1.DRAResourceHealth'];
const callTimeoutMs = 45_000;
const wipeDelayMs = 30_000;
const firstWipePauseMs = 1000;
const lastWipePauseMs = 300_000;
const healthRetryMs = 5000;
const healthLifeMs = 30_000;

interface Connected {
  readonly endpoint: string;
  readonly client: GrpcClient<DRAPluginMethods>;
  readonly stop: AbortController;
  isConnected: boolean;
}

/** The drivers of dynamic resources on this node. A driver may have several plugins for a while, as when it is updated. */
export class DraPlugins implements PluginHandler {
  readonly #options: DraPluginsOptions;
  readonly #drivers = new Map<string, Connected[]>();
  readonly #wipes = new Map<string, Disposable>();
  readonly #health = new Map<string, Map<string, DeviceHealth>>();

  constructor(options: DraPluginsOptions) {
    this.#options = options;
  }

  validate(plugin: RegisteredPlugin): void {
    chosenService(plugin);
  }

  async register(plugin: RegisteredPlugin): Promise<void> {
    const { clock, log, signal } = this.#options;
    const { name, endpoint, versions } = plugin;
    const service = serviceOf<DRAPluginMethods>(dra, `${servicePrefix}v1.DRAPlugin`, `${servicePrefix}${chosenService(plugin)}`);
    const before = this.#drivers.get(name) ?? [];
    if (before.some((each) => each.endpoint === endpoint))
      throw new OpError('exists', 'register', `endpoint ${endpoint} already registered for DRA driver plugin ${name}`);
    const connected: Connected = { endpoint, client: new GrpcClient(service, endpoint, clock), stop: new AbortController(), isConnected: false };
    this.#drivers.set(name, [...before, connected]);
    const healthService = healthServices.find((each) => versions.includes(each));
    const stop = AbortSignal.any([signal, connected.stop.signal]);
    connected.client.stayConnected((isConnected) => {
      connected.isConnected = isConnected;
      this.#wipeLater(name);
    }, stop);
    if (healthService !== undefined) void this.#followHealth(name, endpoint, healthService, stop);
    log.info('DRA plugin registered', { driverName: name, endpoint, plugins: before.length + 1 });
  }

  async deregister({ name, endpoint }: RegisteredPlugin): Promise<void> {
    const plugins = this.#drivers.get(name) ?? [];
    const gone = plugins.find((each) => each.endpoint === endpoint);
    if (gone === undefined) return;
    gone.stop.abort();
    gone.client[Symbol.dispose]();
    const rest = plugins.filter((each) => each !== gone);
    if (rest.length > 0) this.#drivers.set(name, rest);
    else this.#drivers.delete(name);
    this.#wipeLater(name);
  }

  /** Half a minute after the last plugin of a driver that could be reached, nothing is to be scheduled for it. */
  #wipeLater(driver: string): void {
    if (this.isReachable(driver)) {
      this.#wipes.get(driver)?.[Symbol.dispose]();
      this.#wipes.delete(driver);
      return;
    }
    // What waits already, or is tried again, goes on from when it began.
    if (this.#wipes.has(driver)) return;
    const { clock, signal } = this.#options;
    const stop = new AbortController();
    const wipe = async (): Promise<void> => {
      await this.wipe(driver, AbortSignal.any([signal, stop.signal]));
      if (this.#wipes.get(driver) === pending) this.#wipes.delete(driver);
    };
    const timer = clock.after(wipeDelayMs, () => void wipe());
    const pending: Disposable = {
      [Symbol.dispose]() {
        timer[Symbol.dispose]();
        stop.abort();
      },
    };
    this.#wipes.set(driver, pending);
  }

  /** Whether a plugin of the driver is connected. */
  isReachable(driver: string): boolean {
    return (this.#drivers.get(driver) ?? []).some((each) => each.isConnected);
  }

  has(driver: string): boolean {
    return this.#drivers.has(driver);
  }

  /** Calls the newest plugin of a driver that can be reached, the newest where none can. Throws RpcError, or OpError where there is none. */
  async call<K extends keyof DRAPluginMethods>(
    driver: string,
    method: K,
    request: DRAPluginMethods[K]['request'],
    signal: AbortSignal,
  ): Promise<DRAPluginMethods[K]['response']> {
    const plugins = this.#drivers.get(driver) ?? [];
    const plugin = plugins.findLast((each) => each.isConnected) ?? plugins.at(-1);
    if (plugin === undefined) throw new OpError('unavailable', 'call a DRA driver', `DRA driver ${driver} is not registered`);
    const { clock, onCall } = this.#options;
    const startMs = clock.monoMs();
    let status = 'OK';
    try {
      return await plugin.client.call(method, request, { timeoutMs: callTimeoutMs, signal });
    } catch (error) {
      status = error instanceof RpcError ? error.status : 'Unknown';
      throw error;
    } finally {
      onCall(driver, `/${servicePrefix}v1.DRAPlugin/${method}`, status, clock.monoMs() - startMs);
    }
  }

  /** What was said last of a device; null: nothing, or too long ago. */
  healthOf(driver: string, pool: string, device: string): DeviceHealth | null {
    const told = this.#health.get(driver)?.get(`${pool}/${device}`);
    return told === undefined || told.untilMs < this.#options.clock.monoMs() ? null : told;
  }

  /** Deletes what a driver published of this node's devices, so that nothing is scheduled for it; '' is every driver. */
  async wipe(driver: string, signal: AbortSignal): Promise<void> {
    const { api, clock, log, nodeName } = this.#options;
    const fieldSelector = `${driver === '' ? '' : `spec.driver=${driver},`}spec.nodeName=${nodeName}`;
    for (let pauseMs = firstWipePauseMs; !signal.aborted && !this.isReachable(driver); pauseMs = Math.min(pauseMs * 2, lastWipePauseMs)) {
      try {
        const { status } = await api.raw('DELETE', pathOf(resourceSlices()), { query: { fieldSelector }, timeoutMs: 10_000 }, signal);
        if (status < 300 || status === 404) return;
        log.debug(2, 'Deleting ResourceSlices failed, retrying', { fieldSelector, status });
      } catch (error) {
        if (signal.aborted) return;
        log.debug(2, 'Deleting ResourceSlices failed, retrying', { fieldSelector, err: messageOf(error) });
      }
      await clock.sleep(pauseMs, signal).catch(() => undefined);
    }
  }

  async #followHealth(driver: string, endpoint: string, service: string, signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#options;
    using client = new GrpcClient(serviceOf<DRAResourceHealthMethods>(health, 'v1.DRAResourceHealth', service), endpoint, clock);
    while (!signal.aborted) {
      try {
        for await (const { devices } of client.stream('NodeWatchResources', {}, signal)) {
          const known = this.#health.get(driver) ?? new Map<string, DeviceHealth>();
          const changed: string[] = [];
          for (const { device, health: word, message, healthCheckTimeoutSeconds } of devices) {
            const key = `${device?.poolName ?? ''}/${device?.deviceName ?? ''}`;
            const lifeMs = Number(healthCheckTimeoutSeconds) > 0 ? Number(healthCheckTimeoutSeconds) * 1000 : healthLifeMs;
            const next: DeviceHealth = {
              health: word === 'HEALTHY' ? 'Healthy' : word === 'UNHEALTHY' ? 'Unhealthy' : 'Unknown',
              message: healthMessage(message),
              untilMs: clock.monoMs() + lifeMs,
            };
            const before = known.get(key);
            if (before?.health !== next.health || before.message !== next.message) changed.push(key);
            known.set(key, next);
          }
          this.#health.set(driver, known);
          if (changed.length > 0) this.#options.onHealth(driver, changed);
        }
      } catch (error) {
        if (error instanceof RpcError && error.status === 'Unimplemented') return;
        if (!signal.aborted) log.debug(2, 'The stream of a driver about its devices ended', { driverName: driver, err: messageOf(error) });
      }
      const known = [...(this.#health.get(driver)?.keys() ?? [])];
      this.#health.delete(driver);
      if (known.length > 0 && !this.#options.signal.aborted) this.#options.onHealth(driver, known);
      await clock.sleep(healthRetryMs, signal).catch(() => undefined);
    }
  }

  [Symbol.dispose](): void {
    for (const wipe of this.#wipes.values()) wipe[Symbol.dispose]();
    for (const plugins of this.#drivers.values())
      for (const { client, stop } of plugins) {
        stop.abort();
        client[Symbol.dispose]();
      }
  }
}

function chosenService({ name, endpoint, versions }: RegisteredPlugin): string {
  const fail = (detail: string): never => {
    throw new OpError('invalid', `invalid supported gRPC versions of DRA driver plugin ${name} at endpoint ${endpoint}`, detail);
  };
  if (versions.length === 0) return fail('empty list of supported gRPC services (aka supported versions)');
  const list = (names: readonly string[]): string => `[${names.map((each) => JSON.stringify(each)).join(' ')}]`;
  return (
    versions.find((version) => services.includes(version)) ??
    fail(`none of services supported by the plugin (${list(versions)}) are supported by the kubelet (${list(services)})`)
  );
}
