import { OpError } from '../../base/errors.ts';
import type { Status } from '../../proto/kube/types.ts';

/** The exit code that the error channel of an exec tells. Throws OpError `failed` for anything else. */
export function exitOf(text: string): number {
  let read: Status;
  try {
    read = JSON.parse(text) as Status;
  } catch {
    throw new OpError('failed', 'exec', text.trim());
  }
  if (read.status === 'Success') return 0;
  const code = read.reason === 'NonZeroExitCode' ? read.details?.causes?.find(({ reason }) => reason === 'ExitCode')?.message : undefined;
  if (code !== undefined && /^\d+$/.test(code)) return Number(code);
  throw new OpError('failed', 'exec', read.message ?? text);
}
