// A load generator for any RocketMQ broker, in C so that it is never the bottleneck. Remoting protocol, JSON headers.
//
//   load first PORT LIMIT_S                                        try until one send is acknowledged
//   load send  PORT CONNS WINDOW SECONDS BODY TOPIC TOPICS QUEUES  closed loop: each connection keeps WINDOW sends under
//                                                                  way, to QUEUES queues of each of TOPICS topics
//   load pull  PORT QUEUES MAX TOPIC                               a connection per queue reads it from 0 to its end
//   load poll  PORT CONSUMERS SECONDS RATE BODY TOPIC              a connection per queue waits in long polls while one
//                                                                  producer sends RATE messages a second; latency is
//                                                                  from the send to the arrival at the consumer
//
// With several topics their names are TOPIC0, TOPIC1 ... Prints one line of JSON. An answer with a code other than 0
// is counted as an error, never as a message.
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

static int send_frame(char *out, const char *topic, int queues, int queue, int opaque, int body) {
  char h[HEADER_MAX];
  int n = snprintf(h, sizeof h,
    "{\"code\":%d,\"extFields\":{\"a\":\"loadgroup\",\"b\":\"%s\",\"c\":\"TBW102\",\"d\":\"%d\",\"e\":\"%d\","
    "\"f\":\"0\",\"g\":\"1763164800000\",\"h\":\"0\",\"i\":\"UNIQ_KEY\\u00017F00000100002A9F0000000000000000\\u0002"
    "WAIT\\u0001true\\u0002TAGS\\u0001tag%d\\u0002\",\"j\":\"0\",\"k\":\"false\",\"m\":\"false\"},\"flag\":0,"
    "\"language\":\"JAVA\",\"opaque\":%d,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":435}",
    SEND, topic, queues, queue, opaque % 5, opaque);
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

// ---- first

static int is_acknowledged(int fd, char *buffer) {  // A server that is not ready yet may say no, hang up or be silent.
  Conn c = {.fd = fd, .buffer = buffer};
  struct timeval patience = {.tv_sec = 1};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  char out[HEADER_MAX + 64], *header;
  int size = send_frame(out, "BenchmarkTest", 4, 0, 0, 16);
  if (send(fd, out, size, MSG_NOSIGNAL) != size) return 0;
  for (long end; !next_answer(&c, 0, &header, &size, &end);) {
    long r = read(fd, buffer + c.have, BUFFER - c.have);
    if (r <= 0) return 0;
    c.have += r;
  }
  return field(header, size, "\"code\":") == 0;
}

static int do_first(int port, double limit_s) {
  char *buffer = malloc(BUFFER);
  double begin = now();
  for (long tries = 1; now() - begin < limit_s; tries++, usleep(1000)) {
    int fd = try_dial(port);
    if (fd < 0) continue;
    if (is_acknowledged(fd, buffer)) return printf("{\"at_s\": %.6f, \"tries\": %ld}\n", now(), tries) < 0;
    close(fd);
  }
  die("nothing was acknowledged in time");
  return 1;
}

// ---- send

typedef struct { char *frame, *key; int size; double sent; } Slot;
typedef struct { int port, conns, window, body, topics, queues; double seconds; const char *topic; } Sends;

static Slot *slots_for(const Sends *s) {
  int count = s->conns * s->window;
  Slot *slots = calloc(count, sizeof *slots);
  for (int i = 0; i < count; i++) {
    char name[256];
    if (s->topics > 1) snprintf(name, sizeof name, "%s%d", s->topic, i % s->topics);
    else snprintf(name, sizeof name, "%s", s->topic);
    slots[i].frame = malloc(HEADER_MAX + s->body);
    slots[i].size = send_frame(slots[i].frame, name, s->queues, i / s->topics % s->queues, i, s->body);
    slots[i].key = key_in(slots[i].frame, slots[i].size);
  }
  return slots;
}

static long fire(Slot *slot, char *out, long number, double at) {
  number_key(slot->key, number);
  memcpy(out, slot->frame, slot->size);
  slot->sent = at;
  return slot->size;
}

