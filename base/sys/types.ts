/**
 * The system calls JavaScript lacks. Real: the C program in `sys/`, one per daemon, asked over a socketpair;
 * fallback: util-linux and coreutils through execa; fake: in memory. One contract suite runs on the three.
 * Nothing here decides anything.
 */
export interface Sys extends AsyncDisposable {
  /**
   * Runs a program in a process group of its own, without stopping the event loop. When the deadline passes or
   * `signal` is aborted, the whole group is killed. A program that cannot be started throws OpError
   * (`not-found`, `denied`); one that ends non-zero is an ordinary result.
   */
  run(request: RunRequest, signal?: AbortSignal): Promise<RunResult>;

  /** mount(2). Throws OpError with errno's name in the text. */
  mount(request: MountRequest): Promise<void>;
  /** umount2(2), never through a symlink; `lazy` is MNT_DETACH. `not-mounted` when nothing is mounted there. */
  umount(target: string, options?: { lazy?: boolean; force?: boolean; timeoutMs?: number }): Promise<'unmounted' | 'not-mounted'>;
  /**
   * Binds `source` on `target`. With `beneath`, `source` is relative to that directory and is resolved by
   * openat2(RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS), and the held descriptor is what gets mounted: a swapped
   * symlink cannot lead outside. `recursiveReadOnly` uses mount_setattr(AT_RECURSIVE). `links: 'beneath'` leaves out
   * RESOLVE_NO_SYMLINKS (but never magic links): links that stay inside are followed, as subPaths of ConfigMap volumes need.
   */
  bind(request: BindRequest): Promise<void>;
  /** Reads at most `maxBytes` of a regular file, resolved beneath `root` without following symlinks. */
  readBeneath(root: string, path: string, options: { maxBytes: number; fromEnd?: boolean }): Promise<Uint8Array>;
  /**
   * Creates (mkdir -p style) a directory beneath `root`, by default without following symlinks. Directories it made
   * get exactly `mode`, whatever the umask; those that were there keep theirs.
   */
  mkdirBeneath(root: string, path: string, mode: number, options?: { links?: 'refuse' | 'beneath' }): Promise<void>;
  /**
   * File operations one after another, in a child that is killed at the deadline (OpError `deadline`). Stops at the
   * first that fails: its answer is the last of the list. `links` says how paths below `root` are resolved:
   * `refuse` (default) never follows one; `beneath` follows those that stay below root; `follow` is plain path lookup.
   */
  fileOps(request: FileOpsRequest, signal?: AbortSignal): Promise<FileOpResult[]>;

  /**
   * Tree walks in a child that is killed at the deadline. Never cross a mount point, never follow symlinks.
   * removeTree: nothing there is success; a mount at or below `path` throws with EBUSY and keeps what is in it.
   */
  removeTree(path: string, options: { timeoutMs: number }, signal?: AbortSignal): Promise<void>;
  /** chown -R plus mode bits or-ed in (`orMode` on files, `orDirMode` on directories), for fsGroup. */
  chownTree(path: string, options: ChownTreeOptions, signal?: AbortSignal): Promise<void>;
  /** As du counts: allocated blocks, hard links once, the top included. */
  diskUsage(path: string, options: { timeoutMs: number }, signal?: AbortSignal): Promise<{ bytes: number; inodes: number }>;
  /** statfs(2) in a child that is killed at the deadline. */
  statfs(path: string, options: { timeoutMs: number }): Promise<FsFacts>;

  /**
   * Sends `messages` (encoded netlink bytes) on a socket of `family` opened in `netns` (default: ours), and
   * collects answers until every message that asked for it (NLM_F_ACK or NLM_F_DUMP) is answered. Answers
   * come back as raw datagrams; errors inside them are the caller's to decode. After a refusal nothing that is not
   * there yet is waited for. NETLINK_CAP_ACK and NETLINK_EXT_ACK are on.
   */
  netlink(request: { family: number; netns?: string; messages: Uint8Array; expectAnswers: number; timeoutMs: number }): Promise<Uint8Array[]>;

  /** Many small files in one round trip; null for each that cannot be read. For /proc and cgroupfs. */
  readFiles(paths: readonly string[], options?: { maxBytesEach?: number }): Promise<(Uint8Array | null)[]>;
  /** write(2) of the whole text to an existing file (cgroup files), in a child where it may block. */
  writeFiles(writes: readonly { path: string; data: string }[]): Promise<(OpFailure | null)[]>;

  /** Follows /dev/kmsg from now on. */
  followKernelLog(onRecord: (record: string) => void): Promise<AsyncDisposable>;
  /** sd_notify(3) to $NOTIFY_SOCKET; does nothing where that is unset. */
  notify(state: string): Promise<void>;
  /**
   * flock(LOCK_EX | LOCK_NB) held until disposed; throws OpError `conflict` when somebody else holds it. `onLost` is
   * called when the holder died and the lock could not be taken again, `onWanted` when somebody else opens the file
   * (OpError `unsupported` where that cannot be seen).
   */
  lock(path: string, onLost?: (error: unknown) => void, onWanted?: () => void): Promise<AsyncDisposable>;
  /**
   * Connects to a Unix socket, writes `bytes`, and holds the first descriptor that the other side sends until disposed. Throws
   * OpError `deadline` when none comes in time, `unsupported` where descriptors cannot be received. Asked for again when its
   * holder died; `onLost` is called when that fails.
   */
  holdDescriptor(request: { path: string; bytes: Uint8Array; timeoutMs: number }, onLost?: (error: unknown) => void): Promise<AsyncDisposable>;
}

