import { timeText } from '../../base/time.ts';
import type { PayloadFile } from './volumes-payload.ts';

/** File operations in the words of Sys.fileOps; contents stay as they came and are decoded by whoever carries them out. */
export type WriterOp =
  | { op: 'mkdir'; path: string; mode: number }
  | { op: 'write'; path: string; file: PayloadFile; mode: number; uid?: number; gid?: number }
  | { op: 'symlink'; target: string; path: string }
  | { op: 'rename'; path: string; to: string }
  | { op: 'unlink'; path: string }
  | { op: 'chmod'; path: string; mode: number }
  | { op: 'chown'; path: string; uid: number; gid: number };

/** What lies in the volume's directory now. */
export interface WriterState {
  /** Names in the directory itself. */
  readonly names: readonly string[];
  /** Where `..data` points; null when it is not there. */
  readonly dataTarget: string | null;
  /** Names in the directory that `..data` points to. */
  readonly dataNames: readonly string[];
}

export interface WriterPlan {
  readonly ops: readonly WriterOp[];
  /** Old data directories, to be removed as trees once `ops` are done. */
  readonly stale: readonly string[];
}

const dataLink = '..data';
const newDataLink = '..data_tmp';
const readOnlyMask = 0o440;
const groupDirMask = 0o2550;

/**
 * Kubernetes' atomic write: everything goes into a new directory `stamp`, the link `..data` is swapped to it by one
 * rename, and the names that a container sees are links through `..data`. A reader sees all old or all new files.
 */
export function planAtomicWrite(state: WriterState, files: readonly PayloadFile[], stamp: string, fsGroup: number | null): WriterPlan {
  const ops: WriterOp[] = [{ op: 'mkdir', path: stamp, mode: 0o755 }];
  const dirs = [stamp];
  for (const dir of directoriesOf(files)) {
    dirs.push(`${stamp}/${dir}`);
    ops.push({ op: 'mkdir', path: `${stamp}/${dir}`, mode: 0o755 });
  }
  for (const file of files) ops.push(writeOp(`${stamp}/${file.path}`, file, fsGroup));
  if (fsGroup !== null) {
    for (const path of dirs) ops.push({ op: 'chown', path, uid: 0, gid: fsGroup }, { op: 'chmod', path, mode: 0o755 | groupDirMask });
  }
  ops.push({ op: 'unlink', path: newDataLink }, { op: 'symlink', target: stamp, path: newDataLink }, { op: 'rename', path: newDataLink, to: dataLink });
  ops.push(...visibleLinks(state, files));
  const stale = state.names.filter((name) => /^\.\.\d{4}_/.test(name) && name !== stamp);
  return { ops, stale };
}

/** Only the visible names: for a volume whose data is right but whose links a crash left half made. */
export function planLinks(state: WriterState, files: readonly PayloadFile[]): WriterOp[] {
  return visibleLinks(state, files);
}

function visibleLinks(state: WriterState, files: readonly PayloadFile[]): WriterOp[] {
  const wanted = new Set(files.map((file) => firstPart(file.path)));
  const present = new Set(state.names);
  const ops: WriterOp[] = [];
  for (const name of wanted) if (!present.has(name)) ops.push({ op: 'symlink', target: `${dataLink}/${name}`, path: name });
  for (const name of state.dataNames) if (!wanted.has(name) && present.has(name)) ops.push({ op: 'unlink', path: name });
  return ops;
}

function writeOp(path: string, file: PayloadFile, fsGroup: number | null): WriterOp {
  const mode = fsGroup === null ? file.mode : file.mode | readOnlyMask;
  const op: WriterOp = { op: 'write', path, file, mode };
  if (file.uid !== undefined) op.uid = file.uid;
  if (fsGroup !== null) op.gid = fsGroup;
  return op;
}

function firstPart(path: string): string {
  return path.split('/')[0] ?? path;
}

/** Every directory that a file's path needs, parents first. */
function directoriesOf(files: readonly PayloadFile[]): string[] {
  const dirs = new Set<string>();
  for (const file of files) {
    const parts = file.path.split('/');
    for (let depth = 1; depth < parts.length; depth += 1) dirs.add(parts.slice(0, depth).join('/'));
  }
  return [...dirs].sort();
}

/** Name of a data directory, as upstream makes them: `..2026_01_31_23_59_59.<chance>`, in UTC. */
export function stampOf(nowMs: number, chance: number): string {
  return `..${timeText(nowMs).replaceAll(/[-T:]/g, '_').replace('Z', '')}.${chance}`;
}
