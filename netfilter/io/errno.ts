import { OpError } from '../../base/errors.ts';
import { errnoName } from '../../base/sys/errno.ts';

/** What to do about what the kernel refused; nothing where its name says all there is. */
export function adviceFor(errno: number | undefined): { readonly advice?: string } {
  return errno !== undefined && errnoName(errno) === 'EPERM' ? { advice: 'run it as root, or with CAP_NET_ADMIN in the network namespace' } : {};
}

/** The kernel's refusal of a question or change by netlink. */
export const refusedWith = (errno: number, doing: string): OpError => new OpError('failed', doing, errnoName(errno), adviceFor(errno));
