import { lstat } from 'node:fs/promises';
import type { Clock } from '../../base/clock.ts';
import { hasCode, messageOf, OpError } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import { systemdVersion } from '../core/systemd-units.ts';
import type { UnitProperty } from '../core/systemd-units.ts';
import { connectDbus } from './dbus.ts';
import type { Dbus, DbusCall } from './dbus.ts';
import type { DbusMessage } from '../core/dbus/messages.ts';
import type { DbusValue, Variant } from '../core/dbus/values.ts';

/** What is asked of systemd as the owner of the machine's cgroups. systemd-fake.ts is its stand-in. */
export interface Systemd extends AsyncDisposable {
  /** Its version's number: 252. */
  version(signal: AbortSignal): Promise<number>;
  /** Makes a slice that lives until it is stopped or the machine ends; `exists`: there is one of that name, and it is left as it is. */
  startSlice(unit: string, properties: readonly UnitProperty[], signal: AbortSignal): Promise<'started' | 'exists'>;
  /** Changes properties of a unit until the machine ends. */
  setProperties(unit: string, properties: readonly UnitProperty[], signal: AbortSignal): Promise<void>;
  /** Stops a unit with all that is in it; one that is not there is stopped already. */
  stop(unit: string, signal: AbortSignal): Promise<void>;
  /** Sends a signal to all processes of a unit. */
  kill(unit: string, signalNumber: number, signal: AbortSignal): Promise<void>;
}

export interface SystemdOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly uid: number;
  /** Sockets in the order in which they are tried. */
  readonly sockets?: readonly SystemdSocket[];
  /** How long systemd may take for a unit; libcontainer's, too. */
  readonly jobTimeoutMs?: number;
}

export interface SystemdSocket {
  readonly path: string;
  readonly peer: 'bus' | 'direct';
}

/** The bus has everybody's rights checked by one place; systemd's own socket serves before, and without, a bus. */
export const systemdSockets: readonly SystemdSocket[] = [
  { path: '/run/dbus/system_bus_socket', peer: 'bus' },
  { path: '/run/systemd/private', peer: 'direct' },
];

const callTimeoutMs = 25_000;
const usualJobMs = 30_000;
const manager = { path: '/org/freedesktop/systemd1', interface: 'org.freedesktop.systemd1.Manager' };

/** Whether this machine was booted by systemd (sd_booted(3)). */
export function isSystemd(): Promise<boolean> {
  return lstat('/run/systemd/system').then(
    (stat) => stat.isDirectory(),
    () => false,
  );
}

export function createSystemd(options: SystemdOptions): Systemd {
  return new SystemdClient(options);
}

interface Job {
  readonly unit: string;
  /** Results of jobs of this unit that ended before its own was known. */
  readonly seen: Map<string, string>;
  path: string | null;
  readonly resolve: (result: string) => void;
  readonly lose: () => void;
}

interface Connected {
  readonly bus: Dbus;
  readonly peer: 'bus' | 'direct';
}

/** One connection, made when it is needed and again when it was lost. */
class SystemdClient implements Systemd {
  readonly #options: SystemdOptions;
  readonly #jobs = new Set<Job>();
  #connection: Promise<Connected> | null = null;
  #version: number | null = null;
  #closed = false;

  constructor(options: SystemdOptions) {
    this.#options = options;
  }

  async version(signal: AbortSignal): Promise<number> {
    if (this.#version !== null) return this.#version;
    const body = [manager.interface, 'Version'];
    const [value] = await this.#call({ path: manager.path, interface: 'org.freedesktop.DBus.Properties', member: 'Get', signature: 'ss', body }, signal);
    this.#version = systemdVersion((value as Variant).value as string);
    return this.#version;
  }

  async startSlice(unit: string, properties: readonly UnitProperty[], signal: AbortSignal): Promise<'started' | 'exists'> {
    const body: DbusValue[] = [unit, 'replace', pairs(properties), []];
    try {
      const result = await this.#job(unit, { ...manager, member: 'StartTransientUnit', signature: 'ssa(sv)a(sa(sv))', body }, signal);
      if (result === 'done') return 'started';
      await this.#forgetFailure(unit, signal);
      throw new OpError('failed', `make the unit ${unit}`, `systemd's job ended as ${result}`);
    } catch (error) {
      if (hasCode(error, 'exists')) return 'exists';
      if (hasCode(error, 'deadline')) await this.#forgetFailure(unit, signal);
      throw error;
    }
  }

  async setProperties(unit: string, properties: readonly UnitProperty[], signal: AbortSignal): Promise<void> {
    if (properties.length === 0) return;
    await this.#call({ ...manager, member: 'SetUnitProperties', signature: 'sba(sv)', body: [unit, true, pairs(properties)] }, signal);
  }

  async stop(unit: string, signal: AbortSignal): Promise<void> {
    try {
      const result = await this.#job(unit, { ...manager, member: 'StopUnit', signature: 'ss', body: [unit, 'replace'] }, signal);
      if (result !== 'done') this.#options.log.warn('Stopping a unit did not end well', { unit, result });
    } catch (error) {
      if (!hasCode(error, 'not-found')) throw error;
    }
    await this.#forgetFailure(unit, signal);
  }

  async kill(unit: string, signalNumber: number, signal: AbortSignal): Promise<void> {
    await this.#call({ ...manager, member: 'KillUnit', signature: 'ssi', body: [unit, 'all', signalNumber] }, signal);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#closed = true;
    const connection = await this.#connection?.catch(() => null);
    await connection?.bus[Symbol.asyncDispose]();
  }

  /** A failed unit stays until somebody has been told; of one that is well or gone there is nothing to forget. */
  async #forgetFailure(unit: string, signal: AbortSignal): Promise<void> {
    try {
      await this.#call({ ...manager, member: 'ResetFailedUnit', signature: 's', body: [unit] }, signal);
    } catch (error) {
      if (!hasCode(error, 'not-found')) this.#options.log.debug(2, 'Resetting a unit', { unit, err: messageOf(error) });
    }
  }

