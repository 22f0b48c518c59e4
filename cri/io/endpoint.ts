import { access, constants, readFile } from 'node:fs/promises';
import { OpError } from '../../base/errors.ts';
import { readYaml } from '../../base/yaml.ts';
import { createCriClient, type CriClient } from '../client.ts';
import { connectRuntime, dialTarget } from '../grpc.ts';
import type { Transport } from '../transport.ts';

/** Where runtimes listen when nobody says where. */
const USUAL = ['/run/containerd/containerd.sock', '/run/crio/crio.sock', '/run/cri-dockerd.sock'];
const CRICTL_FILE = '/etc/crictl.yaml';

export interface EndpointFlags {
  readonly runtimeEndpoint?: string;
  readonly imageEndpoint?: string;
}

export interface Endpoints {
  readonly runtime: string;
  /** The runtime's own when nothing else is said. */
  readonly image: string;
}

interface CrictlConfig {
  readonly 'runtime-endpoint'?: unknown;
  readonly 'image-endpoint'?: unknown;
}

async function crictlConfig(env: Readonly<Record<string, string | undefined>>): Promise<CrictlConfig> {
  const named = env['CRI_CONFIG_FILE'];
  const path = named ?? CRICTL_FILE;
  const text = await readFile(path, 'utf8').catch((cause: unknown) => {
    if (named === undefined) return '';
    throw new OpError('not-found', `read ${path}`, 'it cannot be read', { cause, advice: 'CRI_CONFIG_FILE names it' });
  });
  const read = await readYaml(text, path);
  return read !== null && typeof read === 'object' ? read : {};
}

function isThere(path: string, mode: number): Promise<boolean> {
  return access(path, mode).then(
    () => true,
    () => false,
  );
}

/**
 * The runtime's socket: of the flags, else of CONTAINER_RUNTIME_ENDPOINT, else of crictl's file (CRI_CONFIG_FILE or
 * /etc/crictl.yaml), else the first usual place where there is one. Throws OpError `not-found` when there is none.
 */
export async function findEndpoints(
  flags: EndpointFlags,
  env: Readonly<Record<string, string | undefined>>,
  usual: readonly string[] = USUAL,
): Promise<Endpoints> {
  const said = (value: unknown): string | undefined => (typeof value === 'string' && value !== '' ? value : undefined);
  const isComplete = said(flags.runtimeEndpoint ?? env['CONTAINER_RUNTIME_ENDPOINT']) !== undefined;
  const config = isComplete ? {} : await crictlConfig(env);
  let runtime = said(flags.runtimeEndpoint) ?? said(env['CONTAINER_RUNTIME_ENDPOINT']) ?? said(config['runtime-endpoint']);
  for (const path of usual) if (runtime === undefined && (await isThere(path, constants.F_OK))) runtime = `unix://${path}`;
  if (runtime === undefined)
    throw new OpError('not-found', 'looking for a container runtime', `there is no socket at ${usual.join(', ')}`, {
      advice: 'name it with --runtime-endpoint unix:///…, or in CONTAINER_RUNTIME_ENDPOINT',
    });
  return { runtime, image: said(flags.imageEndpoint) ?? said(env['IMAGE_SERVICE_ENDPOINT']) ?? said(config['image-endpoint']) ?? runtime };
}

export interface RuntimeConnection extends AsyncDisposable {
  readonly endpoints: Endpoints;
  readonly transport: Transport;
  readonly client: CriClient;
}

/** Connects to the runtime that `findEndpoints` finds. Throws OpError when its socket is not there or not ours to use. */
export async function connectEndpoints(flags: EndpointFlags, env: Readonly<Record<string, string | undefined>>): Promise<RuntimeConnection> {
  const endpoints = await findEndpoints(flags, env);
  for (const endpoint of new Set(Object.values(endpoints))) {
    const path = dialTarget(endpoint).slice('unix:'.length);
    if (!(await isThere(path, constants.F_OK)))
      throw new OpError('not-found', `connect to ${endpoint}`, 'no such socket', { advice: 'start the runtime, or name another with --runtime-endpoint' });
    if (!(await isThere(path, constants.W_OK))) throw new OpError('denied', `connect to ${endpoint}`, 'permission denied', { advice: 'run it with sudo' });
  }
  const runtime = connectRuntime(endpoints.runtime);
  const images = endpoints.image === endpoints.runtime ? runtime : connectRuntime(endpoints.image);
  const sideOf = (service: string): Transport => (service === 'ImageService' ? images : runtime);
  const transport: Transport = {
    call: (call, options) => sideOf(call.service).call(call, options),
    stream: (call, options) => sideOf(call.service).stream(call, options),
    async [Symbol.asyncDispose]() {
      await runtime[Symbol.asyncDispose]();
      if (images !== runtime) await images[Symbol.asyncDispose]();
    },
  };
  return { endpoints, transport, client: createCriClient(transport), [Symbol.asyncDispose]: () => transport[Symbol.asyncDispose]() };
}
