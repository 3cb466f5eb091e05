// Counts how often large blocks are copied within one process: preloaded, it stands in for memcpy and memmove.
// What the kernel copies between a socket and the process is not seen here, and cannot be avoided.
#include <stddef.h>
#include <stdatomic.h>

atomic_long copies_seen;
size_t copies_from = (size_t)-1;  // Blocks of at least this many bytes count.

static void *forward(void *to, const void *from, size_t n) {
  void *start = to;
  __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(n) : : "memory");
  return start;
}

static void *backward(void *to, const void *from, size_t n) {
  unsigned char *d = to;
  const unsigned char *s = from;
  while (n--) d[n] = s[n];
  return to;
}

void *memmove(void *to, const void *from, size_t n) {
  if (n >= copies_from) copies_seen++;
  int overlaps = (char *)to > (const char *)from && (char *)to < (const char *)from + n;
  return overlaps ? backward(to, from, n) : forward(to, from, n);
}

void *memcpy(void *restrict to, const void *restrict from, size_t n) {
  if (n >= copies_from) copies_seen++;
  return forward(to, from, n);
}
