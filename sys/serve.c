/* The dispatcher: a frame in, a forked child, its frames out. It does no call itself that could wait on a file system. */
#include "sys.h"
#include <fcntl.h>
#include <linux/netlink.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_JOBS 512
#define MAX_QUEUED (32u << 20)

struct job {
  struct job *next;
  uint32_t id;
  pid_t pid;
  int fd;
  uint8_t op;
  int64_t deadline;  /* 0: none */
  int64_t answer_by; /* once stopped: answer then even if the child cannot be killed (uninterruptible sleep) */
  int reason;        /* errno of why it was stopped */
  bool answered;
  struct kept *lent;
  struct buf in;
};

/* Netfilter's sockets stay open for the next request. To close one costs whoever writes rules a grace period of RCU: the kernel
   waits for it with the lock of all transactions in its hands, and for that lock while somebody else has it. */
#define MAX_KEPT 8
static struct kept {
  int fd; /* 0: none */
  bool in_use;
} kept[MAX_KEPT];

static struct job *jobs;
static int job_count;
static struct buf out;
static size_t out_sent; /* of `out`, from its front */
pid_t served_pid;

static handler *const handlers[OP_END] = {
  [OP_RUN] = op_run, [OP_MOUNT] = op_mount, [OP_UMOUNT] = op_umount, [OP_BIND] = op_bind,
  [OP_READ_BENEATH] = op_read_beneath, [OP_MKDIR_BENEATH] = op_mkdir_beneath, [OP_FILE_OPS] = op_file_ops,
  [OP_REMOVE_TREE] = op_remove_tree, [OP_CHOWN_TREE] = op_chown_tree, [OP_DISK_USAGE] = op_disk_usage,
  [OP_STATFS] = op_statfs, [OP_NETLINK] = op_netlink, [OP_READ_FILES] = op_read_files,
  [OP_WRITE_FILES] = op_write_files, [OP_KERNEL_LOG] = op_kernel_log, [OP_NOTIFY] = op_notify, [OP_LOCK] = op_lock,
  [OP_HOLD_DESCRIPTOR] = op_hold_descriptor, [OP_LOCK_WATCHED] = op_lock_watched,
};

static void set_nonblocking(int fd) { fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK); }

/* In the child its answers go to standard output, which is the pipe to the dispatcher. */
void send_event(struct call *c, const void *data, size_t length) {
  struct buf event = {0};
  size_t begin = answer_begin(&event, c->request->id, KIND_EVENT);
  buf_bytes(&event, data, length);
  answer_end(&event, begin);
  if (!write_all(1, event.data, event.length)) _exit(1);
  buf_free(&event);
}

/* For a request to netfilter in our own network namespace: one that is free, else a new one; NULL when there are enough. */
static struct kept *lend(const struct request *request) {
  struct reader fields = request->fields;
  if (request->op != OP_NETLINK || get_u32(&fields) != NETLINK_NETFILTER || *get_string(&fields) || fields.bad) return NULL;
  struct kept *empty = NULL;
  for (struct kept *at = kept; at < kept + MAX_KEPT; at++) {
    if (at->fd && !at->in_use) {
      at->in_use = true;
      return at;
    }
    if (!at->fd) empty = at;
  }
  int fd = empty ? socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_NETFILTER) : -1;
  if (fd < 0) return NULL;
  *empty = (struct kept){fd, true};
  return empty;
}

/* A child that still lives may be at it yet, and has it open too: then closing it here waits for nothing. */
static void take_back(struct kept *lent, bool dead) {
  if (!lent) return;
  lent->in_use = false;
  if (dead) return;
  close(lent->fd);
  lent->fd = 0;
}

