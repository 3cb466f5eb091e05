// A load generator for the kinds of message that are more than a send. As load.c, in C and closed loops.
//
//   kinds transactions PORT CONNS WINDOW SECONDS BODY TOPIC QUEUES   prepare, then commit; a commit that is acknowledged
//                                                                    counts as one
//   kinds due          PORT CONNS WINDOW COUNT AHEAD_S TOPIC QUEUES  COUNT messages for one moment, AHEAD_S from now;
//                                                                    lateness is from that moment to the arrival at
//                                                                    consumers that wait, one for each queue
//   kinds replies      PORT CONNS WINDOW SECONDS BODY TOPIC          replies to one requester, which acknowledges each;
//                                                                    a reply counts when its sender has its answer
//
// Prints one line of JSON. An answer with a code other than 0 is counted as an error.
#include "load.h"

enum { END_TRANSACTION = 37, HEARTBEAT = 34, REPLY = 324, PUSH = 326, COMMIT = 8, REQUESTER = 1 << 20 };

typedef struct { char *frame, *key; int size; double sent; } Slot;
typedef struct { int port, conns, window, body, queues; double seconds; const char *topic; } Load;
typedef struct { long ok, errors, last_code; Histogram latency; } Result;

static void count(Result *r, long code, double seconds) {
  if (code == 0) r->ok++;
  else { r->errors++; r->last_code = code; }
  note(&r->latency, seconds);
}

static int print(const Result *r, double took) {
  printf("{\"messages\": %ld, \"seconds\": %.3f, \"rate\": %.0f, \"errors\": %ld, \"last_code\": %ld", r->ok, took,
         r->ok / took, r->errors, r->last_code);
  print_latencies(&r->latency);
  printf("}\n");
  return 0;
}

static Slot *slots_for(const Load *l, const char *more) {
  int total = l->conns * l->window;
  Slot *slots = calloc(total, sizeof *slots);
  for (int i = 0; i < total; i++) {
    slots[i].frame = malloc(HEADER_MAX + l->body);
    slots[i].size = send_frame(slots[i].frame, l->topic, l->queues, i % l->queues, i, l->body, more);
    slots[i].key = key_in(slots[i].frame, slots[i].size);
  }
  return slots;
}

static long fire(Slot *slot, char *out, long number) {
  number_key(slot->key, number);
  memcpy(out, slot->frame, slot->size);
  slot->sent = now();
  return slot->size;
}

// ---- transactions

static long hex_end(const char *header, int size) {  // The offset in the log: the last 16 digits of the message id.
  const char *p = memmem(header, size, "\"msgId\":\"", 9);
  if (!p) die("an answer without a message id");
  char digits[17] = {0};
  memcpy(digits, p + 9 + 16, 16);
  return strtol(digits, 0, 16);
}

static int end_frame(char *out, const Load *l, const Slot *slot, int opaque, long half, long log_offset) {
  char h[HEADER_MAX];
  int n = snprintf(h, sizeof h,
    "{\"code\":%d,\"extFields\":{\"topic\":\"%s\",\"producerGroup\":\"loadgroup\",\"tranStateTableOffset\":\"%ld\","
    "\"commitLogOffset\":\"%ld\",\"commitOrRollback\":\"%d\",\"fromTransactionCheck\":\"false\","
    "\"msgId\":\"7F00000100002A9F%.16s\",\"transactionId\":\"7F00000100002A9F%.16s\"},\"flag\":0,\"language\":\"JAVA\","
    "\"opaque\":%d,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":435}",
    END_TRANSACTION, l->topic, half, log_offset, COMMIT, slot->key, slot->key, opaque);
  return frame(out, h, n, 0);
}

