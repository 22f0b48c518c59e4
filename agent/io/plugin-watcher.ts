import { watch } from 'node:fs';
import { lstat, mkdir, readdir } from 'node:fs/promises';
import { join } from 'node:path';
import type { Clock } from '../../base/clock.ts';
import { messageOf } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import registration from '../../proto/plugins/registration.json' with { type: 'json' };
import type { PluginInfo, RegistrationMethods } from '../../proto/plugins/registration.ts';
import { dueRegistrations, failed } from '../core/plugins.ts';
import type { PluginState } from '../core/plugins.ts';
import { GrpcClient, serviceOf } from './grpc.ts';

/** A plugin as it told of itself. */
export interface RegisteredPlugin {
  readonly name: string;
  /** Path of the socket that serves its own API. */
  readonly endpoint: string;
  readonly versions: readonly string[];
}

/** What is done about plugins of one type. What it throws is told to the plugin, and tried again later. */
export interface PluginHandler {
  /** Whether it can be taken, before anything is done for it. */
  validate(plugin: RegisteredPlugin): void;
  register(plugin: RegisteredPlugin, signal: AbortSignal): Promise<void>;
  /** Its socket is gone. */
  deregister(plugin: RegisteredPlugin, signal: AbortSignal): Promise<void>;
}

export type PluginType = 'CSIPlugin' | 'DRAPlugin' | 'DevicePlugin';

export interface PluginWatcherOptions {
  readonly clock: Clock;
  readonly log: Log;
  /** `<root>/plugins_registry`. */
  readonly dir: string;
  readonly handlers: Readonly<Partial<Record<PluginType, PluginHandler>>>;
}

/** By path of a directory, with what tells it from another of the same path. */
type Watchers = Map<string, { readonly identity: string; close(): void }>;

/** The kernel's events can be lost, and a failed registration comes due: looked at this often. */
const rescanMs = 1000;
const askTimeoutMs = 1000;
const tellTimeoutMs = 5000;
const maxDepth = 8;

const service = (): ReturnType<typeof serviceOf<RegistrationMethods>> => serviceOf<RegistrationMethods>(registration, 'pluginregistration.Registration');

/**
 * Finds the sockets below `plugins_registry`, asks each who it is and hands it to the handler of its type. A socket
 * that was made anew is registered anew, one that is gone is deregistered. The directory is the agent's own.
 */
export class PluginWatcher {
  readonly #options: PluginWatcherOptions;
  /** By path of the socket. */
  readonly #plugins = new Map<string, PluginState & { taken?: { handler: PluginHandler; plugin: RegisteredPlugin } }>();
  /** Paths with work under way. */
  readonly #busy = new Map<string, Promise<void>>();
  #service: ReturnType<typeof service> | undefined;
  #wake: () => void = () => undefined;

  constructor(options: PluginWatcherOptions) {
    this.#options = options;
  }

