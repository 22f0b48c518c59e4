import type { Commands } from './command.ts';

export function verifyCommand({ host, add, done }: Commands): void {
  add('verify [args...]', 'whether anything changes when the tap stands between: critest straight and through it', [
    'sudo ./nodelet cri verify --critest',
    'sudo ./nodelet cri verify --critest --containerd distro --spdy --json',
    './nodelet cri verify --help',
  ])
    .allowUnknownOption()
    .passThroughOptions()
    .helpOption(false)
    .action(async (args: string[], flags: { json: boolean }) =>
      done(await (await import('./verify-run.ts')).verify(host, flags.json ? ['--json', ...args] : args)),
    );
}
