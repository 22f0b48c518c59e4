/*
 * splice LISTEN UPSTREAM BUFFER_BYTES: joins every connection that comes to the unix socket LISTEN with one of its own to
 * another: bytes, half-closes, back pressure and failures pass as they are. What passed is told on standard output, as
 * notes, after it was passed on and not before DELAY_MS, so that nobody who reads them takes the processor from those who
 * wait for an answer. Notes that find no room in BUFFER_BYTES are left out, and that is told too; nothing waits for them.
 *
 *   note    = u32 kind, u32 connection, u32 side (0 caller, 1 upstream), u32 length, f64 wall ms, f64 monotonic ms, bytes
 *   command = a line on standard input; its end ends everything
 *     route PATH               connections that come from now on go there
 *     away CUT_MS HEX PATH     each that goes there gets these bytes between two frames of its upstream; cut after CUT_MS, if not -1
 *
 * cri/io/splice-sys.ts is the other end.
 */
#include "sys.h"
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = 256 * 1024, RESERVE = 1024 * 1024, EAGER = 1024 * 1024, DELAY_MS = 10, TURNS = 16, MAX_PUT = 64 };
enum { NOTE_LISTENING, NOTE_OPEN, NOTE_REACHED, NOTE_DATA, NOTE_LOST, NOTE_END, NOTE_CLOSE };

struct note { uint32_t kind, connection, side, length; double wall_ms, mono_ms; };

/* What is yet to be told. A fixed ring: what finds no room is not kept. */
static struct { uint8_t *bytes; size_t size, start, used; double oldest_ms; bool urgent, blocked; } told;

struct end { struct connection *of; int fd; bool readable, writable, ended, shut; uint8_t *rest; size_t rest_at, rest_end; };
struct connection {
  struct connection *next, *next_busy;
  struct end ends[2];
  uint32_t number, frame_left, frames;
  uint8_t head[9], put[MAX_PUT], head_length, put_length;
  bool is_other, is_lost, is_dead, is_busy, was_told;
  uint64_t lost_bytes;
  double cut_ms;
  char upstream[108];
};

static struct connection *connections, *busy;
static uint32_t opened;
static int watched;
static char route[108];
static uint8_t scratch[CHUNK];

static double clock_ms(clockid_t which) {
  struct timespec now;
  clock_gettime(which, &now);
  return (double)now.tv_sec * 1000 + (double)now.tv_nsec / 1e6;
}

static void keep(const void *data, size_t length) {
  if (length == 0) return;
  size_t at = (told.start + told.used) % told.size, first = length < told.size - at ? length : told.size - at;
  memcpy(told.bytes + at, data, first);
  memcpy(told.bytes, (const uint8_t *)data + first, length - first);
  told.used += length;
}

static bool note(uint32_t kind, const struct connection *of, uint32_t side, const void *data, size_t length) {
  struct note head = {kind, of ? of->number : 0, side, (uint32_t)length, clock_ms(CLOCK_REALTIME), clock_ms(CLOCK_MONOTONIC)};
  if (sizeof head + length + (kind == NOTE_DATA ? RESERVE : 0) > told.size - told.used) return false;
  if (told.used == 0) told.oldest_ms = head.mono_ms;
  keep(&head, sizeof head);
  keep(data, length);
  if (kind != NOTE_DATA && kind != NOTE_END) told.urgent = true;
  return true;
}

/* Writes what it can; -1 when nobody reads any more. */
static int tell(void) {
  while (told.used > 0) {
    size_t first = told.used < told.size - told.start ? told.used : told.size - told.start;
    struct iovec parts[2] = {{told.bytes + told.start, first}, {told.bytes, told.used - first}};
    ssize_t done = writev(1, parts, told.used > first ? 2 : 1);
    if (done < 0 && errno == EINTR) continue;
    if (done < 0) return told.blocked = errno == EAGAIN, errno == EAGAIN ? 0 : -1;
    told.start = (told.start + (size_t)done) % told.size;
    told.used -= (size_t)done;
  }
  told.start = 0; /* The same few pages again: they are in the cache. */
  told.urgent = told.blocked = false;
  return 0;
}

