/* load: an AMQP 1.0 load client. One process, one thread, all connections of one workload.
 *
 * It must cost less than half of what it measures, so it knows no AMQP library: transfers are a
 * template with four patched fields, everything of a turn leaves in one write per connection, and
 * all that one read brought is accepted by one disposition.
 *
 * Each body starts with (run, producer, sequence, stamp). So every message is checked: a gap, a
 * duplicate, a message behind a later one of the same producer, or a body of another length
 * makes the exit code 1. Stamps are nanoseconds of CLOCK_MONOTONIC and go to a log histogram.
 * In the open loop the stamp is the time the message was due, not the time it left: a stalled
 * broker is charged with the wait of everything that should have been sent meanwhile.
 *
 * With --wait: prints {"ready":true}, starts at a line on stdin, prints the result, closes its
 * connections at the next line. So the caller samples the broker around the load alone.
 *
 * Exit codes: 0 fine, 1 a check failed, 2 usage, 3 stalled, 4 the broker refused or broke off.
 */
#define _GNU_SOURCE
#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define STAMP_BYTES 24           /* run u32, producer u32, sequence u64, stamp u64: the smallest body. */
#define READ_BYTES (256 * 1024)  /* Per read. */
#define WRITE_BYTES (256 * 1024) /* Composed per connection and turn before it is handed to the socket. */
#define CONNECTING_MAX 50        /* Handshakes under way at once: below any listener's backlog. */
#define CONSUMERS_MAX 4096
#define PRODUCERS_MAX 4096
#define LINGER_NS 5000000ULL     /* After the last expected message: time for a duplicate to show up. */
#define BEAT_NS 100000000ULL     /* How often heartbeats and the stall limit are looked at. */
#define CLOSE_NS 5000000000ULL   /* Patience for the peer's Close. */

/* ---- options ---- */

static struct {
    char host[256], port[16], user[128], password[128], address[256];
    int producers, consumers, idle, queues, links;
    uint64_t messages;
    double seconds, rate, timeout, retry;
    uint32_t size, credit, frame_size, window, ahead, burst, run;
    bool durable, presettled, bare, properties, wait;
} opt = {
    .address = "bench", .queues = 1, .links = 1, .timeout = 30, .size = 100, .credit = 1000,
    .frame_size = 65536, .window = 5000, .burst = 64, .run = 1,
};

