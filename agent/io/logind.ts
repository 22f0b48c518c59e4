import { mkdir, writeFile } from 'node:fs/promises';
import type { Clock } from '../../base/clock.ts';
import type { Sys } from '../../base/sys/types.ts';
import { authLines, encodeMessage } from '../core/dbus/messages.ts';
import type { Variant } from '../core/dbus/values.ts';
import { logindConfiguration } from '../core/node-shutdown.ts';
import { connectDbus } from './dbus.ts';
import type { Dbus } from './dbus.ts';
import type { Systemd } from './systemd.ts';

/** logind as what can put a shutdown off. FakeLogind of shutdown-fake.ts is its stand-in. */
export interface Logind extends AsyncDisposable {
  /** For how long it lets a shutdown be put off at most. */
  delayMs(signal: AbortSignal): Promise<number>;
  /** Asks for at least so long; takes effect a moment later. */
  askForDelay(delayMs: number, signal: AbortSignal): Promise<void>;
  /** From now on a shutdown waits until this is disposed, or the longest delay is over. */
  inhibit(): Promise<AsyncDisposable>;
  /** Called with true when a shutdown is about to begin, with false when it was called off. */
  follow(callback: (begins: boolean) => void, signal: AbortSignal): Promise<void>;
  /** Resolves when nothing more will be told. */
  readonly ended: Promise<void>;
}

export interface LogindOptions {
  readonly clock: Clock;
  readonly sys: Pick<Sys, 'holdDescriptor'>;
  readonly systemd: Pick<Systemd, 'kill'>;
  readonly uid: number;
  readonly socket?: string;
  /** Believe whoever tells of a shutdown, as upstream does: also one that has left the bus, and any user of the machine. */
  readonly believeAnyone?: boolean;
  /** Where logind reads what others want of it. */
  readonly confDir?: string;
}

const usualSocket = '/run/dbus/system_bus_socket';
const usualConfDir = '/etc/systemd/logind.conf.d';
const confFile = '99-kubelet.conf';
const callTimeoutMs = 25_000;
const sighup = 1;
/** logind tells of a shutdown's beginning and of its end. */
const perSenderMax = 4;
/** More connections than a bus lets one user have, by default. */
const sendersMax = 512;
const login1 = { destination: 'org.freedesktop.login1', path: '/org/freedesktop/login1' };
const manager = 'org.freedesktop.login1.Manager';
const bus1 = { destination: 'org.freedesktop.DBus', path: '/org/freedesktop/DBus', interface: 'org.freedesktop.DBus' };

/** Connects to the system bus; throws OpError `unavailable` where there is none. */
export async function openLogind(options: LogindOptions, signal: AbortSignal): Promise<Logind> {
  const { clock, uid, socket = usualSocket } = options;
  const bus = await connectDbus(socket, { clock, uid, peer: 'bus' }, signal);
  return new LogindClient(bus, options);
}

class LogindClient implements Logind {
  readonly ended: Promise<void>;
  readonly #bus: Dbus;
  readonly #options: LogindOptions;

  constructor(bus: Dbus, options: LogindOptions) {
    this.#bus = bus;
    this.#options = options;
    this.ended = bus.ended;
  }

  async delayMs(signal: AbortSignal): Promise<number> {
    const get = { ...login1, interface: 'org.freedesktop.DBus.Properties', member: 'Get', signature: 'ss', body: [manager, 'InhibitDelayMaxUSec'] };
    const [value] = await this.#bus.call(get, { timeoutMs: callTimeoutMs, signal });
    return Number((value as Variant).value) / 1000;
  }

  async askForDelay(delayMs: number, signal: AbortSignal): Promise<void> {
    const { systemd, confDir = usualConfDir } = this.#options;
    await mkdir(confDir, { recursive: true, mode: 0o755 });
    await writeFile(`${confDir}/${confFile}`, logindConfiguration(delayMs), { mode: 0o644 });
    await systemd.kill('systemd-logind.service', sighup, signal);
  }

  async inhibit(): Promise<AsyncDisposable> {
    const { sys, uid, socket = usualSocket } = this.#options;
    const hello = encodeMessage({ ...bus1, type: 'call', serial: 1, member: 'Hello', body: [] });
    const words = ['shutdown', 'kubelet', 'Kubelet needs time to handle node shutdown', 'delay'];
    const ask = encodeMessage({ ...login1, type: 'call', serial: 2, interface: manager, member: 'Inhibit', signature: 'ssss', body: words });
    const auth = new TextEncoder().encode(authLines(uid));
    // A descriptor comes with the answer, which JavaScript cannot receive; sys holds it, on a connection of its own.
    return sys.holdDescriptor({ path: socket, bytes: new Uint8Array([...auth, ...hello, ...ask]), timeoutMs: callTimeoutMs });
  }

  /**
   * A telling by logind or by root itself, who may end this machine anyway: a bus's usual policy lets every user send
   * one (`<allow send_type="signal"/>`). Who has left the bus cannot be asked for, and is not believed.
   */
  async follow(tell: (begins: boolean) => void, signal: AbortSignal): Promise<void> {
    let last = Promise.resolve();
    /** Signals whose senders are still asked for, by sender: one that floods the bus uses up its own share, not logind's. */
    const waiting = new Map<string, number>();
    this.#bus.onSignal(({ interface: from, member, sender = '', body: [begins] }) => {
      if (from !== manager || member !== 'PrepareForShutdown' || typeof begins !== 'boolean') return;
      if (this.#options.believeAnyone === true) return tell(begins);
      const count = waiting.get(sender) ?? 0;
      if (count >= perSenderMax || (count === 0 && waiting.size >= sendersMax)) return;
      waiting.set(sender, count + 1);
      last = last.then(async () => {
        if (await this.#isRoot(sender, signal)) tell(begins);
        const left = (waiting.get(sender) ?? 1) - 1;
        if (left === 0) waiting.delete(sender);
        else waiting.set(sender, left);
      });
    });
    const rule = `type='signal',interface='${manager}',member='PrepareForShutdown',path='${login1.path}'`;
    await this.#bus.call({ ...bus1, member: 'AddMatch', signature: 's', body: [rule] }, { timeoutMs: callTimeoutMs, signal });
  }

  async #isRoot(sender: string, signal: AbortSignal): Promise<boolean> {
    if (sender === '') return false;
    const ask = { ...bus1, member: 'GetConnectionUnixUser', signature: 's', body: [sender] };
    // Of a sender that has gone nobody knows any more who it was.
    const [uid] = await this.#bus.call(ask, { timeoutMs: callTimeoutMs, signal }).catch(() => []);
    return uid === 0;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.#bus[Symbol.asyncDispose]();
  }
}
