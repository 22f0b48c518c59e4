/* Small files in bulk, facts about paths, and sockets the kernel answers on. */
#include "sys.h"
#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/vfs.h>
#include <unistd.h>

const char *op_statfs(struct call *c) {
  const char *path = get_string(c->in);
  if (!get_end(c->in)) return "statfs";
  struct statfs info;
  if (statfs(path, &info) < 0) return "statfs";
  uint64_t block = (uint64_t)(info.f_frsize ? info.f_frsize : info.f_bsize);
  buf_u64(c->out, info.f_blocks * block);
  buf_u64(c->out, info.f_bfree * block);
  buf_u64(c->out, info.f_bavail * block);
  buf_u64(c->out, info.f_files);
  buf_u64(c->out, info.f_ffree);
  buf_u64(c->out, (uint64_t)info.f_type & 0xffffffff);
  return NULL;
}

const char *op_read_files(struct call *c) {
  struct reader names = *c->in;
  uint32_t limit = get_u32(c->in), count = get_u32(c->in);
  for (uint32_t i = 0; i < count && !c->in->bad; i++) get_string(c->in);
  if (!get_end(c->in)) return "read files";
  get_u64(&names);
  static uint8_t chunk[65536];
  for (uint32_t i = 0; i < count; i++) {
    int fd = open(get_string(&names), O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    struct buf data = {0};
    bool good = fd >= 0;
    while (good && data.length < limit) {
      size_t want = limit - data.length < sizeof chunk ? limit - data.length : sizeof chunk;
      ssize_t got = read(fd, chunk, want);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0) good = false;
      if (got <= 0) break;
      buf_add(&data, chunk, (size_t)got);
    }
    if (fd >= 0) close(fd);
    buf_u8(c->out, good);
    buf_bytes(c->out, data.data, good ? data.length : 0);
    buf_free(&data);
  }
  return NULL;
}

const char *op_write_files(struct call *c) {
  struct reader writes = *c->in;
  uint32_t count = get_u32(c->in), length;
  for (uint32_t i = 0; i < count && !c->in->bad; i++) {
    get_string(c->in);
    get_bytes(c->in, &length);
  }
  if (!get_end(c->in)) return "write files";
  get_u32(&writes);
  for (uint32_t i = 0; i < count; i++) {
    int fd = open(get_string(&writes), O_WRONLY | O_TRUNC | O_NONBLOCK | O_NOCTTY | O_CLOEXEC), error = 0;
    const uint8_t *data = get_bytes(&writes, &length);
    /* Kernel files take a value in one write; an empty one must be a write, too. */
    ssize_t done = fd < 0 ? -1 : write(fd, data, length);
    if (done < 0) error = errno;
    else if ((size_t)done < length && !write_all(fd, data + done, length - (size_t)done)) error = errno;
    if (fd >= 0 && close(fd) < 0 && !error) error = errno;
    buf_u32(c->out, (uint32_t)error);
  }
  return NULL;
}

const char *op_kernel_log(struct call *c) {
  if (!get_end(c->in)) return "kernel log";
  int fd = open("/dev/kmsg", O_RDONLY | O_CLOEXEC);
  if (fd < 0 || lseek(fd, 0, SEEK_END) < 0) return "open /dev/kmsg";
  send_event(c, "", 0);
  for (char record[8192];;) {
    ssize_t got = read(fd, record, sizeof record);
    if (got > 0) send_event(c, record, (size_t)got);
    else if (got == 0 || (errno != EINTR && errno != EPIPE && errno != EINVAL)) return "read /dev/kmsg"; /* EPIPE: some were overwritten */
  }
}

const char *op_notify(struct call *c) {
  const char *path = get_string(c->in), *state = get_string(c->in);
  if (!get_end(c->in)) return "notify";
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  size_t length = strlen(path);
  if (length == 0 || length >= sizeof address.sun_path) {
    errno = EINVAL;
    return "notify socket";
  }
  memcpy(address.sun_path, path, length);
  if (path[0] == '@') address.sun_path[0] = 0;
  int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  if (fd < 0) return "notify";
  socklen_t size = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + length);
  struct iovec part = {(void *)state, strlen(state)};
  /* A service manager listens only to the main process of a service, which is the daemon and not this child. */
  struct ucred sender = {served_pid, getuid(), getgid()};
  union {
    struct cmsghdr header;
    uint8_t bytes[CMSG_SPACE(sizeof sender)];
  } control = {0};
  struct msghdr message = {.msg_name = &address, .msg_namelen = size, .msg_iov = &part, .msg_iovlen = 1, .msg_control = &control, .msg_controllen = sizeof control};
  control.header = (struct cmsghdr){.cmsg_level = SOL_SOCKET, .cmsg_type = SCM_CREDENTIALS, .cmsg_len = CMSG_LEN(sizeof sender)};
  memcpy(CMSG_DATA(&control.header), &sender, sizeof sender);
  if (sendmsg(fd, &message, MSG_NOSIGNAL) >= 0) return NULL;
  /* Only root may speak for another process. */
  message.msg_control = NULL;
  message.msg_controllen = 0;
  return sendmsg(fd, &message, MSG_NOSIGNAL) < 0 ? "notify" : NULL;
}

