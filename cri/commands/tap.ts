import { version } from '../../base/version.ts';
import type { TapFlags } from '../tap-command.ts';
import type { Commands } from './command.ts';
import { sizeOption } from './size.ts';

export function tapCommand({ host, clock, add, done }: Commands): void {
  add('tap', 'stand between callers and a runtime; pass everything on as it is, and tell of each call', [
    'sudo ./nodelet cri tap --listen unix:///run/tap.sock --upstream unix:///run/containerd/containerd.sock',
    'sudo ./nodelet cri tap --listen unix:///run/tap.sock --upstream unix:///run/containerd/containerd.sock --record boot.crirec',
    'then: kubelet --container-runtime-endpoint unix:///run/tap.sock, or crictl -r unix:///run/tap.sock ps',
  ])
    .requiredOption('--listen <socket>', 'where callers connect to')
    .requiredOption('--upstream <socket>', 'the runtime’s socket')
    .option('--record <file>', 'write whole calls to this file (docs/cri-recording.md), readable by its owner only')
    .option('--append', 'add to the file when it is there', false)
    .addOption(sizeOption('--max-size <size>', 'end the recording when the file is that large; traffic goes on', '256MiB'))
    .addOption(sizeOption('--buffer <size>', 'what may wait for the decoder', '16MiB'))
    .option('--with-secrets', 'record environment values, registry credentials and raw bytes too', false)
    .option('--no-control', 'serve no control socket at <listen>.tap, so that watch, top and others cannot look in')
    .option(
      '--fault <rule>',
      'break calls by this rule (nodelet cri fault --help); may stand several times',
      (rule: string, before: string[]) => [...before, rule],
      [],
    )
    .option('--faults <file>', 'rules of a file')
    .option('-q, --quiet', 'no line for each call', false)
    .action(async (flags: TapFlags) => done(await (await import('../tap-command.ts')).tap(host, flags, clock, `nodelet ${version}`)));
}
