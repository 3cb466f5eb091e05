// What every load generator here needs: histograms of latencies, frames of the remoting protocol with JSON headers,
// connections. A program of C includes it whole.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <time.h>
#include <unistd.h>

enum { BUFFER = 8 << 20, HEADER_MAX = 2048, EVENTS = 256, SUB = 64, GROUPS = 48, FIXED = 88 };
enum { SEND = 310, PULL = 11, MAX_OFFSET = 30, FOUND = 0, NOT_FOUND = 19, RETRY_NOW = 20, MOVED = 21 };

typedef struct { int fd; char *buffer; long have, offset; } Conn;
typedef struct { uint64_t counts[GROUPS * SUB], total; } Histogram;

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

static void die(const char *why) { printf("{\"failed\": \"%s\"}\n", why); exit(1); }

// ---- latencies: 64 steps per power of two of nanoseconds, so a figure is right within 2 %, however many there are

static void note(Histogram *h, double seconds) {
  uint64_t v = seconds > 0 ? (uint64_t)(seconds * 1e9) : 0;
  int shift = v < SUB ? 0 : 57 - __builtin_clzll(v);
  int at = v < SUB ? (int)v : shift * SUB + (int)(v >> shift);
  h->counts[at < GROUPS * SUB ? at : GROUPS * SUB - 1]++;
  h->total++;
}

static double percentile_us(const Histogram *h, double share) {
  uint64_t wanted = (uint64_t)(h->total * share), seen = 0;
  for (int at = 0; at < GROUPS * SUB; at++) {
    seen += h->counts[at];
    if (seen > wanted || (seen && seen == h->total)) {
      int group = at / SUB;
      return (group ? (double)(at % SUB + SUB) * (double)(1ull << (group - 1)) : at) / 1e3;
    }
  }
  return 0;
}

static void print_latencies(const Histogram *h) {
  printf(", \"p50_us\": %.1f, \"p99_us\": %.1f, \"p999_us\": %.1f", percentile_us(h, 0.5), percentile_us(h, 0.99),
         percentile_us(h, 0.999));
}

// ---- frames

static void put32(char *p, uint32_t v) { v = htonl(v); memcpy(p, &v, 4); }
static uint32_t get32(const char *p) { uint32_t v; memcpy(&v, p, 4); return ntohl(v); }

static long field(const char *header, int size, const char *name) {  // The number behind "name": in a JSON header.
  const char *p = memmem(header, size, name, strlen(name));
  if (!p) return -1;
  p += strlen(name);
  return strtol(*p == '"' ? p + 1 : p, 0, 10);
}

static int frame(char *out, const char *header, int size, int body) {  // Room for the body is left behind the header.
  put32(out, 4 + size + body);
  put32(out + 4, size);
  memcpy(out + 8, header, size);
  return 8 + size + body;
}

// `more` is written behind the other properties, as it stands in JSON: NAME\u0001VALUE\u0002.
static int send_frame(char *out, const char *topic, int queues, int queue, int opaque, int body, const char *more) {
  char h[HEADER_MAX];
  int n = snprintf(h, sizeof h,
    "{\"code\":%d,\"extFields\":{\"a\":\"loadgroup\",\"b\":\"%s\",\"c\":\"TBW102\",\"d\":\"%d\",\"e\":\"%d\","
    "\"f\":\"0\",\"g\":\"1763164800000\",\"h\":\"0\",\"i\":\"UNIQ_KEY\\u00017F00000100002A9F0000000000000000\\u0002"
    "WAIT\\u0001true\\u0002TAGS\\u0001tag%d\\u0002%s\",\"j\":\"0\",\"k\":\"false\",\"m\":\"false\"},\"flag\":0,"
    "\"language\":\"JAVA\",\"opaque\":%d,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":435}",
    SEND, topic, queues, queue, opaque % 5, more, opaque);
  int size = frame(out, h, n, body);
  memset(out + size - body, 'x', body);
  return size;
}

static char *key_in(char *sent, int size) { return (char *)memmem(sent, size, "2A9F", 4) + 4; }

static void number_key(char *key, long number) { char t[17]; snprintf(t, sizeof t, "%016lX", number); memcpy(key, t, 16); }

static int pull_frame(char *out, const char *topic, int queue, long offset, int max, int wait_ms) {
  char h[HEADER_MAX];
  int n = snprintf(h, sizeof h,
    "{\"code\":%d,\"extFields\":{\"consumerGroup\":\"loadgroup\",\"topic\":\"%s\",\"queueId\":\"%d\","
    "\"queueOffset\":\"%ld\",\"maxMsgNums\":\"%d\",\"sysFlag\":\"%d\",\"commitOffset\":\"0\","
    "\"suspendTimeoutMillis\":\"%d\",\"subscription\":\"*\",\"subVersion\":\"0\",\"expressionType\":\"TAG\"},"
    "\"flag\":0,\"language\":\"JAVA\",\"opaque\":%d,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":435}",
    PULL, topic, queue, offset, max, wait_ms ? 6 : 4, wait_ms, queue);
  return frame(out, h, n, 0);
}

static int max_offset_frame(char *out, const char *topic, int queue) {
  char h[HEADER_MAX];
  int n = snprintf(h, sizeof h,
    "{\"code\":%d,\"extFields\":{\"topic\":\"%s\",\"queueId\":\"%d\",\"committed\":\"true\"},\"flag\":0,"
    "\"language\":\"JAVA\",\"opaque\":%d,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":435}",
    MAX_OFFSET, topic, queue, queue);
  return frame(out, h, n, 0);
}

// ---- connections

static int try_dial(int port) {
  int fd = socket(AF_INET, SOCK_STREAM, 0), one = 1;
  struct sockaddr_in a = {.sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = inet_addr("127.0.0.1")};
  if (connect(fd, (void *)&a, sizeof a)) {
    close(fd);
    return -1;
  }
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return fd;
}

static void open_conn(Conn *c, int port, int epoll, uint32_t id) {
  if ((c->fd = try_dial(port)) < 0) die("cannot connect");
  c->buffer = malloc(BUFFER);
  c->have = 0;
  struct epoll_event e = {.events = EPOLLIN, .data.u32 = id};
  epoll_ctl(epoll, EPOLL_CTL_ADD, c->fd, &e);
}

static void write_all(int fd, const char *p, long n) {
  while (n > 0) {
    long w = write(fd, p, n);
    if (w <= 0) die("the server closed a connection");
    p += w;
    n -= w;
  }
}

static void read_more(Conn *c) {
  long r = read(c->fd, c->buffer + c->have, BUFFER - c->have);
  if (r <= 0) die("the server closed a connection");
  c->have += r;
}

// The next whole answer at `at`, or 0. `header` and `size` are of its header; `end` is behind it.
static int next_answer(const Conn *c, long at, char **header, int *size, long *end) {
  if (c->have - at < 8) return 0;
  uint32_t length = get32(c->buffer + at);
  if (c->have - at < 4 + (long)length) return 0;
  *size = get32(c->buffer + at + 4) & 0xffffff;
  *header = c->buffer + at + 8;
  *end = at + 4 + length;
  return 1;
}

static void drop(Conn *c, long count) { memmove(c->buffer, c->buffer + count, c->have -= count); }
