import { InvalidArgumentError } from 'commander';
import { version } from '../../base/version.ts';
import type { FaultFlags } from '../fault-command.ts';
import type { Commands } from './command.ts';
import { reachOptions } from './reach-options.ts';

function readSeed(text: string): number {
  const seed = Number(text);
  if (!Number.isSafeInteger(seed)) throw new InvalidArgumentError('write a whole number.');
  return seed;
}

const LANGUAGE = `
A rule is: METHOD which calls  [after]  what is done

  METHOD      RunPodSandbox; several with commas; globs: List*
  which       pod=NAMESPACE/NAME  container=NAME  image=NAME  agent=USER-AGENT   globs
              nth=3 | every=3 | first=3   chance=10%
  after       the runtime does it, and the caller is told otherwise
  what        delay 2s                   alone or before another
              error CODE ["words"]       deadline, unavailable, not-found, … or a number
              drop | drop connection     no answer: the call is reset, or all that is on the connection
              hang                       no answer until the caller gives up
              truncate 3 [end|error CODE]   a stream ends after three messages: reset, or well, or so
              hide pod=… container=… image=…   items are left out of a list
              events drop|duplicate|delay 2s pod=… type=created|started|stopped|deleted nth=2

The first rule that is due for a call is done to it; all that fit count it.
`;

export function faultCommand({ host, clock, add, done }: Commands): void {
  const command = add('fault [rule...]', 'break calls on purpose: by method, pod, container, image, count or chance; also after success', [
    "sudo ./nodelet cri fault 'RunPodSandbox pod=default/web nth=1 after error deadline'",
    "sudo ./nodelet cri fault 'StopContainer every=3 delay 2s error unavailable' 'ListPodSandbox first=2 hide pod=default/web'",
    'sudo ./nodelet cri fault --file rules.txt --tap /run/tap.sock.tap',
    'sudo ./nodelet cri fault --list; sudo ./nodelet cri fault --clear',
    "sudo ./nodelet cri fault 'PullImage chance=10% error unavailable' --seed 7 --listen /run/tap.sock --upstream /run/containerd/containerd.sock",
  ]).addHelpText('after', LANGUAGE);
  reachOptions(command)
    .option('--file <file>', 'rules, one a line (# comments), or as YAML or JSON')
    .option('--add', 'beside the rules that are armed, not in their place', false)
    .option('--list', 'the rules that are armed, and how often each was done', false)
    .option('--clear', 'disarm all', false)
    .option('--seed <number>', 'make chance repeat, in a tap that this command starts', readSeed)
    .action(async (rules: readonly string[], flags: FaultFlags) =>
      done(await (await import('../fault-command.ts')).fault(host, rules, flags, clock, `nodelet ${version}`)),
    );
}
