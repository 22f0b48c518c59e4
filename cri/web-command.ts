import { spawn } from 'node:child_process';
import { untilAborted } from '../base/abort.ts';
import type { Clock } from '../base/clock.ts';
import { OpError } from '../base/errors.ts';
import type { Host } from '../base/host.ts';
import type { WebHello } from './core/web-wire.ts';
import { askTap, connectFeed } from './io/feed.ts';
import { readFrames } from './io/recording-read.ts';
import { reachTap, type ReachedTap, type ReachOptions } from './io/reach-tap.ts';
import type { TapStatus } from './io/tap.ts';
import { faultsOfTap } from './io/web-faults.ts';
import { webPage } from './io/web-page.ts';
import { serveWeb, type FaultDoor } from './io/web-serve.ts';
import { WebStore } from './io/web-store.ts';

export interface WebFlags extends Omit<ReachOptions, 'listen'> {
  /** Where browsers connect to. */
  readonly listen: string;
  readonly tapListen?: string;
  readonly open: boolean;
  readonly json: boolean;
}

interface Source {
  readonly hello: Omit<WebHello, 'version'>;
  readonly faults: FaultDoor | null;
  /** Brings everything into the store; ends with the signal, or when there is no more. */
  readonly fill: (store: WebStore, signal: AbortSignal) => Promise<void>;
}

async function fromFile(path: string): Promise<Source> {
  // What is no recording is said before there is an address.
  for await (const _frame of readFrames(path)) break;
  return {
    hello: { name: path, upstream: '', live: false, canBreak: false },
    faults: null,
    fill: (store, signal) => store.readFile(path, signal),
  };
}

function fromTap(tap: ReachedTap, status: TapStatus, signal: AbortSignal): Source {
  const { control } = tap;
  return {
    hello: { name: status.listen, upstream: status.upstream, live: true, canBreak: true },
    faults: faultsOfTap(control, signal),
    fill: async (store) => {
      await store.follow(connectFeed(control, signal));
      if (!signal.aborted) store.note('the tap has ended: there are no more calls');
    },
  };
}

/** `nodelet cri web`: until it is told to end. The address goes to standard output, words about it to standard error. */
export async function web(host: Host, file: string | undefined, flags: WebFlags, clock: Clock, version: string): Promise<number> {
  if (file !== undefined) {
    if (flags.tap !== undefined || flags.tapListen !== undefined)
      throw new OpError('invalid', 'choosing what to show', 'a recording and a tap are named', { advice: 'name one of them' });
    return show(host, await fromFile(file), flags, version);
  }
  const say = (text: string): void => host.stderr(`nodelet cri web: ${text}\n`);
  await using tap = await reachTap({ ...flags, listen: flags.tapListen }, { recorder: version, pid: host.pid, env: host.env, signal: host.signal, clock, say });
  say(`looking at ${tap.words}`);
  const status = (await askTap(tap.control, { do: 'status' }, host.signal)) as TapStatus;
  return await show(host, fromTap(tap, status, host.signal), flags, version);
}

async function show(host: Host, source: Source, flags: WebFlags, version: string): Promise<number> {
  const end = new AbortController();
  const signal = AbortSignal.any([host.signal, end.signal]);
  await using store = new WebStore();
  const page = await webPage();
  const filling = source.fill(store, signal);
  // What is wrong with the source ends it at once; when there is no more to come, what there is stays.
  const over = filling.then(() => untilAborted(signal));
  over.catch(() => {});
  try {
    await using server = await serveWeb({ listen: flags.listen, page, hello: { version, ...source.hello }, store, faults: source.faults });
    const { url } = server;
    host.stdout(flags.json ? `${JSON.stringify({ url })}\n` : `${url}\n`);
    if (!flags.json) host.stderr('nodelet cri web: whoever has this address sees all of it; Ctrl-C ends it\n');
    if (flags.open) openBrowser(url);
    await over;
  } catch (error) {
    if (!host.signal.aborted) throw error;
  } finally {
    end.abort();
    await filling.catch(() => {});
  }
  return 0;
}

/** With the desktop's own program, where there is one; the address was printed in any case. */
function openBrowser(url: string): void {
  const child = spawn('xdg-open', [url], { stdio: 'ignore', detached: true });
  child.on('error', () => {});
  child.unref();
}
