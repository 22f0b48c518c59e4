import { execFileSync } from 'node:child_process';
import { appendFileSync, existsSync, mkdirSync, readFileSync, rmdirSync, rmSync, statfsSync, truncateSync, writeFileSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { served, serveGrpc, serviceOf } from '../../agent/io/grpc.ts';
import type { Served } from '../../agent/io/grpc.ts';
import { RpcError } from '../../cri/mod.ts';
import csi from '../../proto/plugins/csi.json' with { type: 'json' };
import type { ControllerMethods, IdentityMethods, NodeMethods, NodeRpcType, VolumeCapabilityInput } from '../../proto/plugins/csi.ts';
import registration from '../../proto/plugins/registration.json' with { type: 'json' };
import type { RegistrationMethods } from '../../proto/plugins/registration.ts';

/*
 * A CSI driver that keeps volumes as directories and files of this machine and mounts them for real. It does what the
 * specification asks and no more, and writes down each call, so that two kubelets can be held against each other.
 */

export interface DriverOptions {
  readonly name: string;
  readonly nodeId: string;
  /** Volumes and the record of calls lie here. */
  readonly stateDir: string;
  /** Socket of the driver itself. */
  readonly socket: string;
  /** Socket in `plugins_registry`; null: it registers with nobody. */
  readonly registration: string | null;
  readonly capabilities: readonly NodeRpcType[];
  readonly topology?: Readonly<Record<string, string>>;
  readonly maxVolumes?: number;
  readonly onCall?: (call: Recorded) => void;
  /** What is wrong with its volumes, and with its storage. */
  readonly health?: () => object[];
  readonly storageHealth?: () => object[];
}

export interface Recorded {
  readonly method: string;
  readonly request: Record<string, unknown>;
  readonly status: string;
}

/** What answers a call in place of the driver, once; a test arms it. */
export type Fault = (method: string, request: object) => Promise<void> | void;

export interface TestDriver extends AsyncDisposable {
  readonly calls: Recorded[];
  /** What the kubelet said of the registration, in order. */
  readonly registrations: { registered: boolean; error: string }[];
  fault: Fault | null;
}

const allCapabilities: readonly NodeRpcType[] = ['STAGE_UNSTAGE_VOLUME', 'GET_VOLUME_STATS', 'EXPAND_VOLUME', 'SINGLE_NODE_MULTI_WRITER_RPC'];
export { allCapabilities };

/** Starts the driver: its own socket first, then the one by which it is found. */
export async function startDriver(options: DriverOptions): Promise<TestDriver> {
  const volumes = new Volumes(options.stateDir);
  const calls: Recorded[] = [];
  const registrations: { registered: boolean; error: string }[] = [];
  const driver: { fault: Fault | null } = { fault: null };
  const recorded =
    <Request extends object>(method: string, answer: (request: Request) => object) =>
    async (request: Request): Promise<object> => {
      let status = 'OK';
      try {
        await driver.fault?.(method, request);
        return answer(request);
      } catch (error) {
        status = error instanceof RpcError ? error.status : 'Unknown';
        throw error;
      } finally {
        const call = { method, request: request as Record<string, unknown>, status };
        calls.push(call);
        options.onCall?.(call);
        appendFileSync(join(options.stateDir, 'calls.jsonl'), `${JSON.stringify(call)}\n`);
      }
    };
  const node = served(serviceOf<NodeMethods>(csi, 'csi.v1.Node'), {
    NodeGetInfo: recorded('NodeGetInfo', () => ({
      nodeId: options.nodeId,
      maxVolumesPerNode: options.maxVolumes ?? 0,
      ...(options.topology === undefined ? {} : { accessibleTopology: { segments: options.topology } }),
    })),
    NodeGetCapabilities: recorded('NodeGetCapabilities', () => ({ capabilities: options.capabilities.map((type) => ({ rpc: { type } })) })),
    NodeStageVolume: recorded('NodeStageVolume', ({ volumeId, stagingTargetPath, volumeCapability }: Required<NodeMethods['NodeStageVolume']['request']>) => {
      volumes.stage(volumeId, stagingTargetPath, isBlock(volumeCapability));
      return {};
    }),
    NodeUnstageVolume: recorded('NodeUnstageVolume', ({ stagingTargetPath, volumeId }: Required<NodeMethods['NodeUnstageVolume']['request']>) => {
      volumes.unstage(volumeId, stagingTargetPath);
      return {};
    }),
    NodePublishVolume: recorded('NodePublishVolume', (request: Required<NodeMethods['NodePublishVolume']['request']>) => {
      const inline = request.volumeContext['csi.storage.k8s.io/ephemeral'] === 'true';
      if (inline) volumes.make(request.volumeId, false, 0);
      volumes.publish(request.volumeId, request.stagingTargetPath, request.targetPath, isBlock(request.volumeCapability), request.readonly);
      return {};
    }),
    NodeUnpublishVolume: recorded('NodeUnpublishVolume', ({ targetPath, volumeId }: Required<NodeMethods['NodeUnpublishVolume']['request']>) => {
      volumes.unpublish(targetPath);
      if (volumeId.startsWith('csi-')) volumes.remove(volumeId);
      return {};
    }),
    NodeExpandVolume: recorded('NodeExpandVolume', ({ volumeId, capacityRange }: Required<NodeMethods['NodeExpandVolume']['request']>) => {
      volumes.grow(volumeId, Number(capacityRange?.requiredBytes ?? 0));
      return { capacityBytes: capacityRange?.requiredBytes ?? '0' };
    }),
    NodeGetVolumeHealth: recorded('NodeGetVolumeHealth', () => ({ volumeHealth: { volumeId: '', healthStatuses: options.health?.() ?? [] } })),
    NodeGetStorageHealth: recorded('NodeGetStorageHealth', () => ({ backendHealth: options.storageHealth?.() ?? [] })),
    NodeGetVolumeStats: recorded('NodeGetVolumeStats', ({ volumePath }: Required<NodeMethods['NodeGetVolumeStats']['request']>) => {
      if (!existsSync(volumePath)) throw new RpcError('NotFound', 'NodeGetVolumeStats', `${volumePath} is not there`);
      const { bsize, blocks, bavail, bfree, files, ffree } = statfsSync(volumePath);
      return {
        usage: [
          { unit: 'BYTES', total: bsize * blocks, available: bsize * bavail, used: bsize * (blocks - bfree) },
          { unit: 'INODES', total: files, available: ffree, used: files - ffree },
        ],
      };
    }),
  });
  const identity = served(serviceOf<IdentityMethods>(csi, 'csi.v1.Identity'), {
    GetPluginInfo: () => ({ name: options.name, vendorVersion: '1' }),
    GetPluginCapabilities: () => ({ capabilities: [{ service: { type: 'CONTROLLER_SERVICE' } }] }),
    Probe: () => ({ ready: { value: true } }),
  });
  const controller = served(serviceOf<ControllerMethods>(csi, 'csi.v1.Controller'), {
    CreateVolume({ name, capacityRange, volumeCapabilities }) {
      const capacityBytes = Number(capacityRange?.requiredBytes ?? 0);
      volumes.make(name, volumeCapabilities.some(isBlock), capacityBytes);
      return { volume: { volumeId: name, capacityBytes } };
    },
    DeleteVolume({ volumeId }) {
      volumes.remove(volumeId);
      return {};
    },
  });
  mkdirSync(dirname(options.socket), { recursive: true });
  const services = await listen(options.socket, [identity, controller, node]);
  const known = options.registration === null ? null : await listen(options.registration, [registrationOf(options, registrations)]);
  return {
    calls,
    registrations,
    get fault() {
      return driver.fault;
    },
    set fault(fault) {
      driver.fault = fault;
    },
    async [Symbol.asyncDispose]() {
      await known?.[Symbol.asyncDispose]();
      await services[Symbol.asyncDispose]();
    },
  };
}

function registrationOf({ name, socket }: DriverOptions, registrations: { registered: boolean; error: string }[]): Served {
  return served(serviceOf<RegistrationMethods>(registration, 'pluginregistration.Registration'), {
    GetInfo: () => ({ type: 'CSIPlugin', name, endpoint: socket, supportedVersions: ['1.0.0'] }),
    NotifyRegistrationStatus({ pluginRegistered, error }) {
      registrations.push({ registered: pluginRegistered, error });
      return {};
    },
  });
}

async function listen(path: string, services: readonly Served[]): Promise<AsyncDisposable> {
  rmSync(path, { force: true });
  mkdirSync(dirname(path), { recursive: true });
  return await serveGrpc(path, services);
}

function isBlock(capability: VolumeCapabilityInput | null): boolean {
  return capability?.block !== undefined && capability.block !== null;
}

/** Volumes of the driver: a directory each, or a file that stands behind a loop device. */
class Volumes {
  readonly #dir: string;

  constructor(stateDir: string) {
    this.#dir = join(stateDir, 'volumes');
    mkdirSync(this.#dir, { recursive: true });
  }

  make(id: string, block: boolean, bytes: number): void {
    const path = this.#path(id);
    if (existsSync(path)) return;
    if (block) {
      writeFileSync(path, '');
      truncateSync(path, Math.max(bytes, 1 << 20));
    } else mkdirSync(path);
  }

  remove(id: string): void {
    rmSync(this.#path(id), { recursive: true, force: true });
  }

  stage(id: string, target: string, block: boolean): void {
    const path = this.#existing(id, 'NodeStageVolume');
    if (!block) return this.#bind(path, target);
    const device = loopOf(path) ?? run('losetup', ['--find', '--show', path]);
    writeFileSync(join(target, 'device'), device);
  }

  unstage(id: string, target: string): void {
    unmount(target);
    const device = join(target, 'device');
    if (!existsSync(device)) return;
    const loop = loopOf(this.#path(id));
    if (loop !== null) run('losetup', ['--detach', loop]);
    rmSync(device);
  }

  publish(id: string, staging: string, target: string, block: boolean, readOnly: boolean): void {
    const path = this.#existing(id, 'NodePublishVolume');
    if (isMounted(target)) return;
    if (block) {
      const device = readFileSync(join(staging, 'device'), 'utf8');
      writeFileSync(target, '');
      return void run('mount', ['--bind', device, target]);
    }
    mkdirSync(target, { recursive: true });
    this.#bind(staging === '' ? path : staging, target);
    if (readOnly) run('mount', ['-o', 'remount,bind,ro', target]);
  }

  unpublish(target: string): void {
    unmount(target);
    if (!existsSync(target)) return;
    try {
      rmdirSync(target);
    } catch {
      rmSync(target);
    }
  }

  grow(id: string, bytes: number): void {
    this.#existing(id, 'NodeExpandVolume');
    writeFileSync(join(this.#dir, `.${id}.size`), String(bytes));
  }

  #bind(source: string, target: string): void {
    if (!isMounted(target)) run('mount', ['--bind', source, target]);
  }

  #path(id: string): string {
    return join(this.#dir, id.replaceAll('/', '~'));
  }

  #existing(id: string, method: string): string {
    const path = this.#path(id);
    if (!existsSync(path)) throw new RpcError('NotFound', method, `volume ${id} does not exist`);
    return path;
  }
}

function unmount(target: string): void {
  while (isMounted(target)) run('umount', [target]);
}

function isMounted(target: string): boolean {
  return readFileSync('/proc/self/mountinfo', 'utf8')
    .split('\n')
    .some((line) => line.split(' ')[4] === target);
}

function loopOf(path: string): string | null {
  const [line] = run('losetup', ['--associated', path, '--noheadings', '--output', 'NAME']).split('\n');
  return line === undefined || line === '' ? null : line;
}

function run(program: string, args: readonly string[]): string {
  try {
    return execFileSync(program, args, { encoding: 'utf8', stdio: ['ignore', 'pipe', 'pipe'] }).trim();
  } catch (error) {
    throw new RpcError('Internal', program, `${program} ${args.join(' ')}: ${(error as { stderr?: string }).stderr ?? String(error)}`);
  }
}
