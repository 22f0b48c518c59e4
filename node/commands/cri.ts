import { messageOf } from '../../base/errors.ts';
import type { Host } from '../../base/host.ts';
import { buildSys, sysIsStale } from '../io/build.ts';

/** Those that stand between a kubelet and its runtime, or may have to. */
const STANDING = new Set(['attach', 'tap', 'watch', 'top', 'record', 'web', 'fault']);

/** `nodelet cri …`, with our C program built first where it is needed and its sources are here. Without it a tap works, too. */
export async function cri(host: Host, args: readonly string[]): Promise<number> {
  const root = host.env['NODELET_ROOT'];
  const isHelp = args.some((word) => word === '--help' || word === '-h');
  if (root !== undefined && host.env['NODELET_SYS'] === undefined && STANDING.has(args[0] ?? '') && !isHelp && (await sysIsStale(root))) {
    try {
      await buildSys(root);
    } catch (error) {
      host.stderr(`nodelet cri: the C program was not built (gcc and libc6-dev are needed): ${messageOf(error)}\n`);
    }
  }
  return (await import('../../cri/main.ts')).main({ ...host, args });
}
