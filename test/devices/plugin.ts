import { rm } from 'node:fs/promises';
import { join } from 'node:path';
import { GrpcClient, served, serveGrpc, serviceOf } from '../../agent/io/grpc.ts';
import { realClock } from '../../base/clock.ts';
import definition from '../../proto/plugins/device_plugin.json' with { type: 'json' };
import type { ContainerAllocateResponse, DevicePluginMethods, RegistrationMethods } from '../../proto/plugins/device_plugin.ts';

export interface TestDevice {
  readonly id: string;
  readonly health?: 'Healthy' | 'Unhealthy';
  readonly nodes?: readonly number[];
}

export interface TestPluginOptions {
  /** The kubelet's `device-plugins`, as this process sees it. */
  readonly dir: string;
  readonly resource: string;
  readonly devices: readonly TestDevice[];
  /** What a container gets with these devices. */
  readonly allocate?: (ids: readonly string[]) => Partial<ContainerAllocateResponse>;
  /** Which of the available ones it would like; absent: it does not say. */
  readonly prefer?: (available: readonly string[], count: number) => readonly string[];
  /** Called before each start of a container; absent: it need not be. */
  readonly preStart?: (ids: readonly string[]) => void;
  /** Name of its socket. */
  readonly socket?: string;
}

export interface TestPlugin extends AsyncDisposable {
  /** What it was asked, in order. */
  readonly calls: readonly string[];
  /** Tells the kubelet of other devices from now on. */
  tell(devices: readonly TestDevice[]): void;
  /** Makes its socket anew: a kubelet that starts takes all sockets in its folder away. */
  serve(): Promise<void>;
  /** As at its start: at the kubelet's socket, which may be another one now. Throws RpcError. */
  register(version?: string): Promise<void>;
}

const service = (): ReturnType<typeof serviceOf<DevicePluginMethods>> => serviceOf<DevicePluginMethods>(definition, 'v1beta1.DevicePlugin');

/** A device plugin in this process. It serves its socket, but registers only when it is told to. */
export async function startPlugin(options: TestPluginOptions): Promise<TestPlugin> {
  const { dir, resource } = options;
  const socket = options.socket ?? `${resource.replaceAll('/', '-')}.sock`;
  const path = join(dir, socket);
  const calls: string[] = [];
  let devices = options.devices;
  let wake = Promise.withResolvers<void>();
  const over = new AbortController();
  const wire = (list: readonly TestDevice[]): object => ({
    devices: list.map(({ id, health = 'Healthy', nodes = [] }) => ({
      ID: id,
      health,
      topology: nodes.length === 0 ? null : { nodes: nodes.map((node) => ({ ID: String(node) })) },
    })),
  });
  const listen = (): Promise<AsyncDisposable> =>
    serveGrpc(path, [
      served(service(), {
        GetDevicePluginOptions: () => ({ preStartRequired: options.preStart !== undefined, getPreferredAllocationAvailable: options.prefer !== undefined }),
        async *ListAndWatch(_, signal) {
          signal.addEventListener('abort', next);
          while (!signal.aborted && !over.signal.aborted) {
            yield wire(devices);
            await wake.promise;
          }
        },
        Allocate({ containerRequests }) {
          const lists = containerRequests.map(({ devicesIds = [] }) => devicesIds.toSorted());
          calls.push(`Allocate ${lists.map((ids) => ids.join(',')).join(' ')}`);
          return { containerResponses: lists.map((ids) => options.allocate?.(ids) ?? {}) };
        },
        GetPreferredAllocation({ containerRequests }) {
          calls.push('GetPreferredAllocation');
          return {
            containerResponses: containerRequests.map(({ availableDeviceIDs = [], allocationSize = 0 }) => ({
              deviceIDs: [...(options.prefer?.(availableDeviceIDs.toSorted(), allocationSize) ?? [])],
            })),
          };
        },
        PreStartContainer({ devicesIds }) {
          calls.push(`PreStartContainer ${devicesIds.toSorted().join(',')}`);
          options.preStart?.(devicesIds);
          return {};
        },
      }),
    ]);
  let server: AsyncDisposable | null = null;
  const serve = async (): Promise<void> => {
    await server?.[Symbol.asyncDispose]();
    await rm(path, { force: true });
    server = await listen();
  };
  await serve();
  const next = (): void => {
    wake.resolve();
    wake = Promise.withResolvers<void>();
  };
  return {
    calls,
    serve,
    tell(list) {
      devices = list;
      next();
    },
    async register(version = 'v1beta1') {
      using client = new GrpcClient(serviceOf<RegistrationMethods>(definition, 'v1beta1.Registration'), join(dir, 'kubelet.sock'), realClock);
      await client.call('Register', { version, endpoint: socket, resourceName: resource }, { timeoutMs: 10_000 });
    },
    async [Symbol.asyncDispose]() {
      over.abort();
      next();
      await server?.[Symbol.asyncDispose]();
      await rm(path, { force: true });
    },
  };
}