  /** Sockets that are there, and those whose plugin is registered. */
  counts(): { readonly sockets: readonly string[]; readonly registered: readonly string[] } {
    return { sockets: [...this.#plugins.keys()], registered: [...this.#plugins].filter(([, { registered }]) => registered).map(([path]) => path) };
  }

  /** Watches until `signal` is aborted; nothing is deregistered at the end, for the plugins are still there. */
  async run(signal: AbortSignal): Promise<void> {
    const { clock, dir, log } = this.#options;
    await mkdir(dir, { recursive: true, mode: 0o750 });
    const watchers: Watchers = new Map();
    while (!signal.aborted) {
      const woken = new AbortController();
      this.#wake = () => woken.abort();
      try {
        const found = await socketsBelow(dir);
        // A directory that went away is watched for nothing, and one of its name that comes is another one.
        for (const [each, watcher] of watchers) if (found.dirs.get(each) !== watcher.identity) watcher.close();
        for (const [each, identity] of found.dirs) if (!watchers.has(each)) this.#watch(each, identity, watchers);
        this.#reconcile(found.sockets, signal);
      } catch (error) {
        if (signal.aborted) break;
        log.error('Failed to traverse plugin socket path', { path: dir, err: messageOf(error) });
      }
      await clock.sleep(rescanMs, AbortSignal.any([signal, woken.signal])).catch(() => undefined);
    }
    for (const watcher of watchers.values()) watcher.close();
    await Promise.all(this.#busy.values());
  }

  #watch(dir: string, identity: string, watchers: Watchers): void {
    try {
      const watcher = watch(dir, { persistent: false }, () => this.#wake());
      const close = (): void => {
        watcher.close();
        watchers.delete(dir);
      };
      watchers.set(dir, { identity, close });
      watcher.on('error', close);
    } catch {
      // It is looked at all the same, a little later.
    }
  }

  /** Begins what is due. A plugin that hangs holds up none but itself. */
  #reconcile(sockets: ReadonlyMap<string, string>, signal: AbortSignal): void {
    const { gone, due } = dueRegistrations(this.#plugins, sockets, this.#options.clock.monoMs());
    const identities = new Map(due.map(({ path, identity }) => [path, identity]));
    for (const path of new Set([...gone, ...identities.keys()])) {
      if (this.#busy.has(path)) continue;
      const work = async (): Promise<void> => {
        if (gone.includes(path)) await this.#deregister(path, signal);
        const identity = identities.get(path);
        if (identity !== undefined) await this.#register(path, identity, signal);
      };
      this.#busy.set(
        path,
        work().finally(() => {
          this.#busy.delete(path);
          this.#wake();
        }),
      );
    }
  }

  async #deregister(path: string, signal: AbortSignal): Promise<void> {
    const state = this.#plugins.get(path);
    this.#plugins.delete(path);
    if (state?.taken === undefined) return;
    const { handler, plugin } = state.taken;
    this.#options.log.info('Plugin is gone', { path, plugin: plugin.name });
    try {
      await handler.deregister(plugin, signal);
    } catch (error) {
      this.#options.log.error('Deregistering a plugin failed', { path, plugin: plugin.name, err: messageOf(error) });
    }
  }

  async #register(path: string, identity: string, signal: AbortSignal): Promise<void> {
    const { clock, log } = this.#options;
    const before = this.#plugins.get(path);
    try {
      const taken = await this.#ask(path, signal);
      this.#plugins.set(path, { identity, registered: true, nextMs: 0, waitMs: 0, taken });
      log.info('Plugin registered', { path, plugin: taken.plugin.name, endpoint: taken.plugin.endpoint });
    } catch (error) {
      if (signal.aborted) return;
      this.#plugins.set(path, failed(before?.identity === identity ? before : undefined, identity, clock.monoMs()));
      log.error('RegisterPlugin error', { path, err: messageOf(error) });
    }
  }

  async #ask(path: string, signal: AbortSignal): Promise<{ handler: PluginHandler; plugin: RegisteredPlugin }> {
    this.#service ??= service();
    using client = new GrpcClient(this.#service, path, this.#options.clock);
    const info: PluginInfo = await client.call('GetInfo', {}, { timeoutMs: askTimeoutMs, signal });
    const plugin = { name: info.name, endpoint: info.endpoint === '' ? path : info.endpoint, versions: info.supportedVersions };
    const refuse = async (error: string): Promise<void> => {
      await client.call('NotifyRegistrationStatus', { pluginRegistered: false, error }, { timeoutMs: tellTimeoutMs, signal });
    };
    const handler = this.#options.handlers[info.type as PluginType];
    if (handler === undefined || !Object.hasOwn(this.#options.handlers, info.type)) {
      const message = `RegisterPlugin error -- no handler registered for plugin type: ${info.type} at socket ${path}`;
      await refuse(message);
      throw new Error(message);
    }
    try {
      handler.validate(plugin);
    } catch (error) {
      await refuse(`RegisterPlugin error -- plugin validation failed with err: ${messageOf(error)}`);
      throw error;
    }
    try {
      await handler.register(plugin, signal);
    } catch (error) {
      await refuse(`RegisterPlugin error -- plugin registration failed with err: ${messageOf(error)}`);
      throw error;
    }
    try {
      await client.call('NotifyRegistrationStatus', { pluginRegistered: true }, { timeoutMs: tellTimeoutMs, signal });
    } catch (error) {
      await handler.deregister(plugin, signal);
      throw error;
    }
    return { handler, plugin };
  }
}

/** Sockets by path with what tells one from another of the same path; hidden names are passed over. */
async function socketsBelow(root: string): Promise<{ sockets: Map<string, string>; dirs: Map<string, string> }> {
  const sockets = new Map<string, string>();
  const dirs = new Map<string, string>();
  const visit = async (dir: string, depth: number): Promise<void> => {
    const { dev, ino, birthtimeNs } = await lstat(dir, { bigint: true });
    dirs.set(dir, `${dev}:${ino}:${birthtimeNs}`);
    for (const entry of await readdir(dir, { withFileTypes: true })) {
      if (entry.name.startsWith('.')) continue;
      const path = join(dir, entry.name);
      if (entry.isDirectory() && depth < maxDepth) await visit(path, depth + 1).catch(ignoreGone);
      if (!entry.isSocket()) continue;
      const stat = await lstat(path, { bigint: true }).catch(ignoreGone);
      if (stat !== undefined) sockets.set(path, `${stat.dev}:${stat.ino}:${stat.ctimeNs}`);
    }
  };
  await visit(root, 0);
  return { sockets, dirs };
}

function ignoreGone(error: NodeJS.ErrnoException): undefined {
  if (error.code !== 'ENOENT' && error.code !== 'ENOTDIR') throw error;
  return undefined;
}
