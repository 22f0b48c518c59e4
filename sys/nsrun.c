/* Makes the namespaces of a node and starts its PID 1 in them; and runs a command inside those of a running one. */
#include "sys.h"
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_EXTRA 64

struct options {
  int unshared;
  const char *net, *hostname, *pid_file, *log, *cgroups, *namespaces, *cwd, *extra[MAX_EXTRA];
  int extra_count;
  long pid;
  char **command;
};

static int report_fd = 2;

static void give_up(const char *what, const char *which) {
  dprintf(report_fd, "sys: %s%s%s: %s\n", what, which ? " " : "", which ? which : "", strerror(errno));
  _exit(1);
}

/* "--name=value" or "--name value"; NULL when `arg` is another option. */
static const char *value_of(char ***at, const char *name) {
  size_t length = strlen(name);
  if (strncmp(**at, name, length)) return NULL;
  if ((**at)[length] == '=') return **at + length + 1;
  return (**at)[length] == 0 && (*at)[1] ? *++*at : NULL;
}

static bool read_options(char **argv, struct options *o) {
  static const struct { const char *name; int flag; } kinds[] = {{"--mount", CLONE_NEWNS}, {"--ipc", CLONE_NEWIPC}, {"--pid", CLONE_NEWPID}, {"--cgroupns", CLONE_NEWCGROUP}};
  bool is_exec = !strcmp(argv[0], "exec");
  for (argv++; *argv; argv++) {
    const char *value;
    if (!strcmp(*argv, "--")) {
      o->command = argv + 1;
      return *o->command != NULL;
    }
    bool known = false;
    for (size_t i = 0; !is_exec && i < sizeof kinds / sizeof *kinds; i++) {
      if (!strcmp(*argv, kinds[i].name)) o->unshared |= kinds[i].flag, known = true;
    }
    if (known) continue;
    if (is_exec && (value = value_of(&argv, "--pid"))) o->pid = atol(value);
    else if ((value = value_of(&argv, "--ns"))) o->namespaces = value;
    else if ((value = value_of(&argv, "--cwd"))) o->cwd = value;
    else if ((value = value_of(&argv, "--net"))) o->net = value;
    else if ((value = value_of(&argv, "--uts"))) o->hostname = value;
    else if ((value = value_of(&argv, "--pidfile"))) o->pid_file = value;
    else if ((value = value_of(&argv, "--log"))) o->log = value;
    else if ((value = value_of(&argv, "--cgroup"))) o->cgroups = value;
    else if (((!strncmp(*argv, "--bind", 6) && (value = value_of(&argv, "--bind"))) || (!strncmp(*argv, "--tmpfs", 7) && (value = value_of(&argv, "--tmpfs")))) && o->extra_count < MAX_EXTRA) o->extra[o->extra_count++] = value;
    else return fprintf(stderr, "sys: option %s is not understood\n", *argv), false;
  }
  return false;
}

static void write_text(const char *path, const char *text) {
  int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0 || !write_all(fd, text, strlen(text))) give_up("write", path);
  close(fd);
}

static void join_cgroups(const char *list) {
  char path[4096], *copy = strdup(list ? list : ""), *rest = copy;
  for (char *directory; (directory = strsep(&rest, ","));) {
    if (!*directory) continue;
    snprintf(path, sizeof path, "%s/cgroup.procs", directory);
    int fd = open(path, O_WRONLY | O_CLOEXEC);
    if (fd < 0 || write(fd, "0", 1) < 0) give_up("join cgroup", directory);
    close(fd);
  }
  free(copy);
}

