/* Which program this is today, and the few lines all of them share. */
#include "sys.h"
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

int64_t mono_ms(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

bool write_all(int fd, const void *data, size_t length) {
  const char *at = data;
  while (length > 0) {
    ssize_t done = write(fd, at, length);
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return false;
    at += done;
    length -= (size_t)done;
  }
  return true;
}

/* What a program that is started expects: nothing blocked, nothing ignored. */
void reset_signals(void) {
  for (int number = 1; number < NSIG; number++) signal(number, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
}

int enter_ns(const char *path, int type) {
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return -1;
  int result = setns(fd, type);
  int error = errno;
  close(fd);
  errno = error;
  return result;
}

int main(int argc, char **argv) {
  umask(0);
  if (argc == 2 && !strcmp(argv[1], "serve")) return serve_main();
  if (argc == 3 && !strcmp(argv[1], "init")) return init_main(argc - 1, argv + 1);
  if (argc > 2 && !strcmp(argv[1], "nsrun")) return nsrun_main(argc - 1, argv + 1);
  if (argc > 2 && !strcmp(argv[1], "exec")) return exec_main(argc - 1, argv + 1);
  if (argc > 2 && !strcmp(argv[1], "guard")) return guard_main(argc - 1, argv + 1);
  if (argc > 2 && !strcmp(argv[1], "peers")) return peers_main(argc - 1, argv + 1);
  if (argc > 2 && !strcmp(argv[1], "splice")) return splice_main(argc - 1, argv + 1);
  if (argc == 2 && !strcmp(argv[1], "version")) return printf("%u\n", PROTOCOL_VERSION) < 0;
  fprintf(stderr, "usage: sys serve | init SPEC | nsrun OPTIONS -- COMMAND | exec --pid PID [--ns LIST] -- COMMAND | guard FOLDER NAME [FILE…] | peers PID SOCKET [--shut] | splice LISTEN UPSTREAM BUFFER_BYTES | version\n");
  return 2;
}