static void child(struct request *request, pid_t parent, int fd, int lent) {
  bool run = request->op == OP_RUN;
  prctl(PR_SET_PDEATHSIG, run ? SIGTERM : SIGKILL);
  if (getppid() != parent) _exit(1);
  if (!run) reset_signals();
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(null, 0);
  dup2(fd, 1);
  /* Some children live as long as the daemon. */
  for (struct kept *at = kept; at < kept + MAX_KEPT; at++) {
    if (at->fd && at->fd != lent) close(at->fd);
  }
  struct buf answer = {0};
  size_t begin = answer_begin(&answer, request->id, KIND_DONE);
  struct call c = {request, &request->fields, &answer, lent};
  const char *failed = handlers[request->op](&c);
  if (failed) {
    answer.length = 0;
    answer_fail(&answer, request->id, errno, failed);
  } else if (answer.length > MAX_FRAME) {
    answer.length = 0;
    answer_fail(&answer, request->id, EMSGSIZE, "answer");
  } else {
    answer_end(&answer, begin);
  }
  bool written = write_all(1, answer.data, answer.length);
  /* Nobody may ask again for long, and what was not waited for can be megabytes of the kernel's memory. */
  if (lent >= 0) drain_unread(lent);
  _exit(written ? 0 : 1);
}

static void start(struct request *request) {
  int pipe_fds[2];
  if (request->op >= OP_END || !handlers[request->op]) return answer_fail(&out, request->id, ENOSYS, "operation");
  if (job_count >= MAX_JOBS) return answer_fail(&out, request->id, EAGAIN, "too many requests");
  if (pipe2(pipe_fds, O_CLOEXEC) < 0) return answer_fail(&out, request->id, errno, "pipe");
  struct kept *lent = lend(request);
  pid_t self = getpid(), pid = fork();
  if (pid == 0) child(request, self, pipe_fds[1], lent ? lent->fd : -1);
  int error = errno;
  close(pipe_fds[1]);
  struct job *job = pid < 0 ? NULL : calloc(1, sizeof *job);
  if (!job) {
    close(pipe_fds[0]);
    take_back(lent, pid < 0);
    return answer_fail(&out, request->id, error, "fork");
  }
  set_nonblocking(pipe_fds[0]);
  *job = (struct job){.next = jobs, .id = request->id, .pid = pid, .fd = pipe_fds[0], .op = request->op, .lent = lent};
  /* A program's own deadline is kept by its runner, which can still hand over what was printed; this is the net below it. */
  if (request->timeout_ms) job->deadline = mono_ms() + request->timeout_ms + (job->op == OP_RUN ? 3000 : 0);
  jobs = job;
  job_count++;
}

static void stop(struct job *job, int reason) {
  if (job->reason) return;
  job->reason = reason;
  job->deadline = 0;
  job->answer_by = mono_ms() + (job->op == OP_RUN ? 1500 : 200);
  kill(job->pid, job->op == OP_RUN ? SIGTERM : SIGKILL);
}

/* `dead`: its child is reaped. */
static void finish(struct job *job, bool dead) {
  if (!job->answered) answer_fail(&out, job->id, job->reason ? job->reason : EIO, job->reason ? "stopped" : "child died");
  for (struct job **at = &jobs; *at; at = &(*at)->next) {
    if (*at == job) {
      *at = job->next;
      break;
    }
  }
  if (job->fd >= 0) close(job->fd);
  take_back(job->lent, dead);
  buf_free(&job->in);
  free(job);
  job_count--;
}

/* Moves whole frames of the child to the output; half a frame of a killed child is never seen outside. */
static void drain(struct job *job) {
  uint8_t chunk[65536];
  while (job->fd >= 0) {
    ssize_t got = read(job->fd, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) {
      close(job->fd);
      job->fd = -1;
      break;
    }
    buf_add(&job->in, chunk, (size_t)got);
  }
  size_t used = 0;
  while (job->in.length - used >= 9) {
    struct reader r = {job->in.data + used, job->in.data + job->in.length, false};
    size_t size = get_u32(&r) + (size_t)4;
    if (job->in.length - used < size) break;
    if (job->in.data[used + 8] != KIND_EVENT) job->answered = true;
    buf_add(&out, job->in.data + used, size);
    used += size;
  }
  if (used) buf_drop(&job->in, used);
}

static void reap(void) {
  pid_t pid;
  while ((pid = waitpid(-1, NULL, WNOHANG)) > 0) {
    struct job *job = jobs;
    while (job && job->pid != pid) job = job->next;
    if (!job) continue;
    drain(job);
    finish(job, true);
  }
}

