/*
 * PID 1 of a node: starts the services of a spec file, reaps every orphan, restarts what died. A spec is lines of
 * "word value": state FILE, control SOCKET, then per service: service NAME, argv ARG (repeated), env NAME=VALUE
 * (repeated; nothing else is inherited), log FILE, cwd DIR, delay MS (first restart delay, doubled up to 30 s,
 * forgotten once it ran 10 s), oom SCORE, nice VALUE (0). SIGHUP reads it again. SIGTERM and SIGINT stop services in reverse order.
 * Control takes one line per connection: start|stop|restart NAME, signal NAME NUMBER, status.
 */
#include "sys.h"
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define MAX_SERVICES 64
#define MAX_WORDS 256
#define STOP_MS 10000
#define STEADY_MS 10000
#define MAX_DELAY_MS 30000

struct service {
  char *name, *argv[MAX_WORDS], *env[MAX_WORDS], *log, *cwd, *oom;
  int argc, envc, nice;
  int64_t delay_ms, cap_ms;
  bool wanted, removed, restarting;
  pid_t pid;
  unsigned restarts, failures;
  int64_t started_at, start_at, kill_at; /* monotonic; the last two 0 when nothing is due */
};

static struct service *services[MAX_SERVICES];
static int service_count;
static char *spec_path, *state_path, *control_path;
static int64_t stopping_until;
static bool changed = true; /* since the state file was written */

static void free_service(struct service *s) {
  for (int i = 0; i < s->argc; i++) free(s->argv[i]);
  for (int i = 0; i < s->envc; i++) free(s->env[i]);
  free(s->name), free(s->log), free(s->cwd), free(s->oom), free(s);
}

static void write_state(void) {
  char path[4096];
  if (!changed || !state_path || snprintf(path, sizeof path, "%s.new", state_path) >= (int)sizeof path) return;
  FILE *file = fopen(path, "we");
  if (!file) return;
  for (int i = 0; i < service_count; i++) {
    struct service *s = services[i];
    fprintf(file, "%s %d %u %lld\n", s->name, (int)s->pid, s->restarts, (long long)(s->pid ? s->started_at : 0));
  }
  if (fclose(file) == 0 && rename(path, state_path) == 0) changed = false;
}

static bool put(char **list, int *count, const char *value) {
  if (*count >= MAX_WORDS - 1) return false;
  list[(*count)++] = strdup(value);
  return true;
}

/* Fills `found`; false (and a line on stderr) when the file cannot be understood. */
static bool read_spec(struct service **found, int *count) {
  FILE *file = fopen(spec_path, "re");
  char *line = NULL;
  size_t size = 0;
  ssize_t length;
  bool good = file != NULL;
  struct service *s = NULL;
  for (int number = 1; good && (length = getline(&line, &size, file)) >= 0; number++) {
    while (length > 0 && line[length - 1] == '\n') line[--length] = 0;
    char *word = line + strspn(line, " \t"), *value = word + strcspn(word, " \t");
    if (!*word || *word == '#') continue;
    if (*value) *value++ = 0;
    if (!strcmp(word, "state") && !state_path) state_path = strdup(value);
    else if (!strcmp(word, "control") && !control_path) control_path = strdup(value);
    else if (!strcmp(word, "state") || !strcmp(word, "control")) continue; /* They stay as they were at the start. */
    else if (!strcmp(word, "service") && *value && *count < MAX_SERVICES) {
      s = found[(*count)++] = calloc(1, sizeof *s);
      s->name = strdup(value);
      s->delay_ms = 1000;
      s->cap_ms = MAX_DELAY_MS;
      s->wanted = true;
    } else if (!s) good = false;
    else if (!strcmp(word, "argv")) good = put(s->argv, &s->argc, value);
    else if (!strcmp(word, "env")) good = put(s->env, &s->envc, value);
    else if (!strcmp(word, "log")) free(s->log), s->log = strdup(value);
    else if (!strcmp(word, "cwd")) free(s->cwd), s->cwd = strdup(value);
    else if (!strcmp(word, "oom")) free(s->oom), s->oom = strdup(value);
    else if (!strcmp(word, "nice")) s->nice = atoi(value);
    else if (!strcmp(word, "delay")) s->delay_ms = atoll(value) > 0 ? atoll(value) : 1;
    else if (!strcmp(word, "cap")) s->cap_ms = atoll(value) > 0 ? atoll(value) : 1;
    else good = false;
    if (!good) fprintf(stderr, "sys init: %s line %d is not understood\n", spec_path, number);
  }
  for (int i = 0; i < *count; i++) good = good && found[i]->argc > 0;
  if (!file) fprintf(stderr, "sys init: %s: %s\n", spec_path, strerror(errno));
  else fclose(file);
  free(line);
  return good;
}