static int do_transactions(const Load *l) {
  int epoll = epoll_create1(0), total = l->conns * l->window;
  Slot *slots = slots_for(l, "TRAN_MSG\\u0001true\\u0002PGROUP\\u0001loadgroup\\u0002");
  Conn *conns = calloc(l->conns, sizeof *conns);
  char *out = malloc((long)l->window * (HEADER_MAX + l->body)), *header;
  static Result result;
  long sent = 0;
  for (int i = 0; i < l->conns; i++) open_conn(&conns[i], l->port, epoll, i);
  double begin = now();
  for (int i = 0; i < total; i++) write_all(conns[i / l->window].fd, out, fire(&slots[i], out, sent++));
  struct epoll_event events[EVENTS];
  while (now() - begin < l->seconds) {
    int n = epoll_wait(epoll, events, EVENTS, 100);
    for (int k = 0; k < n; k++) {
      Conn *c = &conns[events[k].data.u32];
      read_more(c);
      long at = 0, end, filled = 0;
      double time = now();
      for (int size; next_answer(c, at, &header, &size, &end); at = end) {
        long code = field(header, size, "\"code\":"), opaque = field(header, size, "\"opaque\":");
        if (opaque < 0 || opaque >= 2 * total) die("an answer to nothing");
        if (opaque < total && code == 0) {
          long half = field(header, size, "\"queueOffset\":");
          filled += end_frame(out + filled, l, &slots[opaque], opaque + total, half, hex_end(header, size));
        } else {
          Slot *slot = &slots[opaque % total];
          count(&result, code, time - slot->sent);
          filled += fire(slot, out + filled, sent++);
        }
      }
      drop(c, at);
      if (filled) write_all(c->fd, out, filled);
    }
  }
  return print(&result, now() - begin);
}

// ---- due

static double wall_s(void) {
  struct timespec t;
  clock_gettime(CLOCK_REALTIME, &t);
  return t.tv_sec + t.tv_nsec * 1e-9;
}

static void find_ends(const Load *l, Conn *conns) {
  char out[HEADER_MAX + 64], *header;
  int size;
  long end;
  for (int i = 0; i < l->queues; i++) {
    write_all(conns[i].fd, out, max_offset_frame(out, l->topic, i));
    while (!next_answer(&conns[i], 0, &header, &size, &end)) read_more(&conns[i]);
    conns[i].offset = field(header, size, "\"code\":") == 0 ? field(header, size, "\"offset\":") : 0;
    drop(&conns[i], end);
  }
}

static long take_due(const Load *l, Conn *c, int id, double due_s, Histogram *late, double *earliest_s) {
  char *header, out[HEADER_MAX + 64];
  int size;
  long arrived = 0;
  double after_s = wall_s() - due_s;
  for (long end; next_answer(c, 0, &header, &size, &end);) {
    long code = field(header, size, "\"code\":"), next = field(header, size, "\"nextBeginOffset\":");
    if (code == 0)
      for (char *r = header + size; r < c->buffer + end; r += get32(r), arrived++) {
        note(late, after_s);
        if (after_s < *earliest_s) *earliest_s = after_s;
      }
    else if (code != NOT_FOUND && code != RETRY_NOW && code != MOVED) die("a pull was refused");
    drop(c, end);
    if (next >= 0) c->offset = next;
    write_all(c->fd, out, pull_frame(out, l->topic, id, c->offset, 32, 15000));
  }
  return arrived;
}

static void send_due(const Load *l, long total, double due_s) {
  int epoll = epoll_create1(0), slot_count = l->conns * l->window;
  char more[128], *out = malloc((long)l->window * (HEADER_MAX + l->body)), *header;
  snprintf(more, sizeof more, "TIMER_DELIVER_MS\\u0001%.0f\\u0002", due_s * 1000);
  Slot *slots = slots_for(l, more);
  Conn *conns = calloc(l->conns, sizeof *conns);
  long sent = 0, answered = 0;
  for (int i = 0; i < l->conns; i++) open_conn(&conns[i], l->port, epoll, i);
  for (int i = 0; i < slot_count && sent < total; i++)
    write_all(conns[i / l->window].fd, out, fire(&slots[i], out, sent++));
  struct epoll_event events[EVENTS];
  while (answered < total) {
    int n = epoll_wait(epoll, events, EVENTS, 1000);
    for (int k = 0; k < n; k++) {
      Conn *c = &conns[events[k].data.u32];
      read_more(c);
      long at = 0, end, filled = 0;
      for (int size; next_answer(c, at, &header, &size, &end); at = end, answered++) {
        if (field(header, size, "\"code\":") != 0) die("a timer message was refused");
        if (sent < total) filled += fire(&slots[field(header, size, "\"opaque\":")], out + filled, sent++);
      }
      drop(c, at);
      if (filled) write_all(c->fd, out, filled);
    }
  }
  for (int i = 0; i < l->conns; i++) close(conns[i].fd);
}

