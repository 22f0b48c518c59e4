import { unreachable } from '../assert.ts';
import type { BindRequest, FileOpResult, MountFlag } from './types.ts';

const flagBits: Readonly<Record<MountFlag, number>> = {
  ro: 1,
  nosuid: 2,
  nodev: 4,
  noexec: 8,
  remount: 32,
  noatime: 1024,
  bind: 4096,
  rec: 16_384,
  private: 1 << 18,
  slave: 1 << 19,
  shared: 1 << 20,
};

/** The flags of mount(2) as one number. */
export function mountFlags(flags: readonly MountFlag[]): number {
  return flags.reduce((bits, flag) => bits | flagBits[flag], 0);
}

export function propagationBits(propagation: BindRequest['propagation']): number {
  switch (propagation) {
    case undefined:
      return 0;
    case 'private':
      return flagBits.private;
    case 'rprivate':
      return flagBits.private | flagBits.rec;
    case 'rslave':
      return flagBits.slave | flagBits.rec;
    case 'rshared':
      return flagBits.shared | flagBits.rec;
    default:
      return unreachable(propagation);
  }
}

export type PathType = NonNullable<FileOpResult['stat']>['type'];

const pathTypes: Readonly<Record<number, PathType>> = { 0o01: 'fifo', 0o02: 'char', 0o04: 'dir', 0o06: 'block', 0o10: 'file', 0o12: 'link', 0o14: 'socket' };

/** What S_IFMT of st_mode says. */
export function pathType(mode: number): PathType {
  return pathTypes[(mode >>> 12) & 0o17] ?? 'file';
}
