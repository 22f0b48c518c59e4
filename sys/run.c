/* Runs one program in a process group of its own; this process, its runner, does nothing else. */
#include "sys.h"
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

struct program {
  char **argv, **env;
  const char *cwd, *netns, *mntns;
  const uint8_t *input;
  uint32_t input_length, limit;
  const char *input_socket; /* the program reads from it in place of `input` */
};

#define CONNECT_MS 5000

static char **get_strings(struct reader *r) {
  uint32_t count = get_u32(r);
  if (count > 65536) r->bad = true;
  char **list = calloc(r->bad ? 1 : count + (size_t)1, sizeof *list);
  if (!list) _exit(70);
  for (uint32_t i = 0; i < count && !r->bad; i++) list[i] = (char *)(uintptr_t)get_string(r);
  return list;
}

static void start_program(struct program *p, int in, int out, int err, int status, pid_t runner) {
  const char *where = "setpgid";
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != runner) _exit(1);
  reset_signals();
  umask(022);
  if (setpgid(0, 0) < 0) goto failed;
  where = "network namespace";
  if (*p->netns && enter_ns(p->netns, CLONE_NEWNET) < 0) goto failed;
  where = "mount namespace";
  if (*p->mntns && enter_ns(p->mntns, CLONE_NEWNS) < 0) goto failed;
  where = "working directory";
  if (*p->cwd && chdir(p->cwd) < 0) goto failed;
  where = "dup";
  if (dup2(in, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0) goto failed;
  where = "priority";
  /* A daemon may run ahead of everything; what it starts does not. */
  if (getpriority(PRIO_PROCESS, 0) < 0 && setpriority(PRIO_PROCESS, 0, 0) < 0) goto failed;
  where = p->argv[0];
  environ = p->env;
  execvp(p->argv[0], p->argv);
failed:;
  int error = errno;
  if (write(status, &error, sizeof error) > 0 && write(status, where, strlen(where)) < 0) _exit(126);
  _exit(127);
}

/* More than a pipe holds, so that a writer without an end keeps nobody from looking at the clock. */
#define CHUNKS 128

static void collect(int *fd, struct buf *into, uint32_t limit, bool *truncated) {
  uint8_t chunk[16384];
  for (int turn = 0; *fd >= 0 && turn < CHUNKS; turn++) {
    ssize_t got = read(*fd, chunk, sizeof chunk);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
      close(*fd);
      *fd = -1;
      return;
    }
    size_t keep = (size_t)got, room = limit - into->length;
    if (keep > room) {
      keep = room;
      *truncated = true;
    }
    buf_add(into, chunk, keep);
  }
}

static void feed(int *fd, struct program *p) {
  while (*fd >= 0 && p->input_length > 0) {
    ssize_t done = write(*fd, p->input, p->input_length);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0 && errno == EAGAIN) return;
    if (done <= 0) break; /* It closed its input; its own affair. */
    p->input += done;
    p->input_length -= (uint32_t)done;
  }
  if (*fd >= 0) close(*fd);
  *fd = -1;
}

const char *op_run(struct call *c) {
  struct program p = {0};
  p.argv = get_strings(c->in);
  p.env = get_strings(c->in);
  p.cwd = get_string(c->in);
  p.netns = get_string(c->in);
  p.mntns = get_string(c->in);
  p.input = get_bytes(c->in, &p.input_length);
  p.limit = get_u32(c->in);
  p.input_socket = get_string(c->in);
  if (!get_end(c->in) || !p.argv[0]) return "run";

  sigset_t watched;
  sigemptyset(&watched);
  sigaddset(&watched, SIGCHLD);
  sigaddset(&watched, SIGTERM);
  sigprocmask(SIG_SETMASK, &watched, NULL);
  int signals = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
  int in[2], out[2], err[2], status[2];
  if (signals < 0 || pipe2(in, O_CLOEXEC) < 0 || pipe2(out, O_CLOEXEC) < 0 || pipe2(err, O_CLOEXEC) < 0 || pipe2(status, O_CLOEXEC) < 0) return "pipe";
  if (*p.input_socket) {
    int from = connect_to(p.input_socket, CONNECT_MS);
    if (from < 0) return "connect standard input";
    dup3(from, in[0], O_CLOEXEC);
    close(from);
  }
  pid_t runner = getpid(), pid = fork();
  if (pid < 0) return "fork";
  if (pid == 0) start_program(&p, in[0], out[1], err[1], status[1], runner);
  close(in[0]);
  close(out[1]);
  close(err[1]);
  close(status[1]);
  fcntl(in[1], F_SETFL, O_NONBLOCK);
  fcntl(out[0], F_SETFL, O_NONBLOCK);
  fcntl(err[0], F_SETFL, O_NONBLOCK);

  struct buf out_buf = {0}, err_buf = {0};
  bool truncated = false, timed_out = false, stopped = false, exited = false;
  int64_t deadline = c->request->timeout_ms ? mono_ms() + c->request->timeout_ms : 0, give_up = 0;
  feed(&in[1], &p);
  while (!exited) {
    int64_t now = mono_ms(), at = give_up ? give_up : deadline;
    if (deadline && now >= deadline && !give_up) timed_out = true;
    if ((timed_out || stopped) && !give_up) {
      kill(-pid, SIGKILL);
      kill(pid, SIGKILL); /* It may not have made its group yet. */
      at = give_up = now + 1000;
    }
    if (give_up && now >= give_up) break; /* Uninterruptible: the kernel ends it when it can. */
    struct pollfd fds[] = {{signals, POLLIN, 0}, {in[1], POLLOUT, 0}, {out[0], POLLIN, 0}, {err[0], POLLIN, 0}};
    int64_t wait_ms = at ? at - now : -1;
    poll(fds, 4, wait_ms < 0 ? -1 : wait_ms > 60000 ? 60000 : (int)wait_ms);
    if (fds[1].revents) feed(&in[1], &p);
    collect(&out[0], &out_buf, p.limit, &truncated);
    collect(&err[0], &err_buf, p.limit, &truncated);
    struct signalfd_siginfo info;
    while (read(signals, &info, sizeof info) == sizeof info) {
      if (info.ssi_signo == SIGTERM) stopped = true;
    }
    siginfo_t end = {0};
    exited = waitid(P_PID, (id_t)pid, &end, WEXITED | WNOHANG | WNOWAIT) == 0 && end.si_pid == pid;
  }
  /* Not reaped yet, so the group's number cannot belong to anybody else. */
  kill(-pid, SIGKILL);
  collect(&out[0], &out_buf, p.limit, &truncated);
  collect(&err[0], &err_buf, p.limit, &truncated);
  int wait_status = SIGKILL, error = 0;
  if (exited) waitpid(pid, &wait_status, 0);
  if (stopped) _exit(1); /* Nobody waits for the answer. */
  if (exited && read(status[0], &error, sizeof error) == sizeof error) {
    char where[4096];
    ssize_t length = read(status[0], where, sizeof where - 1);
    where[length > 0 ? length : 0] = 0;
    errno = error;
    return strdup(where);
  }
  bool normal = WIFEXITED(wait_status);
  buf_u32(c->out, normal ? (uint32_t)WEXITSTATUS(wait_status) : UINT32_MAX);
  buf_u32(c->out, normal ? 0 : (uint32_t)WTERMSIG(wait_status));
  buf_u8(c->out, truncated);
  buf_u8(c->out, timed_out);
  buf_bytes(c->out, out_buf.data, out_buf.length);
  buf_bytes(c->out, err_buf.data, err_buf.length);
  return NULL;
}
