import type { Command } from 'commander';
import { whereOptions } from './attach.ts';

/** How commands that look at a tap, or act through it, are told which (io/reach-tap.ts). */
export function reachOptions(command: Command): Command {
  return whereOptions(command)
    .option('--tap <socket>', 'the control socket of a running tap; else the only one that runs here, else one is attached for as long as this runs')
    .option('--listen <socket>', 'start one between two sockets: it listens here')
    .option('--upstream <socket>', 'the runtime that it passes on to');
}
