/* File operations one after another below a root, for volumes: what to do is decided elsewhere. */
#include "sys.h"
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

enum file_op { FILE_MKDIR, FILE_WRITE, FILE_SYMLINK, FILE_RENAME, FILE_UNLINK, FILE_CHMOD, FILE_CHOWN, FILE_READ, FILE_READLINK, FILE_LIST, FILE_STAT };
enum links { LINKS_REFUSE, LINKS_BENEATH, LINKS_FOLLOW };

struct step {
  uint8_t op;
  const char *path, *other;
  uint32_t mode, uid, gid, length;
  const uint8_t *data;
};

static int root;
static enum links links;

static struct step get_step(struct reader *r) {
  struct step s = {.op = get_u8(r)};
  s.path = get_string(r);
  s.other = get_string(r);
  s.mode = get_u32(r);
  s.uid = get_u32(r);
  s.gid = get_u32(r);
  s.data = get_bytes(r, &s.length);
  if (s.op > FILE_STAT) r->bad = true;
  return s;
}

static int open_path(const char *path, int flags) {
  if (!*path) path = ".";
  if (links == LINKS_FOLLOW) return openat(root, path, flags | O_CLOEXEC);
  return open_beneath(root, path, flags, 0, links == LINKS_REFUSE ? RESOLVE_NO_SYMLINKS : 0);
}

/* The directory that holds the last name of `path`, which is never followed. */
static int open_holder(const char *path, const char **name) {
  static char copy[PATH_MAX];
  if (snprintf(copy, sizeof copy, "%s", path) >= (int)sizeof copy) {
    errno = ENAMETOOLONG;
    return -1;
  }
  char *slash = strrchr(copy, '/');
  *name = slash ? path + (slash - copy) + 1 : path;
  if (slash) *slash = 0;
  if (!**name || !strcmp(*name, ".") || !strcmp(*name, "..")) {
    errno = EINVAL;
    return -1;
  }
  return open_path(!slash ? "." : slash == copy ? "/" : copy, O_PATH | O_DIRECTORY);
}

static int change_mode(int fd, uint32_t mode) {
  char link[64];
  struct stat info;
  if (fstat(fd, &info) < 0) return -1;
  if (S_ISLNK(info.st_mode)) {
    errno = ELOOP;
    return -1;
  }
  snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  return chmod(link, mode & 07777);
}

static int make_directory(int at, const char *name, uint32_t mode) {
  struct stat info;
  if (mkdirat(at, name, mode & 07777) == 0) return fchmodat(at, name, mode & 07777, 0);
  if (errno != EEXIST) return -1;
  if (fstatat(at, name, &info, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(info.st_mode)) return 0;
  errno = EEXIST;
  return -1;
}

static int write_file(int at, const char *name, const struct step *s) {
  struct stat info;
  int fd = openat(at, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC, 0600);
  if (fd < 0) return -1;
  int result = fstat(fd, &info);
  if (result == 0 && !S_ISREG(info.st_mode)) {
    errno = EINVAL;
    result = -1;
  }
  if (result == 0) result = ftruncate(fd, 0);
  if (result == 0 && !write_all(fd, s->data, s->length)) result = -1;
  if (result == 0 && (s->uid != UINT32_MAX || s->gid != UINT32_MAX)) result = fchown(fd, s->uid, s->gid);
  if (result == 0) result = fchmod(fd, s->mode & 07777);
  int error = errno;
  close(fd);
  errno = error;
  return result;
}

static int change_name(const struct step *s) {
  const char *name, *other_name = s->other;
  int at = open_holder(s->path, &name), result = -1, other = -1;
  if (at < 0) return -1;
  if (s->op == FILE_MKDIR) result = make_directory(at, name, s->mode);
  if (s->op == FILE_WRITE) result = write_file(at, name, s);
  if (s->op == FILE_SYMLINK) result = symlinkat(s->other, at, name);
  if (s->op == FILE_UNLINK) {
    result = unlinkat(at, name, 0);
    if (result < 0 && (errno == EISDIR || errno == EPERM)) result = unlinkat(at, name, AT_REMOVEDIR);
    if (result < 0 && errno == ENOENT) result = 0;
  }
  if (s->op == FILE_RENAME && (other = open_holder(s->other, &other_name)) >= 0) result = renameat(at, name, other, other_name);
  int error = errno;
  close(at);
  if (other >= 0) close(other);
  errno = error;
  return result;
}

static int read_file(int fd, uint32_t limit, struct buf *out) {
  struct stat info;
  if (fstat(fd, &info) < 0) return -1;
  if (!S_ISREG(info.st_mode)) {
    errno = S_ISDIR(info.st_mode) ? EISDIR : EINVAL;
    return -1;
  }
  uint8_t chunk[65536];
  while (out->length < limit) {
    size_t left = limit - out->length;
    ssize_t got = read(fd, chunk, left < sizeof chunk ? left : sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return (int)got;
    buf_add(out, chunk, (size_t)got);
  }
  return 0;
}

static int list_names(int fd, struct buf *out) {
  DIR *dir = fdopendir(dup(fd));
  if (!dir) return -1;
  struct dirent *entry;
  while (errno = 0, (entry = readdir(dir))) {
    if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) buf_add(out, entry->d_name, strlen(entry->d_name) + 1);
  }
  int error = errno;
  closedir(dir);
  errno = error;
  return error ? -1 : 0;
}

static int look_at(int fd, struct buf *out) {
  struct statx info;
  if (statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS, &info) < 0) return -1;
  buf_u32(out, info.stx_mode);
  buf_u32(out, info.stx_uid);
  buf_u32(out, info.stx_gid);
  buf_u64(out, info.stx_size);
  buf_u8(out, (info.stx_attributes & STATX_ATTR_MOUNT_ROOT) != 0);
  return 0;
}