static int do_due(const Load *l, long total, double ahead_s) {
  int epoll = epoll_create1(0);
  double due_s = (long)(wall_s() + ahead_s) + 1, earliest_s = 1e9, begun_s = wall_s();
  Conn *conns = calloc(l->queues, sizeof *conns);
  char out[HEADER_MAX + 64];
  static Histogram late;
  long arrived = 0;
  for (int i = 0; i < l->queues; i++) open_conn(&conns[i], l->port, epoll, i);
  find_ends(l, conns);
  send_due(l, total, due_s);
  double sent_s = wall_s() - begun_s;
  if (wall_s() >= due_s) die("the moment came before all messages were sent");
  for (int i = 0; i < l->queues; i++)
    write_all(conns[i].fd, out, pull_frame(out, l->topic, i, conns[i].offset, 32, 15000));
  struct epoll_event events[EVENTS];
  while (arrived < total && wall_s() < due_s + 120) {
    int n = epoll_wait(epoll, events, EVENTS, 100);
    for (int k = 0; k < n; k++) {
      int id = events[k].data.u32;
      read_more(&conns[id]);
      arrived += take_due(l, &conns[id], id, due_s, &late, &earliest_s);
    }
  }
  printf("{\"messages\": %ld, \"sent\": %ld, \"send_rate\": %.0f, \"earliest_s\": %.3f, \"seconds\": %.3f, \"errors\": 0",
         arrived, total, total / sent_s, earliest_s, wall_s() - due_s);
  print_latencies(&late);
  printf("}\n");
  return 0;
}

// ---- replies

/* Its name is its own: what the broker still has for the requester of the run before must not come here. */
static void register_requester(Conn *c) {
  char out[HEADER_MAX * 2], h[HEADER_MAX], *header;
  char body[256];
  snprintf(body, sizeof body, "{\"clientID\":\"requester-%d\",\"consumerDataSet\":[],\"heartbeatFingerprint\":0,"
                              "\"producerDataSet\":[{\"groupName\":\"askers\"}],\"withoutSub\":false}", getpid());
  int size, n = snprintf(h, sizeof h,
    "{\"code\":%d,\"flag\":0,\"language\":\"JAVA\",\"opaque\":0,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":435}",
    HEARTBEAT);
  long end;
  size = frame(out, h, n, strlen(body));
  memcpy(out + size - strlen(body), body, strlen(body));
  write_all(c->fd, out, size);
  while (!next_answer(c, 0, &header, &size, &end)) read_more(c);
  if (field(header, size, "\"code\":") != 0) {
    fprintf(stderr, "%.*s\n", size, header);
    die("the requester's heartbeat was refused");
  }
  drop(c, end);
}

static int reply_frame(char *out, const Load *l, int opaque) {
  char h[HEADER_MAX];
  int n = snprintf(h, sizeof h,
    "{\"code\":%d,\"extFields\":{\"producerGroup\":\"loadgroup\",\"topic\":\"%s\",\"defaultTopic\":\"TBW102\","
    "\"defaultTopicQueueNums\":\"4\",\"queueId\":\"0\",\"sysFlag\":\"0\",\"bornTimestamp\":\"1763164800000\",\"flag\":\"0\","
    "\"properties\":\"UNIQ_KEY\\u00017F00000100002A9F0000000000000000\\u0002MSG_TYPE\\u0001reply\\u0002CORRELATION_ID\\u0001"
    "0e8a8a55-6f0f-4a6e-a7a4-8d2f6c1b2e11\\u0002REPLY_TO_CLIENT\\u0001requester-%d\\u0002TTL\\u000130000\\u0002WAIT\\u0001true"
    "\\u0002\",\"reconsumeTimes\":\"0\",\"unitMode\":\"false\",\"batch\":\"false\"},\"flag\":0,\"language\":\"JAVA\","
    "\"opaque\":%d,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":435}",
    REPLY, l->topic, getpid(), opaque);
  int size = frame(out, h, n, l->body);
  memset(out + size - l->body, 'r', l->body);
  return size;
}