static const char *take_lock(const char *path) {
  int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return "open lock file";
  if (flock(fd, LOCK_EX | LOCK_NB) < 0) {
    if (errno == EWOULDBLOCK) errno = EALREADY; /* EAGAIN also says that descriptors or memory ran out. */
    return "held by another process";
  }
  return NULL; /* The lock lives as long as this process. */
}

const char *op_lock(struct call *c) {
  const char *path = get_string(c->in);
  if (!get_end(c->in)) return "lock";
  const char *failed = take_lock(path);
  if (failed) return failed;
  send_event(c, "", 0);
  for (;;) pause();
}

/* The same, and a word each time that somebody else opens the file. */
const char *op_lock_watched(struct call *c) {
  const char *path = get_string(c->in);
  if (!get_end(c->in)) return "lock";
  const char *failed = take_lock(path);
  if (failed) return failed;
  int fd = inotify_init1(IN_CLOEXEC);
  if (fd < 0 || inotify_add_watch(fd, path, IN_OPEN) < 0) return "watch lock file";
  send_event(c, "", 0);
  for (char events[4096];;) {
    if (read(fd, events, sizeof events) > 0) send_event(c, "wanted", 6);
    else if (errno != EINTR) return "watch lock file";
  }
}

/* Counts final answers in one datagram: acknowledgements, errors, ends of dumps. */
static uint32_t count_answers(const uint8_t *data, size_t length, bool *refused) {
  uint32_t count = 0;
  for (size_t at = 0; length - at >= sizeof(struct nlmsghdr);) {
    struct nlmsghdr header;
    memcpy(&header, data + at, sizeof header);
    if (header.nlmsg_len < sizeof header || header.nlmsg_len > length - at) break;
    int32_t error = 0;
    if (header.nlmsg_type == NLMSG_ERROR && header.nlmsg_len >= sizeof header + sizeof error) memcpy(&error, data + at + sizeof header, sizeof error);
    if (header.nlmsg_type == NLMSG_ERROR || header.nlmsg_type == NLMSG_DONE) count++;
    if (error) *refused = true;
    at += NLMSG_ALIGN(header.nlmsg_len);
    if (at > length) break;
  }
  return count;
}

/* Reads away what a request did not wait for; a dump is taken to its end. */
void drain_unread(int fd) {
  char nothing;
  while (recv(fd, &nothing, sizeof nothing, MSG_DONTWAIT) >= 0 || errno == EINTR || errno == ENOBUFS) continue;
}

const char *op_netlink(struct call *c) {
  uint32_t family = get_u32(c->in), length;
  const char *netns = get_string(c->in);
  const uint8_t *messages = get_bytes(c->in, &length);
  uint32_t expected = get_u32(c->in), timeout_ms = get_u32(c->in);
  if (!get_end(c->in)) return "netlink";
  if (*netns && enter_ns(netns, CLONE_NEWNET) < 0) return "network namespace";
  int fd = c->lent >= 0 ? c->lent : socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, (int)family);
  if (fd < 0) return "netlink socket";
  /* Whoever had it before may have been killed. */
  if (c->lent >= 0) drain_unread(fd);
  int on = 1, send_size = (int)(length < (4u << 20) ? 8u << 20 : length * 2), receive_size = 32 << 20;
  setsockopt(fd, SOL_NETLINK, NETLINK_CAP_ACK, &on, sizeof on);
  setsockopt(fd, SOL_NETLINK, NETLINK_EXT_ACK, &on, sizeof on);
  setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &send_size, sizeof send_size);
  setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &receive_size, sizeof receive_size);
  struct sockaddr_nl kernel = {.nl_family = AF_NETLINK};
  struct iovec part = {(void *)(uintptr_t)messages, length};
  struct msghdr header = {.msg_name = &kernel, .msg_namelen = sizeof kernel, .msg_iov = &part, .msg_iovlen = 1};
  if (sendmsg(fd, &header, 0) < 0) return "netlink send";
  int64_t until = mono_ms() + timeout_ms;
  size_t size = 1 << 20;
  uint8_t *data = malloc(size);
  bool refused = false;
  for (uint32_t answers = 0; data && answers < expected;) {
    ssize_t got = recv(fd, data, size, MSG_DONTWAIT | MSG_TRUNC);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) {
      /* The kernel works while we send: after a refusal, what is not there will not come. */
      int64_t left = until - mono_ms();
      struct pollfd wait = {fd, POLLIN, 0};
      if (refused || left <= 0 || poll(&wait, 1, (int)left) == 0) break;
      continue;
    }
    if (got < 0) return "netlink receive";
    if ((size_t)got > size) {
      errno = EMSGSIZE;
      return "netlink receive";
    }
    answers += count_answers(data, (size_t)got, &refused);
    buf_bytes(c->out, data, (size_t)got);
  }
  return NULL;
}
