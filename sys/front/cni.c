/*
 * The CNI plugin's executable. It asks the daemon on its socket and passes on what that answers; when nobody listens,
 * or the daemon dies over the call, it becomes the program "fallback" beside itself, with the same input. It starts
 * once and more a pod, so it does without a C library: less than 10 KB are read and mapped.
 *
 *   question = every CNI_… of the environment with its NUL, one NUL, standard input; then the writing side is closed
 *   answer   = exit code '0' or '1', u32 length (little endian), standard output
 */
#include <stddef.h>
#include <stdint.h>

#if defined __x86_64__
enum { READ = 0, WRITE = 1, SOCKET = 41, CONNECT = 42, SENDTO = 44, SHUTDOWN = 48, SETSOCKOPT = 54, EXECVE = 59, EXIT_GROUP = 231, READLINKAT = 267, DUP3 = 292, MEMFD_CREATE = 319, LSEEK = 8 };
static long call(long number, long a, long b, long c, long d, long e, long f) {
  register long r10 __asm__("r10") = d, r8 __asm__("r8") = e, r9 __asm__("r9") = f;
  long result;
  __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9) : "rcx", "r11", "memory");
  return result;
}
__asm__(".globl _start\n_start: xor %ebp,%ebp\n mov %rsp,%rdi\n and $-16,%rsp\n call begin\n hlt\n");
#elif defined __aarch64__
enum { READ = 63, WRITE = 64, SOCKET = 198, CONNECT = 203, SENDTO = 206, SHUTDOWN = 210, SETSOCKOPT = 208, EXECVE = 221, EXIT_GROUP = 94, READLINKAT = 78, DUP3 = 24, MEMFD_CREATE = 279, LSEEK = 62 };
static long call(long number, long a, long b, long c, long d, long e, long f) {
  register long x8 __asm__("x8") = number, x0 __asm__("x0") = a, x1 __asm__("x1") = b, x2 __asm__("x2") = c, x3 __asm__("x3") = d, x4 __asm__("x4") = e, x5 __asm__("x5") = f;
  __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}
__asm__(".globl _start\n_start: mov x29,xzr\n mov x0,sp\n bl begin\n");
#endif

#define AF_UNIX 1
#define SOCK_STREAM_CLOEXEC (1 | 02000000)
#define MSG_NOSIGNAL 0x4000
#define SHUT_WR 1
#define SOL_SOCKET 1
#define SO_RCVTIMEO 20
#define SO_SNDTIMEO 21
#define AT_FDCWD (-100)
#define EINTR 4
#define EAGAIN 11
#define TIMEOUT_S 120

static const char usual_socket[] = "/run/nodelet/cni.sock";
static uint8_t input[4 << 20], answer[1 << 20];
static size_t input_length;
struct address { uint16_t family; char path[108]; };

/* The compiler calls these by itself. */
void *memset(void *to, int value, size_t length) {
  for (size_t i = 0; i < length; i++) ((volatile uint8_t *)to)[i] = (uint8_t)value;
  return to;
}
void *memcpy(void *to, const void *from, size_t length) {
  for (size_t i = 0; i < length; i++) ((volatile uint8_t *)to)[i] = ((const uint8_t *)from)[i];
  return to;
}

static size_t length_of(const char *text) {
  size_t length = 0;
  while (text[length]) length++;
  return length;
}

static const char *after(const char *text, const char *prefix) {
  while (*prefix) if (*text++ != *prefix++) return NULL;
  return text;
}

static _Noreturn void leave(int code) {
  for (;;) call(EXIT_GROUP, code, 0, 0, 0, 0, 0);
}

static int put(int fd, const void *data, size_t length) {
  for (const char *at = data; length > 0;) {
    long done = call(WRITE, fd, (long)at, (long)length, 0, 0, 0);
    if (done == -EINTR) continue;
    if (done <= 0) return 0;
    at += done, length -= (size_t)done;
  }
  return 1;
}

static _Noreturn void fail(const char *text) {
  put(1, text, length_of(text));
  leave(1);
}

static long send_all(int fd, const void *data, size_t length) {
  for (const char *at = data; length > 0;) {
    long done = call(SENDTO, fd, (long)at, (long)length, MSG_NOSIGNAL, 0, 0);
    if (done == -EINTR) continue;
    if (done <= 0) return done < 0 ? done : -1;
    at += done, length -= (size_t)done;
  }
  return 0;
}

