// A load generator for any RocketMQ broker, in C so that it is never the bottleneck. Remoting protocol, JSON headers.
//
//   load first PORT LIMIT_S                                        try until one send is acknowledged
//   load send  PORT CONNS WINDOW SECONDS BODY TOPIC TOPICS QUEUES [PROPERTIES]
//                                                                  closed loop: each connection keeps WINDOW sends under
//                                                                  way, to QUEUES queues of each of TOPICS topics
//   load pull  PORT QUEUES MAX TOPIC                               a connection per queue reads it from 0 to its end
//   load poll  PORT CONSUMERS SECONDS RATE BODY TOPIC              a connection per queue waits in long polls while one
//                                                                  producer sends RATE messages a second; latency is
//                                                                  from the send to the arrival at the consumer
//
// With several topics their names are TOPIC0, TOPIC1 ... Prints one line of JSON. An answer with a code other than 0
// is counted as an error, never as a message.
#include "load.h"

// ---- first

static int is_acknowledged(int fd, char *buffer) {  // A server that is not ready yet may say no, hang up or be silent.
  Conn c = {.fd = fd, .buffer = buffer};
  struct timeval patience = {.tv_sec = 1};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  char out[HEADER_MAX + 64], *header;
  int size = send_frame(out, "BenchmarkTest", 4, 0, 0, 16, "");
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
typedef struct { int port, conns, window, body, topics, queues; double seconds; const char *topic, *more; } Sends;

static Slot *slots_for(const Sends *s) {
  int count = s->conns * s->window;
  Slot *slots = calloc(count, sizeof *slots);
  for (int i = 0; i < count; i++) {
    char name[256];
    if (s->topics > 1) snprintf(name, sizeof name, "%s%d", s->topic, i % s->topics);
    else snprintf(name, sizeof name, "%s", s->topic);
    slots[i].frame = malloc(HEADER_MAX + s->body);
    slots[i].size = send_frame(slots[i].frame, name, s->queues, i / s->topics % s->queues, i, s->body, s->more);
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
      int queue = sent % p->consumers, size = send_frame(out, p->topic, p->consumers, queue, queue, body, "");
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
  if ((n == 10 || n == 11) && !strcmp(what, "send"))
    return do_send(&(Sends){.port = atoi(v[2]), .conns = atoi(v[3]), .window = atoi(v[4]), .seconds = atof(v[5]),
                            .body = atoi(v[6]), .topic = v[7], .topics = atoi(v[8]), .queues = atoi(v[9]), .more = n == 11 ? v[10] : ""});
  if (n == 6 && !strcmp(what, "pull")) return do_pull(atoi(v[2]), atoi(v[3]), atoi(v[4]), v[5]);
  if (n == 8 && !strcmp(what, "poll"))
    return do_poll(&(Polls){.port = atoi(v[2]), .consumers = atoi(v[3]), .seconds = atof(v[4]), .rate = atof(v[5]),
                            .body = atoi(v[6]), .topic = v[7]});
  fprintf(stderr, "load first PORT LIMIT_S | send PORT CONNS WINDOW SECONDS BODY TOPIC TOPICS QUEUES [PROPERTIES] | "
                  "pull PORT QUEUES MAX TOPIC | poll PORT CONSUMERS SECONDS RATE BODY TOPIC\n");
  return 2;
}
