import type { Clock } from '../../../base/clock.ts';
import { messageOf, OpError } from '../../../base/errors.ts';
import type { Log } from '../../../base/log.ts';
import csi from '../../../proto/plugins/csi.json' with { type: 'json' };
import type { NodeMethods } from '../../../proto/plugins/csi.ts';
import type { NodeCapabilities } from '../../core/csi/requests.ts';
import { highestCsiVersion, isOlder } from '../../core/plugins.ts';
import { GrpcClient, serviceOf } from '../grpc.ts';
import type { GrpcCallOptions } from '../grpc.ts';
import type { PluginHandler, RegisteredPlugin } from '../plugin-watcher.ts';
import type { CsiNodeObject } from './node-object.ts';

/** Upstream's bound of a call to a driver. */
export const csiTimeoutMs = 120_000;

/** Told of each call: driver, method, gRPC status, duration. */
export type OnCsiCall = (driver: string, method: string, status: string, tookMs: number) => void;

export interface DriversOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly nodeObject: Pick<CsiNodeObject, 'add' | 'remove'>;
  readonly onCall: OnCsiCall;
  /** A driver has come or gone: pods that wait for it may go on. */
  readonly onChange: () => void;
}

/** The node service of one registered driver. */
export class Driver {
  readonly name: string;
  readonly version: string;
  readonly endpoint: string;
  readonly #client: GrpcClient<NodeMethods>;
  readonly #clock: Clock;
  readonly #onCall: OnCsiCall;

  constructor(name: string, version: string, endpoint: string, client: GrpcClient<NodeMethods>, clock: Clock, onCall: OnCsiCall) {
    this.name = name;
    this.version = version;
    this.endpoint = endpoint;
    this.#client = client;
    this.#clock = clock;
    this.#onCall = onCall;
  }

  /** Throws RpcError. */
  async call<K extends keyof NodeMethods>(
    method: K,
    request: NodeMethods[K]['request'],
    options: Partial<GrpcCallOptions> = {},
  ): Promise<NodeMethods[K]['response']> {
    const startMs = this.#clock.monoMs();
    let status = 'OK';
    try {
      return await this.#client.call(method, request, { timeoutMs: csiTimeoutMs, ...options });
    } catch (error) {
      status = (error as { status?: string }).status ?? 'Unknown';
      throw error;
    } finally {
      this.#onCall(this.name, `/csi.v1.Node/${method}`, status, this.#clock.monoMs() - startMs);
    }
  }

  /** What it can, asked each time: a driver may be another one behind the same socket. */
  async capabilities(options: Partial<GrpcCallOptions> = {}): Promise<NodeCapabilities> {
    const { capabilities } = await this.call('NodeGetCapabilities', {}, options);
    return new Set(capabilities.flatMap(({ rpc }) => (rpc === null ? [] : [rpc.type])));
  }

  close(): void {
    this.#client[Symbol.dispose]();
  }
}

/** The CSI drivers of this node, by name. */
export class Drivers implements PluginHandler {
  readonly #options: DriversOptions;
  readonly #drivers = new Map<string, Driver>();
  #service: ReturnType<typeof serviceOf<NodeMethods>> | undefined;

  constructor(options: DriversOptions) {
    this.#options = options;
  }

  /** undefined: it is not registered, and may come. */
  find(name: string): Driver | undefined {
    return this.#drivers.get(name);
  }

  list(): readonly Driver[] {
    return [...this.#drivers.values()];
  }

  validate(plugin: RegisteredPlugin): void {
    this.#version(plugin);
  }

  async register(plugin: RegisteredPlugin, signal: AbortSignal): Promise<void> {
    const { clock, onCall, onChange, log } = this.#options;
    const version = this.#version(plugin);
    this.#service ??= serviceOf<NodeMethods>(csi, 'csi.v1.Node');
    const driver = new Driver(plugin.name, version, plugin.endpoint, new GrpcClient(this.#service, plugin.endpoint, clock), clock, onCall);
    this.#drivers.get(plugin.name)?.close();
    this.#drivers.set(plugin.name, driver);
    try {
      await this.tellNode(plugin.name, signal);
    } catch (error) {
      await this.#forget(plugin.name, driver, signal).catch((failure: unknown) =>
        log.error('Could not take a CSI driver back', { driver: plugin.name, err: messageOf(failure) }),
      );
      throw error;
    }
    log.info('CSI driver registered', { driver: plugin.name, endpoint: plugin.endpoint, version });
    onChange();
  }

  /** Asks a driver what it is to this node, and how many volumes it can attach, and tells the API server. Throws OpError or RpcError. */
  async tellNode(name: string, signal: AbortSignal): Promise<void> {
    const driver = this.#drivers.get(name);
    if (driver === undefined) return;
    const info = await driver.call('NodeGetInfo', {}, { signal });
    const topology = info.accessibleTopology?.segments ?? {};
    await this.#options.nodeObject.add({ driver: name, nodeId: info.nodeId, maxVolumes: Number(info.maxVolumesPerNode), topology }, signal);
  }

  /** Only of the driver behind this socket: an update may have registered another socket under the same name since. */
  async deregister(plugin: RegisteredPlugin, signal: AbortSignal): Promise<void> {
    const driver = this.#drivers.get(plugin.name);
    if (driver === undefined || driver.endpoint !== plugin.endpoint) return;
    await this.#forget(plugin.name, driver, signal);
    this.#options.onChange();
  }

  async #forget(name: string, driver: Driver, signal: AbortSignal): Promise<void> {
    if (this.#drivers.get(name) === driver) this.#drivers.delete(name);
    driver.close();
    await this.#options.nodeObject.remove(name, signal);
  }

  #version({ name, versions }: RegisteredPlugin): string {
    const highest = highestCsiVersion(versions);
    if (!highest.ok) throw new OpError('invalid', `validation failed for CSI Driver ${name}`, highest.message);
    const before = this.#drivers.get(name);
    if (before !== undefined && !isOlder(before.version, highest.version))
      throw new OpError(
        'exists',
        `validation failed for CSI Driver ${name}`,
        `Another driver with the same name is already registered with a higher supported version: ${before.version}`,
      );
    return highest.version;
  }
}
