/* The system calls JavaScript lacks. No policy: it does what it is told, and says what the kernel said. */
#ifndef SYS_H
#define SYS_H
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <errno.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define PROTOCOL_VERSION 2u
#define MAX_FRAME (64u << 20)

enum op {
  OP_HELLO = 1, OP_CANCEL, OP_RUN, OP_MOUNT, OP_UMOUNT, OP_BIND, OP_READ_BENEATH, OP_MKDIR_BENEATH, OP_FILE_OPS,
  OP_REMOVE_TREE, OP_CHOWN_TREE, OP_DISK_USAGE, OP_STATFS, OP_NETLINK, OP_READ_FILES, OP_WRITE_FILES,
  OP_KERNEL_LOG, OP_NOTIFY, OP_LOCK, OP_HOLD_DESCRIPTOR, OP_LOCK_WATCHED, OP_END
};
enum kind { KIND_DONE = 0, KIND_FAIL = 1, KIND_EVENT = 2 };

/* frame.c: request  = u32 length, u32 id, u32 timeoutMs, u8 op, fields
            answer   = u32 length, u32 id, u8 kind, fields (FAIL: u32 errno, string where)
            string   = u32 length, bytes, NUL; bytes = u32 length, bytes; all little endian; length counts what follows it. */
struct buf { uint8_t *data; size_t length, size; };
void buf_add(struct buf *b, const void *data, size_t length);
void buf_u8(struct buf *b, uint8_t value);
void buf_u32(struct buf *b, uint32_t value);
void buf_u64(struct buf *b, uint64_t value);
void buf_bytes(struct buf *b, const void *data, size_t length);
void buf_drop(struct buf *b, size_t length); /* from the front */
void buf_free(struct buf *b);
size_t answer_begin(struct buf *b, uint32_t id, enum kind kind);
void answer_end(struct buf *b, size_t begin);
void answer_fail(struct buf *b, uint32_t id, int error, const char *where);

struct reader { const uint8_t *at, *end; bool bad; };
uint8_t get_u8(struct reader *r);
uint32_t get_u32(struct reader *r);
uint64_t get_u64(struct reader *r);
const char *get_string(struct reader *r); /* never NULL; points into the frame */
const uint8_t *get_bytes(struct reader *r, uint32_t *length);
/* Whether all fields were there and nothing is left over. Sets errno. */
bool get_end(struct reader *r);

struct request { uint32_t id, timeout_ms; uint8_t op; struct reader fields; };
/* >0: bytes taken, 0: not all there yet, <0: this can never become a frame. */
long frame_parse(const uint8_t *data, size_t length, struct request *out);

/* Handlers run in a forked child, add the answer's fields to `out`, and return NULL, or what failed with errno set.
   `lent` is a socket of the dispatcher's for this request alone, or -1. */
struct call { struct request *request; struct reader *in; struct buf *out; int lent; };
typedef const char *handler(struct call *c);
handler op_run, op_mount, op_umount, op_bind, op_read_beneath, op_mkdir_beneath, op_file_ops, op_remove_tree, op_chown_tree,
  op_disk_usage, op_statfs, op_netlink, op_read_files, op_write_files, op_kernel_log, op_notify, op_lock, op_hold_descriptor,
  op_lock_watched;
/* For handlers that go on after their first answer. */
void send_event(struct call *c, const void *data, size_t length);

/* mount.c */
int open_beneath(int root, const char *path, int flags, int mode, uint64_t resolve);

/* files.c */
void drain_unread(int fd);

/* hold.c */
int connect_to(const char *path, uint32_t timeout_ms);

/* main.c */
int64_t mono_ms(void);
bool write_all(int fd, const void *data, size_t length);
void reset_signals(void);
int enter_ns(const char *path, int type);

/* serve.c: the daemon that asked for the dispatcher. */
extern pid_t served_pid;
int serve_main(void);
int init_main(int argc, char **argv);
int nsrun_main(int argc, char **argv);
int exec_main(int argc, char **argv);
int guard_main(int argc, char **argv);
int peers_main(int argc, char **argv);
int splice_main(int argc, char **argv);
#endif
