import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { openSync } from 'node:fs';
import { mkdir, readFile, readlink, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { assert } from '../base/assert.ts';
import type { Clock } from '../base/clock.ts';
import { OpError } from '../base/errors.ts';
import type { Host } from '../base/host.ts';
import { attach, type Attached } from './io/attach.ts';
import { sysProgram, stateHome } from './io/our-paths.ts';
import type { Where } from './io/place.ts';
import type { Reconnect } from './io/renew.ts';
import { REGISTRY } from './io/tap-registry.ts';

export interface WhereFlags {
  readonly socket?: string;
  readonly pid?: number;
  readonly kind?: string;
  readonly node?: string;
  readonly name?: string;
}

export interface AttachFlags extends WhereFlags {
  readonly reconnect: Reconnect;
  readonly record?: string;
  readonly append: boolean;
  readonly maxSize: number;
  readonly withSecrets: boolean;
  readonly background: boolean;
  readonly json: boolean;
}

export function whereOf(flags: WhereFlags): Where {
  return { socket: flags.socket, pid: flags.pid, kind: flags.kind, node: flags.node, set: flags.name };
}

function answer(attached: Attached): object {
  const { place, renewal, control, socket } = attached;
  const kubelet = place.kubelet;
  return {
    ...{ socket, place: place.words, control },
    kubelet:
      kubelet === null
        ? null
        : { pid: kubelet.process.pid, endpoint: kubelet.endpoints.runtime, said: kubelet.endpoints.source, imageEndpoint: kubelet.endpoints.image },
    kubeletConnection: renewal?.did ?? null,
  };
}

/** `nodelet cri attach`: until it is told to end. Words about itself go to standard error; with `--json` the state goes to standard output. */
export async function attachUntilStopped(host: Host, flags: AttachFlags, clock: Clock, recorder: string): Promise<number> {
  if (process.geteuid?.() !== 0) throw new OpError('denied', 'attaching', 'this needs root', { advice: 'run it with sudo' });
  if (flags.background) return inBackground(host, flags);
  const say = (text: string): void => host.stderr(`nodelet cri attach: ${text}\n`);
  const attached = await attach(
    {
      where: whereOf(flags),
      reconnect: flags.reconnect,
      tap: {
        record: flags.record === undefined ? undefined : { path: flags.record, maxBytes: flags.maxSize, append: flags.append },
        withSecrets: flags.withSecrets,
        recorder,
        sys: sysProgram(host.env),
      },
      sys: sysProgram(host.env),
      stateHome: stateHome(host.env),
      pid: host.pid,
      log: await ownLog(),
      clock,
      say,
    },
    host.signal,
  );
  const image = attached.place.kubelet?.endpoints.image ?? null;
  if (image !== null) say(`the kubelet’s image service is another one (${image}): it is not seen here`);
  if (flags.json) host.stdout(`${JSON.stringify(answer(attached))}\n`);
  say('watch it with: nodelet cri watch; Ctrl-C or nodelet cri detach puts everything back');
  const stopped = new Promise<null>((resolve) => {
    if (host.signal.aborted) resolve(null);
    host.signal.addEventListener('abort', () => resolve(null), { once: true });
  });
  const why = await Promise.race([attached.ended, stopped]);
  await attached[Symbol.asyncDispose]();
  const { opened, bytes } = attached.tap.counts;
  say(`${why === null ? '' : `ended, because ${why}; `}everything is back in its place; ${opened} connections, ${bytes} bytes passed`);
  if (why === null) await forgetLog();
  return why === null ? 0 : 1;
}

/** What was said in the background is of no use after a good end; a log of a bad one stays. */
async function forgetLog(): Promise<void> {
  const log = await ownLog();
  if (log !== undefined) await rm(log, { force: true });
}

async function ownLog(): Promise<string | undefined> {
  const log = await readlink('/proc/self/fd/2').catch(() => '');
  return log.startsWith(`${REGISTRY}/`) ? log : undefined;
}

/** Starts the same command without a terminal, and waits until it stands or has failed. */
async function inBackground(host: Host, flags: AttachFlags): Promise<number> {
  await mkdir(REGISTRY, { recursive: true, mode: 0o755 });
  const log = join(REGISTRY, `attach-${host.pid}.log`);
  const out = openSync(log, 'w', 0o600);
  const args = ['cri', 'attach', ...host.args.slice(1).filter((word) => word !== '--background' && word !== '-b' && word !== '--json'), '--json'];
  const child = spawn(process.execPath, [...process.execArgv, process.argv[1] ?? '', ...args], { detached: true, stdio: ['ignore', 'pipe', out] });
  const { stdout } = child;
  assert(stdout !== null, 'its standard output is a pipe');
  const said = await Promise.race([once(stdout, 'data').then(([bytes]) => (bytes as Buffer).toString()), once(child, 'exit').then(() => null)]);
  stdout.destroy();
  child.unref();
  host.stderr(await readFile(log, 'utf8'));
  if (said === null) {
    await rm(log, { force: true });
    return child.exitCode ?? 1;
  }
  if (flags.json) host.stdout(said);
  host.stderr(`nodelet cri attach: goes on as process ${child.pid}, its words are in ${log}\n`);
  return 0;
}