static long acknowledge(char *out, long opaque) {
  char h[HEADER_MAX];
  int n = snprintf(h, sizeof h,
    "{\"code\":0,\"flag\":1,\"language\":\"JAVA\",\"opaque\":%ld,\"serializeTypeCurrentRPC\":\"JSON\",\"version\":435}", opaque);
  return frame(out, h, n, 0);
}

static int do_replies(const Load *l) {
  int epoll = epoll_create1(0), total = l->conns * l->window;
  Conn *conns = calloc(l->conns, sizeof *conns), requester;
  Slot *slots = calloc(total, sizeof *slots);
  char *out = malloc((long)BUFFER + total * HEADER_MAX), *header;
  static Result result;
  long sent = 0, pushed = 0;
  open_conn(&requester, l->port, epoll, REQUESTER);
  register_requester(&requester);
  for (int i = 0; i < l->conns; i++) open_conn(&conns[i], l->port, epoll, i);
  for (int i = 0; i < total; i++) {
    slots[i].frame = malloc(HEADER_MAX + l->body);
    slots[i].size = reply_frame(slots[i].frame, l, i);
    slots[i].key = key_in(slots[i].frame, slots[i].size);
  }
  double begin = now();
  for (int i = 0; i < total; i++) write_all(conns[i / l->window].fd, out, fire(&slots[i], out, sent++));
  struct epoll_event events[EVENTS];
  while (now() - begin < l->seconds) {
    int n = epoll_wait(epoll, events, EVENTS, 100);
    for (int k = 0; k < n; k++) {
      int is_requester = events[k].data.u32 == REQUESTER;
      Conn *c = is_requester ? &requester : &conns[events[k].data.u32];
      read_more(c);
      long at = 0, end, filled = 0;
      double time = now();
      for (int size; next_answer(c, at, &header, &size, &end); at = end) {
        long code = field(header, size, "\"code\":"), opaque = field(header, size, "\"opaque\":");
        if (is_requester) {
          if (code != PUSH) { fprintf(stderr, "%.*s\n", size, header); die("the requester got something else than a reply"); }
          pushed++;
          filled += acknowledge(out + filled, opaque);
        } else {
          if (opaque < 0 || opaque >= total) die("an answer to nothing");
          count(&result, code, time - slots[opaque].sent);
          filled += fire(&slots[opaque], out + filled, sent++);
        }
      }
      drop(c, at);
      if (filled) write_all(c->fd, out, filled);
    }
  }
  if (pushed < result.ok) die("replies were acknowledged that never came");
  return print(&result, now() - begin);
}

int main(int n, char **v) {
  const char *what = n > 1 ? v[1] : "";
  if (n == 9 && !strcmp(what, "transactions"))
    return do_transactions(&(Load){.port = atoi(v[2]), .conns = atoi(v[3]), .window = atoi(v[4]), .seconds = atof(v[5]),
                                   .body = atoi(v[6]), .topic = v[7], .queues = atoi(v[8])});
  if (n == 9 && !strcmp(what, "due"))
    return do_due(&(Load){.port = atoi(v[2]), .conns = atoi(v[3]), .window = atoi(v[4]), .body = 128, .topic = v[7],
                          .queues = atoi(v[8])}, atol(v[5]), atof(v[6]));
  if (n == 8 && !strcmp(what, "replies"))
    return do_replies(&(Load){.port = atoi(v[2]), .conns = atoi(v[3]), .window = atoi(v[4]), .seconds = atof(v[5]),
                              .body = atoi(v[6]), .topic = v[7]});
  fprintf(stderr, "kinds transactions PORT CONNS WINDOW SECONDS BODY TOPIC QUEUES | "
                  "due PORT CONNS WINDOW COUNT AHEAD_S TOPIC QUEUES | replies PORT CONNS WINDOW SECONDS BODY TOPIC\n");
  return 2;
}
