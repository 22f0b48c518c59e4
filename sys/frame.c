/* Frames: growing buffers, and a reader that cannot run past its end. */
#include "sys.h"
#include <endian.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void buf_add(struct buf *b, const void *data, size_t length) {
  if (length == 0) return;
  if (b->size - b->length < length) {
    size_t size = b->size < 512 ? 512 : b->size;
    while (size - b->length < length) size *= 2;
    uint8_t *grown = realloc(b->data, size);
    if (!grown) _exit(70);
    b->data = grown;
    b->size = size;
  }
  memcpy(b->data + b->length, data, length);
  b->length += length;
}

void buf_u8(struct buf *b, uint8_t value) { buf_add(b, &value, 1); }
void buf_u32(struct buf *b, uint32_t value) { value = htole32(value); buf_add(b, &value, 4); }
void buf_u64(struct buf *b, uint64_t value) { value = htole64(value); buf_add(b, &value, 8); }
void buf_bytes(struct buf *b, const void *data, size_t length) { buf_u32(b, (uint32_t)length); buf_add(b, data, length); }

void buf_drop(struct buf *b, size_t length) {
  if (length == b->length) {
    /* Large buffers go back at once: the dispatcher is forked from, and lives as long as its daemon. */
    if (b->size > 65536) buf_free(b);
    b->length = 0;
    return;
  }
  memmove(b->data, b->data + length, b->length - length);
  b->length -= length;
}

void buf_free(struct buf *b) {
  free(b->data);
  *b = (struct buf){0};
}

size_t answer_begin(struct buf *b, uint32_t id, enum kind kind) {
  size_t begin = b->length;
  buf_u32(b, 0);
  buf_u32(b, id);
  buf_u8(b, (uint8_t)kind);
  return begin;
}

void answer_end(struct buf *b, size_t begin) {
  uint32_t length = htole32((uint32_t)(b->length - begin - 4));
  memcpy(b->data + begin, &length, 4);
}

void answer_fail(struct buf *b, uint32_t id, int error, const char *where) {
  size_t begin = answer_begin(b, id, KIND_FAIL);
  buf_u32(b, (uint32_t)error);
  buf_bytes(b, where, strlen(where));
  answer_end(b, begin);
}

static const uint8_t *take(struct reader *r, size_t length) {
  if (r->bad || (size_t)(r->end - r->at) < length) {
    r->bad = true;
    return NULL;
  }
  const uint8_t *at = r->at;
  r->at += length;
  return at;
}

uint8_t get_u8(struct reader *r) {
  const uint8_t *at = take(r, 1);
  return at ? *at : 0;
}

uint32_t get_u32(struct reader *r) {
  uint32_t value = 0;
  const uint8_t *at = take(r, 4);
  if (at) memcpy(&value, at, 4);
  return le32toh(value);
}

uint64_t get_u64(struct reader *r) {
  uint64_t value = 0;
  const uint8_t *at = take(r, 8);
  if (at) memcpy(&value, at, 8);
  return le64toh(value);
}

const uint8_t *get_bytes(struct reader *r, uint32_t *length) {
  *length = get_u32(r);
  const uint8_t *at = take(r, *length);
  if (!at) *length = 0;
  return at;
}

const char *get_string(struct reader *r) {
  uint32_t length = get_u32(r);
  const uint8_t *at = take(r, (size_t)length + 1);
  if (at && (at[length] != 0 || memchr(at, 0, length))) r->bad = true;
  return at && !r->bad ? (const char *)at : "";
}

bool get_end(struct reader *r) {
  if (r->bad || r->at != r->end) {
    errno = EBADMSG;
    return false;
  }
#ifdef SYS_DRY_RUN
  errno = ENOSYS; /* The fuzzed build parses everything and does nothing. */
  return false;
#else
  return true;
#endif
}

long frame_parse(const uint8_t *data, size_t length, struct request *out) {
  if (length < 4) return 0;
  struct reader r = {data, data + length, false};
  uint32_t size = get_u32(&r);
  if (size < 9 || size > MAX_FRAME) return -1;
  if (length - 4 < size) return 0;
  r.end = r.at + size;
  out->id = get_u32(&r);
  out->timeout_ms = get_u32(&r);
  out->op = get_u8(&r);
  out->fields = r;
  return (long)size + 4;
}
