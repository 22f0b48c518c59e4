import { connect } from 'node:net';
import type { Clock } from '../../base/clock.ts';
import { messageOf, OpError } from '../../base/errors.ts';
import { exec, tryExec } from '../../base/exec.ts';
import type { Keeper, Kubelet } from './find-kubelet.ts';
import { innerPid, isAlive, namespaceOf } from './processes.ts';

/**
 * How the kubelet's old connection is made to end: `close` shuts it down, the kubelet runs on; `restart` starts the
 * kubelet again; `auto` closes, and starts again only where that cannot be; `never` leaves it.
 */
export type Reconnect = 'auto' | 'close' | 'restart' | 'never';

const SYSTEMCTL_MS = 90_000;
const CONTROL_MS = 5_000;

/** How many connections a process has to whoever listens at `socket`; shut down with `shut`. Throws OpError. */
export async function connectionsTo(sys: string, pid: number, socket: string, options: { shut: boolean; signal: AbortSignal }): Promise<number> {
  const { stdout } = await exec([sys, 'peers', String(pid), socket, ...(options.shut ? ['--shut'] : [])], {
    doing: `looking at the connections of process ${pid}`,
    signal: options.signal,
    timeoutMs: CONTROL_MS,
  });
  return Number(stdout.trim());
}

async function systemctl(keeper: Keeper & { kind: 'systemd' }, args: readonly string[], signal: AbortSignal): Promise<string> {
  const isOurs = (await namespaceOf(keeper.systemd, 'mnt')) === (await namespaceOf('self', 'mnt'));
  const enter = isOurs ? [] : ['nsenter', `--target=${keeper.systemd}`, '--mount', '--uts', '--ipc', '--net', '--pid', '--'];
  const [program = '', ...rest] = [...enter, 'systemctl', ...args];
  const { code, stdout, stderr } = await tryExec([program, ...rest], { doing: `asking systemd about ${keeper.unit}`, signal, timeoutMs: SYSTEMCTL_MS });
  if (code !== 0) throw new OpError('failed', `systemctl ${args.join(' ')}`, stderr.trim().split('\n').at(-1) ?? `ended with ${code}`);
  return stdout.trim();
}

function askInit(control: string, line: string): Promise<string> {
  return new Promise((resolve, reject) => {
    const socket = connect({ path: control, timeout: CONTROL_MS });
    let answer = '';
    const failed = (detail: string): void => reject(new OpError('failed', `telling ${control}`, detail));
    socket.on('data', (bytes) => (answer += bytes.toString()));
    socket.once('end', () => (answer.trim() === 'ok' ? resolve(answer) : failed(answer.trim())));
    socket.once('timeout', () => socket.destroy(new Error('it does not answer')));
    socket.once('error', (error) => failed(error.message));
    socket.write(`${line}\n`);
  });
}

/** Starts the kubelet again, and nothing else. Throws OpError `unsupported` when nobody is known to do it. */
async function restart(kubelet: Kubelet, signal: AbortSignal): Promise<string> {
  const { keeper, process } = kubelet;
  const doing = `starting the kubelet (process ${process.pid}) again`;
  if (keeper === null) throw new OpError('unsupported', doing, 'it belongs to no unit', { advice: 'start it again by the means it was started with' });
  if (keeper.kind === 'init') {
    await askInit(keeper.control, `restart ${keeper.service}`);
    return `${keeper.service} started again`;
  }
  // A kubelet that was started by hand inside some service must not take that service with it.
  const main = Number(await systemctl(keeper, ['show', '--property=MainPID', '--value', keeper.unit], signal));
  if (main !== (await innerPid(process.pid))) throw new OpError('unsupported', doing, `it is not the main process of ${keeper.unit}`);
  await systemctl(keeper, ['restart', keeper.unit], signal);
  return `${keeper.unit} started again`;
}

export interface Renewal {
  readonly did: 'closed' | 'restarted' | 'nothing';
  /** One sentence for a person. */
  readonly words: string;
}

const LATER = 'what it says is seen once it connects anew';

/** Ends the kubelet's connections to the runtime at `socket`, so that its next one goes through the tap. Does not throw for what cannot be done: says it. */
export async function renew(kubelet: Kubelet, how: Reconnect, options: { sys: string; socket: string; signal: AbortSignal }): Promise<Renewal> {
  const { sys, socket, signal } = options;
  const { pid } = kubelet.process;
  if (how === 'never') return { did: 'nothing', words: `the kubelet (process ${pid}) keeps its connection, as told: ${LATER}` };
  const failures: string[] = [];
  if (how !== 'restart') {
    try {
      const count = await connectionsTo(sys, pid, socket, { shut: true, signal });
      return {
        did: 'closed',
        words:
          count === 0
            ? `the kubelet (process ${pid}) had no connection to the runtime`
            : `closed ${count} connection${count === 1 ? '' : 's'} of the kubelet (process ${pid}), which runs on`,
      };
    } catch (error) {
      if (signal.aborted) throw error;
      failures.push(messageOf(error));
    }
  }
  if (how !== 'close') {
    try {
      return { did: 'restarted', words: await restart(kubelet, signal) };
    } catch (error) {
      if (signal.aborted) throw error;
      failures.push(messageOf(error));
    }
  }
  return { did: 'nothing', words: `the kubelet (process ${pid}) keeps its connection (${failures.join('; ')}): ${LATER}` };
}

const SEEN_MS = 15_000;
/** One that was started again has its own start before it. */
const START_MS = 60_000;
const LOOK_MS = 200;

/** Waits until what the kubelet says comes through the tap, of which `opened` counts the connections; says how long that took, or that it does not. */
export async function untilThrough(
  kubelet: Kubelet,
  did: 'closed' | 'restarted',
  options: { sys: string; socket: string; opened: () => number; clock: Clock; signal: AbortSignal },
): Promise<string> {
  const { sys, socket, clock, signal, opened } = options;
  const isThrough = async (): Promise<boolean> =>
    did === 'restarted'
      ? opened() > 0
      : (await isAlive(kubelet.process)) && (await connectionsTo(sys, kubelet.process.pid, socket, { shut: false, signal })) > 0;
  const startMs = clock.monoMs();
  while (clock.monoMs() - startMs < (did === 'restarted' ? START_MS : SEEN_MS)) {
    if (await isThrough())
      return `${did === 'restarted' ? 'the first caller comes' : 'the kubelet speaks'} through the tap (after ${((clock.monoMs() - startMs) / 1000).toFixed(1)} s)`;
    await clock.sleep(LOOK_MS, signal);
  }
  return 'the kubelet has not connected anew yet';
}