static void note_data(struct connection *c, uint32_t side, const void *data, size_t length) {
  if (!c->is_lost && note(NOTE_DATA, c, side, data, length)) return;
  if (!c->is_lost) note(NOTE_LOST, c, side, NULL, 0);
  c->is_lost = true;
  c->lost_bytes += length;
}

static void drop(struct connection *c) {
  if (c->is_dead) return;
  c->is_dead = true;
  for (int side = 0; side < 2; side++)
    if (c->ends[side].fd >= 0) close(c->ends[side].fd);
  note(NOTE_CLOSE, c, 0, &c->lost_bytes, sizeof c->lost_bytes);
}

/* Counts the lengths of HTTP/2 frames (RFC 9113, section 4.1) of what the upstream sends, and reads nothing else. */
static void count_frames(struct connection *c, const uint8_t *at, size_t length) {
  while (length > 0 && !c->is_other) {
    if (c->frame_left > 0) {
      size_t skipped = c->frame_left < length ? c->frame_left : length;
      c->frame_left -= (uint32_t)skipped;
      at += skipped, length -= skipped;
      continue;
    }
    c->head[c->head_length++] = *at++;
    length--;
    if (c->head_length < sizeof c->head) continue;
    c->head_length = 0;
    c->frame_left = (uint32_t)c->head[0] << 16 | (uint32_t)c->head[1] << 8 | c->head[2];
    /* A server's first frame is SETTINGS. */
    if (c->frames++ == 0 && c->head[3] != 4) c->is_other = true;
  }
}

static bool send_rest(struct end *to) {
  while (to->rest) {
    if (!to->writable) return true;
    ssize_t done = send(to->fd, to->rest + to->rest_at, to->rest_end - to->rest_at, MSG_NOSIGNAL);
    if (done < 0 && errno == EAGAIN) return to->writable = false, true;
    if (done < 0) return false;
    to->rest_at += (size_t)done;
    if (to->rest_at == to->rest_end) free(to->rest), to->rest = NULL;
  }
  return true;
}

/* Only when nothing waits before it. */
static bool send_or_keep(struct end *to, const uint8_t *bytes, size_t length) {
  ssize_t done = to->writable ? send(to->fd, bytes, length, MSG_NOSIGNAL) : 0;
  if (done < 0 && errno != EAGAIN) return false;
  if (done < 0) done = 0;
  if ((size_t)done == length) return true;
  to->writable = false;
  to->rest_at = 0, to->rest_end = length - (size_t)done;
  to->rest = malloc(to->rest_end);
  if (!to->rest) return false;
  memcpy(to->rest, bytes + done, to->rest_end);
  return true;
}

static bool put(struct connection *c) {
  if (c->put_length == 0 || c->frames == 0 || c->is_other || c->frame_left > 0 || c->head_length > 0 || c->ends[0].rest || c->ends[0].shut) return true;
  size_t length = c->put_length;
  c->put_length = 0;
  if (!send_or_keep(&c->ends[0], c->put, length)) return false;
  note_data(c, 1, c->put, length);
  return true;
}

/* One direction, as far as it goes at once. False: it has failed. */
static bool pass(struct connection *c, uint32_t side) {
  struct end *from = &c->ends[side], *to = &c->ends[1 - side];
  for (int turn = 0;; turn++) {
    if (!send_rest(to)) return false;
    if (to->rest || to->shut) return true;
    if (side == 1 && !put(c)) return false;
    if (to->rest) return true;
    if (from->ended) {
      shutdown(to->fd, SHUT_WR);
      to->shut = true;
      note(NOTE_END, c, side, NULL, 0);
      return true;
    }
    if (!from->readable) return true;
    if (turn == TURNS) {
      if (!c->is_busy) c->is_busy = true, c->next_busy = busy, busy = c;
      return true;
    }
    ssize_t got = recv(from->fd, scratch, sizeof scratch, 0);
    if (got < 0 && errno == EAGAIN) return from->readable = false, true;
    if (got < 0) return false;
    if (got == 0) from->ended = true;
    else {
      bool good = send_or_keep(to, scratch, (size_t)got);
      note_data(c, side, scratch, (size_t)got);
      if (!good) return false;
      if (side == 1) count_frames(c, scratch, (size_t)got);
    }
  }
}

