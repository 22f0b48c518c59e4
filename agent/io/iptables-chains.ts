import type { Clock } from '../../base/clock.ts';
import { hasCode, messageOf } from '../../base/errors.ts';
import type { Log } from '../../base/log.ts';
import type { Sys } from '../../base/sys/types.ts';
import { canaryChain, firewallChain, tables, utilChains } from '../core/iptables-chains.ts';

export interface UtilChainsOptions {
  readonly clock: Clock;
  readonly log: Log;
  readonly sys: Pick<Sys, 'run'>;
}

const periodMs = 60_000;
const timeoutMs = 30_000;
/** Seconds to wait for iptables' lock, as upstream does. */
const wait = ['-w', '5'];

/** `makeIPTablesUtilChains`: keeps the kubelet's chains, and makes them again when somebody flushed a table. */
export async function keepUtilChains({ clock, log, sys }: UtilChainsOptions, signal: AbortSignal): Promise<void> {
  /** What it printed; null where it failed. */
  const run = async (argv: readonly string[], stdin?: string): Promise<string | null> => {
    const result = await sys.run({ argv, timeoutMs, ...(stdin === undefined ? {} : { stdin }) }, signal);
    return result.code === 0 ? Buffer.from(result.stdout).toString() : null;
  };
  const list = (program: string, table: string, chain: string): Promise<string | null> => run([program, ...wait, '-t', table, '-S', chain]);

  const isWhole = async (program: string): Promise<boolean> => {
    for (const table of tables) if ((await list(program, table, canaryChain)) === null) return false;
    return true;
  };
  const write = async (family: 4 | 6, program: string): Promise<boolean> => {
    const [input, output, firewall] = [
      await list(program, 'filter', 'INPUT'),
      await list(program, 'filter', 'OUTPUT'),
      await list(program, 'filter', firewallChain),
    ];
    return (await run([`${program}-restore`, ...wait, '--noflush'], utilChains(family, { input, output, firewall }))) !== null;
  };
  const keep = async (family: 4 | 6, program: string): Promise<void> => {
    let said: boolean | undefined;
    while (!signal.aborted) {
      try {
        if (!(await isWhole(program))) {
          const written = await write(family, program);
          if (written !== said) {
            if (written) log.info('Initialized iptables rules.', { protocol: `IPv${family}` });
            else log.info('Failed to initialize iptables rules; some functionality may be missing.', { protocol: `IPv${family}` });
          }
          said = written;
        }
      } catch (error) {
        if (signal.aborted) return;
        // Expected where only nftables is: then nobody else can need these chains.
        if (hasCode(error, 'not-found'))
          return log.info('No iptables support on this system; not creating the KUBE-IPTABLES-HINT chain', { protocol: `IPv${family}` });
        log.warn('The iptables rules could not be looked at', { protocol: `IPv${family}`, err: messageOf(error) });
      }
      await clock.sleep(periodMs, signal).catch(() => undefined);
    }
  };
  await Promise.all([keep(4, 'iptables'), keep(6, 'ip6tables')]);
}
