import type { Clock } from '../base/clock.ts';
import type { Host } from '../base/host.ts';
import { createLog, type Log } from '../base/log.ts';
import { createSysClient } from '../base/sys/client.ts';
import { createFallbackSys } from '../base/sys/fallback.ts';
import type { Sys } from '../base/sys/types.ts';
import type { KubeletConfiguration } from './core/config.ts';

/** The log, in the form that the configuration asks for; how much it says can change while it goes on. */
export function openLog(host: Host, clock: Clock, config: Pick<KubeletConfiguration, 'logging'>, verbosity: { readonly level: number }): Log {
  return createLog({
    name: 'agent',
    format: config.logging.format === 'json' ? 'json' : 'text',
    verbosity: () => verbosity.level,
    nowMs: () => clock.nowMs(),
    pid: host.pid,
    write: (line) => host.stderr(line),
  });
}

/** The system calls: by the C program where there is one, else by the machine's own tools. */
export function openSys({ env }: Host, log: Log): Sys {
  const path = env['NODELET_SYS'];
  const options = { log: log.child('sys'), ...(env['NOTIFY_SOCKET'] === undefined ? {} : { notifySocket: env['NOTIFY_SOCKET'] }) };
  return path === undefined ? createFallbackSys(options) : createSysClient({ path, ...options });
}
