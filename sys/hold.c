/* A descriptor that another process hands over a socket, held for as long as it is wanted: what it stands for ends when it is closed. */
#include "sys.h"
#include <poll.h>
#include <stddef.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

int connect_to(const char *path, uint32_t timeout_ms) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  size_t length = strlen(path);
  if (length == 0 || length >= sizeof address.sun_path) {
    errno = EINVAL;
    return -1;
  }
  memcpy(address.sun_path, path, length);
  if (path[0] == '@') address.sun_path[0] = 0;
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
  /* One that stands still neither accepts nor reads: this bounds connecting and writing. */
  struct timeval limit = {timeout_ms / 1000, timeout_ms % 1000 * 1000};
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  return fd < 0 || connect(fd, (struct sockaddr *)&address, size) < 0 ? -1 : fd;
}

/* Reads what comes until a descriptor is with it; -1 with errno when none comes in time or ever. */
static int await_descriptor(int fd, int64_t deadline) {
  for (;;) {
    int64_t left = deadline - mono_ms();
    struct pollfd watched = {.fd = fd, .events = POLLIN};
    int ready = left <= 0 ? 0 : poll(&watched, 1, (int)left);
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      if (ready == 0) errno = ETIMEDOUT;
      return -1;
    }
    uint8_t data[4096];
    union {
      struct cmsghdr header;
      uint8_t bytes[CMSG_SPACE(sizeof(int))];
    } control;
    struct iovec part = {data, sizeof data};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
    ssize_t got = recvmsg(fd, &message, MSG_CMSG_CLOEXEC);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      if (got == 0) errno = ECONNRESET;
      return -1;
    }
    struct cmsghdr *header = CMSG_FIRSTHDR(&message);
    if (!header || header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    int held;
    memcpy(&held, CMSG_DATA(header), sizeof held);
    return held;
  }
}

const char *op_hold_descriptor(struct call *c) {
  const char *path = get_string(c->in);
  uint32_t length;
  const uint8_t *bytes = get_bytes(c->in, &length);
  uint32_t timeout_ms = get_u32(c->in);
  if (!get_end(c->in)) return "hold a descriptor";
  int fd = connect_to(path, timeout_ms);
  /* EAGAIN is how a socket says that its time is over. */
  if (fd < 0 || !write_all(fd, bytes, length)) {
    if (errno == EAGAIN || errno == EINPROGRESS) errno = ETIMEDOUT;
    return fd < 0 ? "connect" : "write";
  }
  if (await_descriptor(fd, mono_ms() + timeout_ms) < 0) return "receive a descriptor";
  close(fd);
  send_event(c, "", 0);
  for (;;) pause(); /* It is held as long as this process lives. */
}
