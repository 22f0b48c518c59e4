/* Tree walks: never across a mount, never through a symlink. Always in a child that can be killed. */
#include "sys.h"
#include <dirent.h>
#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_DEPTH 4000   /* a descriptor and a read buffer per level */
#define LIFT_DEPTH 200   /* removal lifts deeper directories to the top instead */
#define TELL_EACH 1024   /* files whose owner is changed between two words of it */

struct walk;
/* Called for each entry before its children. Nonzero: stop with errno. */
typedef int visit(struct walk *w, int dir, const char *name, const struct statx *info);
/* Called after the children of a directory. */
typedef int leave(struct walk *w, int dir, const char *name);

struct walk {
  visit *enter;
  leave *leave;
  bool lift;          /* deep directories may be moved up */
  uint64_t mount;     /* mount ID of the directory being read */
  uint32_t uid, gid, or_file, or_dir;
  uint64_t bytes, inodes;
  struct call *told;  /* who hears how many were changed */
  struct seen { uint64_t dev, ino; } *seen;
  size_t seen_count, seen_size;
};
struct level { DIR *dir; char *name; uint64_t mount; };

static int look(int dir, const char *name, struct statx *info) {
  return statx(dir, name, AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT, STATX_BASIC_STATS | STATX_MNT_ID, info);
}

static bool open_level(struct level *level, int at, const char *name) {
  struct statx info;
  int fd = open_beneath(at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW, 0, RESOLVE_NO_SYMLINKS | RESOLVE_NO_XDEV);
  if (fd < 0) return false;
  bool good = statx(fd, "", AT_EMPTY_PATH, STATX_MNT_ID, &info) == 0;
  *level = (struct level){good ? fdopendir(fd) : NULL, good ? strdup(name) : NULL, info.stx_mnt_id};
  return level->dir && level->name;
}

static const char *next_name(DIR *dir) {
  for (struct dirent *entry; errno = 0, (entry = readdir(dir));) {
    if (strcmp(entry->d_name, ".") && strcmp(entry->d_name, "..")) return entry->d_name;
  }
  return NULL;
}

/* Without recursion: a hostile tree must not choose the size of the stack. */
static int walk_below(struct walk *w, int parent, const char *top) {
  static struct level levels[MAX_DEPTH];
  static unsigned lifted;
  struct rlimit files = {0};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);
  size_t depth = 1;
  if (!open_level(&levels[0], parent, top)) return -1;
  while (depth > 0) {
    struct level *here = &levels[depth - 1];
    int fd = dirfd(here->dir);
    const char *name = next_name(here->dir);
    if (!name) {
      if (errno) return -1;
      int above = depth > 1 ? dirfd(levels[depth - 2].dir) : parent;
      int left = w->leave ? w->leave(w, above, here->name) : 0;
      if (left < 0) return -1;
      if (left > 0) { /* Something new appeared in it. */
        rewinddir(here->dir);
        continue;
      }
      closedir(here->dir);
      free(here->name);
      depth--;
      continue;
    }
    struct statx info;
    if (look(fd, name, &info) < 0) {
      if (errno == ENOENT) continue;
      return -1;
    }
    bool is_dir = S_ISDIR(info.stx_mode);
    w->mount = here->mount;
    if (w->enter(w, fd, name, &info) < 0) return -1;
    if (!is_dir) continue;
    if (w->lift && depth >= LIFT_DEPTH) {
      char flat[64];
      snprintf(flat, sizeof flat, ".removed-%d-%u", (int)getpid(), lifted++);
      if (renameat(fd, name, dirfd(levels[0].dir), flat) < 0) return -1;
      continue;
    }
    if (depth == MAX_DEPTH) {
      errno = ELOOP;
      return -1;
    }
    if (open_level(&levels[depth], fd, name)) depth++;
    else if (errno == EXDEV && w->lift) return errno = EBUSY, -1;
    else if (errno != ENOENT && errno != EXDEV) return -1; /* A mount is not ours to look into. */
  }
  return 0;
}