static void fail(int code, const char *format, ...) {
    char text[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    for (char *p = text; *p; p++)
        if (*p == '"' || *p == '\\' || (unsigned char)*p < ' ') *p = '\'';
    printf("{\"error\":\"%s\"}\n", text);
    fprintf(stderr, "load: %s\n", text);
    exit(code);
}

static uint64_t now_ns(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000ULL + (uint64_t)t.tv_nsec;
}

/* ---- histogram: 128 buckets per power of two, so a value is known to within 0.8 % ---- */

#define SUB_BITS 7
#define SUBS (1u << SUB_BITS)
#define BUCKETS ((65 - SUB_BITS) * SUBS)

typedef struct {
    uint64_t counts[BUCKETS], total, max;
    double sum;
} Histogram;

static unsigned bucket_of(uint64_t value) {
    if (value < SUBS) return (unsigned)value;
    unsigned shift = 63u - (unsigned)__builtin_clzll(value) - SUB_BITS;
    /* The sub-bucket keeps its top bit, so rows join without a gap; row 0 takes two rows' worth. */
    return shift * SUBS + (unsigned)(value >> shift);
}

static double bucket_middle(unsigned bucket) {
    if (bucket < 2 * SUBS) return bucket;
    unsigned shift = bucket / SUBS - 1;
    double low = (double)((uint64_t)(bucket - shift * SUBS) << shift);
    return low + (double)(1ULL << shift) / 2;
}

static void record(Histogram *h, uint64_t value) {
    h->counts[bucket_of(value)]++;
    h->total++;
    h->sum += (double)value;
    if (value > h->max) h->max = value;
}

static double percentile(const Histogram *h, double share) {
    uint64_t seen = 0, wanted = (uint64_t)(share * (double)h->total + 0.999999);
    if (wanted < 1) wanted = 1;
    for (unsigned i = 0; i < BUCKETS; i++)
        if ((seen += h->counts[i]) >= wanted) {
            double middle = bucket_middle(i);
            return middle < (double)h->max ? middle : (double)h->max;
        }
    return (double)h->max;
}

static void print_histogram(const char *name, const Histogram *h) {
    if (h->total == 0) return;
    printf(",\"%s\":{\"p50\":%.1f,\"p90\":%.1f,\"p99\":%.1f,\"p99_9\":%.1f,\"max\":%.1f,\"mean\":%.1f}",
           name, percentile(h, .5) / 1e3, percentile(h, .9) / 1e3, percentile(h, .99) / 1e3,
           percentile(h, .999) / 1e3, (double)h->max / 1e3, h->sum / (double)h->total / 1e3);
}

static Histogram latency, acceptance;

/* For the test of the histogram: values in ns on stdin, percentiles in us on stdout. */
static int histogram_of_stdin(void) {
    unsigned long long value;
    while (scanf("%llu", &value) == 1) record(&latency, value);
    printf("{\"count\":%llu", (unsigned long long)latency.total);
    print_histogram("latency_us", &latency);
    printf("}\n");
    return 0;
}

/* ---- AMQP values in ---- */

typedef struct {
    const uint8_t *at, *end;
} Cursor;

static uint32_t be32(const uint8_t *p) {
    uint32_t v;
    memcpy(&v, p, 4);
    return __builtin_bswap32(v);
}

static uint64_t be64(const uint8_t *p) {
    uint64_t v;
    memcpy(&v, p, 8);
    return __builtin_bswap64(v);
}

static void need(const Cursor *c, size_t n) {
    if ((size_t)(c->end - c->at) < n) fail(4, "the broker's frame ends inside a value");
}

static void skip_value(Cursor *c) {
    static const uint8_t widths[] = {0, 1, 2, 4, 8, 16};
    need(c, 1);
    uint8_t code = *c->at++;
    size_t n;
    if (code == 0) { /* A described value: its descriptor, then the value itself. */
        skip_value(c);
        skip_value(c);
        return;
    }
    uint8_t kind = code >> 4;
    if (kind < 4) fail(4, "the broker sent the unknown type code 0x%02x", code);
    if (kind < 0xa) {
        n = widths[kind - 4];
    } else if (kind & 1) { /* b, d, f: four bytes of size. */
        need(c, 4);
        n = be32(c->at);
        c->at += 4;
    } else { /* a, c, e: one byte of size. */
        need(c, 1);
        n = *c->at++;
    }
    need(c, n);
    c->at += n;
}

/* An unsigned number or boolean; `fallback` for null. */
static uint64_t read_number(Cursor *c, uint64_t fallback) {
    need(c, 1);
    const uint8_t *p = c->at;
    skip_value(c);
    switch (*p) {
    case 0x41: return 1;
    case 0x42: case 0x43: case 0x44: return 0;
    case 0x50: case 0x52: case 0x53: case 0x56: return p[1];
    case 0x60: return (uint64_t)p[1] << 8 | p[2];
    case 0x70: return be32(p + 1);
    case 0x80: return be64(p + 1);
    default: return fallback;
    }
}

typedef struct {
    Cursor c;
    uint32_t left;
} List;

static List read_list(Cursor *c) {
    List list = {*c, 0};
    need(c, 1);
    uint8_t code = *c->at;
    skip_value(c);
    if (code == 0xc0) {
        list.left = list.c.at[2];
        list.c.at += 3;
    } else if (code == 0xd0) {
        list.left = be32(list.c.at + 5);
        list.c.at += 9;
    } else if (code != 0x45) {
        fail(4, "the broker sent type code 0x%02x where a list is due", code);
    }
    list.c.end = c->at;
    return list;
}

static uint64_t next_number(List *list, uint64_t fallback) {
    if (list->left == 0) return fallback;
    list->left--;
    return read_number(&list->c, fallback);
}

static void pass_over(List *list, int n) {
    for (; n > 0 && list->left > 0; n--, list->left--) skip_value(&list->c);
}

/* Text of a string, symbol or binary as C string; "" for anything else. */
static void next_text(List *list, char *out, size_t room) {
    out[0] = 0;
    if (list->left == 0) return;
    list->left--;
    const uint8_t *p = list->c.at;
    skip_value(&list->c);
    size_t n = 0;
    if (*p >> 4 == 0xa) n = p[1], p += 2;
    else if (*p >> 4 == 0xb) n = be32(p + 1), p += 5;
    if (n >= room) n = room - 1;
    memcpy(out, p, n);
    out[n] = 0;
}

/* The descriptor's code of a described value; the cursor is left at the value. 0: not described. */
static uint64_t read_descriptor(Cursor *c) {
    need(c, 1);
    if (*c->at != 0) return 0;
    c->at++;
    return read_number(c, 0);
}

/* "condition: description" of an error field, "" when it is null. */
static void next_error(List *list, char *out, size_t room) {
    char condition[128], description[360];
    out[0] = 0;
    if (list->left == 0 || *list->c.at != 0) return;
    list->left--;
    if (read_descriptor(&list->c) != 0x1d) return;
    List error = read_list(&list->c);
    next_text(&error, condition, sizeof condition);
    next_text(&error, description, sizeof description);
    snprintf(out, room, "%s: %s", condition, description);
}

/* ---- AMQP values out ---- */

typedef struct {
    uint8_t *data;
    size_t start, end, room;
} Buffer;

static void reserve(Buffer *b, size_t n) {
    if (b->room - b->end >= n) return;
    if (b->start > 0) {
        memmove(b->data, b->data + b->start, b->end - b->start);
        b->end -= b->start;
        b->start = 0;
        if (b->room - b->end >= n) return;
    }
    size_t room = b->room ? b->room : 512;
    while (room - b->end < n) room *= 2;
    b->data = realloc(b->data, room);
    if (!b->data) fail(4, "out of memory");
    b->room = room;
}

static void put(Buffer *b, const void *data, size_t n) {
    reserve(b, n);
    memcpy(b->data + b->end, data, n);
    b->end += n;
}

static void put8(Buffer *b, uint8_t v) { put(b, &v, 1); }
static void put32(Buffer *b, uint32_t v) { v = __builtin_bswap32(v); put(b, &v, 4); }
static void put64(Buffer *b, uint64_t v) { v = __builtin_bswap64(v); put(b, &v, 8); }
static void patch32(Buffer *b, size_t at, uint32_t v) { v = __builtin_bswap32(v); memcpy(b->data + at, &v, 4); }
static void put_null(Buffer *b) { put8(b, 0x40); }
static void put_bool(Buffer *b, bool v) { put8(b, v ? 0x41 : 0x42); }
static void put_uint(Buffer *b, uint32_t v) { put8(b, 0x70); put32(b, v); }
static void put_described(Buffer *b, uint8_t code) { put8(b, 0); put8(b, 0x53); put8(b, code); }

static void put_text(Buffer *b, uint8_t code, const char *text) { /* 0xa1 string, 0xa3 symbol */
    size_t n = strlen(text);
    if (n > 255) fail(2, "longer than 255 bytes: %s", text);
    put8(b, code);
    put8(b, (uint8_t)n);
    put(b, text, n);
}

/* A list of `count` fields whose size is patched at its end. */
static size_t start_list(Buffer *b, uint32_t count) {
    put8(b, 0xd0);
    put32(b, 0);
    put32(b, count);
    return b->end - 8;
}

static void end_list(Buffer *b, size_t at) { patch32(b, at, (uint32_t)(b->end - at - 4)); }

/* Offsets count from `start` of the buffer: a reserve() in between may move the bytes. */
static size_t start_frame(Buffer *b, uint8_t type, uint8_t performative, uint32_t fields) {
    reserve(b, 1024); /* So that nothing moves until the frame is whole. */
    size_t at = b->end;
    put32(b, 0);
    put8(b, 2);
    put8(b, type);
    put8(b, 0);
    put8(b, 0); /* Channel 0: one session per connection. */
    put_described(b, performative);
    start_list(b, fields);
    return at;
}

static void end_frame(Buffer *b, size_t at) {
    end_list(b, at + 12);
    patch32(b, at, (uint32_t)(b->end - at));
}

/* ---- connections and links ---- */

typedef struct {
    bool producer, attached;
    uint32_t id;              /* Of the producer or consumer, over all connections. */
    uint32_t credit;          /* Producer: left. Consumer: granted and not used up. */
    uint32_t delivery_count;
    uint64_t sent, quota;     /* Producer. */
    uint64_t due, interval;   /* Open loop: when the next one is due; 0 interval = closed loop. */
    uint64_t body_left;       /* Consumer: bytes of the delivery in progress that are still to come. */
    bool partial;
    Buffer frame;             /* Producer: a whole transfer, four fields to be patched. */
    size_t message_at;        /* Where the message starts in it. */
    size_t stamp_at;          /* Where the body starts in it. */
} Link;

typedef enum { SASL_HEADER, SASL_FRAMES, AMQP_HEADER, OPENING, UP, CLOSING, CLOSED } State;

typedef struct {
    int fd;
    State state;
    bool dirty, blocked;            /* blocked: the socket took no more; EPOLLOUT is armed. */
    Buffer in, out;                 /* in: only the rest of a frame that is not whole yet. */
    uint32_t peer_frame_size;
    uint64_t peer_idle, wrote_at;   /* ns */
    uint32_t next_outgoing, remote_window;      /* Session, outgoing. */
    uint32_t next_incoming, window_left;        /* Session, incoming. */
    uint32_t unsettled, unsettled_max, oldest;  /* Deliveries sent and not settled. */
    uint64_t *stamps;               /* Ring by delivery-id: when sent; 0 = settled. */
    uint32_t ring_mask;
    uint32_t accept_first, accept_last;
    bool accepting;                 /* accept_first..accept_last await their disposition. */
    uint32_t next_delivery, incoming_delivery;
    int link_count, attached, turn;
    Link *links;
    uint8_t by_handle[256];         /* Peer's handle -> index of our link + 1. */
} Connection;

static Connection *connections;
static int connection_count, opened, up, epoll_fd;
static Connection **dirty_list;
static int dirty_count;
static uint8_t *read_room;
static size_t message_bytes;

typedef enum { CONNECTING, READY, RUNNING, LINGERING, REPORTED, ENDING } Stage;
static Stage stage = CONNECTING;
static bool stdin_closed;

static struct {
    uint64_t sent, accepted, rejected, released, received, foreign, duplicates, order, bodies, bad_settles;
    uint64_t ahead_max, go, last, first_accepted, stop;
    char refusal[512];
} sum;

typedef struct {
    uint64_t *bits, words, unique, end, sent;
} Track;
static Track tracks[PRODUCERS_MAX];
static uint64_t *order_next; /* [consumer][producer]: the lowest sequence that may come next. */

static void progress(uint64_t now) { sum.last = now; }

static void make_dirty(Connection *c) {
    if (c->dirty) return;
    c->dirty = true;
    dirty_list[dirty_count++] = c;
}

static void arm(Connection *c, bool out, int operation) {
    struct epoll_event event = {.events = EPOLLIN | (out ? EPOLLOUT : 0), .data.ptr = c};
    epoll_ctl(epoll_fd, operation, c->fd, &event);
}

static void flush(Connection *c) {
    c->dirty = false;
    while (c->out.end > c->out.start) {
        ssize_t n = send(c->fd, c->out.data + c->out.start, c->out.end - c->out.start, MSG_NOSIGNAL);
        if (n < 0 && errno == EAGAIN) {
            if (!c->blocked) arm(c, true, EPOLL_CTL_MOD);
            c->blocked = true;
            return;
        }
        if (n < 0) {
            if (stage >= REPORTED) { c->state = CLOSED; return; }
            fail(4, "write: %s", strerror(errno));
        }
        c->out.start += (size_t)n;
    }
    c->out.start = c->out.end = 0;
    if (c->blocked) arm(c, false, EPOLL_CTL_MOD);
    c->blocked = false;
    if (c->peer_idle) c->wrote_at = now_ns();
}

/* ---- what we say ---- */

static void say_open(Connection *c) {
    char name[64];
    Buffer *b = &c->out;
    snprintf(name, sizeof name, "load-%d-%d", (int)getpid(), (int)(c - connections));
    put(b, "AMQP\0\1\0\0", 8);
    size_t at = start_frame(b, 0, 0x10, 4);
    put_text(b, 0xa1, name);
    put_text(b, 0xa1, opt.host);
    put_uint(b, opt.frame_size);
    put8(b, 0x60), put8(b, 0), put8(b, 0); /* channel-max 0 */
    end_frame(b, at);
    at = start_frame(b, 0, 0x11, 5);
    put_null(b);
    put_uint(b, 0);
    put_uint(b, opt.window);
    put_uint(b, 0x7fffffff);
    put_uint(b, 255);
    end_frame(b, at);
    make_dirty(c);
}

static void say_attach(Connection *c, int index) {
    Link *l = &c->links[index];
    char name[64], address[300];
    Buffer *b = &c->out;
    snprintf(name, sizeof name, "%d", index);
    if (opt.queues == 1) snprintf(address, sizeof address, "%s", opt.address);
    else snprintf(address, sizeof address, "%s.%u", opt.address, l->id % (uint32_t)opt.queues);
    size_t at = start_frame(b, 0, 0x12, 10);
    put_text(b, 0xa1, name);
    put_uint(b, (uint32_t)index);
    put_bool(b, !l->producer);
    put8(b, 0x50), put8(b, opt.presettled ? 1 : 0);
    put8(b, 0x50), put8(b, 0);
    for (int source = 1; source >= 0; source--) {
        put_described(b, source ? 0x28 : 0x29);
        size_t list = start_list(b, 1);
        if (source != l->producer) put_text(b, 0xa1, address);
        else put_null(b);
        end_list(b, list);
    }
    put_null(b);
    put_null(b);
    put_uint(b, 0);
    end_frame(b, at);
    make_dirty(c);
}

static void say_flow(Connection *c, int index) { /* index < 0: of the session only */
    Buffer *b = &c->out;
    size_t at = start_frame(b, 0, 0x13, index < 0 ? 4 : 7);
    put_uint(b, c->next_incoming);
    put_uint(b, opt.window);
    put_uint(b, c->next_outgoing);
    put_uint(b, 0x7fffffff);
    if (index >= 0) {
        Link *l = &c->links[index];
        put_uint(b, (uint32_t)index);
        put_uint(b, l->delivery_count);
        put_uint(b, l->credit);
    }
    end_frame(b, at);
    c->window_left = opt.window;
    make_dirty(c);
}

static void say_accepted(Connection *c) {
    if (!c->accepting) return;
    c->accepting = false;
    Buffer *b = &c->out;
    size_t at = start_frame(b, 0, 0x15, 5);
    put_bool(b, true);
    put_uint(b, c->accept_first);
    put_uint(b, c->accept_last);
    put_bool(b, true);
    put_described(b, 0x24);
    put8(b, 0x45);
    end_frame(b, at);
    make_dirty(c);
}

static void say_close(Connection *c) {
    size_t at = start_frame(&c->out, 0, 0x18, 0);
    end_frame(&c->out, at);
    c->state = CLOSING;
    make_dirty(c);
}

/* ---- producing ---- */

/* Handle and delivery-id always as uint32, so that every field has its place in the template. */
static void put_transfer(Buffer *b, uint32_t handle, uint32_t delivery, bool more) {
    put_described(b, 0x14);
    put8(b, 0xc0), put8(b, 20), put8(b, 6);
    put_uint(b, handle);
    put_uint(b, delivery);
    put8(b, 0xa0), put8(b, 4), put32(b, delivery);
    put8(b, 0x43);
    put_bool(b, opt.presettled);
    put_bool(b, more);
}
#define TRANSFER_AT 8        /* Past the frame header. */
#define DELIVERY_AT 20       /* The delivery-id's four bytes in a frame. */
#define TAG_AT 26            /* The tag's. */
#define TRANSFER_BYTES 25

static void make_template(Link *l, uint32_t handle) {
    Buffer *b = &l->frame;
    b->end = 0;
    put32(b, 0);
    put32(b, 0x02000000);
    put_transfer(b, handle, 0, false);
    l->message_at = b->end;
    put_described(b, 0x70);
    put8(b, 0xc0), put8(b, 2), put8(b, 1), put_bool(b, opt.durable);
    if (opt.properties) { /* message-id, user-id, to: what a usual client sets. */
        put_described(b, 0x73);
        size_t list = start_list(b, 3);
        put8(b, 0x80), put64(b, l->id);
        put_null(b);
        put_text(b, 0xa1, opt.address);
        end_list(b, list);
    }
    put_described(b, 0x75);
    if (opt.size < 256) put8(b, 0xa0), put8(b, (uint8_t)opt.size);
    else put8(b, 0xb0), put32(b, opt.size);
    l->stamp_at = b->end;
    reserve(b, opt.size);
    for (uint32_t i = 0; i < opt.size; i++) b->data[b->end++] = (uint8_t)('a' + i % 26);
    memcpy(b->data + l->stamp_at, &opt.run, 4);
    memcpy(b->data + l->stamp_at + 4, &l->id, 4);
    patch32(b, 0, (uint32_t)b->end);
    message_bytes = b->end - l->message_at;
}

static uint32_t frames_of(const Connection *c, const Link *l) {
    if (l->frame.end <= c->peer_frame_size) return 1;
    size_t room = c->peer_frame_size - TRANSFER_AT - TRANSFER_BYTES;
    return (uint32_t)((message_bytes + room - 1) / room);
}

static void send_message(Connection *c, Link *l, uint32_t frames, uint64_t stamp) {
    Buffer *b = &c->out;
    uint8_t *t = l->frame.data;
    uint32_t delivery = c->next_delivery++, swapped = __builtin_bswap32(delivery);
    memcpy(t + DELIVERY_AT, &swapped, 4);
    memcpy(t + TAG_AT, &swapped, 4);
    memcpy(t + l->stamp_at + 8, &l->sent, 8);
    memcpy(t + l->stamp_at + 16, &stamp, 8);
    if (frames == 1) {
        put(b, t, l->frame.end);
    } else {
        size_t at = l->message_at, room = c->peer_frame_size - TRANSFER_AT - TRANSFER_BYTES;
        while (at < l->frame.end) {
            size_t n = l->frame.end - at < room ? l->frame.end - at : room;
            put32(b, (uint32_t)(TRANSFER_AT + TRANSFER_BYTES + n));
            put32(b, 0x02000000);
            put_transfer(b, (uint32_t)(l - c->links), delivery, at + n < l->frame.end);
            put(b, t + at, n);
            at += n;
        }
    }
    c->next_outgoing += frames;
    c->remote_window -= frames;
    l->credit--;
    l->delivery_count++;
    l->sent++;
    if (!opt.presettled) {
        c->stamps[delivery & c->ring_mask] = stamp;
        c->unsettled++;
    }
    sum.sent++;
}

static bool may_send(const Connection *c, const Link *l, uint32_t frames) {
    if (l->sent >= l->quota || l->credit == 0 || c->remote_window < frames) return false;
    if (opt.ahead && sum.sent - sum.received >= opt.ahead) return false;
    return opt.presettled ||
           (c->unsettled < c->unsettled_max && c->next_delivery - c->oldest <= c->ring_mask);
}

/* Whatever may leave now, links in turn, `burst` messages each. True when more could follow at once. */
static bool produce(Connection *c) {
    bool sent_any = false;
    int resting = 0; /* Links in a row that had nothing to send. */
    while (resting < c->link_count) {
        Link *l = &c->links[c->turn];
        uint32_t frames = frames_of(c, l), n = 0;
        while (n < opt.burst && c->out.end - c->out.start < WRITE_BYTES && may_send(c, l, frames)) {
            uint64_t stamp = now_ns();
            if (l->interval) {
                if (stamp < l->due) break;
                stamp = l->due;
                l->due += l->interval;
            }
            send_message(c, l, frames, stamp);
            n++;
        }
        if (n) sent_any = true, resting = 0;
        else resting++;
        if (c->out.end - c->out.start >= WRITE_BYTES) break;
        c->turn = (c->turn + 1) % c->link_count;
    }
    if (sent_any) make_dirty(c);
    if (sent_any && opt.presettled && !opt.consumers) progress(now_ns()); /* Nothing else will tell. */
    return resting < c->link_count;
}

/* ---- what the broker says ---- */

static void on_open(Connection *c, List *f) {
    pass_over(f, 2);
    c->peer_frame_size = (uint32_t)next_number(f, 0xffffffff);
    pass_over(f, 1);
    c->peer_idle = next_number(f, 0) * 1000000ULL;
    c->wrote_at = now_ns();
}

static void connection_up(Connection *c) {
    c->state = UP;
    up++;
}

static void on_begin(Connection *c, List *f) {
    pass_over(f, 1);
    c->next_incoming = (uint32_t)next_number(f, 0);
    c->remote_window = (uint32_t)next_number(f, 0);
    if (c->link_count == 0) connection_up(c);
    for (int i = 0; i < c->link_count; i++) say_attach(c, i);
}

static void on_attach(Connection *c, List *f) {
    char name[64];
    next_text(f, name, sizeof name);
    int index = atoi(name);
    uint32_t handle = (uint32_t)next_number(f, 0);
    if (index >= c->link_count || handle > 255) fail(4, "the broker attached what was not asked for");
    Link *l = &c->links[index];
    c->by_handle[handle] = (uint8_t)(index + 1);
    if (l->attached) return;
    l->attached = true;
    if (l->producer) make_template(l, (uint32_t)index);
    if (++c->attached == c->link_count) connection_up(c);
}

static Link *link_of(Connection *c, uint64_t handle) {
    if (handle > 255 || c->by_handle[handle] == 0) fail(4, "the broker names an unknown handle");
    return &c->links[c->by_handle[handle] - 1];
}

static void on_flow(Connection *c, List *f) {
    uint32_t next_incoming = (uint32_t)next_number(f, 0); /* Absent: our first id, which is 0. */
    uint32_t window = (uint32_t)next_number(f, 0);
    c->remote_window = next_incoming + window - c->next_outgoing;
    if ((int32_t)c->remote_window < 0) c->remote_window = 0;
    pass_over(f, 2);
    uint64_t handle = next_number(f, UINT64_MAX);
    if (handle != UINT64_MAX) {
        Link *l = link_of(c, handle);
        uint32_t count = (uint32_t)next_number(f, 0);
        uint32_t credit = (uint32_t)next_number(f, 0);
        if (l->producer) {
            l->credit = count + credit - l->delivery_count;
            if ((int32_t)l->credit < 0) l->credit = 0;
        }
    } else {
        pass_over(f, 2);
    }
    pass_over(f, 2);
    if (next_number(f, 0)) say_flow(c, -1); /* echo */
}

static void on_disposition(Connection *c, List *f, uint64_t now) {
    bool by_receiver = next_number(f, 0);
    uint32_t first = (uint32_t)next_number(f, 0);
    uint32_t last = (uint32_t)next_number(f, first);
    bool settled = next_number(f, 0);
    if (!by_receiver || !settled || !c->stamps) return;
    uint64_t outcome = 0;
    Cursor state = f->c;
    if (f->left) outcome = read_descriptor(&state);
    for (uint32_t id = first; id != last + 1; id++) {
        uint64_t *stamp = &c->stamps[id & c->ring_mask];
        if (c->next_delivery - id - 1 > c->ring_mask || *stamp == 0) {
            sum.bad_settles++; /* Settled twice, or never sent. */
            continue;
        }
        record(&acceptance, now - *stamp);
        *stamp = 0;
        c->unsettled--;
        if (outcome == 0x24) sum.accepted++;
        else if (outcome == 0x25) sum.rejected++;
        else sum.released++;
    }
    if (outcome == 0x25 && !sum.refusal[0]) {
        List rejected = read_list(&state);
        next_error(&rejected, sum.refusal, sizeof sum.refusal);
    }
    while (c->oldest != c->next_delivery && c->stamps[c->oldest & c->ring_mask] == 0) c->oldest++;
    if (sum.accepted && !sum.first_accepted) sum.first_accepted = now;
    progress(now);
}

static void check_message(const Link *l, const uint8_t *body, uint64_t now) {
    uint32_t run, producer;
    uint64_t sequence, stamp;
    memcpy(&run, body, 4);
    memcpy(&producer, body + 4, 4);
    memcpy(&sequence, body + 8, 8);
    memcpy(&stamp, body + 16, 8);
    if (run != opt.run || producer >= PRODUCERS_MAX || sequence > 1ULL << 40) {
        sum.foreign++;
        return;
    }
    sum.received++;
    record(&latency, now > stamp ? now - stamp : 0);
    Track *t = &tracks[producer];
    uint64_t word = sequence / 64, bit = 1ULL << sequence % 64;
    if (word >= t->words) {
        uint64_t words = t->words ? t->words : 1024;
        while (words <= word) words *= 2;
        t->bits = realloc(t->bits, words * 8);
        if (!t->bits) fail(4, "out of memory");
        memset(t->bits + t->words, 0, (words - t->words) * 8);
        t->words = words;
    }
    if (t->bits[word] & bit) {
        sum.duplicates++;
    } else {
        t->bits[word] |= bit;
        t->unique++;
    }
    if (sequence >= t->end) t->end = sequence + 1;
    uint64_t *next = &order_next[(size_t)l->id * PRODUCERS_MAX + producer];
    if (sequence < *next) sum.order++;
    *next = sequence + 1;
}

/* The body of the data section, after whatever sections stand before it; NULL when there is none. */
static const uint8_t *find_body(Cursor message, uint64_t *length) {
    while (message.end - message.at >= 5) {
        uint64_t section = read_descriptor(&message);
        if (section != 0x75) {
            if (section == 0) return NULL;
            skip_value(&message);
            continue;
        }
        if (message.at[0] == 0xa0) {
            *length = message.at[1];
            return message.at + 2;
        }
        if (message.at[0] != 0xb0 || message.end - message.at < 5) return NULL;
        *length = be32(message.at + 1);
        return message.at + 5;
    }
    return NULL;
}

static void on_transfer(Connection *c, List *f, Cursor payload, uint64_t now) {
    Link *l = link_of(c, next_number(f, UINT64_MAX));
    uint32_t delivery = (uint32_t)next_number(f, c->incoming_delivery);
    pass_over(f, 2);
    bool settled = next_number(f, 0), more = next_number(f, 0);
    c->next_incoming++;
    if (c->window_left) c->window_left--;
    if (!l->partial) {
        uint64_t length = 0;
        const uint8_t *body = find_body(payload, &length);
        c->incoming_delivery = delivery;
        if (body && length >= STAMP_BYTES && body + STAMP_BYTES <= payload.end) {
            l->body_left = length - (uint64_t)(payload.end - body);
            if (length != opt.size) sum.bodies++;
            check_message(l, body, now);
        } else {
            l->body_left = 0;
            sum.foreign++;
        }
    } else {
        l->body_left -= (uint64_t)(payload.end - payload.at);
    }
    l->partial = more;
    if (more) return;
    if (l->body_left != 0) sum.bodies++;
    l->delivery_count++;
    if (l->credit) l->credit--;
    if (settled) return;
    delivery = c->incoming_delivery;
    if (c->accepting && delivery != c->accept_last + 1) say_accepted(c);
    if (!c->accepting) c->accept_first = delivery;
    c->accept_last = delivery;
    c->accepting = true;
}

static void on_end(Connection *c, const char *what, List *f, int fields) {
    char error[512];
    pass_over(f, fields);
    next_error(f, error, sizeof error);
    if (c->state == CLOSING || stage >= REPORTED) {
        if (what[0] == 'c') c->state = CLOSED;
        return;
    }
    fail(4, "the broker ended the %s: %s", what, error[0] ? error : "no reason given");
}

static void on_sasl(Connection *c, uint64_t code, List *f) {
    Buffer *b = &c->out;
    if (code == 0x40) {
        size_t at = start_frame(b, 1, 0x41, 2);
        put_text(b, 0xa3, opt.user[0] ? "PLAIN" : "ANONYMOUS");
        size_t user = strlen(opt.user), password = strlen(opt.password);
        put8(b, 0xa0);
        if (user) {
            put8(b, (uint8_t)(user + password + 2));
            put8(b, 0), put(b, opt.user, user);
            put8(b, 0), put(b, opt.password, password);
        } else {
            put8(b, 0);
        }
        end_frame(b, at);
        make_dirty(c);
    } else if (code == 0x44) {
        uint64_t outcome = next_number(f, 99);
        if (outcome != 0) fail(4, "SASL outcome %llu", (unsigned long long)outcome);
        c->state = AMQP_HEADER;
        say_open(c);
    }
}

static void on_frame(Connection *c, const uint8_t *frame, uint32_t size, uint64_t now) {
    size_t offset = (size_t)frame[4] * 4;
    if (offset < 8 || offset > size) fail(4, "the broker sent a frame with doff %u", frame[4]);
    Cursor at = {frame + offset, frame + size};
    if (at.at == at.end) return; /* A heartbeat. */
    uint64_t code = read_descriptor(&at);
    List f = read_list(&at);
    if (frame[5] == 1) {
        on_sasl(c, code, &f);
        return;
    }
    switch (code) {
    case 0x10: on_open(c, &f); break;
    case 0x11: on_begin(c, &f); break;
    case 0x12: on_attach(c, &f); break;
    case 0x13: on_flow(c, &f); break;
    case 0x14: on_transfer(c, &f, at, now); break;
    case 0x15: on_disposition(c, &f, now); break;
    case 0x16: on_end(c, "link", &f, 2); break;
    case 0x17: on_end(c, "session", &f, 0); break;
    case 0x18: on_end(c, "connection", &f, 0); break;
    default: fail(4, "the broker sent the unknown performative 0x%llx", (unsigned long long)code);
    }
}

/* All whole frames of `data`; how many bytes were used up. */
static size_t on_bytes(Connection *c, const uint8_t *data, size_t n, uint64_t now) {
    size_t used = 0;
    while (n - used >= 8) {
        if (c->state == SASL_HEADER || c->state == AMQP_HEADER) {
            if (memcmp(data + used, c->state == SASL_HEADER ? "AMQP\3\1\0\0" : "AMQP\0\1\0\0", 8))
                fail(4, "the broker answered with another protocol header");
            c->state = c->state == SASL_HEADER ? SASL_FRAMES : OPENING;
            used += 8;
            continue;
        }
        uint32_t size = be32(data + used);
        if (size < 8 || size > opt.frame_size) fail(4, "the broker sent a frame of %u bytes", size);
        if (n - used < size) break;
        on_frame(c, data + used, size, now);
        used += size;
    }
    return used;
}

/* After a read: one disposition for all of it, credit when half is used, window likewise. */
static void answer_read(Connection *c, uint64_t now) {
    say_accepted(c);
    for (int i = 0; i < c->link_count; i++) {
        Link *l = &c->links[i];
        if (l->producer || l->credit > opt.credit / 2) continue;
        l->credit = opt.credit;
        say_flow(c, i);
    }
    if (c->window_left <= opt.window / 2) say_flow(c, -1);
    progress(now);
}

static void on_readable(Connection *c) {
    size_t rest = c->in.end;
    memcpy(read_room, c->in.data, rest);
    ssize_t n = recv(c->fd, read_room + rest, READ_BYTES, 0);
    if (n < 0 && errno == EAGAIN) return;
    if (n <= 0) {
        if (c->state < CLOSING && stage < REPORTED) fail(4, "the broker dropped the connection");
        c->state = CLOSED;
        epoll_ctl(epoll_fd, EPOLL_CTL_DEL, c->fd, NULL);
        return;
    }
    uint64_t now = now_ns(), received = sum.received;
    size_t have = rest + (size_t)n, used = on_bytes(c, read_room, have, now);
    c->in.end = 0;
    put(&c->in, read_room + used, have - used);
    if (sum.received != received || c->accepting || c->window_left <= opt.window / 2) answer_read(c, now);
}

/* ---- set-up ---- */

static int dial(void) {
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *list, *a;
    uint64_t until = now_ns() + (uint64_t)(opt.retry * 1e9);
    if (getaddrinfo(opt.host, opt.port, &hints, &list)) fail(4, "unknown host %s", opt.host);
    for (;;) {
        for (a = list; a; a = a->ai_next) {
            int fd = socket(a->ai_family, SOCK_STREAM, 0);
            if (fd >= 0 && connect(fd, a->ai_addr, a->ai_addrlen) == 0) {
                int one = 1;
                setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
                fcntl(fd, F_SETFL, O_NONBLOCK);
                freeaddrinfo(list);
                return fd;
            }
            if (fd >= 0) close(fd);
        }
        if (now_ns() > until) fail(4, "connect to %s:%s: %s", opt.host, opt.port, strerror(errno));
        usleep(500);
    }
}

static void open_connection(Connection *c) {
    c->fd = dial();
    c->window_left = opt.window;
    c->unsettled_max = opt.credit * (uint32_t)(c->link_count ? c->link_count : 1);
    uint32_t ring = 1;
    while (ring < 2 * c->unsettled_max) ring *= 2;
    c->ring_mask = ring - 1;
    if (c->link_count && c->links[0].producer) c->stamps = calloc(ring, sizeof *c->stamps);
    arm(c, false, EPOLL_CTL_ADD);
    if (opt.bare) {
        c->state = AMQP_HEADER;
        say_open(c);
    } else {
        put(&c->out, "AMQP\3\1\0\0", 8);
        make_dirty(c);
    }
}

static void open_more(void) {
    while (opened < connection_count && opened - up < CONNECTING_MAX) open_connection(&connections[opened++]);
}

/* Links are dealt to connections `links` at a time; a connection has links of one role only. */
static void lay_out(void) {
    int per = opt.links;
    int of_producers = (opt.producers + per - 1) / per, of_consumers = (opt.consumers + per - 1) / per;
    connection_count = of_producers + of_consumers + opt.idle;
    connections = calloc((size_t)connection_count + 1, sizeof *connections);
    dirty_list = calloc((size_t)connection_count + 1, sizeof *dirty_list);
    Connection *c = connections;
    for (int role = 1; role >= 0; role--) {
        int total = role ? opt.producers : opt.consumers;
        for (int id = 0; id < total; c++) {
            c->link_count = total - id < per ? total - id : per;
            c->links = calloc((size_t)c->link_count, sizeof *c->links);
            for (int i = 0; i < c->link_count; i++, id++) {
                Link *l = &c->links[i];
                l->producer = role;
                l->id = (uint32_t)id;
                if (!role) continue;
                uint64_t n = (uint64_t)opt.producers;
                l->quota = opt.seconds > 0 ? UINT64_MAX
                                           : opt.messages / n + ((uint64_t)id < opt.messages % n);
            }
        }
    }
}

/* ---- the run ---- */

static struct rusage usage_at_go;
static double cpu_us; /* Ours, from go to the last message. */

static double used_us(const struct rusage *u) {
    return (double)(u->ru_utime.tv_sec + u->ru_stime.tv_sec) * 1e6 +
           (double)(u->ru_utime.tv_usec + u->ru_stime.tv_usec);
}

static void go(void) {
    getrusage(RUSAGE_SELF, &usage_at_go);
    sum.go = sum.last = now_ns();
    if (opt.seconds > 0) sum.stop = sum.go + (uint64_t)(opt.seconds * 1e9);
    for (int i = 0; i < connection_count; i++) {
        Connection *c = &connections[i];
        for (int k = 0; k < c->link_count; k++) {
            Link *l = &c->links[k];
            if (l->producer && opt.rate > 0) {
                l->interval = (uint64_t)(1e9 * opt.producers / opt.rate);
                l->due = sum.go + l->interval * l->id / (uint64_t)opt.producers;
            } else if (!l->producer) {
                l->credit = opt.credit;
                say_flow(c, k);
            }
        }
    }
    stage = RUNNING;
}

static void stop_producing(void) {
    sum.stop = 0;
    for (int i = 0; i < connection_count; i++)
        for (int k = 0; k < connections[i].link_count; k++)
            connections[i].links[k].quota = connections[i].links[k].sent;
}

/* Nothing more is to come: all sent, all settled, all received. */
static bool finished(void) {
    uint64_t expected = opt.producers ? sum.sent : opt.messages;
    if (opt.consumers && sum.received < expected) return false;
    for (int i = 0; i < connection_count; i++) {
        Connection *c = &connections[i];
        if (c->unsettled || (c->link_count && c->out.end > c->out.start)) return false;
        for (int k = 0; k < c->link_count; k++)
            if (c->links[k].producer && c->links[k].sent < c->links[k].quota) return false;
    }
    return true;
}

static uint64_t gaps(void) {
    uint64_t missing = 0;
    if (!opt.consumers) return 0;
    for (int i = 0; i < connection_count; i++)
        for (int k = 0; k < connections[i].link_count; k++)
            if (connections[i].links[k].producer) tracks[connections[i].links[k].id].sent = connections[i].links[k].sent;
    for (int i = 0; i < PRODUCERS_MAX; i++)
        missing += (tracks[i].sent > tracks[i].end ? tracks[i].sent : tracks[i].end) - tracks[i].unique;
    return missing;
}

static int report(bool stalled) {
    uint64_t missing = gaps();
    uint64_t count = opt.consumers ? sum.received : opt.presettled ? sum.sent : sum.accepted;
    double seconds = (double)(sum.last - sum.go) / 1e9;
    bool bad = missing || sum.duplicates || sum.order || sum.bodies || sum.foreign || sum.bad_settles ||
               sum.rejected || sum.released;
#define N(field) (unsigned long long)sum.field
    printf("{\"messages\":%llu,\"sent\":%llu,\"accepted\":%llu,\"rejected\":%llu,\"released\":%llu,\"received\":%llu",
           (unsigned long long)count, N(sent), N(accepted), N(rejected), N(released), N(received));
    printf(",\"gaps\":%llu,\"duplicates\":%llu,\"order_errors\":%llu,\"bad_bodies\":%llu,\"foreign\":%llu,\"bad_settles\":%llu",
           (unsigned long long)missing, N(duplicates), N(order), N(bodies), N(foreign), N(bad_settles));
    printf(",\"stalled\":%s,\"seconds\":%.6f,\"rate\":%.1f,\"message_bytes\":%zu,\"load_cpu_us\":%.3f,\"ahead_max\":%llu",
           stalled ? "true" : "false", seconds, seconds > 0 ? (double)count / seconds : 0, message_bytes,
           count ? cpu_us / (double)count : 0, N(ahead_max));
    if (sum.first_accepted) printf(",\"first_accepted_ns\":%llu", N(first_accepted));
    print_histogram("latency_us", &latency);
    print_histogram("accept_us", &acceptance);
    if (sum.refusal[0]) fprintf(stderr, "load: first rejection: %s\n", sum.refusal);
    printf("}\n");
    fflush(stdout);
    return stalled ? 3 : bad ? 1 : 0;
}

static void beat(uint64_t now) {
    for (int i = 0; i < opened; i++) {
        Connection *c = &connections[i];
        if (c->state != UP || !c->peer_idle || now - c->wrote_at < c->peer_idle / 2) continue;
        put(&c->out, "\0\0\0\10\2\0\0\0", 8);
        make_dirty(c);
    }
}

/* How many signals came from the caller, one a line; the end of stdin counts as all that may still come. */
static int read_signals(void) {
    char text[256];
    int lines = 0;
    ssize_t n = read(0, text, sizeof text);
    if (n <= 0) {
        stdin_closed = true;
        epoll_ctl(epoll_fd, EPOLL_CTL_DEL, 0, NULL);
    }
    for (ssize_t i = 0; i < n; i++) lines += text[i] == '\n';
    return lines;
}

static int signals;

/* Whether the run may go on to its next stage: always without --wait, else at the cost of one signal. */
static bool may_go_on(void) {
    if (!opt.wait || stdin_closed) return true;
    if (signals == 0) return false;
    signals--;
    return true;
}

static uint64_t wait_ns(bool more, uint64_t now) {
    if (more || stage == LINGERING) return more ? 0 : LINGER_NS;
    uint64_t wait = BEAT_NS;
    if (stage != RUNNING || opt.rate <= 0) return wait;
    for (int i = 0; i < connection_count; i++)
        for (int k = 0; k < connections[i].link_count; k++) {
            Link *l = &connections[i].links[k];
            if (!l->interval || !l->credit || l->sent >= l->quota) continue;
            if (l->due <= now) return connections[i].blocked ? wait : 0;
            if (l->due - now < wait) wait = l->due - now;
        }
    return wait;
}

static int run(void) {
    int code = 0;
    bool more = false;
    uint64_t ended = 0, beat_at = 0;
    struct epoll_event events[256];
    if (opt.wait) {
        struct epoll_event event = {.events = EPOLLIN, .data.ptr = NULL};
        epoll_ctl(epoll_fd, EPOLL_CTL_ADD, 0, &event);
    }
    sum.last = now_ns();
    open_more();
    while (dirty_count) flush(dirty_list[--dirty_count]);
    for (;;) {
        uint64_t wait = wait_ns(more, now_ns());
        struct timespec timeout = {(time_t)(wait / 1000000000), (long)(wait % 1000000000)};
        int n = epoll_pwait2(epoll_fd, events, 256, &timeout, NULL);
        for (int i = 0; i < n; i++) {
            Connection *c = events[i].data.ptr;
            if (!c) { signals += read_signals(); continue; }
            if (events[i].events & EPOLLOUT) make_dirty(c);
            if (events[i].events & ~(uint32_t)EPOLLOUT && c->state != CLOSED) on_readable(c);
        }
        uint64_t now = now_ns();
        more = false;
        if (stage == CONNECTING) {
            open_more();
            if (up == connection_count) {
                stage = READY;
                if (opt.wait) puts("{\"ready\":true}"), fflush(stdout);
            }
        }
        if (stage == READY && may_go_on()) go();
        if (stage == RUNNING) {
            if (sum.stop && now >= sum.stop) stop_producing();
            for (int i = 0; i < connection_count; i++) {
                Connection *c = &connections[i];
                if (c->link_count && c->links[0].producer && !c->blocked) more |= produce(c);
            }
            if (opt.consumers && sum.sent > sum.received && sum.sent - sum.received > sum.ahead_max)
                sum.ahead_max = sum.sent - sum.received;
        }
        if (now >= beat_at) beat(now), beat_at = now + BEAT_NS;
        while (dirty_count) flush(dirty_list[--dirty_count]);
        if (stage == RUNNING && finished()) {
            struct rusage usage;
            getrusage(RUSAGE_SELF, &usage);
            cpu_us = used_us(&usage) - used_us(&usage_at_go);
            stage = LINGERING;
            ended = now;
            more = false;
        }
        if (stage == LINGERING && now - ended >= LINGER_NS) code = report(false), stage = REPORTED;
        if (stage == REPORTED && may_go_on()) {
            for (int i = 0; i < connection_count; i++)
                if (connections[i].state == UP) say_close(&connections[i]);
            while (dirty_count) flush(dirty_list[--dirty_count]);
            stage = ENDING;
            ended = now;
        }
        if (stage == ENDING) {
            int open = 0;
            for (int i = 0; i < connection_count; i++) open += connections[i].state != CLOSED;
            if (!open || now - ended > CLOSE_NS) return code;
        }
        if ((stage == CONNECTING || stage == RUNNING) && now > sum.last &&
            (double)(now - sum.last) > opt.timeout * 1e9) {
            if (stage == CONNECTING) fail(3, "no connection set up within %.0f s", opt.timeout);
            return report(true);
        }
    }
}

/* ---- command line ---- */

static void parse_url(const char *url) {
    const char *rest = strncmp(url, "amqp://", 7) == 0 ? url + 7 : url;
    const char *at = strrchr(rest, '@');
    if (at) {
        if (sscanf(rest, "%127[^:@]:%127[^@]", opt.user, opt.password) < 1) fail(2, "no user in %s", url);
        rest = at + 1;
    }
    char *host = opt.host;
    if (*rest == '[') sscanf(rest, "[%255[^]]]:%15[0-9]", host, opt.port);
    else sscanf(rest, "%255[^:/]:%15[0-9]", host, opt.port);
    if (!opt.port[0]) strcpy(opt.port, "5672");
    if (!host[0]) fail(2, "no host in %s", url);
}

static const char usage[] =
    "load --url amqp://[user:password@]host:port [options]\n"
    "  --address A        queue name, or its prefix with --queues (bench)\n"
    "  --producers N  --consumers N  --idle N (connections with a session and no link)\n"
    "  --queues N         producer and consumer i use queue i modulo N (1)\n"
    "  --links N          links of one connection (1)\n"
    "  --messages N       in all; without producers: how many to receive\n"
    "  --seconds S        produce for so long instead\n"
    "  --rate R           open loop: messages per second in all\n"
    "  --ahead N          at most N sent and not received; 1 = ping-pong\n"
    "  --size B  --durable  --presettled  --properties  --credit N  --burst N\n"
    "  --frame-size B  --window FRAMES  --bare (no SASL)\n"
    "  --run N            stamped into each body; another run's messages are an error\n"
    "  --timeout S        without progress (30)   --retry S  for the connect (0)   --wait\n"
    "  --histogram        percentiles of the numbers on stdin (for its test)\n";

static void parse_options(int argc, char **argv) {
    enum { URL = 256, ADDRESS, PRODUCERS, CONSUMERS, IDLE, QUEUES, LINKS, MESSAGES, SECONDS, RATE, AHEAD, SIZE,
           DURABLE, PRESETTLED, PROPERTIES, CREDIT, BURST, FRAME, WINDOW, BARE, RUN, TIMEOUT, RETRY, WAIT, HISTOGRAM };
    static const struct option names[] = {
        {"url", 1, 0, URL}, {"address", 1, 0, ADDRESS}, {"producers", 1, 0, PRODUCERS},
        {"consumers", 1, 0, CONSUMERS}, {"idle", 1, 0, IDLE}, {"queues", 1, 0, QUEUES},
        {"links", 1, 0, LINKS}, {"messages", 1, 0, MESSAGES}, {"seconds", 1, 0, SECONDS},
        {"rate", 1, 0, RATE}, {"ahead", 1, 0, AHEAD}, {"size", 1, 0, SIZE}, {"durable", 0, 0, DURABLE},
        {"presettled", 0, 0, PRESETTLED}, {"properties", 0, 0, PROPERTIES}, {"credit", 1, 0, CREDIT},
        {"burst", 1, 0, BURST}, {"frame-size", 1, 0, FRAME}, {"window", 1, 0, WINDOW}, {"bare", 0, 0, BARE},
        {"run", 1, 0, RUN}, {"timeout", 1, 0, TIMEOUT}, {"retry", 1, 0, RETRY}, {"wait", 0, 0, WAIT},
        {"histogram", 0, 0, HISTOGRAM}, {0, 0, 0, 0}};
    for (int o; (o = getopt_long(argc, argv, "", names, NULL)) != -1;) {
        switch (o) {
        case URL: parse_url(optarg); break;
        case ADDRESS: snprintf(opt.address, sizeof opt.address, "%s", optarg); break;
        case PRODUCERS: opt.producers = atoi(optarg); break;
        case CONSUMERS: opt.consumers = atoi(optarg); break;
        case IDLE: opt.idle = atoi(optarg); break;
        case QUEUES: opt.queues = atoi(optarg); break;
        case LINKS: opt.links = atoi(optarg); break;
        case MESSAGES: opt.messages = strtoull(optarg, NULL, 10); break;
        case SECONDS: opt.seconds = atof(optarg); break;
        case RATE: opt.rate = atof(optarg); break;
        case AHEAD: opt.ahead = (uint32_t)atol(optarg); break;
        case SIZE: opt.size = (uint32_t)atol(optarg); break;
        case DURABLE: opt.durable = true; break;
        case PRESETTLED: opt.presettled = true; break;
        case PROPERTIES: opt.properties = true; break;
        case CREDIT: opt.credit = (uint32_t)atol(optarg); break;
        case BURST: opt.burst = (uint32_t)atol(optarg); break;
        case FRAME: opt.frame_size = (uint32_t)atol(optarg); break;
        case WINDOW: opt.window = (uint32_t)atol(optarg); break;
        case BARE: opt.bare = true; break;
        case RUN: opt.run = (uint32_t)atol(optarg); break;
        case TIMEOUT: opt.timeout = atof(optarg); break;
        case RETRY: opt.retry = atof(optarg); break;
        case WAIT: opt.wait = true; break;
        case HISTOGRAM: exit(histogram_of_stdin());
        default: fputs(usage, stderr); exit(2);
        }
    }
    if (!opt.host[0]) { fputs(usage, stderr); exit(2); }
    if (opt.size < STAMP_BYTES) fail(2, "--size: at least %d", STAMP_BYTES);
    if (opt.frame_size < 512 || opt.credit < 1 || opt.queues < 1 || opt.burst < 1)
        fail(2, "--frame-size: at least 512; --credit, --queues, --burst: at least 1");
    if (opt.links < 1 || opt.links > 255) fail(2, "--links: 1 to 255");
    if (opt.producers > PRODUCERS_MAX || opt.consumers > CONSUMERS_MAX)
        fail(2, "at most %d producers and %d consumers", PRODUCERS_MAX, CONSUMERS_MAX);
}

int main(int argc, char **argv) {
    parse_options(argc, argv);
    read_room = malloc(READ_BYTES + opt.frame_size);
    order_next = calloc((size_t)opt.consumers * PRODUCERS_MAX + 1, sizeof *order_next);
    epoll_fd = epoll_create1(0);
    lay_out();
    return run();
}