  /** Asks for a job and waits for its result, which may be told before the job's name is. */
  async #job(unit: string, call: DbusCall, signal: AbortSignal): Promise<string> {
    const { clock, jobTimeoutMs = usualJobMs } = this.#options;
    const { promise, resolve, reject } = Promise.withResolvers<string>();
    const doing = `${call.member} ${unit}`;
    // Whether a job that was asked for on a lost connection was done, the next look at the unit shows.
    const lose = (): void => reject(new OpError('unavailable', doing, 'the connection to systemd was lost'));
    const job: Job = { unit, seen: new Map(), path: null, resolve, lose };
    this.#jobs.add(job);
    using _deadline = clock.after(jobTimeoutMs, () => reject(new OpError('deadline', doing, `systemd's job did not end in ${jobTimeoutMs} ms`)));
    const stopped = (): void => reject(new OpError('aborted', doing, 'stopped by the caller'));
    signal.addEventListener('abort', stopped, { once: true });
    promise.catch(() => undefined);
    try {
      const [path] = await this.#call(call, signal);
      const result = job.seen.get(path as string);
      if (result !== undefined) return result;
      job.path = path as string;
      return await promise;
    } finally {
      this.#jobs.delete(job);
      signal.removeEventListener('abort', stopped);
    }
  }

  async #call(call: DbusCall, signal: AbortSignal): Promise<readonly DbusValue[]> {
    const once = async (connection: Promise<Connected>): Promise<readonly DbusValue[]> => {
      const { bus, peer } = await connection;
      return bus.call({ ...call, ...(peer === 'bus' ? { destination: 'org.freedesktop.systemd1' } : {}) }, { timeoutMs: callTimeoutMs, signal });
    };
    const first = this.#connect();
    try {
      return await once(first);
    } catch (error) {
      // The bus may have been started anew; all that is asked here may be asked twice.
      if (!hasCode(error, 'unavailable') || signal.aborted || this.#closed) throw error;
      await this.#drop(first);
      return once(this.#connect());
    }
  }

  /** Ends a connection that was of no use; another call may have made a new one meanwhile. */
  async #drop(connection: Promise<Connected>): Promise<void> {
    if (this.#connection === connection) this.#connection = null;
    await (await connection.catch(() => null))?.bus[Symbol.asyncDispose]();
  }

  #connect(): Promise<Connected> {
    if (this.#closed) return Promise.reject(new OpError('unavailable', 'ask systemd', 'closed'));
    if (this.#connection !== null) return this.#connection;
    const opening = this.#open();
    this.#connection = opening;
    const over = (): void => {
      if (this.#connection === opening) this.#connection = null;
    };
    void opening.then(({ bus }) => bus.ended.then(over), over);
    return opening;
  }

  async #open(): Promise<Connected> {
    const { clock, uid, sockets = systemdSockets } = this.#options;
    let failure: unknown = new OpError('unavailable', 'ask systemd', 'no socket to ask at');
    for (const { path, peer } of sockets) {
      let bus: Dbus | undefined;
      try {
        bus = await connectDbus(path, { clock, uid, peer });
        bus.onSignal((message) => this.#hear(message));
        await subscribe(bus, peer);
        void bus.ended.then(() => {
          // One that has no path yet is being asked for, and hears of it by its call.
          for (const job of this.#jobs) if (job.path !== null) job.lose();
        });
        return { bus, peer };
      } catch (error) {
        failure = error;
        await bus?.[Symbol.asyncDispose]();
      }
    }
    throw failure;
  }

  #hear(message: DbusMessage): void {
    if (message.member !== 'JobRemoved' || message.interface !== manager.interface) return;
    const [, path, unit, result] = message.body as [number, string, string, string];
    for (const job of this.#jobs) {
      if (job.unit !== unit) continue;
      if (job.path === path) job.resolve(result);
      else job.seen.set(path, result);
    }
  }
}

/** systemd tells of jobs only where somebody has asked for it, and a bus passes on only what its rules match. */
async function subscribe(bus: Dbus, peer: 'bus' | 'direct'): Promise<void> {
  const options = { timeoutMs: callTimeoutMs };
  if (peer === 'bus') {
    const rule = `type='signal',sender='org.freedesktop.systemd1',interface='${manager.interface}',member='JobRemoved'`;
    const bus1 = { destination: 'org.freedesktop.DBus', path: '/org/freedesktop/DBus', interface: 'org.freedesktop.DBus' };
    await bus.call({ ...bus1, member: 'AddMatch', signature: 's', body: [rule] }, options);
  }
  await bus.call({ ...manager, member: 'Subscribe', ...(peer === 'bus' ? { destination: 'org.freedesktop.systemd1' } : {}) }, options);
}

function pairs(properties: readonly UnitProperty[]): DbusValue[] {
  return properties.map(({ name, value }) => [name, value]);
}
