/*
 * For standing between a runtime and its callers. `guard` puts the runtime's socket back in its place when the one who
 * took that place is gone; `peers` finds a process's connections to a runtime, and ends them.
 */
#include "sys.h"
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

static int complain(const char *what, const char *which) {
  fprintf(stderr, "sys: %s%s%s: %s\n", what, which ? " " : "", which ? which : "", strerror(errno));
  return 1;
}

static bool look(int folder, const char *name, struct stat *into) { return fstatat(folder, name, into, AT_SYMLINK_NOFOLLOW) == 0; }

static bool same(const struct stat *a, const struct stat *b) { return a->st_dev == b->st_dev && a->st_ino == b->st_ino; }

/* The same rules as cri/core/standing.ts (`undo`): whose socket is in which place says what was done and what is left. */
static int undo(int folder, const char *name) {
  char real_name[300], own_name[300], next_name[300];
  snprintf(real_name, sizeof real_name, "%s.real", name);
  snprintf(own_name, sizeof own_name, "%s.nodelet", name);
  snprintf(next_name, sizeof next_name, "%s.nodelet-next", name);
  struct stat path, real, own;
  if (!look(folder, own_name, &own)) return 0;
  bool has_path = look(folder, name, &path), is_ours = has_path && same(&path, &own), failed = false;
  if (look(folder, real_name, &real)) failed = !has_path || is_ours ? renameat(folder, real_name, folder, name) < 0 : unlinkat(folder, real_name, 0) < 0;
  else if (is_ours) failed = unlinkat(folder, name, 0) < 0;
  if (failed) return complain("put back", name);
  unlinkat(folder, next_name, 0);
  return unlinkat(folder, own_name, 0) < 0 ? complain("remove", own_name) : 0;
}

/* guard FOLDER NAME [FILE…]: waits at standard input. A byte ends it; the end of file without one is the death of its writer. */
int guard_main(int argc, char **argv) {
  if (argc < 3 || strlen(argv[2]) > 255) return 2;
  int folder = open(argv[1], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return complain("open", argv[1]);
  for (const int *number = (const int[]){SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE, 0}; *number; number++) signal(*number, SIG_IGN);
  setsid();
  prctl(PR_SET_NAME, "nodelet-guard");
  int score = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
  if (score >= 0) {
    write_all(score, "-900", 4); /* May be refused: then it is as likely to go as any other. */
    close(score);
  }
  if (chdir("/") < 0 || !write_all(1, "ready\n", 6)) return complain("start", NULL);
  char word;
  for (;;) {
    ssize_t got = read(0, &word, 1);
    if (got > 0) return 0;
    if (got == 0 || errno != EINTR) break;
  }
  int result = undo(folder, argv[2]);
  for (int at = 3; at < argc && result == 0; at++) unlink(argv[at]);
  return result;
}

struct peer { struct ucred who; struct sockaddr_un name; socklen_t length; };

static bool peer_of(int fd, struct peer *into) {
  socklen_t length = sizeof into->who;
  memset(into, 0, sizeof *into);
  into->length = sizeof into->name;
  return getpeername(fd, (struct sockaddr *)&into->name, &into->length) == 0 && into->name.sun_family == AF_UNIX &&
         getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &into->who, &length) == 0;
}

/* What the runtime's socket was bound to, and by whom, as every caller of it sees it: however its path was spelled. */
static bool ask_runtime(const char *path, struct peer *into) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (strlen(path) >= sizeof address.sun_path) return errno = ENAMETOOLONG, false;
  strcpy(address.sun_path, path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  bool good = fd >= 0 && connect(fd, (struct sockaddr *)&address, sizeof address) == 0 && peer_of(fd, into);
  int error = errno;
  if (fd >= 0) close(fd);
  return errno = error, good;
}

/* peers PID SOCKET [--shut]: how many connections to SOCKET's listener the process has; they are shut down when told to. */
int peers_main(int argc, char **argv) {
  bool shut = argc == 4 && !strcmp(argv[3], "--shut");
  if (argc != 3 && !shut) return 2;
  struct peer runtime, other;
  if (!ask_runtime(argv[2], &runtime)) return complain("connect to", argv[2]);
  char folder[64];
  snprintf(folder, sizeof folder, "/proc/%ld/fd", atol(argv[1]));
  int target = (int)syscall(SYS_pidfd_open, (pid_t)atol(argv[1]), 0), found = 0;
  DIR *list = target < 0 ? NULL : opendir(folder);
  if (!list) return complain("look at process", argv[1]);
  for (struct dirent *entry; (entry = readdir(list));) {
    char link[32] = {0};
    if (*entry->d_name == '.' || readlinkat(dirfd(list), entry->d_name, link, sizeof link - 1) < 0 || strncmp(link, "socket:", 7)) continue;
    /* A copy of the descriptor: the process is neither stopped nor traced, and keeps its own. */
    int fd = (int)syscall(SYS_pidfd_getfd, target, atoi(entry->d_name), 0);
    if (fd < 0 && errno == EBADF) continue;
    if (fd < 0) return complain("look at a connection of process", argv[1]);
    if (peer_of(fd, &other) && other.who.pid == runtime.who.pid && other.length == runtime.length && !memcmp(&other.name, &runtime.name, runtime.length) &&
        (!shut || shutdown(fd, SHUT_RDWR) == 0)) found++;
    close(fd);
  }
  closedir(list);
  return printf("%d\n", found) < 0;
}