static int do_send(const Sends *s) {
  int epoll = epoll_create1(0), slot_count = s->conns * s->window;
  Slot *slots = slots_for(s);
  Conn *conns = calloc(s->conns, sizeof *conns);
  char *out = malloc((long)s->window * (HEADER_MAX + s->body));
  static Histogram latency;
  long sent = 0, ok = 0, errors = 0, last_code = 0;
  for (int i = 0; i < s->conns; i++) open_conn(&conns[i], s->port, epoll, i);
  double begin = now();
  for (int i = 0; i < s->conns; i++) {
    long filled = 0;
    double at = now();
    for (int w = 0; w < s->window; w++) filled += fire(&slots[i * s->window + w], out + filled, sent++, at);
    write_all(conns[i].fd, out, filled);
  }
  struct epoll_event events[EVENTS];
  while (now() - begin < s->seconds) {
    int n = epoll_wait(epoll, events, EVENTS, 100);
    for (int k = 0; k < n; k++) {
      Conn *c = &conns[events[k].data.u32];
      read_more(c);
      long at = 0, end, filled = 0;
      double time = now();
      char *header;
      for (int size; next_answer(c, at, &header, &size, &end); at = end) {
        long code = field(header, size, "\"code\":"), opaque = field(header, size, "\"opaque\":");
        if (opaque < 0 || opaque >= slot_count) die("an answer to nothing");
        if (code == 0) ok++; else { errors++; last_code = code; }
        note(&latency, time - slots[opaque].sent);
        filled += fire(&slots[opaque], out + filled, sent++, time);
      }
      drop(c, at);
      if (filled) write_all(c->fd, out, filled);
    }
  }
  double took = now() - begin;
  printf("{\"messages\": %ld, \"seconds\": %.3f, \"rate\": %.0f, \"errors\": %ld, \"last_code\": %ld", ok, took, ok / took,
         errors, last_code);
  print_latencies(&latency);
  printf("}\n");
  return 0;
}

// ---- pull

static int do_pull(int port, int queues, int max, const char *topic) {
  int epoll = epoll_create1(0), left = queues;
  long messages = 0, bytes = 0, answers = 0;
  Conn *conns = calloc(queues, sizeof *conns);
  char out[HEADER_MAX + 64];
  for (int i = 0; i < queues; i++) open_conn(&conns[i], port, epoll, i);
  double begin = now();
  for (int i = 0; i < queues; i++) write_all(conns[i].fd, out, pull_frame(out, topic, i, 0, max, 0));
  struct epoll_event events[EVENTS];
  while (left) {
    int n = epoll_wait(epoll, events, EVENTS, 1000);
    for (int k = 0; k < n; k++) {
      int id = events[k].data.u32, size;
      Conn *c = &conns[id];
      read_more(c);
      char *header;
      for (long end; next_answer(c, 0, &header, &size, &end);) {
        long code = field(header, size, "\"code\":"), next = field(header, size, "\"nextBeginOffset\":");
        answers++;
        if (code == FOUND)
          for (char *r = header + size; r < c->buffer + end; r += get32(r)) { messages++; bytes += get32(r); }
        else if (code != NOT_FOUND && code != RETRY_NOW && code != MOVED) die("a pull was refused");
        drop(c, end);
        if (code == NOT_FOUND || next < 0) { left--; break; }
        write_all(c->fd, out, pull_frame(out, topic, id, next, max, 0));
      }
    }
  }
  double took = now() - begin;
  printf("{\"messages\": %ld, \"seconds\": %.3f, \"rate\": %.0f, \"bytes\": %ld, \"per_answer\": %.1f, \"errors\": 0}\n",
         messages, took, messages / took, bytes, (double)messages / answers);
  return 0;
}

// ---- poll

static double sent_at(const char *record) {  // The body begins with the time of its sending.
  int sys_flag = get32(record + 36), body = FIXED + (sys_flag & 0x10 ? 12 : 0) + (sys_flag & 0x20 ? 12 : 0);
  double at;
  memcpy(&at, record + body, sizeof at);
  return at;
}

typedef struct { int port, consumers, body; double seconds, rate; const char *topic; } Polls;

static void find_ends(const Polls *p, Conn *conns) {
  char out[HEADER_MAX + 64], *header;
  int size;
  long end;
  for (int i = 0; i < p->consumers; i++) {
    write_all(conns[i].fd, out, max_offset_frame(out, p->topic, i));
    while (!next_answer(&conns[i], 0, &header, &size, &end)) read_more(&conns[i]);
    if (field(header, size, "\"code\":") != 0) die("a queue has no end");
    conns[i].offset = field(header, size, "\"offset\":");
    drop(&conns[i], end);
  }
}