static void move_on(struct connection *c) {
  if (c->is_dead) return;
  /* When one direction fails, what the other still holds goes on to its receiver. */
  bool there = pass(c, 0), back = pass(c, 1);
  if (!there || !back || (c->ends[0].shut && c->ends[1].shut)) drop(c);
}

static bool address_of(const char *path, struct sockaddr_un *into) {
  memset(into, 0, sizeof *into);
  into->sun_family = AF_UNIX;
  if (strlen(path) >= sizeof into->sun_path) return errno = ENAMETOOLONG, false;
  return strcpy(into->sun_path, path), true;
}

static bool watch(int fd, uint32_t events, void *data) {
  struct epoll_event event = {.events = events, .data.ptr = data};
  return epoll_ctl(watched, EPOLL_CTL_ADD, fd, &event) == 0;
}

static void open_one(int caller) {
  struct connection *c = calloc(1, sizeof *c);
  if (!c) {
    close(caller);
    return;
  }
  struct sockaddr_un address;
  c->number = ++opened;
  c->cut_ms = -1;
  strcpy(c->upstream, route);
  c->next = connections;
  connections = c;
  note(NOTE_OPEN, c, 0, NULL, 0);
  c->ends[0] = (struct end){.of = c, .fd = caller, .writable = true};
  c->ends[1] = (struct end){.of = c, .fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0), .writable = true};
  int upstream = c->ends[1].fd, result = 0;
  if (upstream < 0 || !address_of(c->upstream, &address) || connect(upstream, (struct sockaddr *)&address, sizeof address) < 0) result = errno;
  for (int side = 0; side < 2 && result == 0; side++)
    if (!watch(c->ends[side].fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, &c->ends[side])) result = errno;
  int32_t answer = result;
  note(NOTE_REACHED, c, 1, &answer, sizeof answer);
  if (result != 0) drop(c);
}

static void accept_all(int listener) {
  for (int turn = 0; turn < 64; turn++) {
    int caller = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (caller >= 0) open_one(caller);
    else if (errno != ECONNABORTED && errno != EINTR) {
      if (errno != EAGAIN) usleep(10 * 1000); /* No descriptor is free: those who wait go on waiting. */
      return;
    }
  }
}

static size_t hex(const char *text, uint8_t *into, size_t size) {
  size_t length = 0;
  for (unsigned byte; length < size && sscanf(text + 2 * length, "%2x", &byte) == 1; length++) into[length] = (uint8_t)byte;
  return length;
}

static void obey(char *line) {
  char digits[2 * MAX_PUT + 1], path[108];
  int cut;
  if (!strncmp(line, "route ", 6) && strlen(line + 6) < sizeof route) strcpy(route, line + 6);
  else if (sscanf(line, "away %d %128s %107[^\n]", &cut, digits, path) == 3)
    for (struct connection *c = connections; c; c = c->next) {
      if (c->is_dead || strcmp(c->upstream, path)) continue;
      if (!c->was_told) c->put_length = (uint8_t)hex(digits, c->put, sizeof c->put);
      c->was_told = true;
      if (cut >= 0 && c->cut_ms < 0) c->cut_ms = clock_ms(CLOCK_MONOTONIC) + cut;
      move_on(c);
    }
}

/* Reads what was said; false at its end. */
static bool listen_to_owner(void) {
  static char line[512];
  static size_t length;
  for (;;) {
    char byte;
    ssize_t got = read(0, &byte, 1);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return errno == EAGAIN;
    if (got == 0) return false;
    if (byte != '\n') {
      if (length < sizeof line - 1) line[length++] = byte;
      continue;
    }
    line[length] = 0;
    length = 0;
    obey(line);
  }
}

