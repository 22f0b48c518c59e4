/*
 * The proxy mode of the CSI hostpath driver, which is all that suites of dynamic resources ask of it: connections to the
 * Unix socket --endpoint are joined with those to the TCP port of --proxy-endpoint=tcp://:PORT, in the order they come.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

static int fail(const char *what) {
  fprintf(stderr, "hostpathplugin: %s: %s\n", what, strerror(errno));
  return 1;
}

static int pass_on(int from, int to) {
  char bytes[65536];
  ssize_t count = read(from, bytes, sizeof bytes);
  for (ssize_t at = 0, sent; at < count; at += sent)
    if ((sent = write(to, bytes + at, (size_t)(count - at))) < 0) return -1;
  return count > 0 ? 0 : -1;
}

static void join(int one, int other) {
  struct pollfd both[] = {{.fd = one, .events = POLLIN}, {.fd = other, .events = POLLIN}};
  while (poll(both, 2, -1) >= 0) {
    if (both[0].revents != 0 && pass_on(one, other) < 0) return;
    if (both[1].revents != 0 && pass_on(other, one) < 0) return;
  }
}

int main(int count, char **arguments) {
  const char *path = NULL, *tcp = NULL;
  for (int at = 1; at < count; at++) {
    if (strncmp(arguments[at], "--endpoint=", 11) == 0) path = arguments[at] + 11;
    if (strncmp(arguments[at], "--proxy-endpoint=tcp://:", 24) == 0) tcp = arguments[at] + 24;
  }
  struct sockaddr_un local = {.sun_family = AF_UNIX};
  if (path != NULL && strncmp(path, "unix://", 7) == 0) path += 7;
  if (path == NULL || tcp == NULL || strlen(path) >= sizeof local.sun_path) {
    fputs("usage: hostpathplugin --endpoint=PATH --proxy-endpoint=tcp://:PORT\n", stderr);
    return 1;
  }
  strcpy(local.sun_path, path);
  struct sockaddr_in remote = {.sin_family = AF_INET, .sin_port = htons((uint16_t)atoi(tcp))};
  int on = 1;
  int near = socket(AF_UNIX, SOCK_STREAM, 0), far = socket(AF_INET, SOCK_STREAM, 0);
  unlink(path);
  if (near < 0 || bind(near, (struct sockaddr *)&local, sizeof local) < 0 || listen(near, 64) < 0) return fail(path);
  if (far < 0 || setsockopt(far, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) < 0) return fail(tcp);
  if (bind(far, (struct sockaddr *)&remote, sizeof remote) < 0 || listen(far, 64) < 0) return fail(tcp);
  signal(SIGCHLD, SIG_IGN);
  signal(SIGPIPE, SIG_IGN);
  for (;;) {
    int one = accept(near, NULL, NULL);
    if (one < 0) continue;
    int other = accept(far, NULL, NULL);
    if (other >= 0 && fork() == 0) {
      close(near);
      close(far);
      join(one, other);
      return 0;
    }
    close(one);
    if (other >= 0) close(other);
  }
}
