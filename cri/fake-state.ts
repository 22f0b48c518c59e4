import type { ContainerConfig, ContainerState, PodSandboxConfig } from '../proto/cri/types.ts';

/** What a container does once it runs. Without a script it runs until it is told to stop. */
export interface ContainerScript {
  /** Ends by itself after this long. */
  exitAfterMs?: number;
  /** Default 0. */
  exitCode?: number;
  oomKilled?: boolean;
  /** What the stop signal does: default ends at once with 143; `ignore` leaves it to SIGKILL. */
  onStop?: 'ignore' | { afterMs?: number; exitCode?: number };
  /** Starting it fails with these words. */
  startError?: string;
}

export interface ExecScript {
  exitCode?: number;
  stdout?: string;
  stderr?: string;
  /** How long it takes; past the request's timeout it is DeadlineExceeded. */
  takesMs?: number;
}

export interface FakeSandbox {
  readonly id: string;
  readonly config: PodSandboxConfig;
  readonly runtimeHandler: string;
  readonly createdAtNs: bigint;
  readonly ip: string;
  readonly additionalIps?: readonly string[];
  ready: boolean;
}

export interface FakeContainer {
  readonly id: string;
  readonly sandboxId: string;
  readonly config: ContainerConfig;
  readonly image: { tag: string; digest: string; id: string };
  readonly createdAtNs: bigint;
  readonly logPath: string;
  script: ContainerScript;
  /** One of four, and what only that one has. */
  status:
    | { state: 'created' }
    | { state: 'running'; startedAtNs: bigint; exit: Disposable | undefined }
    | { state: 'exited'; startedAtNs: bigint; finishedAtNs: bigint; exitCode: number; reason: string; message: string }
    | { state: 'unknown'; startedAtNs: bigint };
  /** Called when it has ended. */
  waiters: (() => void)[];
}

export const criState: Readonly<Record<FakeContainer['status']['state'], ContainerState>> = {
  created: 'CONTAINER_CREATED',
  running: 'CONTAINER_RUNNING',
  exited: 'CONTAINER_EXITED',
  unknown: 'CONTAINER_UNKNOWN',
};

const DEFAULT_SIGNAL = 'SIGNAL_RUNTIME_DEFAULT';

/** What a runtime tells of it. */
export function sandboxStatus(sandbox: FakeSandbox): object {
  const { config } = sandbox;
  return {
    id: sandbox.id,
    metadata: config.metadata,
    state: sandbox.ready ? 'SANDBOX_READY' : 'SANDBOX_NOTREADY',
    createdAt: String(sandbox.createdAtNs),
    network: { ip: sandbox.ready ? sandbox.ip : '', additionalIps: sandbox.ready ? (sandbox.additionalIps ?? []).map((ip) => ({ ip })) : [] },
    linux: { namespaces: { options: config.linux?.securityContext?.namespaceOptions } },
    labels: config.labels,
    annotations: config.annotations,
    runtimeHandler: sandbox.runtimeHandler,
  };
}

/** `isNew`: with what containerd 2 has beyond 1.6. */
export function containerStatus(container: FakeContainer, isNew: boolean): object {
  const { config, status, image } = container;
  return {
    id: container.id,
    metadata: config.metadata,
    state: criState[status.state],
    createdAt: String(container.createdAtNs),
    startedAt: status.state === 'created' ? '0' : String(status.startedAtNs),
    finishedAt: status.state === 'exited' ? String(status.finishedAtNs) : '0',
    exitCode: status.state === 'exited' ? status.exitCode : 0,
    image: { image: image.tag },
    imageRef: image.digest,
    imageId: isNew ? image.id : '',
    reason: status.state === 'exited' ? status.reason : '',
    message: status.state === 'exited' ? status.message : '',
    labels: config.labels,
    annotations: config.annotations,
    mounts: config.mounts,
    logPath: container.logPath,
    resources: config.linux?.resources == null ? null : { linux: config.linux.resources },
    stopSignal: isNew && (config.stopSignal ?? DEFAULT_SIGNAL) === DEFAULT_SIGNAL ? 'SIGNAL_SIGTERM' : isNew ? config.stopSignal : DEFAULT_SIGNAL,
  };
}

export function containerStats({ id, config }: FakeContainer, timestamp: string): object {
  return {
    attributes: { id, metadata: config.metadata, labels: config.labels, annotations: config.annotations },
    cpu: { timestamp, usageCoreNanoSeconds: { value: '1000000' } },
    memory: { timestamp, workingSetBytes: { value: '1048576' } },
    writableLayer: { timestamp, fsId: { mountpoint: '/var/lib/containerd' }, usedBytes: { value: '4096' }, inodesUsed: { value: '1' } },
  };
}

export function podStats({ id, config }: FakeSandbox, containers: readonly FakeContainer[], timestamp: string): object {
  return {
    attributes: { id, metadata: config.metadata, labels: config.labels, annotations: config.annotations },
    linux: {
      cpu: { timestamp, usageCoreNanoSeconds: { value: '1000000' } },
      memory: { timestamp, workingSetBytes: { value: '1048576' } },
      containers: containers.map((container) => containerStats(container, timestamp)),
    },
  };
}