export interface BindRequest {
  source: string;
  beneath?: string;
  links?: 'refuse' | 'beneath';
  target: string;
  recursive?: boolean;
  readOnly?: boolean;
  recursiveReadOnly?: boolean;
  propagation?: 'private' | 'rprivate' | 'rslave' | 'rshared';
  timeoutMs?: number;
}

export interface FsFacts {
  totalBytes: number;
  freeBytes: number;
  availableBytes: number;
  inodes: number;
  inodesFree: number;
  /** The file system's magic number (statfs(2)), for example 0x01021994 for tmpfs. */
  magic: number;
}

export interface FileOpsRequest {
  root: string;
  ops: readonly FileOp[];
  links?: 'refuse' | 'beneath' | 'follow';
  timeoutMs: number;
}

/** Paths are relative to the root of the request; '' or '.' is the root itself. */
export type FileOp =
  /** One level; a directory that is there already is fine and keeps its mode, a new one gets exactly `mode`. */
  | { op: 'mkdir'; path: string; mode: number }
  /** Creates or overwrites a regular file; `mode` (and owner, when given) is set exactly. Never follows the last component. */
  | { op: 'write'; path: string; data: Uint8Array | string; mode: number; uid?: number; gid?: number }
  /** Makes a symbolic link; EEXIST when something is there. */
  | { op: 'symlink'; target: string; path: string }
  /** rename(2): replaces what is at `to`. */
  | { op: 'rename'; path: string; to: string }
  /** A file, a link or an empty directory; absent is fine. */
  | { op: 'unlink'; path: string }
  | { op: 'chmod'; path: string; mode: number }
  | { op: 'chown'; path: string; uid: number; gid: number }
  /** A regular file, at most `maxBytes` of it. */
  | { op: 'read'; path: string; maxBytes: number }
  | { op: 'readlink'; path: string }
  /** Names in a directory, without . and .. */
  | { op: 'list'; path: string }
  /** Of the last component itself under `refuse`, of what it leads to otherwise. */
  | { op: 'stat'; path: string };

export interface FileOpResult {
  /** errno's name; '' is success. */
  errno: string;
  /** Of `read`. */
  data?: Uint8Array;
  /** Of `readlink`. */
  target?: string;
  /** Of `list`. */
  names?: string[];
  /** Of `stat`; `mode` holds the permission bits with setuid, setgid and sticky; `mountPoint`: something is mounted exactly there. */
  stat?: { type: 'file' | 'dir' | 'link' | 'socket' | 'fifo' | 'char' | 'block'; mode: number; uid: number; gid: number; size: number; mountPoint: boolean };
}

/** errno's name and a text, for one of many writes. */
export interface OpFailure {
  errno: string;
  message: string;
}

export interface RunRequest {
  argv: readonly string[];
  /** The whole environment; default is PATH alone. */
  env?: Readonly<Record<string, string>>;
  cwd?: string;
  /**
   * Parts that come one by one are asked for as the program reads them; when they fail, the run fails with their error.
   * A program can end well that did not read all: whoever needs to know looks whether all were asked for.
   */
  stdin?: Uint8Array | string | AsyncIterable<string>;
  /** Path of a network namespace file to enter first. */
  netns?: string;
  /** Path of a mount namespace file to enter first. */
  mntns?: string;
  timeoutMs: number;
  /** Per stream; output above it is dropped and `truncated` set. Default 1 MiB. */
  maxOutputBytes?: number;
}

export interface RunResult {
  /** Exit code; null when a signal ended it. */
  code: number | null;
  signal: number | null;
  stdout: Uint8Array;
  stderr: Uint8Array;
  truncated: boolean;
  timedOut: boolean;
}

export interface MountRequest {
  source: string;
  target: string;
  fstype: string;
  /** mount(2) flags by name. */
  flags?: readonly MountFlag[];
  data?: string;
  /** Default 30 s: a dead server must not hold the caller for ever. */
  timeoutMs?: number;
}

export type MountFlag = 'ro' | 'nosuid' | 'nodev' | 'noexec' | 'noatime' | 'bind' | 'rec' | 'remount' | 'private' | 'slave' | 'shared';

export interface ChownTreeOptions {
  readonly uid?: number;
  readonly gid?: number;
  readonly orMode?: number;
  readonly orDirMode?: number;
  readonly timeoutMs: number;
  /** Now and then, how many were changed so far; never where the machine's own tools do it. */
  readonly onProgress?: (files: number) => void;
}
