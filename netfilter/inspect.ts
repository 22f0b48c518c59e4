import { messageOf, OpError } from '../base/errors.ts';
import type { Host } from '../base/host.ts';
import type { Sys } from '../base/sys/types.ts';
import { diff, DIFF_HELP } from './diff-command.ts';
import { trace, TRACE_HELP } from './trace-command.ts';

/** `nodelet netfilter trace` and `diff`: what the kernel's rules say, whoever wrote them. Nothing is changed. */

/** Runs `trace` or `diff`; exit code 2 for a command line that means nothing, and for all that keeps `diff` from an answer. */
export async function inspect(host: Host, sys: Sys): Promise<number> {
  const [command = '', ...args] = host.args;
  if (args.includes('--help') || args.includes('-h')) {
    host.stdout(command === 'trace' ? TRACE_HELP : DIFF_HELP);
    return 0;
  }
  try {
    return command === 'trace' ? await trace(host, sys, args) : await diff(host, sys, args);
  } catch (error) {
    if (!(error instanceof OpError)) throw error;
    host.stderr(`nodelet netfilter ${command}: ${messageOf(error)}${error.advice === '' ? '' : `\n  ${error.advice}`}\n`);
    return command === 'diff' || error.code === 'invalid' ? 2 : 1;
  }
}
