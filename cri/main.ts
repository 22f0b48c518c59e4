import { Command, CommanderError } from 'commander';
import { realClock } from '../base/clock.ts';
import type { Host } from '../base/host.ts';
import { attachCommand, detachCommand } from './commands/attach.ts';
import { callCommand } from './commands/call.ts';
import { addTo } from './commands/command.ts';
import { diffCommand } from './commands/diff.ts';
import { execCommand } from './commands/exec.ts';
import { faultCommand } from './commands/fault.ts';
import { imagesCommand } from './commands/images.ts';
import { inspectCommand } from './commands/inspect.ts';
import { logsCommand } from './commands/logs.ts';
import { podsCommand } from './commands/pods.ts';
import { psCommand } from './commands/ps.ts';
import { replayCommand } from './commands/replay.ts';
import { reportCommand } from './commands/report.ts';
import { serveCommand } from './commands/serve.ts';
import { showCommand } from './commands/show.ts';
import { statsCommand } from './commands/stats.ts';
import { tapCommand } from './commands/tap.ts';
import { recordCommand } from './commands/record.ts';
import { grepCommand } from './commands/grep.ts';
import { topCommand } from './commands/top.ts';
import { verifyCommand } from './commands/verify.ts';
import { watchCommand } from './commands/watch.ts';
import { webCommand } from './commands/web.ts';

export { thread } from './io/threads.ts';

/** In the order of the help. */
const COMMANDS = [
  attachCommand,
  detachCommand,
  tapCommand,
  watchCommand,
  topCommand,
  webCommand,
  recordCommand,
  showCommand,
  grepCommand,
  reportCommand,
  diffCommand,
  faultCommand,
  serveCommand,
  replayCommand,
  callCommand,
  psCommand,
  podsCommand,
  imagesCommand,
  inspectCommand,
  execCommand,
  logsCommand,
  statsCommand,
  verifyCommand,
];

/** `nodelet cri …`. */
export async function main(host: Host): Promise<number> {
  const program = new Command('nodelet cri')
    .description('see what a kubelet and its container runtime say to each other')
    .exitOverride()
    .enablePositionalOptions()
    .configureOutput({ writeOut: host.stdout, writeErr: host.stderr })
    .addHelpText(
      'after',
      '\nExamples:\n  sudo nodelet cri attach --background     between any kubelet and its runtime\n  sudo nodelet cri watch                   calls by pod as they happen\n  nodelet cri show web.crirec              what a recording holds',
    );
  let code = 0;
  const done = (value: number): void => {
    code = value;
  };
  for (const command of COMMANDS) command({ host, clock: realClock, add: addTo(program), done });
  try {
    await program.parseAsync([...host.args], { from: 'user' });
    return code;
  } catch (error) {
    if (error instanceof CommanderError) return error.exitCode === 0 ? 0 : 2;
    throw error;
  }
}
