import { constants } from 'node:os';
import { getSystemErrorName } from 'node:util';
import { type OpCode, OpError } from '../errors.ts';

const codes: Readonly<Record<string, OpCode>> = {
  ENOENT: 'not-found',
  ESRCH: 'not-found',
  ENXIO: 'not-found',
  EEXIST: 'exists',
  EALREADY: 'conflict',
  EPERM: 'denied',
  EACCES: 'denied',
  EROFS: 'denied',
  EINVAL: 'invalid',
  ENAMETOOLONG: 'invalid',
  ENOTDIR: 'invalid',
  EISDIR: 'invalid',
  ELOOP: 'invalid',
  EXDEV: 'invalid',
  EBADMSG: 'invalid',
  E2BIG: 'invalid',
  ENOSPC: 'exhausted',
  EDQUOT: 'exhausted',
  ENOMEM: 'exhausted',
  EMFILE: 'exhausted',
  ENFILE: 'exhausted',
  EAGAIN: 'exhausted',
  ENOBUFS: 'exhausted',
  EMSGSIZE: 'exhausted',
  ENOSYS: 'unsupported',
  EOPNOTSUPP: 'unsupported',
  ENODEV: 'unsupported',
  EPROTONOSUPPORT: 'unsupported',
  ETIMEDOUT: 'deadline',
  ECANCELED: 'aborted',
};

/** errno's name, for example ENOENT. */
export function errnoName(number: number): string {
  return number > 0 && number < 4096 ? getSystemErrorName(-number) : `errno ${number}`;
}

export function errnoNumber(name: string): number {
  return (constants.errno as Record<string, number>)[name] ?? 0;
}

/** What the kernel refused, by errno's name; its code is the same for all errnos that ask for the same reaction. */
export class ErrnoError extends OpError {
  /** For example ENOENT. */
  readonly errno: string;

  constructor(doing: string, errno: string, where: string) {
    super(codes[errno] ?? 'failed', doing, where === '' ? errno : `${where}: ${errno}`);
    this.errno = errno;
  }
}

/** An OpError whose text ends in errno's name. */
export function errnoError(doing: string, name: string, where = ''): ErrnoError {
  return new ErrnoError(doing, name, where);
}

/** errno's name of what Node or this room threw. */
export function errnoOf(error: unknown): string {
  if (error instanceof ErrnoError) return error.errno;
  const { code } = error as NodeJS.ErrnoException;
  if (code === undefined || !/^E[A-Z0-9]+$/.test(code)) throw error;
  return code;
}