static int do_step(const struct step *s, struct buf *out) {
  if (s->op <= FILE_UNLINK) return change_name(s);
  int flags = O_PATH | O_NOFOLLOW;
  if (s->op == FILE_READ) flags = O_RDONLY | O_NONBLOCK | O_NOCTTY;
  if (s->op == FILE_LIST) flags = O_RDONLY | O_DIRECTORY;
  if (links != LINKS_REFUSE && s->op != FILE_READLINK) flags &= ~O_NOFOLLOW;
  int fd = open_path(s->path, flags), result = -1;
  if (fd < 0) return -1;
  if (s->op == FILE_CHMOD) result = change_mode(fd, s->mode);
  if (s->op == FILE_CHOWN) result = fchownat(fd, "", s->uid, s->gid, AT_EMPTY_PATH);
  if (s->op == FILE_READ) result = read_file(fd, s->mode, out);
  if (s->op == FILE_LIST) result = list_names(fd, out);
  if (s->op == FILE_STAT) result = look_at(fd, out);
  if (s->op == FILE_READLINK) {
    char target[PATH_MAX];
    ssize_t length = readlinkat(fd, "", target, sizeof target);
    /* The kernel says ENOENT of an empty path when the descriptor is no link. */
    if (length < 0 && errno == ENOENT) errno = EINVAL;
    if (length >= 0) buf_add(out, target, (size_t)length);
    result = length < 0 ? -1 : 0;
  }
  int error = errno;
  close(fd);
  errno = error;
  return result;
}

const char *op_file_ops(struct call *c) {
  const char *root_path = get_string(c->in);
  links = (enum links)get_u8(c->in);
  uint32_t count = get_u32(c->in);
  struct reader steps = *c->in;
  for (uint32_t i = 0; i < count && !c->in->bad; i++) get_step(c->in);
  if (!get_end(c->in)) return "file operations";
  root = open(root_path, O_PATH | O_DIRECTORY | O_CLOEXEC);
  if (root < 0) return "open root";
  for (uint32_t i = 0; i < count; i++) {
    struct step s = get_step(&steps);
    struct buf data = {0};
    int result = do_step(&s, &data);
    buf_u32(c->out, result < 0 ? (uint32_t)errno : 0);
    buf_bytes(c->out, data.data, result < 0 ? 0 : data.length);
    buf_free(&data);
    if (result < 0) break;
  }
  return NULL;
}
