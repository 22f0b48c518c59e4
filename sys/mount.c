/* Mounts, and paths that cannot be led out of their root. */
#include "sys.h"
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Named here because headers of older distributions lack them; the kernel has them since 5.12. */
#ifndef SYS_mount_setattr
#define SYS_mount_setattr 442
#endif
#define TREE_CLONE 1u
#define MOVE_FROM_FD 0x4u
#define MOVE_FOLLOW_TARGET 0x10u
#define ATTR_RDONLY 1u
#define RECURSIVE 0x8000u
struct attr { uint64_t set, clear, propagation, userns; };

enum { BIND_RECURSIVE = 1, BIND_READ_ONLY = 2, BIND_ALL_READ_ONLY = 4, BIND_LINKS_INSIDE = 8 };

int open_beneath(int root, const char *path, int flags, int mode, uint64_t resolve) {
  struct open_how how = {.flags = (uint64_t)(flags | O_CLOEXEC), .mode = (uint64_t)mode, .resolve = RESOLVE_BENEATH | RESOLVE_NO_MAGICLINKS | resolve};
  for (;;) {
    long fd = syscall(SYS_openat2, root, path, &how, sizeof how);
    /* EAGAIN: something was renamed meanwhile, so the kernel cannot be sure. */
    if (fd >= 0 || (errno != EAGAIN && errno != EINTR)) return (int)fd;
  }
}

static int open_root(const char *path) { return open(path, O_PATH | O_DIRECTORY | O_CLOEXEC); }

const char *op_mount(struct call *c) {
  const char *source = get_string(c->in), *target = get_string(c->in), *type = get_string(c->in);
  uint64_t flags = get_u64(c->in);
  const char *data = get_string(c->in);
  if (!get_end(c->in)) return "mount";
  return mount(source, target, type, (unsigned long)flags, *data ? data : NULL) < 0 ? "mount" : NULL;
}

const char *op_umount(struct call *c) {
  const char *target = get_string(c->in);
  uint32_t flags = get_u32(c->in);
  if (!get_end(c->in)) return "umount";
  int done = umount2(target, (int)flags | UMOUNT_NOFOLLOW);
  if (done < 0 && errno != EINVAL && errno != ENOENT) return "umount";
  buf_u8(c->out, done == 0);
  return NULL;
}

const char *op_bind(struct call *c) {
  const char *root = get_string(c->in), *source = get_string(c->in), *target = get_string(c->in);
  uint32_t options = get_u32(c->in);
  uint64_t propagation = get_u64(c->in);
  if (!get_end(c->in)) return "bind";
  int fd;
  if (*root) {
    int root_fd = open_root(root);
    if (root_fd < 0) return "open root";
    fd = open_beneath(root_fd, *source ? source : ".", O_PATH, 0, options & BIND_LINKS_INSIDE ? 0 : RESOLVE_NO_SYMLINKS);
  } else {
    fd = open(source, O_PATH | O_CLOEXEC);
  }
  if (fd < 0) return "open source";
  unsigned recursive = options & BIND_RECURSIVE ? RECURSIVE : 0;
  int tree = (int)syscall(SYS_open_tree, fd, "", TREE_CLONE | O_CLOEXEC | AT_EMPTY_PATH | recursive);
  if (tree < 0) return "clone mount";
  if (options & (BIND_READ_ONLY | BIND_ALL_READ_ONLY)) {
    struct attr attr = {.set = ATTR_RDONLY};
    if (syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH | (options & BIND_ALL_READ_ONLY ? RECURSIVE : 0), &attr, sizeof attr) < 0) return "make read-only";
  }
  if (syscall(SYS_move_mount, tree, "", AT_FDCWD, target, MOVE_FROM_FD | MOVE_FOLLOW_TARGET) < 0) return "attach mount";
  /* After attaching, because a shared parent makes what is attached below it shared. */
  struct attr attr = {.propagation = propagation & ~(uint64_t)MS_REC};
  if (propagation && syscall(SYS_mount_setattr, tree, "", AT_EMPTY_PATH | (propagation & MS_REC ? RECURSIVE : 0), &attr, sizeof attr) < 0) {
    int error = errno;
    umount2(target, MNT_DETACH);
    errno = error;
    return "set propagation";
  }
  return NULL;
}

const char *op_read_beneath(struct call *c) {
  const char *root = get_string(c->in), *path = get_string(c->in);
  uint32_t limit = get_u32(c->in);
  bool from_end = get_u8(c->in);
  if (!get_end(c->in)) return "read";
  int root_fd = open_root(root);
  if (root_fd < 0) return "open root";
  int fd = open_beneath(root_fd, path, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, RESOLVE_NO_SYMLINKS);
  struct stat info;
  if (fd < 0 || fstat(fd, &info) < 0) return "open";
  if (!S_ISREG(info.st_mode)) {
    errno = S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
    return "not a regular file";
  }
  if (limit > MAX_FRAME - 1024) limit = MAX_FRAME - 1024;
  off_t at = from_end && info.st_size > (off_t)limit ? info.st_size - (off_t)limit : 0;
  struct buf data = {0};
  uint8_t chunk[65536];
  while (data.length < limit) {
    size_t want = limit - data.length < sizeof chunk ? limit - data.length : sizeof chunk;
    ssize_t got = pread(fd, chunk, want, at + (off_t)data.length);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return "read";
    if (got == 0) break;
    buf_add(&data, chunk, (size_t)got);
  }
  buf_bytes(c->out, data.data, data.length);
  return NULL;
}

const char *op_mkdir_beneath(struct call *c) {
  const char *root = get_string(c->in);
  char *path = strdup(get_string(c->in));
  mode_t mode = get_u32(c->in) & 07777;
  uint64_t resolve = get_u8(c->in) ? 0 : RESOLVE_NO_SYMLINKS;
  if (!get_end(c->in) || !path) return "mkdir";
  int root_fd = open_root(root), at = root_fd;
  if (root_fd < 0) return "open root";
  for (char *name = path, *end; *name; name = end + strspn(end, "/")) {
    end = name + strcspn(name, "/");
    char after = *end;
    *end = 0;
    bool made = *name && mkdirat(at, name, mode) == 0;
    if (*name && !made && errno != EEXIST) return "mkdir";
    /* From the root each time: a link may point up and down again, as long as it stays inside. */
    int next = open_beneath(root_fd, *path ? path : ".", O_RDONLY | O_DIRECTORY, 0, resolve);
    if (next < 0) return "open directory";
    if (made && fchmod(next, mode) < 0) return "chmod";
    if (at != root_fd) close(at);
    at = next;
    *end = after;
  }
  return NULL;
}
