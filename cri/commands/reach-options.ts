import type { Command } from 'commander';

/** How commands that look at a tap, or act through it, are told which (io/reach-tap.ts). */
export function reachOptions(command: Command): Command {
  return command
    .option('--tap <socket>', 'the control socket of a running tap; else the only one that runs here')
    .option('--listen <socket>', 'start one that listens here, for as long as this runs')
    .option('--upstream <socket>', 'the runtime that it passes on to');
}