static void start_service(struct service *s) {
  s->start_at = 0;
  pid_t pid = fork();
  if (pid < 0) {
    s->start_at = mono_ms() + 1000;
    return;
  }
  if (pid == 0) {
    reset_signals();
    setsid();
    umask(022);
    int null = open("/dev/null", O_RDWR | O_CLOEXEC), log = s->log ? open(s->log, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0640) : -1;
    if (log < 0) log = null;
    dup2(null, 0), dup2(log, 1), dup2(log, 2);
    int oom = s->oom ? open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC) : -1;
    if (oom >= 0 && write(oom, s->oom, strlen(s->oom)) < 0) dprintf(2, "oom score: %s\n", strerror(errno));
    if (getpriority(PRIO_PROCESS, 0) != s->nice && setpriority(PRIO_PROCESS, 0, s->nice) < 0) dprintf(2, "nice: %s\n", strerror(errno));
    environ = s->env;
    if (chdir(s->cwd ? s->cwd : "/") == 0) execvp(s->argv[0], s->argv);
    dprintf(2, "%s: %s\n", s->argv[0], strerror(errno));
    _exit(127);
  }
  s->pid = pid;
  s->started_at = mono_ms();
  changed = true;
}

static void stop_service(struct service *s) {
  s->start_at = 0;
  if (!s->pid) return;
  kill(s->pid, SIGTERM);
  if (!s->kill_at) s->kill_at = mono_ms() + STOP_MS;
}

