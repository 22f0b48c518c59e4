import { lstat, mkdir, readdir, rm, unlink } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import { messageOf, OpError } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import { RpcError } from '../../cri/mod.ts';
import definition from '../../proto/plugins/device_plugin.json' with { type: 'json' };
import type { DevicePluginMethods, RegistrationMethods } from '../../proto/plugins/device_plugin.ts';
import { isExtendedResource } from '../core/resources/requests.ts';
import type { Device } from '../core/resources/devices.ts';
import { rpcErrorText } from './cri.ts';
import type { DevicePool, PluginEndpoint } from './device-pool.ts';
import { GrpcClient, served, serveGrpc, serviceOf } from './grpc.ts';
import type { PluginHandler } from './plugin-watcher.ts';

export interface DevicePluginsOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** `<root>/device-plugins`. */
  readonly dir: string;
  readonly pool: DevicePool;
  readonly onRegistered: (resource: string) => void;
}

export const deviceCheckpoint = 'kubelet_internal_checkpoint';

const version = 'v1beta1';
const connectMs = 10_000;
const preStartMs = 30_000;
/** An allocation takes as long as its plugin needs, but not for ever: the pod's worker waits for it. */
const allocateMs = 120_000;

interface Connection {
  readonly resource: string;
  readonly path: string;
  readonly client: GrpcClient<DevicePluginMethods>;
  readonly stop: AbortController;
}

/** The sockets between device plugins and the agent: plugins register at `kubelet.sock`, and are listened to from then on. */
export class DevicePlugins implements AsyncDisposable {
  readonly #options: DevicePluginsOptions;
  readonly #service = serviceOf<DevicePluginMethods>(definition, 'v1beta1.DevicePlugin');
  readonly #connections = new Set<Connection>();
  readonly #listening = new Set<Promise<void>>();
  #server: AsyncDisposable | null = null;

  constructor(options: DevicePluginsOptions) {
    this.#options = options;
  }

  /** Serves the registration. Sockets of plugins of before are taken away: that tells them to register again. */
  async start(): Promise<void> {
    const { dir } = this.#options;
    await mkdir(dir, { recursive: true, mode: 0o750 });
    for (const name of await readdir(dir)) {
      if (name !== deviceCheckpoint && (await lstat(join(dir, name))).isSocket()) await unlink(join(dir, name));
    }
    // Where this lies, the stub that plugins are built on waits to be found and does not register. Upstream has code that
    // makes it and calls that nowhere; earlier versions of this agent made it.
    await rm(join(dir, 'DEPRECATION'), { force: true });
    const registration = serviceOf<RegistrationMethods>(definition, 'v1beta1.Registration');
    this.#server = await serveGrpc(join(dir, 'kubelet.sock'), [
      served(registration, { Register: ({ version: told, endpoint, resourceName }, signal) => this.#register(told, resourceName, endpoint, signal) }),
    ]);
  }

  /** For plugins that are found by their socket in `plugins_registry`. */
  readonly handler: PluginHandler = {
    validate: ({ name, versions }) => {
      if (!versions.includes(version)) {
        throw new OpError('invalid', 'take the device plugin', `manager version, ${version}, is not among plugin supported versions [${versions.join(' ')}]`);
      }
      if (!isExtendedResource(name))
        throw new OpError('invalid', 'take the device plugin', `invalid name of device plugin socket: the ResourceName "${name}" is invalid`);
    },
    register: ({ name, endpoint }, signal) => this.#connect(name, endpoint, signal),
    deregister: async ({ name, endpoint }) => {
      for (const connection of this.#connections) if (connection.resource === name && connection.path === endpoint) connection.stop.abort();
    },
  };

  async #register(told: string, resource: string, endpoint: string, signal: AbortSignal): Promise<object> {
    const { dir, log, onRegistered } = this.#options;
    log.info('Got registration request from device plugin with resource', { resourceName: resource });
    onRegistered(resource);
    const refuse = (why: string): RpcError => new RpcError('Unknown', 'Register', why);
    if (told !== version) throw refuse(`requested API version "${told}" is not supported by kubelet. Supported version is ["${version}"]`);
    if (!isExtendedResource(resource)) throw refuse(`the ResourceName "${resource}" is invalid`);
    // A plugin names a socket beside ours, nothing elsewhere.
    await this.#connect(resource, join(dir, join('/', endpoint)), signal);
    return {};
  }