/* Frees what is gone and cuts what is due; ms until the next cut, -1 without one. */
static int sweep(void) {
  double now = clock_ms(CLOCK_MONOTONIC), next = -1;
  for (struct connection **at = &connections, *c; (c = *at);) {
    if (!c->is_dead && c->cut_ms >= 0 && c->cut_ms <= now) drop(c);
    if (c->is_dead && !c->is_busy) {
      *at = c->next;
      free(c->ends[0].rest), free(c->ends[1].rest), free(c);
      continue;
    }
    if (!c->is_dead && c->cut_ms >= 0 && (next < 0 || c->cut_ms < next)) next = c->cut_ms;
    at = &c->next;
  }
  return next < 0 ? -1 : (int)(next - now) + 1;
}

static int wait_ms(int cut) {
  if (busy) return 0;
  if (told.used == 0 || told.blocked) return cut;
  double left = told.oldest_ms + DELAY_MS - clock_ms(CLOCK_MONOTONIC);
  int delay = told.urgent || told.used > EAGER || left <= 0 ? 0 : (int)left + 1;
  return cut >= 0 && cut < delay ? cut : delay;
}

static int fail(void) {
  fprintf(stderr, "%d %s\n", errno, strerror(errno));
  return 1;
}

int splice_main(int argc, char **argv) {
  struct sockaddr_un address;
  if (argc != 4 || strlen(argv[2]) >= sizeof route || strchr(argv[2], '\n')) return 2;
  strcpy(route, argv[2]);
  for (const int *number = (const int[]){SIGTERM, SIGINT, SIGHUP, SIGQUIT, SIGPIPE, 0}; *number; number++) signal(*number, SIG_IGN);
  prctl(PR_SET_NAME, "nodelet-splice");
  struct rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) files.rlim_cur = files.rlim_max, setrlimit(RLIMIT_NOFILE, &files);
  told.size = strtoul(argv[3], NULL, 10) + RESERVE;
  told.bytes = mmap(NULL, told.size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  watched = epoll_create1(EPOLL_CLOEXEC);
  int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (told.bytes == MAP_FAILED || watched < 0 || listener < 0) return fail();
  umask(0177); /* Until its owner has dressed it nobody else may connect. */
  if (!address_of(argv[1], &address) || bind(listener, (struct sockaddr *)&address, sizeof address) < 0 || listen(listener, SOMAXCONN) < 0)
    return fail();
  for (int fd = 0; fd < 2; fd++) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  if (!watch(listener, EPOLLIN, &listener) || !watch(0, EPOLLIN, &told) || !watch(1, EPOLLOUT | EPOLLET, &route)) return fail();
  note(NOTE_LISTENING, NULL, 0, NULL, 0);
  for (bool goes_on = true; goes_on;) {
    struct epoll_event events[64];
    int cut = sweep(), count = epoll_wait(watched, events, 64, wait_ms(cut));
    bool comes = false, said = false;
    for (int at = 0; at < count; at++) {
      void *what = events[at].data.ptr;
      if (what == &told) said = true;
      else if (what == &listener) comes = true;
      else if (what == &route) told.blocked = false;
      else {
        struct end *end = what;
        if (events[at].events & (EPOLLIN | EPOLLRDHUP | EPOLLHUP | EPOLLERR)) end->readable = true;
        if (events[at].events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) end->writable = true;
        move_on(end->of);
      }
    }
    struct connection *again = busy;
    busy = NULL;
    for (struct connection *c = again, *next; c; c = next) {
      next = c->next_busy;
      c->is_busy = false;
      move_on(c);
    }
    /* What was said before somebody came holds for whoever comes. */
    if (said || comes) goes_on = listen_to_owner();
    if (comes) accept_all(listener);
    if (!told.blocked && wait_ms(-1) == 0 && tell() < 0) goes_on = false;
  }
  for (struct connection *c = connections; c; c = c->next) drop(c);
  fcntl(1, F_SETFL, fcntl(1, F_GETFL) & ~O_NONBLOCK);
  return tell() < 0;
}