/* 0: the daemon did not answer; the caller goes on with somebody else. Does not return otherwise. */
static int ask(const char *path, char **env) {
  struct address to = {.family = AF_UNIX};
  size_t length = length_of(path);
  if (length >= sizeof to.path) return 0;
  memcpy(to.path, path, length + 1);
  int fd = (int)call(SOCKET, AF_UNIX, SOCK_STREAM_CLOEXEC, 0, 0, 0, 0);
  long patience[2] = {TIMEOUT_S, 0};
  if (fd < 0) return 0;
  call(SETSOCKOPT, fd, SOL_SOCKET, SO_RCVTIMEO, (long)patience, sizeof patience, 0);
  /* A daemon that stands still accepts nobody: this bounds connecting, too. */
  call(SETSOCKOPT, fd, SOL_SOCKET, SO_SNDTIMEO, (long)patience, sizeof patience, 0);
  if (call(CONNECT, fd, (long)&to, (long)(offsetof(struct address, path) + length + 1), 0, 0, 0) < 0) return 0;
  for (; *env; env++)
    if (after(*env, "CNI_") && send_all(fd, *env, length_of(*env) + 1) < 0) return 0;
  if (send_all(fd, "", 1) < 0 || send_all(fd, input, input_length) < 0) return 0;
  call(SHUTDOWN, fd, SHUT_WR, 0, 0, 0, 0);
  size_t got = 0;
  for (;;) {
    long count = call(READ, fd, (long)(answer + got), (long)(sizeof answer - got), 0, 0, 0);
    if (count == -EINTR) continue;
    /* It may still be at work: nobody else may begin the same. */
    if (count == -EAGAIN) fail("{\"cniVersion\":\"1.1.0\",\"code\":11,\"msg\":\"the pod network's daemon did not answer in time\"}\n");
    if (count <= 0) break;
    got += (size_t)count;
  }
  uint32_t told = got < 5 ? 0 : (uint32_t)(answer[1] | answer[2] << 8 | answer[3] << 16 | (uint32_t)answer[4] << 24);
  if (got < 5 || got != 5 + (size_t)told) return 0;
  if (!put(1, answer + 5, told)) leave(1);
  leave(answer[0] == '0' ? 0 : 1);
}

/* Becomes the program that does the same without a daemon; its standard input is what was read here. */
static _Noreturn void stand_in(char **env) {
  static char path[4096];
  long length = call(READLINKAT, AT_FDCWD, (long)"/proc/self/exe", (long)path, sizeof path - 16, 0, 0);
  while (length > 0 && path[length - 1] != '/') length--;
  if (length > 0) {
    memcpy(path + length, "fallback", 9);
    int fd = (int)call(MEMFD_CREATE, (long)"stdin", 0, 0, 0, 0, 0);
    if (fd >= 0 && put(fd, input, input_length) && call(LSEEK, fd, 0, 0, 0, 0, 0) == 0 && call(DUP3, fd, 0, 0, 0, 0, 0) == 0) {
      char *argv[] = {path, NULL};
      call(EXECVE, (long)path, (long)argv, (long)env, 0, 0, 0);
    }
  }
  fail("{\"cniVersion\":\"1.1.0\",\"code\":11,\"msg\":\"the pod network's daemon is away, and what stands in for it does not start\"}\n");
}

__attribute__((used)) void begin(long *stack) {
  char **env = (char **)(stack + stack[0] + 2);
  const char *path = usual_socket;
  for (char **at = env; *at; at++) {
    const char *value = after(*at, "NODELET_CNI_SOCKET=");
    if (value && *value) path = value;
  }
  for (;;) {
    long count = call(READ, 0, (long)(input + input_length), (long)(sizeof input - input_length), 0, 0, 0);
    if (count == -EINTR) continue;
    if (count <= 0) break;
    input_length += (size_t)count;
    if (input_length == sizeof input) fail("{\"cniVersion\":\"1.1.0\",\"code\":6,\"msg\":\"the network configuration is larger than 4 MiB\"}\n");
  }
  ask(path, env);
  stand_in(env);
}