static void make_mounts(const struct options *o) {
  if (mount("none", "/", NULL, MS_REC | MS_PRIVATE, NULL) < 0) give_up("make mounts private", NULL);
  for (int i = 0; i < o->extra_count; i++) {
    char *source = strdup(o->extra[i]), *target = strchr(source, ':');
    if (target) *target++ = 0;
    int done = target ? mount(source, target, NULL, MS_BIND | MS_REC, NULL) : mount("tmpfs", source, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0755");
    if (done < 0) give_up(target ? "bind" : "tmpfs", o->extra[i]);
    free(source);
  }
  if (o->unshared & CLONE_NEWPID && mount("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, NULL) < 0) give_up("mount /proc", NULL);
  if (mount("none", "/", NULL, MS_REC | MS_SHARED, NULL) < 0) give_up("make mounts shared", NULL);
}

static void become_init(const struct options *o, int self, int log) {
  if (o->unshared & CLONE_NEWNS) make_mounts(o);
  if (o->hostname && sethostname(o->hostname, strlen(o->hostname)) < 0) give_up("set host name", o->hostname);
  if (chdir("/") < 0) give_up("change to", "/");
  int null = open("/dev/null", O_RDWR | O_CLOEXEC);
  dup2(null, 0), dup2(log < 0 ? null : log, 1), dup2(log < 0 ? null : log, 2);
  reset_signals();
  char *env[] = {"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", NULL}, *argv[256] = {"sys"};
  for (int i = 0; o->command[i] && i < 254; i++) argv[i + 1] = o->command[i];
  syscall(SYS_execveat, self, "", argv, env, AT_EMPTY_PATH);
  give_up("start", o->command[0]);
}

/* Detached from its caller; the report pipe closes without a word once PID 1 runs. */
static void keeper(const struct options *o) {
  char text[32];
  setsid();
  int self = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  if (self < 0) give_up("open", "/proc/self/exe");
  int log = o->log ? open(o->log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640) : -1;
  if (o->log && log < 0) give_up("open", o->log);
  join_cgroups(o->cgroups);
  bool new_net = o->net && !strcmp(o->net, "new");
  if (o->net && !new_net && enter_ns(o->net, CLONE_NEWNET) < 0) give_up("enter network namespace", o->net);
  if (unshare(o->unshared | (new_net ? CLONE_NEWNET : 0) | (o->hostname ? CLONE_NEWUTS : 0)) < 0) give_up("make namespaces", NULL);
  pid_t pid = fork();
  if (pid < 0) give_up("fork", NULL);
  if (pid == 0) become_init(o, self, log);
  snprintf(text, sizeof text, "%d\n", (int)pid);
  if (o->pid_file) write_text(o->pid_file, text);
  dprintf(report_fd, "%d\n", (int)pid);
  _exit(0);
}

int nsrun_main(int argc, char **argv) {
  (void)argc;
  struct options o = {0};
  int report[2];
  if (!read_options(argv, &o) || pipe2(report, O_CLOEXEC) < 0) return 2;
  pid_t pid = fork();
  if (pid < 0) give_up("fork", NULL);
  if (pid == 0) {
    report_fd = report[1];
    keeper(&o);
  }
  close(report[1]);
  waitpid(pid, NULL, 0);
  struct buf said = {0};
  char chunk[512];
  for (ssize_t got; (got = read(report[0], chunk, sizeof chunk)) > 0;) buf_add(&said, chunk, (size_t)got);
  buf_u8(&said, 0);
  const char *failure = strstr((char *)said.data, "sys: ");
  if (!failure) return fputs((char *)said.data, stdout) < 0;
  fputs(failure, stderr);
  if (o.pid_file) unlink(o.pid_file);
  return 1;
}

static volatile pid_t running;

static void forward(int number, siginfo_t *info, void *context) {
  (void)context;
  /* What a terminal sends reaches the whole foreground group by itself. */
  if (info->si_code <= 0) kill(running, number);
}

int exec_main(int argc, char **argv) {
  (void)argc;
  static const struct { const char *name; int flag; } kinds[] = {{"net", CLONE_NEWNET}, {"mnt", CLONE_NEWNS}, {"uts", CLONE_NEWUTS}, {"ipc", CLONE_NEWIPC}, {"pid", CLONE_NEWPID}, {"cgroup", CLONE_NEWCGROUP}};
  struct options o = {.namespaces = "net,mnt,uts,ipc,pid"};
  if (!read_options(argv, &o) || o.pid <= 0) return 2;
  umask(022);
  int flags = 0, target = (int)syscall(SYS_pidfd_open, (pid_t)o.pid, 0);
  if (target < 0) give_up("find process", NULL);
  char *list = strdup(o.namespaces), *rest = list;
  for (char *name; (name = strsep(&rest, ","));) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) flags |= strcmp(name, kinds[i].name) ? 0 : kinds[i].flag;
  }
  /* Only children enter a PID namespace; this process itself stays outside of all of them. */
  if (flags & CLONE_NEWPID && setns(target, CLONE_NEWPID) < 0) give_up("enter PID namespace", NULL);
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &before);
  running = fork();
  if (running < 0) give_up("fork", NULL);
  if (running == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    sigprocmask(SIG_SETMASK, &before, NULL);
    join_cgroups(o.cgroups);
    if (flags & ~CLONE_NEWPID && setns(target, flags & ~CLONE_NEWPID) < 0) give_up("enter namespaces", NULL);
    if (chdir(o.cwd ? o.cwd : "/") < 0) give_up("change to", o.cwd);
    execvp(o.command[0], o.command);
    int error = errno;
    dprintf(2, "sys: %s: %s\n", o.command[0], strerror(error));
    _exit(error == ENOENT ? 127 : 126);
  }
  struct sigaction action = {.sa_sigaction = forward, .sa_flags = SA_SIGINFO | SA_RESTART};
  for (const int *number = (const int[]){SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, 0}; *number; number++) sigaction(*number, &action, NULL);
  sigprocmask(SIG_SETMASK, &before, NULL);
  int status = 0;
  while (waitpid(running, &status, 0) < 0 && errno == EINTR) continue;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