static void died(struct service *s, int status) {
  int64_t now = mono_ms();
  dprintf(2, "sys init: %s (%d) ended: %s %d\n", s->name, (int)s->pid, WIFEXITED(status) ? "exit" : "signal", WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
  if (now - s->started_at >= STEADY_MS || s->restarting) s->failures = 0;
  s->pid = 0;
  s->kill_at = 0;
  changed = true;
  if (!s->wanted || s->removed || stopping_until) return;
  int64_t delay_ms = s->delay_ms;
  for (unsigned i = 0; i < s->failures && delay_ms < s->cap_ms; i++) delay_ms *= 2;
  if (delay_ms > s->cap_ms) delay_ms = s->delay_ms > s->cap_ms ? s->delay_ms : s->cap_ms;
  s->start_at = now + (s->restarting ? 0 : delay_ms);
  s->failures += s->restarting ? 0 : 1;
  s->restarting = false;
  s->restarts++;
}

static struct service *find(struct service **list, int count, const char *name) {
  for (int i = 0; i < count; i++) {
    if (!strcmp(list[i]->name, name)) return list[i];
  }
  return NULL;
}

/* New ones start, missing ones stop, changed ones keep running and start as written the next time. */
static void reload(void) {
  struct service *found[MAX_SERVICES];
  int count = 0;
  if (!read_spec(found, &count)) {
    while (count > 0) free_service(found[--count]);
    return;
  }
  for (int i = 0; i < service_count; i++) {
    struct service *old = services[i], *now = find(found, count, old->name);
    if (now) {
      now->pid = old->pid, now->wanted = old->wanted, now->restarting = old->restarting, now->restarts = old->restarts;
      now->failures = old->failures, now->started_at = old->started_at, now->start_at = old->start_at, now->kill_at = old->kill_at;
      free_service(old);
    } else if (old->pid && count < MAX_SERVICES) {
      old->removed = true;
      stop_service(old);
      found[count++] = old;
    } else {
      free_service(old);
    }
  }
  for (int i = 0; i < count; i++) {
    struct service *s = found[i];
    if (!s->pid && !s->start_at && s->wanted && !s->removed) s->start_at = 1;
  }
  memcpy(services, found, sizeof *found * (size_t)count);
  service_count = count;
  changed = true;
}

static const char *command(char *line) {
  char verb[16] = "", name[128] = "";
  int number = 0;
  if (sscanf(line, "%15s %127s %d", verb, name, &number) < 2) return "error: start|stop|restart NAME, signal NAME NUMBER, status\n";
  struct service *s = find(services, service_count, name);
  if (!s) return "error: no such service\n";
  if (!strcmp(verb, "start")) {
    s->wanted = true;
    if (!s->pid) s->start_at = 1;
  } else if (!strcmp(verb, "stop")) {
    s->wanted = false;
    stop_service(s);
  } else if (!strcmp(verb, "restart")) {
    s->wanted = s->restarting = true;
    stop_service(s);
    if (!s->pid) s->start_at = 1;
  } else if (!strcmp(verb, "signal") && number > 0 && number < NSIG) {
    if (!s->pid || kill(s->pid, number) < 0) return "error: not running\n";
  } else {
    return "error: unknown command\n";
  }
  return "ok\n";
}

static int listen_control(void) {
  struct sockaddr_un address = {.sun_family = AF_UNIX};
  if (!control_path || strlen(control_path) >= sizeof address.sun_path) return -1;
  strcpy(address.sun_path, control_path);
  unlink(control_path);
  int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  mode_t before = umask(077);
  bool good = fd >= 0 && bind(fd, (struct sockaddr *)&address, sizeof address) == 0 && listen(fd, 16) == 0;
  umask(before);
  if (!good) fprintf(stderr, "sys init: control socket %s: %s\n", control_path, strerror(errno));
  return good ? fd : -1;
}

static void serve_control(int listener) {
  int fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
  if (fd < 0) return;
  /* The other side is root and writes at once; a quarter of a second is its limit, not a wait. */
  struct timeval limit = {.tv_usec = 250000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
  char line[256];
  ssize_t length = read(fd, line, sizeof line - 1);
  line[length > 0 ? length : 0] = 0;
  if (!strncmp(line, "status", 6)) {
    for (int i = 0; i < service_count; i++) {
      struct service *s = services[i];
      dprintf(fd, "%s %d %u %lld %s\n", s->name, (int)s->pid, s->restarts, (long long)(s->pid ? s->started_at : 0), s->pid ? "running" : s->start_at ? "waiting" : "stopped");
    }
  } else if (length > 0) {
    const char *answer = command(line);
    if (write(fd, answer, strlen(answer)) < 0) dprintf(2, "sys init: control: %s\n", strerror(errno));
  }
  close(fd);
}

static void reap(void) {
  int status;
  for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    for (int i = 0; i < service_count; i++) {
      if (services[i]->pid != pid) continue;
      died(services[i], status);
      if (services[i]->removed) {
        free_service(services[i]);
        memmove(services + i, services + i + 1, sizeof *services * (size_t)(--service_count - i));
      }
      break;
    }
  }
}

/* Does what is due; returns the wait until the next such thing, -1 for none. */
static int64_t do_due(void) {
  int64_t now = mono_ms(), next = -1;
  for (int i = 0; i < service_count; i++) {
    struct service *s = services[i];
    if (s->start_at && s->start_at <= now && !stopping_until) start_service(s);
    if (s->kill_at && s->kill_at <= now) kill(s->pid, SIGKILL), s->kill_at = now + 1000;
    int64_t due[] = {s->start_at, s->kill_at};
    for (int j = 0; j < 2; j++) {
      if (due[j] && (next < 0 || due[j] < next)) next = due[j];
    }
  }
  return next < 0 ? -1 : next > now ? next - now : 0;
}

/* One after the other, last first; true when none is left or the time is over. */
static bool all_stopped(void) {
  int64_t now = mono_ms();
  for (int i = service_count - 1; i >= 0; i--) {
    if (!services[i]->pid) continue;
    if (!services[i]->kill_at) stop_service(services[i]);
    return now >= stopping_until;
  }
  return true;
}

static void end_all(void) {
  for (int i = 0; i < service_count; i++) {
    if (services[i]->pid) kill(services[i]->pid, SIGKILL);
  }
  if (getpid() == 1) kill(-1, SIGKILL);
  for (int64_t until = mono_ms() + 3000; mono_ms() < until; poll(NULL, 0, 5)) {
    if (waitpid(-1, NULL, WNOHANG) < 0 && errno == ECHILD) break;
  }
  if (control_path) unlink(control_path);
}

int init_main(int argc, char **argv) {
  (void)argc;
  spec_path = argv[1];
  prctl(PR_SET_NAME, "sys-init");
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  sigset_t watched;
  sigemptyset(&watched);
  for (const int *number = (const int[]){SIGCHLD, SIGTERM, SIGINT, SIGHUP, 0}; *number; number++) sigaddset(&watched, *number);
  sigprocmask(SIG_BLOCK, &watched, NULL);
  signal(SIGPIPE, SIG_IGN);
  umask(022); /* The state file is read by those who decide what to kill. */
  int signals = signalfd(-1, &watched, SFD_CLOEXEC | SFD_NONBLOCK);
  if (!read_spec(services, &service_count)) return 2;
  int listener = listen_control();
  for (int i = 0; i < service_count; i++) services[i]->start_at = 1;
  while (!stopping_until || !all_stopped()) {
    int64_t wait_ms = do_due();
    write_state();
    if (stopping_until && (wait_ms < 0 || wait_ms > 100)) wait_ms = 100;
    struct pollfd fds[] = {{signals, POLLIN, 0}, {listener, POLLIN, 0}};
    poll(fds, 2, (int)wait_ms);
    struct signalfd_siginfo info;
    while (read(signals, &info, sizeof info) == sizeof info) {
      if (info.ssi_signo == SIGHUP) reload();
      if ((info.ssi_signo == SIGTERM || info.ssi_signo == SIGINT) && !stopping_until) stopping_until = mono_ms() + STOP_MS;
    }
    if (fds[1].revents) serve_control(listener);
    reap();
  }
  end_all();
  return 0;
}