/* Opens the directory that holds `path`, whose last name is returned; its own symlinks are the caller's. */
static int open_parent(const char *path, const char **name) {
  size_t length = strlen(path);
  while (length > 1 && path[length - 1] == '/') length--;
  char *copy = strndup(path, length), *slash = copy ? strrchr(copy, '/') : NULL;
  if (!slash || !slash[1]) {
    errno = EINVAL;
    return -1;
  }
  *slash = 0;
  *name = slash + 1;
  return open(*copy ? copy : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
}

static int remove_entry(struct walk *w, int dir, const char *name, const struct statx *info) {
  (void)w;
  if (S_ISDIR(info->stx_mode)) return 0;
  return unlinkat(dir, name, 0) < 0 && errno != ENOENT ? -1 : 0;
}

static int remove_directory(struct walk *w, int dir, const char *name) {
  if (unlinkat(dir, name, AT_REMOVEDIR) == 0 || errno == ENOENT) return 0;
  /* Lifted directories wait at the top, and somebody may still be writing; not for ever, though. */
  if ((errno == ENOTEMPTY || errno == EEXIST) && w->inodes++ < 100000) return 1;
  return -1;
}

const char *op_remove_tree(struct call *c) {
  const char *path = get_string(c->in), *name;
  if (!get_end(c->in)) return "remove";
  int parent = open_parent(path, &name);
  if (parent < 0) return errno == ENOENT ? NULL : "open parent";
  if (unlinkat(parent, name, 0) == 0 || errno == ENOENT) return NULL;
  if (errno != EISDIR && errno != EPERM) return "unlink";
  struct walk w = {.enter = remove_entry, .leave = remove_directory, .lift = true};
  if (walk_below(&w, parent, name) < 0) {
    if (errno == EXDEV) errno = EBUSY;
    return "remove tree";
  }
  return NULL;
}

static int change_owner(struct walk *w, int dir, const char *name, const struct statx *info) {
  struct statx now;
  int fd = openat(dir, name, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return errno == ENOENT ? 0 : -1;
  int result = statx(fd, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID, &now);
  uint32_t extra = S_ISDIR(now.stx_mode) ? w->or_dir : w->or_file;
  if (result == 0 && now.stx_mnt_id == info->stx_mnt_id) {
    result = fchownat(fd, "", w->uid, w->gid, AT_EMPTY_PATH);
    if (result == 0 && !S_ISLNK(now.stx_mode) && (extra || now.stx_mode & 06000)) {
      char link[64];
      snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
      result = chmod(link, (now.stx_mode & 07777) | extra);
    }
  }
  close(fd);
  return result;
}

static int change_owner_inside(struct walk *w, int dir, const char *name, const struct statx *info) {
  if (w->mount != info->stx_mnt_id) return 0;
  if (change_owner(w, dir, name, info) < 0) return -1;
  if (++w->inodes % TELL_EACH == 0) {
    char text[24];
    send_event(w->told, text, (size_t)snprintf(text, sizeof text, "%llu", (unsigned long long)w->inodes));
  }
  return 0;
}

const char *op_chown_tree(struct call *c) {
  const char *path = get_string(c->in);
  struct walk w = {.enter = change_owner_inside, .inodes = 1, .told = c}; /* the top is the first */
  w.uid = get_u32(c->in);
  w.gid = get_u32(c->in);
  w.or_file = get_u32(c->in);
  w.or_dir = get_u32(c->in);
  if (!get_end(c->in)) return "chown";
  /* The top itself may be a mount: it is the volume. */
  int top = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  struct statx info;
  if (top < 0 || statx(top, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID, &info) < 0) return "open";
  if (S_ISDIR(info.stx_mode)) {
    if (change_owner(&w, top, ".", &info) < 0 || walk_below(&w, top, ".") < 0) return "chown tree";
  } else if (change_owner(&w, AT_FDCWD, path, &info) < 0) {
    return "chown";
  }
  return NULL;
}

/* True when this inode was not counted before. */
static bool first_time(struct walk *w, uint64_t dev, uint64_t ino) {
  if (w->seen_count * 2 >= w->seen_size) {
    struct walk bigger = {.seen_size = w->seen_size ? w->seen_size * 2 : 1024};
    bigger.seen = calloc(bigger.seen_size, sizeof *bigger.seen);
    if (!bigger.seen) return true;
    for (size_t i = 0; i < w->seen_size; i++) {
      if (w->seen[i].ino) first_time(&bigger, w->seen[i].dev, w->seen[i].ino);
    }
    free(w->seen);
    w->seen = bigger.seen;
    w->seen_size = bigger.seen_size;
  }
  size_t at = (size_t)((ino ^ dev << 32) * 0x9e3779b97f4a7c15u >> 20) % w->seen_size;
  for (; w->seen[at].ino; at = (at + 1) % w->seen_size) {
    if (w->seen[at].ino == ino && w->seen[at].dev == dev) return false;
  }
  w->seen[at] = (struct seen){dev, ino};
  w->seen_count++;
  return true;
}

static int count(struct walk *w, int dir, const char *name, const struct statx *info) {
  (void)dir;
  (void)name;
  if (w->mount != info->stx_mnt_id) return 0;
  uint64_t dev = (uint64_t)info->stx_dev_major << 32 | info->stx_dev_minor;
  if (info->stx_nlink > 1 && !S_ISDIR(info->stx_mode) && !first_time(w, dev, info->stx_ino)) return 0;
  w->bytes += info->stx_blocks * 512;
  w->inodes++;
  return 0;
}

const char *op_disk_usage(struct call *c) {
  const char *path = get_string(c->in);
  if (!get_end(c->in)) return "disk usage";
  struct walk w = {.enter = count};
  int top = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
  struct statx info;
  if (top < 0 || statx(top, "", AT_EMPTY_PATH, STATX_BASIC_STATS | STATX_MNT_ID, &info) < 0) return "open";
  w.bytes = info.stx_blocks * 512;
  w.inodes = 1;
  if (S_ISDIR(info.stx_mode) && walk_below(&w, top, ".") < 0) return "walk";
  buf_u64(c->out, w.bytes);
  buf_u64(c->out, w.inodes);
  return NULL;
}