static int handle(struct request *request) {
  static bool greeted;
  if (request->op == OP_HELLO) {
    uint32_t version = get_u32(&request->fields);
    size_t begin = answer_begin(&out, request->id, KIND_DONE);
    buf_u32(&out, PROTOCOL_VERSION);
    answer_end(&out, begin);
    greeted = version == PROTOCOL_VERSION;
    return 0;
  }
  if (!greeted) return -1;
  if (request->op == OP_CANCEL) {
    for (struct job *job = jobs; job; job = job->next) {
      if (job->id == request->id) stop(job, ECANCELED);
    }
  } else {
    start(request);
  }
  return 0;
}

/* Returns false when the other side is gone or does not speak our language. */
static bool take_input(struct buf *in) {
  uint8_t chunk[65536];
  for (;;) {
    ssize_t got = read(0, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) break;
    if (got <= 0) return false;
    buf_add(in, chunk, (size_t)got);
    if ((size_t)got < sizeof chunk) break;
  }
  size_t used = 0;
  for (;;) {
    struct request request;
    long size = frame_parse(in->data + used, in->length - used, &request);
    if (size < 0 || (size > 0 && handle(&request) < 0)) return false;
    if (size == 0) break;
    used += (size_t)size;
  }
  if (used) buf_drop(in, used);
  return true;
}

/* Returns false when the other side is gone. */
static bool flush(void) {
  while (out_sent < out.length) {
    ssize_t done = write(1, out.data + out_sent, out.length - out_sent);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0 && errno == EAGAIN) return true;
    if (done <= 0) return false;
    out_sent += (size_t)done;
  }
  buf_drop(&out, out_sent);
  out_sent = 0;
  return true;
}

static int64_t expire(void) {
  int64_t now = mono_ms(), next = -1;
  for (struct job *job = jobs, *after; job; job = after) {
    after = job->next;
    if (job->deadline && job->deadline <= now) stop(job, ETIMEDOUT);
    if (job->answer_by && job->answer_by <= now) {
      kill(job->pid, SIGKILL);
      finish(job, waitpid(job->pid, NULL, WNOHANG) == job->pid);
      continue;
    }
    int64_t at = job->answer_by ? job->answer_by : job->deadline;
    if (at && (next < 0 || at < next)) next = at;
  }
  return next < 0 ? -1 : next - now;
}

static void end_all(void) {
  for (struct job *job = jobs; job; job = job->next) stop(job, ECANCELED);
  for (int64_t until = mono_ms() + 2000; jobs && mono_ms() < until;) {
    poll(NULL, 0, 5);
    reap();
    expire();
  }
}

int serve_main(void) {
  served_pid = getppid();
  sigset_t watched;
  sigemptyset(&watched);
  sigaddset(&watched, SIGCHLD);
  sigaddset(&watched, SIGTERM);
  sigaddset(&watched, SIGINT);
  sigprocmask(SIG_BLOCK, &watched, NULL);
  signal(SIGPIPE, SIG_IGN);
  int signals = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
  set_nonblocking(0);
  set_nonblocking(1);
  struct buf in = {0};
  static struct pollfd fds[3 + MAX_JOBS];
  for (bool open = true; open;) {
    int64_t wait_ms = expire();
    bool full = out.length - out_sent > MAX_QUEUED;
    nfds_t count = 3;
    fds[0] = (struct pollfd){.fd = 0, .events = full ? 0 : POLLIN};
    fds[1] = (struct pollfd){.fd = out.length ? 1 : -1, .events = POLLOUT};
    fds[2] = (struct pollfd){.fd = signals, .events = POLLIN};
    for (struct job *job = jobs; job; job = job->next) fds[count++] = (struct pollfd){.fd = full ? -1 : job->fd, .events = POLLIN};
    if (poll(fds, count, wait_ms < 0 ? -1 : (int)wait_ms) < 0 && errno != EINTR) break;
    nfds_t index = 3;
    for (struct job *job = jobs; job; job = job->next, index++) {
      if (fds[index].revents) drain(job);
    }
    struct signalfd_siginfo info;
    while (read(signals, &info, sizeof info) == sizeof info) {
      if (info.ssi_signo != SIGCHLD) open = false;
    }
    reap();
    if (fds[0].revents && !full && !take_input(&in)) open = false;
    if (fds[0].revents & (POLLERR | POLLNVAL)) open = false;
    if (out.length && !flush()) open = false;
  }
  end_all();
  buf_free(&in);
  buf_free(&out);
  return 0;
}
