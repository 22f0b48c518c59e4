import type { ContainerConfig, PodSandboxConfig } from '../proto/cri/types.ts';
import { RpcError } from './errors.ts';
import { containerStats, containerStatus, criState, sandboxStatus, type FakeContainer, type FakeSandbox } from './fake-state.ts';
import type { FakeWorld } from './fake-world.ts';
import type { CallOptions } from './transport.ts';

type Method = (request: never, options: CallOptions) => object | Promise<object>;

/** The runtime's methods, each with its request filled; what is not here is Unimplemented. */
export function methodsOf(world: FakeWorld): Readonly<Record<string, Method>> {
  const methods = {
    Version: () => ({ version: '0.1.0', runtimeName: 'containerd', runtimeVersion: world.version === '1.6' ? '1.6.20' : 'v2.4.0', runtimeApiVersion: 'v1' }),

    Status: () => ({
      status: {
        conditions: [
          { type: 'RuntimeReady', status: world.runtimeReady },
          world.networkReady
            ? { type: 'NetworkReady', status: true }
            : { type: 'NetworkReady', status: false, reason: 'NetworkPluginNotReady', message: 'Network plugin returns error: cni plugin not initialized' },
          ...(world.version === '1.6' ? [] : [{ type: 'ContainerdHasNoDeprecationWarnings', status: true }]),
        ],
      },
      runtimeHandlers:
        world.version === '1.6'
          ? []
          : [
              { name: '', features: {} },
              { name: 'runc', features: {} },
            ],
    }),

    RuntimeConfig: () => {
      if (world.version === '1.6') throw world.unimplemented('RuntimeConfig');
      return { linux: { cgroupDriver: 'CGROUPFS' } };
    },

    UpdateRuntimeConfig: () => ({}),

    RunPodSandbox: ({ config, runtimeHandler = '' }: { config: PodSandboxConfig | null; runtimeHandler?: string }) => {
      const method = 'RunPodSandbox';
      if (config?.metadata == null) world.refuse(method, 'Unknown', 'sandbox config must include metadata');
      const { name, namespace, uid, attempt } = config.metadata;
      const key = `${name}_${namespace}_${uid}_${attempt}`;
      const holder = [...world.sandboxes.values()].find(
        ({ config: { metadata: other } }) => `${other?.name}_${other?.namespace}_${other?.uid}_${other?.attempt}` === key,
      );
      if (holder !== undefined)
        world.refuse(
          method,
          world.version === '1.6' ? 'Unknown' : 'FailedPrecondition',
          `failed to reserve sandbox name "${key}": name "${key}" is reserved for "${holder.id}"`,
        );
      const onHost = config.linux?.securityContext?.namespaceOptions?.network === 'NODE';
      if (onHost && (config.hostname ?? '') !== '')
        world.refuse(
          method,
          'Unknown',
          'failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: unable to set hostname without a private UTS namespace: unknown',
        );
      const id = world.newId();
      const [ip = `10.88.${world.made >> 8}.${world.made & 255}`, ...additionalIps] = world.onAddress(config) ?? [];
      const sandbox: FakeSandbox = {
        id,
        config,
        runtimeHandler,
        createdAtNs: world.nowNs(),
        ip: onHost ? '' : ip,
        additionalIps: onHost ? [] : additionalIps,
        ready: true,
      };
      if (!world.networkReady && !onHost) world.refuse(method, 'Unknown', `failed to setup network for sandbox "${id}": cni plugin not initialized`);
      world.sandboxes.set(id, sandbox);
      world.announce(id, id, 'CONTAINER_CREATED_EVENT');
      world.announce(id, id, 'CONTAINER_STARTED_EVENT');
      return { podSandboxId: id };
    },

    StopPodSandbox: async ({ podSandboxId }: { podSandboxId: string }) => {
      const sandbox = world.byId(world.sandboxes, podSandboxId);
      if (sandbox !== undefined) await world.stopSandbox(sandbox);
      return {};
    },

    RemovePodSandbox: async ({ podSandboxId }: { podSandboxId: string }) => {
      const sandbox = world.byId(world.sandboxes, podSandboxId);
      if (sandbox === undefined) return {};
      await world.stopSandbox(sandbox);
      for (const container of world.containersOf(sandbox.id)) world.removeContainerNow(container);
      world.sandboxes.delete(sandbox.id);
      world.announce(sandbox.id, sandbox.id, 'CONTAINER_DELETED_EVENT');
      return {};
    },

    PodSandboxStatus: ({ podSandboxId, verbose }: { podSandboxId: string; verbose: boolean }) => {
      const sandbox = world.sandboxById('PodSandboxStatus', podSandboxId);
      return {
        status: sandboxStatus(sandbox),
        info: verbose ? { info: JSON.stringify({ pid: sandbox.ready ? 4000 + Number.parseInt(sandbox.id.slice(0, 12), 16) : 0 }) } : {},
      };
    },

    ListPodSandbox: ({ filter }: { filter: { id: string; state: { state: string } | null; labelSelector: Record<string, string> } | null }) => ({
      items: [...world.sandboxes.values()]
        .filter(
          ({ id, config, ready }) =>
            id.startsWith(filter?.id ?? '') &&
            (filter?.state == null || (filter.state.state === 'SANDBOX_READY') === ready) &&
            world.matches(config.labels, filter?.labelSelector),
        )
        .map((sandbox) => sandboxStatus(sandbox)),
    }),

    CreateContainer: ({
      podSandboxId,
      config,
      sandboxConfig,
    }: {
      podSandboxId: string;
      config: ContainerConfig | null;
      sandboxConfig: PodSandboxConfig | null;
    }) => {
      const method = 'CreateContainer';
      const sandbox = world.byId(world.sandboxes, podSandboxId) ?? world.refuse(method, 'NotFound', `failed to find sandbox id "${podSandboxId}": not found`);
      if (!sandbox.ready && world.version !== '1.6') world.refuse(method, 'Unknown', `sandbox container "${sandbox.id}" is not running`);
      if (!sandbox.ready)
        world.refuse(method, 'NotFound', `failed to get sandbox container task: no running task found: task ${sandbox.id} not found: not found`);
      if (config?.metadata == null) world.refuse(method, 'Unknown', 'container config must include metadata');
      const { name, attempt } = config.metadata;
      const holder = world.containersOf(sandbox.id).find(({ config: { metadata } }) => metadata?.name === name && metadata?.attempt === attempt);
      const pod = sandbox.config.metadata;
      const key = `${name}_${pod?.name}_${pod?.namespace}_${pod?.uid}_${attempt}`;
      if (holder !== undefined)
        world.refuse(
          method,
          world.version === '1.6' ? 'Unknown' : 'FailedPrecondition',
          `failed to reserve container name "${key}": name "${key}" is reserved for "${holder.id}"`,
        );
      const reference = config.image?.image ?? '';
      const image = world.images.find(reference) ?? world.refuse(method, 'NotFound', `failed to resolve image "${reference}": not found`);
      const folder = sandboxConfig?.logDirectory ?? sandbox.config.logDirectory ?? '';
      const container: FakeContainer = {
        id: world.newId(),
        sandboxId: sandbox.id,
        config,
        image: world.images.namesOf(image),
        createdAtNs: world.nowNs(),
        logPath: folder === '' || (config.logPath ?? '') === '' ? '' : `${folder.replace(/\/+$/, '')}/${config.logPath}`,
        script: {},
        status: { state: 'created' },
        waiters: [],
      };
      world.containers.set(container.id, container);
      world.announce(container.id, sandbox.id, 'CONTAINER_CREATED_EVENT');
      return { containerId: container.id };
    },

    StartContainer: ({ containerId }: { containerId: string }) => {
      world.start(world.containerById('StartContainer', containerId));
      return {};
    },

    StopContainer: async ({ containerId, timeout }: { containerId: string; timeout: string }, { signal }: CallOptions) => {
      const container = world.byId(world.containers, containerId);
      if (container !== undefined) await world.stop(container, Number(timeout) * 1000, signal);
      return {};
    },

    RemoveContainer: ({ containerId }: { containerId: string }) => {
      const container = world.byId(world.containers, containerId);
      if (container !== undefined) world.removeContainerNow(container);
      return {};
    },

    ListContainers: ({
      filter,
    }: {
      filter: { id: string; state: { state: string } | null; podSandboxId: string; labelSelector: Record<string, string> } | null;
    }) => ({
      containers: [...world.containers.values()]
        .filter(
          ({ id, sandboxId, config, status }) =>
            id.startsWith(filter?.id ?? '') &&
            sandboxId.startsWith(filter?.podSandboxId ?? '') &&
            (filter?.state == null || filter.state.state === criState[status.state]) &&
            world.matches(config.labels, filter?.labelSelector),
        )
        .map(({ id, sandboxId, config, status, image, createdAtNs }) => ({
          id,
          podSandboxId: sandboxId,
          metadata: config.metadata,
          image: config.image,
          imageRef: image.id,
          imageId: world.version === '1.6' ? '' : image.id,
          state: criState[status.state],
          createdAt: String(createdAtNs),
          labels: config.labels,
          annotations: config.annotations,
        })),
    }),

    ContainerStatus: ({ containerId, verbose }: { containerId: string; verbose: boolean }) => {
      const container = world.containerById('ContainerStatus', containerId);
      const pid = container.status.state === 'running' ? 4000 + Number.parseInt(container.id.slice(0, 12), 16) : 0;
      return {
        status: containerStatus(container, world.version !== '1.6'),
        info: verbose ? { info: JSON.stringify({ sandboxID: container.sandboxId, pid }) } : {},
      };
    },

    UpdateContainerResources: ({ containerId, linux }: { containerId: string; linux: object | null }) => {
      const container = world.containerById('UpdateContainerResources', containerId);
      if (container.status.state === 'exited')
        world.refuse('UpdateContainerResources', 'Unknown', `failed to update resources: container "${container.id}" is in CONTAINER_EXITED state`);
      const { config } = container;
      config.linux ??= {};
      if (linux !== null) config.linux.resources = { ...config.linux.resources, ...linux };
      return {};
    },

    ReopenContainerLog: ({ containerId }: { containerId: string }) => {
      const container = world.containerById('ReopenContainerLog', containerId);
      if (container.status.state !== 'running') world.refuse('ReopenContainerLog', 'Unknown', 'container is not running');
      return {};
    },

    ExecSync: async ({ containerId, cmd, timeout }: { containerId: string; cmd: string[]; timeout: string }, { signal }: CallOptions) => {
      const container = world.runningById('ExecSync', containerId);
      const { exitCode = 0, stdout = '', stderr = '', takesMs = 0 } = world.onExec(container, cmd);
      const limitMs = Number(timeout) > 0 ? Number(timeout) * 1000 : Infinity;
      try {
        if (takesMs > 0) await world.clock.sleep(Math.min(takesMs, limitMs), signal);
      } catch (cause) {
        throw new RpcError('Canceled', 'ExecSync', 'context canceled', { cause });
      }
      if (takesMs > limitMs)
        world.refuse('ExecSync', 'DeadlineExceeded', `failed to exec in container: timeout ${limitMs / 1000}s exceeded: context deadline exceeded`);
      return { exitCode, stdout: Buffer.from(stdout), stderr: Buffer.from(stderr) };
    },

    Exec: ({ containerId }: { containerId: string }) => ({ url: `http://127.0.0.1:1/exec/${world.runningById('Exec', containerId).id.slice(0, 12)}` }),
    Attach: ({ containerId }: { containerId: string }) => ({ url: `http://127.0.0.1:1/attach/${world.runningById('Attach', containerId).id.slice(0, 12)}` }),
    PortForward: ({ podSandboxId }: { podSandboxId: string }) => ({
      url: `http://127.0.0.1:1/portforward/${world.sandboxById('PortForward', podSandboxId).id.slice(0, 12)}`,
    }),

    ContainerStats: ({ containerId }: { containerId: string }) => ({
      stats: containerStats(world.containerById('ContainerStats', containerId), String(world.nowNs())),
    }),
    ListContainerStats: () => ({
      stats: [...world.containers.values()]
        .filter(({ status }) => status.state === 'running')
        .map((container) => containerStats(container, String(world.nowNs()))),
    }),
    PodSandboxStats: ({ podSandboxId }: { podSandboxId: string }) => ({ stats: world.podStatsOf(world.sandboxById('PodSandboxStats', podSandboxId)) }),
    ListPodSandboxStats: () => ({ stats: [...world.sandboxes.values()].filter(({ ready }) => ready).map((sandbox) => world.podStatsOf(sandbox)) }),

    ListImages: ({ filter }: { filter: null }) => ({ images: world.images.list(filter) }),
    ImageStatus: ({ image }: { image: { image: string } | null }) => {
      const found = world.images.find(image?.image ?? '');
      return { image: found === undefined ? null : world.images.toImage(found) };
    },
    PullImage: async (request: { image: { image: string } | null }, { signal }: CallOptions) => ({ imageRef: await world.images.pull(request, signal) }),
    RemoveImage: ({ image }: { image: { image: string } | null }) => {
      world.images.remove(image);
      return {};
    },
    ImageFsInfo: () => {
      const bytes = world.images.list(null).reduce((sum, { size }) => sum + Number(size ?? 0), 0);
      return {
        imageFilesystems: [
          {
            timestamp: String(world.nowNs()),
            fsId: { mountpoint: '/var/lib/containerd/io.containerd.snapshotter.v1.overlayfs' },
            usedBytes: { value: String(bytes) },
            inodesUsed: { value: '100' },
          },
        ],
      };
    },
  };
  return methods;
}