static long take_arrivals(const Polls *p, Conn *c, int id, Histogram *latency) {
  char *header, out[HEADER_MAX + 64];
  int size;
  long arrived = 0;
  double at = now();
  for (long end; next_answer(c, 0, &header, &size, &end);) {
    long code = field(header, size, "\"code\":"), next = field(header, size, "\"nextBeginOffset\":");
    if (code == FOUND)
      for (char *r = header + size; r < c->buffer + end; r += get32(r), arrived++) note(latency, at - sent_at(r));
    else if (code != NOT_FOUND && code != RETRY_NOW && code != MOVED) die("a pull was refused");
    drop(c, end);
    if (next >= 0) c->offset = next;
    write_all(c->fd, out, pull_frame(out, p->topic, id, c->offset, 32, 15000));
  }
  return arrived;
}

static int do_poll(const Polls *p) {
  int epoll = epoll_create1(0), body = p->body < 16 ? 16 : p->body;
  Conn *conns = calloc(p->consumers + 1, sizeof *conns), *producer = &conns[p->consumers];
  char *out = malloc(HEADER_MAX + body), *header;
  static Histogram latency;
  long sent = 0, acked = 0, arrived = 0, errors = 0;
  for (int i = 0; i <= p->consumers; i++) open_conn(&conns[i], p->port, epoll, i);
  find_ends(p, conns);
  for (int i = 0; i < p->consumers; i++)
    write_all(conns[i].fd, out, pull_frame(out, p->topic, i, conns[i].offset, 32, 15000));
  struct epoll_event events[EVENTS];
  double begin = now(), last = begin + p->seconds;
  while ((now() < last || arrived + errors < sent) && now() < last + 10) {
    double time = now();
    for (; time < last && sent < (time - begin) * p->rate; sent++) {
      int queue = sent % p->consumers, size = send_frame(out, p->topic, p->consumers, queue, queue, body);
      number_key(key_in(out, size), sent);
      double at = now();
      memcpy(out + size - body, &at, sizeof at);
      write_all(producer->fd, out, size);
    }
    double due = begin + sent / p->rate - now();
    struct timespec wait = {.tv_nsec = due > 0 && due < 0.01 ? (long)(due * 1e9) : due > 0 ? 10000000 : 0};
    int n = epoll_pwait2(epoll, events, EVENTS, &wait, 0);
    for (int k = 0; k < n; k++) {
      int id = events[k].data.u32, size;
      read_more(&conns[id]);
      if (id < p->consumers) { arrived += take_arrivals(p, &conns[id], id, &latency); continue; }
      long at = 0;
      for (long end; next_answer(producer, at, &header, &size, &end); at = end)
        if (field(header, size, "\"code\":") == 0) acked++; else errors++;
      drop(producer, at);
    }
  }
  printf("{\"messages\": %ld, \"sent\": %ld, \"acknowledged\": %ld, \"seconds\": %.3f, \"rate\": %.0f, \"errors\": %ld",
         arrived, sent, acked, p->seconds, arrived / p->seconds, errors);
  print_latencies(&latency);
  printf("}\n");
  return 0;
}

int main(int n, char **v) {
  const char *what = n > 1 ? v[1] : "";
  if (n == 4 && !strcmp(what, "first")) return do_first(atoi(v[2]), atof(v[3]));
  if (n == 10 && !strcmp(what, "send"))
    return do_send(&(Sends){.port = atoi(v[2]), .conns = atoi(v[3]), .window = atoi(v[4]), .seconds = atof(v[5]),
                            .body = atoi(v[6]), .topic = v[7], .topics = atoi(v[8]), .queues = atoi(v[9])});
  if (n == 6 && !strcmp(what, "pull")) return do_pull(atoi(v[2]), atoi(v[3]), atoi(v[4]), v[5]);
  if (n == 8 && !strcmp(what, "poll"))
    return do_poll(&(Polls){.port = atoi(v[2]), .consumers = atoi(v[3]), .seconds = atof(v[4]), .rate = atof(v[5]),
                            .body = atoi(v[6]), .topic = v[7]});
  fprintf(stderr, "load first PORT LIMIT_S | send PORT CONNS WINDOW SECONDS BODY TOPIC TOPICS QUEUES | "
                  "pull PORT QUEUES MAX TOPIC | poll PORT CONSUMERS SECONDS RATE BODY TOPIC\n");
  return 2;
}