  async #connect(resource: string, path: string, signal: AbortSignal): Promise<void> {
    const { clock, pool, log } = this.#options;
    if (pool.isConnected(resource, path)) throw new RpcError('Unknown', 'Register', `device plugin already connected: ${path}`);
    const client = new GrpcClient(this.#service, path, clock);
    const connection: Connection = { resource, path, client, stop: new AbortController() };
    try {
      const options = await client.call('GetDevicePluginOptions', {}, { timeoutMs: connectMs, signal }).catch((error: unknown) => {
        throw new RpcError('Unknown', 'Register', `failed to get device plugin options: ${rpcErrorText(error)}`);
      });
      const endpoint = this.#endpoint(connection, options.preStartRequired, options.getPreferredAllocationAvailable);
      if (pool.isConnected(resource, path)) throw new RpcError('Unknown', 'Register', `device plugin already connected: ${path}`);
      pool.connected(endpoint);
    } catch (error) {
      client[Symbol.dispose]();
      log.error('Failed to connect to device plugin', { resource, path, err: messageOf(error) });
      throw error;
    }
    this.#connections.add(connection);
    const listening = this.#listen(connection).finally(() => this.#listening.delete(listening));
    this.#listening.add(listening);
  }

  async #listen(connection: Connection): Promise<void> {
    const { resource, path, client, stop } = connection;
    const { log, pool } = this.#options;
    try {
      for await (const { devices } of client.stream('ListAndWatch', {}, stop.signal)) {
        const list = devices.map(({ ID, health, topology }): Device => ({
          id: ID,
          healthy: health === 'Healthy',
          nodes: (topology?.nodes ?? []).map((node) => Number(node.ID)),
        }));
        log.debug(2, 'State pushed for device plugin', { resource, count: list.length });
        pool.list(resource, list);
      }
    } catch (error) {
      if (!stop.signal.aborted) log.warn('ListAndWatch ended unexpectedly for device plugin', { resource, err: messageOf(error) });
    }
    this.#connections.delete(connection);
    client[Symbol.dispose]();
    pool.disconnected(resource, path);
  }

  #endpoint({ resource, path, client, stop }: Connection, preStart: boolean, hasPreference: boolean): PluginEndpoint {
    const options = (timeoutMs: number, signal: AbortSignal): { timeoutMs: number; signal: AbortSignal } => ({
      timeoutMs,
      signal: AbortSignal.any([signal, stop.signal]),
    });
    return {
      resource,
      path,
      preStart,
      hasPreference,
      async allocate(ids, signal) {
        const { containerResponses } = await client.call('Allocate', { containerRequests: [{ devicesIds: [...ids] }] }, options(allocateMs, signal));
        return containerResponses;
      },
      async prefer(available, mustInclude, count, signal) {
        const request = { availableDeviceIDs: [...available], mustIncludeDeviceIDs: [...mustInclude], allocationSize: count };
        const { containerResponses } = await client.call('GetPreferredAllocation', { containerRequests: [request] }, options(allocateMs, signal));
        return containerResponses[0]?.deviceIDs ?? [];
      },
      async preStartContainer(ids, signal) {
        await client.call('PreStartContainer', { devicesIds: [...ids] }, options(preStartMs, signal));
      },
    };
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { stop } of this.#connections) stop.abort();
    await Promise.all(this.#listening);
    await this.#server?.[Symbol.asyncDispose]();
    await this.#options.pool.settled();
  }
}
